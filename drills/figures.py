"""Figures of the drills, each with a bound, and the table of them in docs/reliability.md.

A drill calls `record_figure(item, what, value, bound)`. A value outside its bound fails the drill. After a session of
drills passes, `publish` writes the figures to `docs/reliability_figures.json` and rewrites the table in the document.
Figures of drills that did not run stay, unless the session ran all drills. `make soak` is apart from the drills: each
of the two leaves the figures of the other.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "reliability.md"
PUBLISHED = ROOT / "docs" / "reliability_figures.json"
FOLDER_VARIABLE = "RL_TRAINING_DRILL_FIGURES"  # where the processes of one session write their figures

BEGIN, END = "<!-- figures: written by `make drills` -->", "<!-- end of figures -->"
WHOLE_SESSION = 0  # the item number of figures about the drills themselves
SOAK = 14  # the item number of `make soak`, which is not one of the drills
ITEMS = {
    0: "The drills",
    1: "kill -9",
    2: "Power loss",
    3: "Disk full, read-only, quota",
    4: "Damaged and hostile files",
    5: "Signals",
    6: "Env failures",
    7: "NaN and infinity",
    8: "Bad config",
    9: "Run directories",
    10: "Memory",
    11: "Cost of checkpoints",
    12: "Network",
    13: "Schema",
    SOAK: "Soak",
}
SIGNS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}


@dataclass(frozen=True)
class Figure:
    """One measured number: `bound` is a sign, a number and a unit, such as `<= 10 s`, `>= 500` or `= 0`."""

    item: int
    what: str
    value: float
    bound: str
    measured: str = ""

    def parts(self) -> tuple[str, float, str]:
        match = re.fullmatch(r"(<=|>=|<|>|=) (-?[0-9.]+) ?(.*)", self.bound)
        if match is None:
            raise ValueError(f"bound: {self.bound!r} is not a sign, a number and a unit, such as '<= 10 s'")
        return match[1], float(match[2]), match[3]

    @property
    def holds(self) -> bool:
        sign, limit, _ = self.parts()
        return bool(SIGNS[sign](self.value, limit))

    def row(self) -> str:
        unit = self.parts()[2]
        value = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:.3g}"
        return f"| {self.item} | {ITEMS[self.item]} | {self.what} | {value} {unit}".rstrip() + f" | {self.bound} |"


def record_figure(item: int, what: str, value: float, bound: str) -> None:
    """Record a figure for the document; raise AssertionError if it breaks its bound."""
    if item not in ITEMS:
        raise ValueError(f"item: {item} is not one of {', '.join(map(str, ITEMS))}")
    value = value if isinstance(value, int) else float(value)
    figure = Figure(item, what, value, bound, date.today().isoformat())
    assert figure.holds, f"item {item}, {what}: {value} breaks the bound {bound}"
    if folder := os.environ.get(FOLDER_VARIABLE):
        # One file per figure: several processes run drills at the same time.
        name = hashlib.sha256(f"{item} {what}".encode()).hexdigest()[:16]
        (Path(folder) / f"{name}.json").write_text(json.dumps(asdict(figure)), encoding="utf-8")


def read_figures(path: Path) -> list[Figure]:
    """The figures in a published file or in a session's folder; an empty list if it does not exist."""
    if path.is_dir():
        return [Figure(**json.loads(file.read_text(encoding="utf-8"))) for file in sorted(path.glob("*.json"))]
    return [Figure(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def publish(
    session: Path, *, replaces: Collection[int] = (), published: Path = PUBLISHED, document: Path = DOCUMENT
) -> None:
    """Merge a session's figures into the published ones and write the table.

    `replaces` are the items whose drills have all run: figures of theirs that were not measured again are dropped.
    """
    figures = {(each.item, each.what): each for each in read_figures(published) if each.item not in replaces}
    figures |= {(each.item, each.what): each for each in read_figures(session)}
    rows = [figures[key] for key in sorted(figures)]
    lines = [json.dumps(asdict(row)) for row in rows]
    published.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    document.write_text(with_table(document.read_text(encoding="utf-8"), rows), encoding="utf-8")


def with_table(text: str, figures: list[Figure]) -> str:
    """The document with a new table; the text around the table does not change."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    head = ["| item | drill | figure | measured | bound |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([before + BEGIN, "", *head, *(figure.row() for figure in figures), "", END + after])
