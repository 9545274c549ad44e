"""The sourcebook and the README say of the algorithms exactly what the registry has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from rl_training.config.base import ReplayConfig
from rl_training.experiment.registry import ALGORITHMS, get_algorithm, get_config_class, get_spec

SOURCEBOOK = Path("docs") / "plans" / "2026-03-12-rl-yearly-sourcebook-design.md"
BATCH_PLAN = Path("docs") / "plans" / "2026-03-13-yearly-gap-batch-naf-mpo.md"
DONE, NOW, LATER, WATCHED = (
    "already implemented",
    "in this batch",
    "deferred for runtime redesign",
    "watchlist",
)


class Row(NamedTuple):
    year: int
    work: str
    paper: str
    idea: str
    fit: str
    here: str
    status: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def sourcebook(root: Path) -> list[Row]:
    rows, year = [], None
    for line in (root / SOURCEBOOK).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            year = int(line[3:]) if line[3:].isdigit() else None
        elif year and line.startswith("|") and not line.startswith(("| work", "| ---")):
            found = cells(line)
            assert len(found) == len(Row._fields) - 1, line
            rows.append(Row(year, *found))
    return rows


@pytest.fixture(scope="module")
def book(project_root: Path) -> list[Row]:
    return sourcebook(project_root)


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def algorithm_of(row: Row) -> str | None:
    """The registry's name of a row that is an algorithm here, or will be."""
    found = re.fullmatch(r"`(\w+)`", row.here)
    return found[1] if found else None


def test_every_year_has_rows_and_every_row_is_whole(book: list[Row]) -> None:
    assert sorted({row.year for row in book}) == list(range(2014, 2027))
    assert [row.year for row in book] == sorted(row.year for row in book)
    for row in book:
        assert all(row), row
        assert row.status in (DONE, NOW, LATER, WATCHED), row


def test_already_implemented_rows_are_the_registry_both_ways(book: list[Row]) -> None:
    done = [name for row in book if row.status == DONE and (name := algorithm_of(row)) is not None]
    assert len(done) == len(set(done)) and set(done) <= set(ALGORITHMS)
    # Every published algorithm has its row. One without a paper on record, such as a toy, needs none.
    published = {name for name, row in ALGORITHMS.items() if row.paper.startswith(("arXiv:", "Nature "))}
    assert len(published) >= 15 and published <= set(done)


def test_what_is_not_implemented_is_not_in_the_registry(book: list[Row]) -> None:
    for row in book:
        if row.status != DONE:
            assert not set(names(row.here)) & set(ALGORITHMS), row
            assert row.here == "-" or (row.status == NOW and algorithm_of(row)), row


def test_parts_belong_to_registered_algorithms(book: list[Row]) -> None:
    parts = [row for row in book if row.status == DONE and algorithm_of(row) is None]
    assert parts
    for row in parts:
        assert row.here == "part of every algorithm" or row.here.startswith("part of `"), row
        assert set(names(row.here)) <= set(ALGORITHMS), row


def test_papers_of_implemented_algorithms_are_those_of_their_specs(book: list[Row]) -> None:
    for row in book:
        if row.status == DONE and (name := algorithm_of(row)) is not None:
            assert any(part in get_spec(name).paper for part in row.paper.split("; ")), row


def test_the_fit_of_every_row_is_explained(book: list[Row], project_root: Path) -> None:
    text = (project_root / SOURCEBOOK).read_text(encoding="utf-8").split("## 2014")[0]
    explained = {cells(line)[0] for line in text.splitlines() if line.startswith("| ")} - {"fit", "---"}
    assert {row.fit for row in book} == explained
    for row in book:
        if row.fit == "sequences":
            assert row.status == LATER, f"{row}: the runtime for it is not there"


def test_the_batch_plan_is_linked_and_names_what_is_in_the_batch(book: list[Row], project_root: Path) -> None:
    assert BATCH_PLAN.name in (project_root / SOURCEBOOK).read_text(encoding="utf-8")
    plan = (project_root / BATCH_PLAN).read_text(encoding="utf-8")
    assert SOURCEBOOK.name in plan
    assert all(word in plan for word in ("NAF", "D4PG", "MPO"))


def test_algorithm_table_of_the_readme_is_the_registry(project_root: Path) -> None:
    """Class and config name of every algorithm, in one row each, with the loop and the paper of its spec."""
    text = (project_root / "README.md").read_text(encoding="utf-8").split("## Algorithms", 1)[1].split("\n## ", 1)[0]
    rows = [cells(line) for line in text.splitlines() if line.startswith("|")]
    assert rows[0][:2] == ["algorithm", "class, config name"]
    listed = {}
    for _, name_cell, _, loop, paper in rows[2:]:
        class_name, name = (text.rpartition(".")[2] for text in re.findall(r"`([\w.]+)`", name_cell))
        assert name not in listed, name
        listed[name] = class_name
        assert loop == get_algorithm(name).loop, name
        assert (loop == "replay") == issubclass(get_config_class(name), ReplayConfig), name
        assert paper == get_spec(name).paper, name
    assert listed == {name: get_algorithm(name).class_name for name in ALGORITHMS}
