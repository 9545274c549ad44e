"""Bands: the range of a preset's learning curves over stored seeds, to tell whether a new run still learns.

The compared value is the running mean of all evaluations, because a single evaluation of ten episodes is noisy. A band
spans the seeds plus a margin: half its width, and at least a fifth of the range of returns. Where possible, it stays
above the return of an untrained agent. In a leave-one-out test over 100 LunarLander runs, 7 left the band of the other
four seeds. A curve leaves the band when two evaluations in a row are outside, or the last one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.analysis.curves import Curve, Numbers
from rl_training.errors import ConfigError
from rl_training.program import call
from rl_training.storage.durable_files import atomic_write_text, read_json
from rl_training.zoo.manifest import Entry, zoo_folder
from rl_training.zoo.runs import LARGEST_NUMBER, same_settings, settings

WIDER_BY_WIDTH, WIDER_BY_RANGE = 0.5, 0.2
ABOVE_UNTRAINED = 0.1  # fraction of the way from an untrained agent to the best seed
FEWEST_SEEDS = 3
ARRAYS = ("steps", "low", "high")
KEYS = ("name", "control", "seeds", *ARRAYS, "untrained", "tells_from", "settings")


@dataclass(frozen=True)
class Band:
    """Low and high edge at env steps. `tells_from` is the first step at which an agent that stays at the `untrained`
    return is outside the band, or None if it never is."""

    name: str
    control: bool
    seeds: int
    steps: Numbers
    low: Numbers
    high: Numbers
    untrained: float
    tells_from: int | None
    settings: dict[str, Any]

    def share(self, total_steps: int) -> float:
        """The fraction of a run that the band covers. The last rollout may end a little early: that counts as 1."""
        share = float(self.steps[-1]) / total_steps
        return share if share < 0.9 else 1.0

    def judge(self, curve: Curve) -> Verdict:
        """Compare a curve with the band. A control leaves it only upward, all others only downward: learning faster is
        not a failure."""
        curve = curve.until(float(self.steps[-1])) if self.steps.size else curve
        means = running_mean(curve.returns)
        low = np.interp(curve.steps, self.steps, self.low)
        high = np.interp(curve.steps, self.steps, self.high)
        return Verdict(curve.steps, means, low, high, first_outside(means > high if self.control else means < low))


@dataclass(frozen=True)
class Verdict:
    steps: Numbers
    means: Numbers
    low: Numbers
    high: Numbers
    left_at: int | None  # index of the evaluation

    @property
    def passed(self) -> bool:
        return self.left_at is None

    def summary(self) -> dict[str, Any]:
        points = zip(self.steps, self.means, self.low, self.high, strict=True)
        return {
            "passed": self.passed,
            "left_at": None if self.left_at is None else int(self.steps[self.left_at]),
            "curve": [[int(step), *(round(float(value), 3) for value in rest)] for step, *rest in points],
        }


def running_mean(returns: Numbers) -> Numbers:
    return np.asarray(np.cumsum(returns) / np.arange(1, returns.size + 1))


def first_outside(outside: np.ndarray[Any, Any]) -> int | None:
    """Index of the first of two consecutive outside points, or of the last point if it is outside."""
    for index, value in enumerate(outside):
        if value and (index == outside.size - 1 or outside[index + 1]):
            return index
    return None


def make_band(entry: Entry, curves: Sequence[Curve], untrained: float) -> Band:
    """Make a band from the curves of stored seeds, evaluation by evaluation: seeds are evaluated at similar steps.

    `untrained` is the return of an untrained agent. The lower margin shrinks, by up to half, to stay above it.
    """
    count = min((curve.steps.size for curve in curves), default=0)
    if len(curves) < FEWEST_SEEDS or not count:
        raise ConfigError(
            f"{entry.name}: a band needs {FEWEST_SEEDS} finished seeds with evaluations, found {len(curves)}"
        )
    steps = np.median([curve.steps[:count] for curve in curves], axis=0)
    returns = np.stack([curve.returns[:count] for curve in curves])
    means = np.stack([running_mean(row) for row in returns])
    low, high = means.min(axis=0), means.max(axis=0)
    # If all returns are equal, there is no range; a difference of one percent is still not a failure.
    smallest = max(WIDER_BY_RANGE * (returns.max() - returns.min()), 0.01 * float(np.abs(returns).max()))
    margin = np.maximum(WIDER_BY_WIDTH * (high - low), smallest)
    above = np.minimum(untrained + ABOVE_UNTRAINED * (high.max() - untrained), low - margin / 2)
    low, high = np.where(above > untrained, np.maximum(low - margin, above), low - margin), high + margin
    control = entry.row.must_stay_below is not None
    left = None if control else first_outside(untrained < low)
    tells_from = None if left is None else int(steps[left])  # a check that stops there sees the last point outside
    return Band(entry.name, control, len(curves), steps, low, high, untrained, tells_from, settings(entry.preset))


def band_path(name: str, folder: Path | None = None) -> Path:
    return (folder if folder is not None else zoo_folder() / "bands") / f"{name}.json"


def save_band(band: Band, folder: Path) -> Path:
    path = band_path(band.name, folder)
    values = {key: getattr(band, key) for key in KEYS}
    rounded: dict[str, Any] = {key: [_round(float(number)) for number in values[key]] for key in ARRAYS}
    rounded["untrained"] = _round(band.untrained)
    lines = [f" {json.dumps(key)}: {json.dumps((values | rounded)[key])}" for key in KEYS]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
    except OSError as error:
        raise ConfigError(f"--write {folder}: cannot write ({error.strerror})") from None
    return path


def remove_outdated(entry: Entry, folder: Path) -> Path | None:
    """Remove the band of a row whose preset has changed since the band was made."""
    path = band_path(entry.name, folder)
    if not path.is_file() or same_settings(load_band(path).settings, entry.preset):
        return None
    path.unlink()
    return path


def load_band(path: Path) -> Band:
    data = read_json(path)
    try:
        arrays = {key: np.asarray(data[key], np.float64) for key in ARRAYS}
        shapes = {array.shape for array in arrays.values()}
        if set(data) != set(KEYS) or len(shapes) != 1 or arrays["steps"].ndim != 1 or not arrays["steps"].size:
            raise ValueError("arrays of other shapes")
        numbers = np.concatenate([*arrays.values(), [data["untrained"], data["seeds"], data["tells_from"] or 0]])
        if not np.all(np.abs(numbers.astype(np.float64)) <= LARGEST_NUMBER) or np.any(np.diff(arrays["steps"]) <= 0):
            raise ValueError("not finite, or steps that do not rise")
        kinds: dict[str, Any] = {
            "settings": dict,
            "name": str,
            "control": bool,
            "seeds": int,
            "tells_from": (int, type(None)),
        }
        if not all(isinstance(data[key], kind) for key, kind in kinds.items()):
            raise TypeError("a value of another type")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise ConfigError(f"{path}: not a band file; make one with `{call('zoo', 'bands')}`") from None
    return Band(**(data | arrays))


def band_of(entry_name: str, preset: Any, path: Path | None) -> Band:
    """Load the packaged band of a preset, or a band file. A band of other settings is refused."""
    path = path if path is not None else band_path(entry_name)
    if not os.path.isfile(path):  # unlike Path.is_file, False for an overlong name
        raise ConfigError(
            f"{entry_name}: no band at {path}; make one with `{call('zoo', 'bands')}` and pass it with --band"
        )
    band = load_band(path)
    if not same_settings(band.settings, preset):
        raise ConfigError(
            f"{entry_name}: the settings have changed since the band {path.name} of {band.name} was made; "
            f"make a new band with `{call('zoo', 'bands')}`"
        )
    return band


def _round(value: float) -> float:
    """Round to five significant digits."""
    return (
        value
        if value == 0 or not math.isfinite(value)
        else round(value, max(0, 4 - math.floor(math.log10(abs(value)))))
    )
