"""The figures of the drills: bounds are kept, sessions are merged, and the document shows what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import figures
from figures import DOCUMENT, PUBLISHED, Figure, publish, read_figures, record_figure, with_table


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded here must not be published, should a session of drills run this file too."""
    monkeypatch.delenv(figures.FOLDER_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("value", "bound", "holds"),
    [
        (10, "<= 10 s", True),
        (10.1, "<= 10 s", False),
        (500, ">= 500", True),
        (499, ">= 500", False),
        (0, "= 0", True),
        (1, "= 0", False),
        (0.99, "< 1 MB/min", True),
        (1.0, "< 1 MB/min", False),
        (float("nan"), "<= 10 s", False),
    ],
)
def test_a_figure_that_breaks_its_bound_fails_its_drill(value: float, bound: str, holds: bool) -> None:
    if holds:
        record_figure(5, "seconds", value, bound)
    else:
        with pytest.raises(AssertionError, match="item 5, seconds"):
            record_figure(5, "seconds", value, bound)


def test_unknown_items_and_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="item: 99"):
        record_figure(99, "x", 1, "= 1")
    with pytest.raises(ValueError, match="bound: 'about 3'"):
        record_figure(1, "x", 1, "about 3")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "session"
    folder.mkdir()
    monkeypatch.setenv(figures.FOLDER_VARIABLE, str(folder))
    return folder


def test_part_of_the_drills_renews_its_rows_and_all_of_them_drop_what_is_gone(session: Path, tmp_path: Path) -> None:
    published, document = tmp_path / "figures.json", tmp_path / "document.md"
    document.write_text(f"Text.\n\n{figures.BEGIN}\nold\n{figures.END}\n\nMore.\n")
    old = [
        Figure(1, "kills", 25, ">= 25", "2026-01-01"),
        Figure(9, "pairs", 50, ">= 50", "2026-01-01"),
        Figure(figures.SOAK, "growth", 0, "= 0", "2026-01-01"),
    ]
    published.write_text(json.dumps([vars(figure) for figure in old]))
    record_figure(9, "pairs", 60, ">= 50")

    publish(session, published=published, document=document)
    assert [(row.item, row.value) for row in read_figures(published)] == [(1, 25), (9, 60), (figures.SOAK, 0)]
    text = document.read_text()
    assert text.startswith("Text.\n\n") and text.endswith("\n\nMore.\n") and "old" not in text
    assert "| 9 | Run directories | pairs | 60 | >= 50 |" in text
    publish(session, published=published, document=document)
    assert document.read_text() == text

    publish(session, replaces={1, 9}, published=published, document=document)
    assert [row.item for row in read_figures(published)] == [9, figures.SOAK]


def test_the_document_shows_the_published_figures_and_all_keep_their_bounds() -> None:
    rows = read_figures(PUBLISHED)
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_table(text, rows) == text, "docs/reliability.md is not what `make drills` wrote"
    assert [row for row in rows if not row.holds] == []
