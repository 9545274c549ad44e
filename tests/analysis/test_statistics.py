"""The interquartile mean and its interval, against hand-made cases and what `rliable` answers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.analysis.curves import on_grid
from rl_training.analysis.statistics import bootstrap_interval, interquartile_mean, standard_error
from zoo_helpers import curve


@pytest.fixture(scope="module")
def oracle() -> list[dict[str, Any]]:
    path = Path(__file__).parents[1] / "fixtures" / "oracles" / "interquartile_mean.json"
    cases: list[dict[str, Any]] = json.loads(path.read_text())["cases"]
    return cases


def test_interquartile_mean_cuts_a_quarter_rounded_down_at_each_end() -> None:
    assert interquartile_mean([5.0]) == 5.0
    assert interquartile_mean([0.0, 1.0, 2.0]) == 1.0  # nothing is cut
    assert interquartile_mean([100.0, 1.0, 3.0, 2.0, -50.0]) == 2.0
    assert interquartile_mean(np.arange(8.0).reshape(2, 4)) == pytest.approx(3.5)


def test_interquartile_mean_is_that_of_rliable(oracle: list[dict[str, Any]]) -> None:
    assert {case["source"].split(" ")[0] for case in oracle} == {"rliable"}
    for case in oracle:
        assert interquartile_mean(case["inputs"]["scores"]) == pytest.approx(case["outputs"]["iqm"], rel=1e-12)


def test_stratified_bootstrap_interval_is_that_of_rliable(oracle: list[dict[str, Any]]) -> None:
    """Both draw 50,000 times, with other random numbers: the ends agree within a few hundredths of the width."""
    shapes = set()
    for case in oracle:
        scores = np.array(case["inputs"]["scores"])
        shapes.add(scores.shape)
        low, high = case["outputs"]["interval"]
        ours = bootstrap_interval(scores, repetitions=case["inputs"]["repetitions"])
        assert ours.low == pytest.approx(low, abs=0.03 * (high - low) + 1e-9)
        assert ours.high == pytest.approx(high, abs=0.03 * (high - low) + 1e-9)
    assert len({tasks for _, tasks in shapes}) > 1, "some cases have several tasks"


def test_curves_on_a_grid_reach_from_the_last_start_to_the_first_end() -> None:
    grid, values = on_grid([curve([10, 30], [0.0, 2.0]), curve([20, 50], [5.0, 8.0]), curve([], [])], points=3)
    assert grid.tolist() == [20, 25, 30]
    np.testing.assert_allclose(values, [[1.0, 1.5, 2.0], [5.0, 5.5, 6.0]])


def test_strata_are_kept_apart() -> None:
    """Two tasks without any spread: drawn among themselves they have none, drawn together they would."""
    scores = np.array([[0.0, 100.0]] * 5)
    assert bootstrap_interval(scores) == (interquartile_mean(scores),) * 2


def test_interval_is_the_same_for_the_same_scores_and_shrinks_with_runs() -> None:
    random = np.random.default_rng(3)
    few, many = random.normal(size=5), random.normal(size=100)
    # Of five runs any draw has the same few quantiles: that it is seeded, and how often it is drawn, many show.
    assert bootstrap_interval(few) == bootstrap_interval(few) and bootstrap_interval(many) == bootstrap_interval(many)
    several = np.array([bootstrap_interval(many, seed=seed) for seed in range(5)])
    assert 0 < np.ptp(several, axis=0).max() < 0.03 * (several[0, 1] - several[0, 0])
    widths = [high - low for low, high in (bootstrap_interval(few), bootstrap_interval(many))]
    assert widths[1] < widths[0]


def test_standard_error_is_of_the_mean() -> None:
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / math.sqrt(3))
    assert math.isnan(standard_error([1.0]))


def test_area_is_the_mean_height_of_the_curve() -> None:
    assert curve([100, 200], [1.0, 1.0]).area() == 1.0
    # 1 until step 100, then a straight line to 3 at 300.
    assert curve([100, 300], [1.0, 3.0]).area() == pytest.approx((100 * 1 + 200 * 2) / 300)
    assert math.isnan(curve([], []).area())
