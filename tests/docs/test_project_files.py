"""The files around the code parse, and name only things that exist: CI, hooks, templates, citation, changelog."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest depends on tomli there
    import tomli as tomllib

from rl_training import __version__

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def read_workflow(name: str) -> dict[str, Any]:
    workflow = read_yaml(WORKFLOWS / name)
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads the key `on` as a boolean
    return workflow


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def made(job: dict[str, Any]) -> set[str]:
    """The make targets that a job runs."""
    return {target for command in commands(job) for target in re.findall(r"make ([a-z-]+)", command)}


def python_versions() -> list[str]:
    """The versions that the package declares, such as 3.10."""
    marks = project()["project"]["classifiers"]
    return [match[1] for mark in marks if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", mark))]


# --- workflows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in WORKFLOWS.iterdir()))
def test_workflow_is_well_formed_and_runs_targets_that_exist(name: str) -> None:
    workflow = read_workflow(name)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0 and job["runs-on"] and job["name"]
        assert made(job) and made(job) <= make_targets()
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "uses" not in step or re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step
        assert job["steps"][0]["uses"].startswith("actions/checkout@")
        if "matrix" in str(job["runs-on"]):
            assert set(job["strategy"]["matrix"]["os"]) == {"ubuntu-latest", "macos-latest"}


def test_ci_tests_every_declared_python_on_linux_and_macos() -> None:
    workflow = read_workflow("ci.yml")
    assert set(workflow["on"]) == {"push", "pull_request", "workflow_dispatch"}
    jobs = workflow["jobs"]
    assert {name: made(job) for name, job in jobs.items()} == {
        "lint": {"lint"},
        "test": {"setup", "suite"},
        "wheel": {"smoke"},
        "browser": {"browser-test"},
    }
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["python"] == python_versions() == ["3.10", "3.11", "3.12", "3.13"]
    assert project()["project"]["requires-python"] == f">={matrix['python'][0]}"


def test_nightly_runs_slow_tests_and_drills() -> None:
    workflow = read_workflow("nightly.yml")
    assert {"schedule", "workflow_dispatch"} == set(workflow["on"])
    assert re.fullmatch(r"\d+ \d+ \* \* \*", workflow["on"]["schedule"][0]["cron"])
    assert {"test-slow", "drills"} <= set().union(*(made(job) for job in workflow["jobs"].values()))


@pytest.mark.parametrize("name", ["ci.yml", "nightly.yml"])
def test_linux_jobs_install_the_cpu_build_of_torch_before_anything_else(name: str) -> None:
    workflow = read_workflow(name)
    assert workflow["env"]["CPU_TORCH_INDEX"] == "https://download.pytorch.org/whl/cpu"
    for job in workflow["jobs"].values():
        first = commands(job)[0]
        assert "PIP_EXTRA_INDEX_URL=$CPU_TORCH_INDEX" in first and "GITHUB_ENV" in first


def test_make_targets_are_phony_and_explained() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
    assert phony == make_targets()
    assert set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE)) == phony


def test_lint_checks_rules_format_and_strict_types() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = text.partition("\nlint: ")[2].partition("\n\n")[0]
    commands = [line.partition(")/")[2] for line in recipe.splitlines()[1:]]
    assert commands == ["ruff check .", "ruff format --check .", "mypy"]
    mypy = project()["tool"]["mypy"]
    assert mypy["strict"] is True and mypy["files"] == ["src"]
    weaker = [name for name, value in mypy.items() if name.startswith(("disallow", "warn", "check", "no_", "extra"))]
    assert weaker == [], "strict sets all of these"


# --- hooks and packaging ----------------------------------------------------------------------------------------------


def test_hooks_run_the_tools_of_the_environment() -> None:
    (repository,) = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert list(hooks) == ["ruff", "ruff-format", "mypy", "architecture"]
    for hook in hooks.values():
        assert hook["language"] == "system" and hook["entry"].startswith(".venv/bin/") and hook["name"]
        assert re.compile(hook.get("files", "")) and hook.get("pass_filenames", True) == ("types_or" in hook)
    assert (ROOT / hooks["architecture"]["entry"].split()[1]).is_file()
    # What a hook names is what `make setup` installs.
    installed = {re.match(r"[\w-]+", requirement)[0] for requirement in extras()["dev"]}  # type: ignore[index]
    assert {"ruff", "mypy"} <= installed


def extras() -> dict[str, list[str]]:
    return project()["project"]["optional-dependencies"]


def test_extras_that_are_named_exist() -> None:
    # robotics needs an older MuJoCo, envpool a newer Python
    apart = {"dev", "bench", "browser", "docs", "notebooks", "robotics", "envpool"}
    for_users = set(extras()) - {"all"} - apart
    (everything,) = extras()["all"]
    assert set(re.fullmatch(r"rl_training\[(.*)\]", everything)[1].split(",")) == for_users  # type: ignore[index]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installed = re.search(r"^EXTRAS := (.*)$", makefile, re.MULTILINE)[1].split(",")  # type: ignore[index]
    assert set(installed) <= set(extras())
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    for path in documents:
        text = path.read_text(encoding="utf-8")
        named = re.findall(r"(?:rl_training|\"\.)\[([a-z,0-9]+)\]", text) + re.findall(r"install_hint\('(\w+)'\)", text)
        for names in named:
            assert set(names.split(",")) <= set(extras()), path


# --- citation, templates, policies ------------------------------------------------------------------------------------


def test_citation_has_what_the_format_requires() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert {"message", "title", "authors"} <= set(citation)
    assert all(isinstance(author, dict) and author["name"] for author in citation["authors"])
    assert citation["version"] == __version__
    assert citation["license"] == project()["project"]["license"]


@pytest.mark.parametrize("name", ["bug_report.yml", "feature_request.yml"])
def test_issue_form_is_well_formed(name: str) -> None:
    form = read_yaml(TEMPLATES / name)
    assert form["name"] and form["description"] and form["labels"]
    kinds = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in form["body"]} <= kinds
    assert len({field["id"] for field in fields}) == len(fields) and all(f["attributes"]["label"] for f in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
    for field in fields:
        assert field["type"] not in ("dropdown", "checkboxes") or field["attributes"]["options"]


def test_blank_issues_are_off_and_the_pull_request_has_a_checklist() -> None:
    assert read_yaml(TEMPLATES / "config.yml") == {"blank_issues_enabled": False}
    text = (ROOT / ".github" / "pull_request_template.md").read_text(encoding="utf-8")
    boxes = re.findall(r"^- \[ \] (.+)$", text, re.MULTILINE)
    assert len(boxes) >= 3 and "`make test` passes." in boxes


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "tests/README.md"])
def test_paths_that_a_page_names_exist(name: str) -> None:
    """Paths in backticks and targets of links; `<env>`, `*`, `...` and an algorithm called x are placeholders."""
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|drills|docs|scripts|examples|benchmarks|zoo|configs)/[^`\s<>*]*)`", text)
    named = [path for path in named if not re.search(r"\.\.\.|\b(?:test_)?x[_./]", path)]
    missing = [path for path in named if not (ROOT / path.split(":")[0]).exists()]
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    missing += [target for target in linked if not (page.parent / target).exists()]
    assert missing == []
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= make_targets()


def test_limits_in_the_security_policy_are_those_of_the_code() -> None:
    from rl_training.config import yaml_text
    from rl_training.storage import durable_files, tensor_files

    text = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    limits = (
        f"{durable_files.MAX_JSON_BYTES // 2**20} MB, {durable_files.MAX_JSON_VALUES:,} values and "
        f"{durable_files.MAX_JSON_DEPTH} levels of JSON; {tensor_files.MAX_HEADER_BYTES // 2**20} MB of tensor header "
        f"and {tensor_files.MAX_TENSORS:,} tensors"
    )
    assert limits in text
    assert f"over {yaml_text.LARGEST_FILE // 1024} KB and nesting over {yaml_text.DEEPEST_NESTING} levels" in text


# --- changelog --------------------------------------------------------------------------------------------------------


def test_changelog_has_the_keep_a_changelog_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\](?: - \d{4}-\d{2}-\d{2})?", version) for version in versions[1:])
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.*)$", section, re.MULTILINE)
        assert found and set(found) <= set(kinds) and len(set(found)) == len(found)
    if ".dev" in __version__:
        assert __version__.split(".dev")[0] in text.split("## [Unreleased]")[1].split("\n## ")[0]


def test_the_lock_file_has_a_hash_for_every_package_at_the_pinned_version() -> None:
    """`make lock` writes it. A version that `constraints.txt` pins must be the version in the lock file."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)(.*(?:\n {4}.*)*)", lock, re.MULTILINE)
    locked: dict[str, set[str]] = {}
    for name, version, rest in blocks:
        locked.setdefault(name, set()).add(version)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", rest), name
    assert "http" not in lock, "hashes make the registry irrelevant, so it is not named"
    assert {"torch", "gymnasium", "numpy", "safetensors", "pyyaml", "pydantic", "typer", "rich"} <= set(locked)
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^;\s]+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    pinned = {(name, version) for name, version in pins if name in locked}
    assert pinned <= {(name, version) for name, versions in locked.items() for version in versions}
