"""What the rules know about a metric stream: a summary of constant size that grows line by line."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

KEPT = 10  # newest values of each metric
LARGEST_NUMBER = 1e100  # a file may hold anything
LARGEST_STEP = 2**63

WATCHED = (
    "approx_kl", "learning_rate", "entropy_share", "explained_variance", "target_std", "value_loss", "mean_return",
    "q_mean", "temperature", "entropy", "reward_max", "longest_episode", "reward_clipped", "support_clipped",
    "grad_norm", "critic_grad_norm", "actor_grad_norm", "dead_units", "time_env",
)  # fmt: skip


@dataclass
class Series:
    """The values of one metric so far: the newest ones, the first one and the extremes."""

    first: float
    low: float
    high: float
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, value: float) -> None:
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.recent.append(value)


@dataclass
class Evaluations:
    """The evaluations so far. The one after the last step is repeated on other seeds, and counts like any other."""

    count: int = 0
    first: float = 0.0
    best: float = 0.0
    best_at: int = 0
    noise: float = 0.0  # standard deviation between the episodes of the first evaluation or, if larger, of the best
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, mean_return: float, deviation: float, env_steps: int) -> None:
        if not self.count:
            self.first, self._first_noise = mean_return, deviation
        if not self.count or mean_return > self.best:
            self.best, self.best_at, self.noise = mean_return, env_steps, max(deviation, self._first_noise)
        self.count += 1
        self.recent.append(mean_return)


class StreamSummary:
    """All that rules may ask about the lines so far. Its size does not depend on their number."""

    def __init__(self) -> None:
        self.lines = 0
        self.env_steps = 0
        self.updates = 0
        self.episodes = 0
        self.episode_at = 0  # env step of the line in which the number of episodes last grew
        self.first_update_at: int | None = None  # env step of the first line with updates
        self.evaluations = Evaluations()
        self.update_ratios: deque[float] = deque(maxlen=KEPT)  # updates per env step, of the newest lines
        self.is_evaluation = False  # whether the newest line is one
        self._series: dict[str, Series] = {}
        self._added: frozenset[str] = frozenset()  # metrics of the newest line

    def add(self, line: Mapping[str, Any]) -> bool:
        """Take in the next line; False if it is not a metric line, which leaves everything as it was."""
        env_steps = whole_number(line.get("env_steps"))
        if env_steps is None:
            return False
        self.lines += 1
        self.is_evaluation = line.get("kind") == "eval"
        if self.is_evaluation:
            self._added = frozenset()
            mean_return = number(line.get("eval_mean_return"))
            if mean_return is not None:
                self.evaluations.add(mean_return, number(line.get("eval_std_return")) or 0.0, env_steps)
            self.env_steps = env_steps
            return True
        self._count(line, env_steps)
        found = {name: value for name in WATCHED if (value := number(line.get(name))) is not None}
        for name, value in found.items():
            if name not in self._series:
                self._series[name] = Series(value, value, value)
            self._series[name].add(value)
        self._added = frozenset(found)
        return True

    def _count(self, line: Mapping[str, Any], env_steps: int) -> None:
        updates, episodes = whole_number(line.get("updates")), whole_number(line.get("episodes"))
        if updates is not None:
            if env_steps > self.env_steps and self.updates:
                self.update_ratios.append((updates - self.updates) / (env_steps - self.env_steps))
            if updates and self.first_update_at is None:
                self.first_update_at = env_steps
            self.updates = updates
        if episodes is not None and episodes != self.episodes:
            self.episodes, self.episode_at = episodes, env_steps
        self.env_steps = env_steps

    def has(self, name: str) -> bool:
        """Whether the newest line has this metric. A rule that judges a metric judges only such lines."""
        return name in self._added

    def newest(self, name: str) -> float | None:
        series = self._series.get(name)
        return series.recent[-1] if series else None

    def first(self, name: str) -> float | None:
        series = self._series.get(name)
        return series.first if series else None

    def highest(self, name: str) -> float | None:
        series = self._series.get(name)
        return series.high if series else None

    def last(self, name: str, count: int) -> list[float]:
        """The newest `count` values, oldest first; none if there are fewer."""
        series = self._series.get(name)
        values = [] if series is None else list(series.recent)[-count:]
        return values if len(values) == count else []

    def middle(self, name: str, count: int) -> float | None:
        """The median of the newest `count` values; None if there are fewer."""
        values = self.last(name, count)
        return median(values) if values else None

    def names(self) -> Iterator[str]:
        yield from self._series


def number(value: Any) -> float | None:
    """A finite number of sensible size, or None for anything else."""
    if type(value) not in (int, float) or not abs(value) <= LARGEST_NUMBER:
        return None
    plain = float(value)
    return plain if math.isfinite(plain) else None


def whole_number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < LARGEST_STEP else None
