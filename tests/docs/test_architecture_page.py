"""docs/architecture.md against the tree: every file it names exists, and its five answers lead to the right code."""

from __future__ import annotations

import ast
import re

import pytest

from house import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_the_page_names_exists() -> None:
    named = {path for path in re.findall(r"`((?:[\w./-]+/)?[\w-]+\.py)`", PAGE) if "<" not in path}
    assert len(named) > 20
    missing = [path for path in sorted(named) if not (PACKAGE / path).exists() and not (ROOT / path).exists()]
    # `runs.py` and `results.py` are named as files of zoo/.
    assert [path for path in missing if not (PACKAGE / "zoo" / path).exists()] == []


def top_level_names(path: str) -> set[str]:
    body = ast.parse((PACKAGE / path).read_text(encoding="utf-8")).body
    names = {node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return names | {ast.unparse(target) for node in body if isinstance(node, ast.Assign) for target in node.targets}


@pytest.mark.parametrize(
    ("question", "path", "holds"),
    [
        ("a metric sink", "telemetry/mlflow_sink.py", {"MlflowSink"}),
        ("an exploration rule", "algorithms/common/exploration.py", {"epsilon_greedy", "make_action_noise"}),
        ("an environment wrapper", "envs/velocity_mask.py", {"MaskVelocity"}),
        ("a CLI command", "command_line/reproduce.py", {"reproduce"}),
        ("the checkpoint format", "storage/checkpoint_format.py", {"SCHEMA"}),
    ],
)
def test_the_answer_leads_to_the_code(question: str, path: str, holds: set[str]) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {question} |")]
    folder = path.rpartition("/")[0]
    assert f"`{path}`" in row or f"`{folder}/`" in row
    assert holds <= top_level_names(path)


def test_every_command_has_its_own_module() -> None:
    app = (PACKAGE / "command_line" / "app.py").read_text(encoding="utf-8")
    for command in ("train", "resume", "eval", "play", "predict", "inspect", "check", "reproduce", "list", "zoo"):
        assert (PACKAGE / "command_line" / f"{command}.py").is_file()
        assert f"rl_training.command_line.{command}" in app
