"""What compilation would cost a run and save it: a forecast, from figures that were measured and ship with the library.

A stopwatch at the start of a run would see other figures each time, and so would a look at which functions are kept
from earlier runs. The same run could then be compiled one day and not the next, and its numbers would differ in
rounding. So the forecast depends on the settings of the run alone. `python benchmarks/compile_gain.py` measures the
figures. A machine that is half as fast takes twice as long to compile and saves twice as much: the ratio is the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from rl_training.config.algorithm_table import ALGORITHMS, LoopKind
from rl_training.config.base import ReplayConfig, RolloutConfig
from rl_training.config.train_config import TrainConfig

TABLE = Path(str(files("rl_training") / "assets" / "compile_gain.json"))
# The gain must be so many times the cost, and so many seconds more. The first leaves room for a wrong forecast and for
# runs that end early. The second keeps short runs as they are: compiling changes the last bits of their numbers.
MARGIN, LEAST_SAVED = 2.0, 10.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds that a first compilation takes, and seconds that a run then saves, on the machine of the figures."""

    cost: float
    gain: float

    @property
    def pays(self) -> bool:
        return self.gain >= max(MARGIN * self.cost, self.cost + LEAST_SAVED)

    def __str__(self) -> str:
        return f"compiling takes about {self.cost:.0f} s and saves about {self.gain:.0f} s"


@dataclass(frozen=True, slots=True)
class Step:
    """A gradient step that was measured: its work, and the seconds that compilation saves of it."""

    work: float
    saved: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of an algorithm. A step of all envs in a rollout saves `saved_per_vector_step`."""

    compile_steps: float
    small: Step
    large: Step
    compile_rollouts: float = 0.0
    saved_per_vector_step: float = 0.0

    def saved(self, work: float, threads: int) -> float:
        """Seconds that a gradient step saves: in proportion between the two measured ones, and no more beyond them.

        The small one saves calls, which one thread makes. What a larger one saves beyond that is arithmetic, which
        threads share.
        """
        share = (work - self.small.work) / (self.large.work - self.small.work)
        arithmetic = (self.large.saved - self.small.saved) * min(1.0, max(0.0, share))
        return self.small.saved + min(arithmetic, arithmetic / threads)


def forecast(config: TrainConfig, *, batched: bool, images: bool, threads: int) -> Forecast:
    """Cost and gain of compiling this run. `batched` says that its envs are stepped as one array.

    Images and other precisions were not measured: they count as the smallest step that was.
    """
    steps, settings = planned_gradient_steps(config), config.algo_kwargs
    figures = figures_of(config.algo, "replay" if isinstance(settings, ReplayConfig) else "on-policy")
    rows = getattr(settings, "minibatch_size", None)
    if isinstance(settings, RolloutConfig) and rows is not None and settings.num_steps * config.num_envs % rows:
        steps = 0  # minibatches of about this size, of which none is compiled
    measured = not images and config.precision == "float32"
    cost, gain = figures.compile_steps, steps * figures.saved(work_of(config) if measured else 0.0, threads)
    if batched and isinstance(settings, RolloutConfig):
        cost += figures.compile_rollouts
        if not (config.runtime.resolved(config.algo).uses_fleet or getattr(settings, "state_dependent_noise", False)):
            gain += config.total_timesteps / config.num_envs * figures.saved_per_vector_step
    return Forecast(cost, gain)


def planned_gradient_steps(config: TrainConfig) -> int:
    settings = config.algo_kwargs
    if isinstance(settings, ReplayConfig):
        rounds = max(0, config.total_timesteps - settings.learning_starts) // settings.train_frequency
        return rounds * (settings.train_frequency if settings.gradient_steps == -1 else settings.gradient_steps)
    if not isinstance(settings, RolloutConfig):
        return 0
    rows = getattr(settings, "minibatch_size", settings.num_steps * config.num_envs)
    return config.total_timesteps * getattr(settings, "update_epochs", 1) // rows


def work_of(config: TrainConfig) -> int:
    """A measure of the arithmetic of a gradient step: its rows times the weights between the hidden layers."""
    settings = config.algo_kwargs
    rows = getattr(settings, "batch_size", getattr(settings, "minibatch_size", 0))
    if not rows and isinstance(settings, RolloutConfig):
        rows = settings.num_steps * config.num_envs
    networks = (config.model, config.model.for_critic())
    return int(rows * sum(left * right for model in networks for left, right in pairwise(model.hidden_sizes)))


def figures_of(algorithm: str, kind: LoopKind) -> Figures:
    """Those of the algorithm; where it was not measured, those of the smallest gradient step with such a loop.

    A larger step has more to compile, and saves more.
    """
    table = _table()
    if algorithm in table:
        return table[algorithm]
    alike = [figures for name, figures in table.items() if ALGORITHMS[name].loop == kind]
    least = min(alike, key=lambda figures: figures.small.saved)
    return replace(least, large=Step(least.small.work + 1, least.small.saved), saved_per_vector_step=0.0)


@cache
def _table() -> Mapping[str, Figures]:
    rows: dict[str, dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))["algorithms"]
    return {name: _figures(row) for name, row in rows.items()}


def _figures(row: dict[str, Any]) -> Figures:
    small = _step(row["small"])
    large = _step(row["large"]) if "large" in row else Step(small.work + 1, small.saved)  # it saves at least as much
    rollouts = row.get("rollouts", {"compile": 0.0, "plain": 0.0, "compiled": 0.0})
    return Figures(row["compile"], small, large, rollouts["compile"], rollouts["plain"] - rollouts["compiled"])


def _step(measured: dict[str, float]) -> Step:
    return Step(measured["work"], measured["plain"] - measured["compiled"])
