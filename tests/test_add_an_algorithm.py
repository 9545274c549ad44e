"""A new replay algorithm is five files and one line: the steps of CONTRIBUTING.md, followed with a toy.

The toy is in tests/fixtures/toy_algorithm. It is added to a copy of the repository, and the generic tests run there.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOY = ROOT / "tests" / "fixtures" / "toy_algorithm"
NAME, ENV = "pdpg", "pendulum"
PACKAGE = "src/rl_training"

# What CONTRIBUTING.md asks for, in its order: the file of the toy, and where it goes. The last one is a row that is
# appended to a file, and so is the one line of the algorithm table.
FILES = {
    "config.py": f"{PACKAGE}/config/algorithms/{NAME}.py",
    "algorithm.py": f"{PACKAGE}/algorithms/{NAME}.py",
    "preset.yaml": f"{PACKAGE}/assets/configs/{NAME}/{ENV}.yaml",
    "update_checks.py": f"tests/test_{NAME}_update.py",
    "manifest_row.yaml": f"{PACKAGE}/assets/zoo/classic/benchmark.yaml",
}
TABLE = f"{PACKAGE}/config/algorithm_table.py"
MOST_LINES_WITHOUT_THOUGHT = 60

GENERIC_TESTS = [
    "tests/test_architecture.py",
    "tests/test_package_api_exports.py",
    "tests/test_module_contracts.py",
    "tests/test_checkpoint_workflows.py",
    "tests/experiment/test_registry.py",
    "tests/config/test_config_fields.py",
    "tests/runtime/test_exact_resume.py",
    "tests/runtime/test_boundaries.py",
    "tests/algorithms/test_probes.py",
    f"tests/test_{NAME}_update.py",
]
# These are about the project as a whole, and must still hold once the tools have written their part.
WHOLE_TESTS = [
    "tests/test_architecture.py",
    "tests/test_file_names.py",
    "tests/test_zoo_presets.py",
    "tests/docs/test_algorithm_list.py",
    "tests/docs/test_architecture_picture.py",
    "tests/docs/test_sourcebook.py",
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the toy in it."""
    copy = tmp_path_factory.mktemp("house")
    for folder in ("src", "tests", "drills", "examples", "scripts", "benchmarks", "docs"):
        large = ["benchmarks"] if folder == "docs" else []
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", *large)
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    for file in ("README.md", "pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / file, copy / file)
    for link in ("configs", "zoo"):
        (copy / link).symlink_to(copy / PACKAGE / "assets" / link)
    for source, target in FILES.items():
        path = copy / target
        path.parent.mkdir(parents=True, exist_ok=True)
        earlier = path.read_text(encoding="utf-8") if path.exists() else ""
        assert bool(earlier) == (source == "manifest_row.yaml"), f"{target} is new, the manifest is not"
        path.write_text(earlier + (TOY / source).read_text(encoding="utf-8"), encoding="utf-8")
    table = copy / TABLE
    row = (TOY / "table_row.txt").read_text(encoding="utf-8")
    text = table.read_text(encoding="utf-8")
    assert row.count("\n") == 1 and text.count(")\n# fmt: on") == 1
    table.write_text(text.replace(")\n# fmt: on", f"{row})\n# fmt: on"), encoding="utf-8")
    return copy


def run(house: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(house / "src"), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [sys.executable, *arguments], cwd=house, env=environment, capture_output=True, text=True, timeout=1200
    )


def test_generic_tests_serve_the_new_algorithm(house: Path) -> None:
    done = run(house, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", NAME, *GENERIC_TESTS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 60, done.stdout[-1000:]


def test_every_surface_knows_the_new_algorithm(house: Path, tmp_path: Path) -> None:
    listed = run(house, "-m", "rl_training", "list", "algorithms")
    assert listed.returncode == 0 and "Deterministic policy gradient with a price" in listed.stdout
    steps = ["--total-timesteps", "60", "--set", "learning_starts=20", "--output-dir", str(tmp_path), "--quiet"]
    trained = run(house, "-m", "rl_training", "train", f"{NAME}/{ENV}", *steps)
    assert trained.returncode == 0, trained.stderr
    program = (
        f"import sys, rl_training\nagent = rl_training.{NAME.upper()}.load(sys.argv[1])\n"
        "assert type(agent) is type(rl_training.load(sys.argv[1])) and agent.env_steps == 60\n"
        "print(agent.predict([0.0, 0.1, 0.0])[0].shape)\n"
    )
    loaded = run(house, "-c", program, str(tmp_path / f"{NAME}-Pendulum-v1-seed0"))
    assert loaded.returncode == 0 and loaded.stdout.strip() == "(1,)", loaded.stderr
    rows = run(house, "-m", "rl_training", "zoo", "list", "classic", "--json")
    assert f"{NAME}/{ENV}" in rows.stdout
    written = run(house, "scripts/algorithm_list.py")
    assert written.returncode == 0, written.stderr
    assert f"`{NAME.upper()}`, `{NAME}`" in (house / "README.md").read_text(encoding="utf-8")
    for script in ("scripts/defaults_table.py", "scripts/draw_architecture.py"):
        drawn = run(house, script)
        assert drawn.returncode == 0, drawn.stderr
    done = run(house, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *WHOLE_TESTS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_contributing_names_the_files_in_this_order() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Add an algorithm")[2].partition("\n## ")[0]
    generic = [
        target.replace(NAME, "x").replace(ENV, "<env>").replace("classic", "<family>") for target in FILES.values()
    ]
    places = [section.find(f"`{target}`") for target in [*generic, TABLE]]
    assert -1 not in places, dict(zip([*generic, TABLE], places, strict=True))
    assert places == sorted(places)
    assert f"at most {MOST_LINES_WITHOUT_THOUGHT} lines" in section


def lines_of(node: ast.AST) -> set[int]:
    return set(range(node.lineno, node.end_lineno + 1))  # type: ignore[attr-defined]


def lines_without_thought(path: Path) -> int:
    """Lines that hold neither prose nor the algorithm itself.

    Thought are docstrings, comments and blank lines, pure functions, the gradient step, settings, and tests.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
    tree = ast.parse(text)
    thought: set[int] = set()
    for node in ast.walk(tree):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_setting = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.col_offset == 4
        if is_docstring or is_setting or (isinstance(node, ast.FunctionDef) and node.name == "_gradient_step"):
            thought |= lines_of(node)
    for node in tree.body:
        is_stub = path.name == "update_checks.py" and isinstance(node, ast.ClassDef)
        if isinstance(node, ast.FunctionDef) or is_stub:
            thought |= lines_of(node)
    lines = enumerate(text.splitlines(), start=1)
    return sum(number not in thought and bool(line.strip()) and line.strip()[0] != "#" for number, line in lines)


def test_little_of_it_is_ceremony() -> None:
    counts = {file: lines_without_thought(TOY / file) for file in [*FILES, "table_row.txt"]}
    assert sorted(path.name for path in TOY.iterdir()) == sorted(counts)
    assert len(FILES) == 5 and counts["table_row.txt"] == 1
    assert counts["algorithm.py"] > 5 and counts["preset.yaml"] > 5, "the count sees the wiring"
    assert sum(counts.values()) <= MOST_LINES_WITHOUT_THOUGHT, counts
