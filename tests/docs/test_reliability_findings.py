"""The page of findings names only tests that exist, and has a row for every finding."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability-findings.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| id", "| defect", "| ---"))
]
TESTS = sorted({row[-1].strip("`") for row in ROWS})


@pytest.mark.parametrize("name", TESTS)
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert function in functions if function else any(each.startswith("test_") for each in functions)


def test_every_finding_has_a_row() -> None:
    letters = {"A": 5, "B": 5, "C": 4, "D": 7}
    expected = {f"{letter}{number}" for letter, count in letters.items() for number in range(1, count + 1)}
    assert expected <= {row[0] for row in ROWS if re.fullmatch(r"[A-D]\d", row[0])}
