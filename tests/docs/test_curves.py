"""The small learning curves on the pages of the algorithms."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from zoo_helpers import curve, entry_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from docs_curves import figure, short, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 50, 100]),
        (-1500, -120, [-1500, -1000, -500]),
        (43.2, 48.9, [44, 46, 48]),
        (0, 50_000, [0, 20_000, 40_000]),
        (0.01, 0.99, [0.5]),
        (5, 5, [5]),
    ],
)
def test_ticks_are_few_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


def test_steps_are_short() -> None:
    assert [short(steps) for steps in (0, 500, 20_000, 1_500_000)] == ["0", "500", "20k", "1.5M"]


def parts(drawn: str) -> dict[str, Any]:
    svg = ElementTree.fromstring(
        drawn.partition("<figcaption>")[2].partition("</figcaption>")[2].removesuffix("</figure>")
    )
    found = {str(part.get("class")): part for part in svg}
    return found | {"words": svg.get("aria-label")}


def test_a_curve_has_its_median_band_bar_and_words() -> None:
    entry = entry_of(reference=None)
    seeds = [curve([20_000, 100_000], [low, 400.0 + low]) for low in (0.0, 50.0, 100.0)]
    drawn = figure(entry, seeds)
    found = parts(drawn)
    points = [tuple(map(float, point.split(","))) for point in found["median"].get("points").split()]
    assert points[0][0] < points[-1][0] and points[0][1] > points[-1][1], "it rises to the right"
    assert {"band", "bar", "grid"} <= set(found)
    assert found["words"] == (
        f"Mean return of {entry.name} over env steps, 3 seeds: 50 at step 20,000, 450 at step 100,000;"
        f" the bar is {entry.row.bar:g}"
    )
    assert "3 seeds" in drawn and entry.environment in drawn


def test_one_seed_has_no_band_and_a_beginning_no_bar() -> None:
    entry = entry_of(reference=None)
    found = parts(figure(entry, [curve([5_000, 10_000], [0.0, 9.0])]))
    assert "band" not in found and "bar" not in found
    assert re.search(r"one seed, the first 10%", figure(entry, [curve([5_000, 10_000], [0.0, 9.0])]))


def test_a_level_curve_can_be_drawn_and_a_name_is_text() -> None:
    entry = replace(entry_of(reference=None), name="ppo/<b>")
    found = parts(figure(entry, [curve([5_000, 10_000], [7.0, 7.0])]))
    assert "<b>" in found["words"] and "nan" not in found["median"].get("points")
