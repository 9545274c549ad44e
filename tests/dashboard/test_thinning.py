"""Thinned curves keep their ends and their extremes."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.dashboard.thin_curve import thin


def curve(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(size, dtype=np.float64) * 10, np.random.default_rng(seed).normal(size=size)


@pytest.mark.parametrize("size", [0, 1, 2, 100])
def test_a_short_curve_stays_whole(size: int) -> None:
    steps, values = curve(size)
    thinned = thin(steps, values, 100)
    assert np.array_equal(thinned[0], steps) and np.array_equal(thinned[1], values)


@pytest.mark.parametrize("size", [101, 5000, 5003])
@pytest.mark.parametrize("points", [10, 100])
def test_ends_and_extremes_stay_and_the_limit_holds(size: int, points: int) -> None:
    steps, values = curve(size)
    x, y = thin(steps, values, points)
    assert points / 2 <= x.size <= points
    assert (x[0], y[0], x[-1], y[-1]) == (steps[0], values[0], steps[-1], values[-1])
    assert y.min() == values.min() and y.max() == values.max()
    assert np.all(np.diff(x) > 0)
    assert all(values[int(step / 10)] == value for step, value in zip(x, y, strict=True))


def test_every_part_of_the_curve_keeps_its_own_peak() -> None:
    steps, values = np.arange(1000.0), np.zeros(1000)
    values[[137, 512, 890]] = [5.0, -7.0, 9.0]
    x, y = thin(steps, values, 50)
    assert {137.0: 5.0, 512.0: -7.0, 890.0: 9.0}.items() <= dict(zip(x, y, strict=True)).items()


def test_gaps_do_not_hide_numbers() -> None:
    steps, values = curve(1000)
    values[::2] = np.nan
    _, y = thin(steps, values, 50)
    assert np.nanmin(y) == np.nanmin(values) and np.nanmax(y) == np.nanmax(values)
    values[200:400] = np.nan
    x, y = thin(steps, values, 50)
    assert np.isnan(y[(x >= 2000) & (x < 4000)]).all(), "a gap is not drawn over"
    assert ((x >= 2000) & (x < 4000)).any()
