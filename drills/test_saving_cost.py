"""Item 11: what checkpoints cost, at the cadence of the presets and at the default one.

`benchmarks/speed.py saving` measures it on an idle machine.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

from figures import record_figure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from checkpoint_cost import CADENCES, DEFAULT_CADENCES, saving_cost


@pytest.mark.parametrize("preset", CADENCES)
def test_checkpoints_take_less_than_two_percent(preset: str) -> None:
    cost = saving_cost(preset)
    record_figure(
        11, f"{preset}: share of the time, a checkpoint every {cost.every:,} steps", 100 * cost.share, "<= 2 %"
    )
    milliseconds = 1000 * statistics.median(cost.processor_seconds)
    record_figure(11, f"{preset}: processor time of one, median", milliseconds, "<= 100 ms")


@pytest.mark.parametrize("preset", DEFAULT_CADENCES)
def test_checkpoints_at_the_default_interval_take_less_than_two_percent(preset: str) -> None:
    cost = saving_cost(preset, auto=True)
    what = f"{preset}: share of the time, a checkpoint every {cost.every:,} steps, the default"
    record_figure(11, what, 100 * cost.share, "<= 2 %")
