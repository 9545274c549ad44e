"""docs/testing-algorithms.md: its code runs, and its table names every probe."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from rl_training.envs import probes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing-algorithms.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROBES = {name for name in probes.__all__ if name.endswith("Probe") and name != "Probe"}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_code_of_the_page_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # runs are written below the working directory
    exec(compile(BLOCKS[number], f"testing-algorithms.md, block {number}", "exec"), {"__name__": "page"})


def test_the_page_has_code_that_trains_and_code_for_an_own_probe() -> None:
    assert len(BLOCKS) == 2
    assert ".learn(" in BLOCKS[0] and "(Probe)" in BLOCKS[1]


def test_every_probe_is_in_the_table_of_the_page_and_of_the_module() -> None:
    assert set(re.findall(r"^\| `(\w+Probe)", PAGE, re.MULTILINE)) == PROBES
    assert set(re.findall(r"^(\w+Probe) ", probes.__doc__ or "", re.MULTILINE)) == PROBES
    for name in PROBES:
        assert "Exposes " in (getattr(probes, name).__doc__ or ""), name


def test_the_values_that_a_wrong_truncation_gives_are_those_of_a_terminal_ring() -> None:
    values = [round((1 - 0.8 ** (4 - k)) / (1 - 0.8), 2) for k in range(4)]
    assert f"{values[0]}, {values[1]}, {values[2]:g} and {values[3]}" in PAGE


def test_the_example_in_the_docstring_of_the_module_is_true() -> None:
    results = doctest.testmod(probes)
    assert results.attempted >= 3 and results.failed == 0
