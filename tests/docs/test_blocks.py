"""No block of the docs escapes: each one is run by a test, or has a reason here. New kinds of blocks fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup

from rl_training.command_line.app import app
from rl_training.zoo.clock.board import load_board
from rl_training.zoo.manifest import load_manifest

ROOT = Path(__file__).resolve().parents[2]
ZOO_PAGE = "src/rl_training/assets/zoo/README.md"
PLUGIN_PAGE = "examples/plugin_package/README.md"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    ROOT / "tests" / "README.md",
    ROOT / ZOO_PAGE,
]
PROGRAMS = {"rl-training", "make", "python", "pip", "docker", "source", "export", "nohup", "pipx", "ssh"}

# Fenced blocks by page and language, and what runs them.
FENCES = {
    (r"docs/[\w-]+\.md", "python"): "test_snippets.py",
    (r"docs/[\w-]+\.md", "yaml"): "test_snippets.py",
    (r"(docs/.*|README|CONTRIBUTING)\.md", "sh"): "test_commands_run.py",
    (r"README\.md", "python"): "tests/test_reference_script.py",
    (PLUGIN_PAGE, "python"): "tests/test_plugin_package.py",
    (r"docs/walkthrough\.md", "py"): "test_walkthrough.py follows that page",
    (ZOO_PAGE, "yaml"): "below",
    (r"docs/trackers\.md", "toml"): "below",
    (r"docs/own-algorithm\.md", "toml"): "tests/test_plugin_package.py installs it",
    (r"docs/doctor\.md", "text"): "what a command prints; tests/checkup compares the findings",
}
# Indented blocks that are not commands, by how they start.
SHOWN = {
    "│ mean return": "what train prints",
    "finding at step": "what train prints",
    "score: ": "what compare prints",
    "curves: ": "what diff prints",
    "preset -> TrainConfig": "a drawing",
    "runs/ppo-CartPole-v1-seed0/": "the files of a run",
    "zoo/classic/benchmark.yaml": "the files of the zoo",
    "apiVersion: ": "for a cluster with Kubernetes, which is not here; it is read below",
    "#!/bin/": "a script for a cluster with Slurm; tests/fleet trains with Ray's actors",
}
# Lines between commands of ours.
STEPS = {
    r"ray (start|get-auth-token|stop)\b": "a Ray cluster; tests/fleet and drills have one of their own",
    r"wandb sync |.*mlflow ui |trackio show ": "programs of the trackers, which serve or upload",
    r"\.venv/bin/python -m pytest ": "runs tests; the paths exist (below)",
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fences(page: Path) -> list[tuple[str, str]]:
    """Language and content."""
    found = re.findall(r"^ *```(\S*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [(language, content) for language, content in found]


def indented(page: Path) -> Iterator[list[str]]:
    """The lines of each block that is indented by four spaces; a line may continue after a backslash."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\\\n *", "", text)
    for block in re.findall(r"(?:\A|\n\n)((?: {4}\S[^\n]*\n)(?: {4}[^\n]*\n)*)", text):
        yield [line[4:] for line in block.splitlines()]


def is_command(line: str) -> bool:
    return line.removeprefix("$ ").split(" ")[0] in PROGRAMS


def test_every_fenced_block_is_run_or_has_a_reason() -> None:
    used = set()
    for page in PAGES:
        for language, content in fences(page):
            fitting = [key for key in FENCES if re.fullmatch(key[0], name_of(page)) and key[1] == language]
            assert fitting, f"{name_of(page)}: nothing runs this block of {language or 'no language'}:\n{content}"
            used.update(fitting)
    assert used == set(FENCES), "nothing in the docs has this reason any more"


def test_every_indented_block_holds_commands_or_has_a_reason() -> None:
    used = set()
    for page in PAGES:
        for lines in indented(page):
            fitting = [start for start in SHOWN if lines[0].startswith(start)]
            used.update(fitting)
            if not fitting and any(is_command(line) for line in lines):
                prints = any(line.startswith("$ ") for line in lines)  # the other lines are what it prints
                known = (*PROGRAMS, "#")
                others = [line for line in lines if not (prints or line.lstrip().startswith(known))]
                used.update(step for step in STEPS if any(re.match(step, line) for line in others))
                rest = [line for line in others if not any(re.match(step, line) for step in STEPS)]
                assert rest == [], f"{name_of(page)}: nothing runs {rest}"
            else:
                assert fitting, f"{name_of(page)}: nothing runs this block:\n" + "\n".join(lines)
    assert used == set(SHOWN) | set(STEPS), "nothing in the docs has this reason any more"


def yaml_blocks_of_the_zoo() -> list[dict[str, Any]]:
    return [yaml.safe_load(content) for language, content in fences(ROOT / ZOO_PAGE) if language == "yaml"]


def test_the_board_of_the_zoo_page_loads_with_its_sides(tmp_path: Path) -> None:
    (tmp_path / "my_ppo.yaml").write_text("algo: ppo\nenv_id: CartPole-v1\ntotal_timesteps: 200_000\n")
    (tmp_path / "candidates.yaml").write_text(yaml.safe_dump(yaml_blocks_of_the_zoo()[0], sort_keys=False))
    (one,) = load_board(tmp_path / "candidates.yaml").tasks
    assert [side.name for side in one.sides] == ["ours-ppo", "ours-wide", "mine"]
    assert one.sides[1].preset is not None and one.sides[1].preset.model.hidden_sizes == (256, 256)


def test_the_manifest_of_the_zoo_page_loads_with_its_curve(tmp_path: Path) -> None:
    _, manifest, curves = yaml_blocks_of_the_zoo()
    row = manifest["rows"][0]
    (tmp_path / "my_ppo.yaml").write_text("algo: ppo\nenv_id: CartPole-v1\ntotal_timesteps: 200_000\n")
    (tmp_path / "one_row.yaml").write_text(yaml.safe_dump({**row, "config": "a2c/cartpole", "budget": 500_000}))
    row["curve"] = "peer-ppo"
    (tmp_path / "benchmark.yaml").write_text(yaml.safe_dump({**manifest, **curves}))
    entries = load_manifest(tmp_path / "benchmark.yaml").entries
    assert [entry.algorithm for entry in entries] == ["ppo", "ppo", "a2c"]
    assert entries[0].published is not None and len(entries[0].published.steps) == 3


def test_tests_that_a_page_names_exist() -> None:
    lines = [line for page in PAGES for lines in indented(page) for line in lines]
    named = [path for line in lines for path in re.findall(r"pytest ((?:tests|drills|browser)\S*)", line)]
    assert len(named) >= 3 and [path for path in named if not (ROOT / path).exists()] == []


def test_manifests_of_kubernetes_are_whole() -> None:
    blocks = [lines for lines in indented(ROOT / "docs" / "distributed.md") if lines[0].startswith("apiVersion: ")]
    for lines in blocks:
        manifest = yaml.safe_load("\n".join(lines))
        assert {"apiVersion", "kind", "metadata", "spec"} <= set(manifest)
    assert blocks


def test_the_entry_point_of_the_docs_is_that_of_the_example() -> None:
    (content,) = (content for language, content in fences(ROOT / "docs" / "trackers.md") if language == "toml")
    assert content in (ROOT / "examples" / "plugin_package" / "pyproject.toml").read_text(encoding="utf-8")


def test_commands_within_sentences_and_tables_exist_with_their_options() -> None:
    seen, unknown = 0, []
    for page in PAGES:
        if page.name == "CHANGELOG.md" or "plans" in page.parts:  # they speak of other times
            continue
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for line in re.findall(r"`rl-training ([^`]+)`", " ".join(text.split())):
            words, command = line.split(), typer.main.get_command(app)
            while isinstance(command, TyperGroup) and words and words[0] in command.commands:
                command = command.commands[words.pop(0)]
            options = {option for parameter in command.params for option in parameter.opts} | {"--help", "COMMAND"}
            is_whole = not isinstance(command, TyperGroup) or not words or words[0] in options
            strange = [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
            if strange or not is_whole:
                unknown.append(f"{name_of(page)}: rl-training {line}")
            seen += 1
    assert unknown == []
    assert seen > 60


def test_each_question_names_the_page_that_answers_it_two_clicks_from_the_index() -> None:
    folder = ROOT / "docs"
    index = (folder / "index.md").read_text(encoding="utf-8")
    assert "(questions.md)" in index
    questions = re.split(r"^## ", (folder / "questions.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(questions) >= 10
    for text in questions:
        pages = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
        assert "?" in text.partition("\n")[0] and pages, f"no page answers {text!r}"
        assert all((folder / page).resolve().is_file() for page in pages), text


@pytest.mark.parametrize(
    ("text", "is_found"),
    [("```bash\nrl-training train\n```\n", True), ("\n\n    curl example\n", True), ("plain\n", False)],
)
def test_blocks_are_found(text: str, is_found: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert bool(fences(page) or list(indented(page))) == is_found
