"""The clocks of a run: cadences, which count env steps, and wall time."""

from __future__ import annotations

import math
import time

from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.loops import Loop


class Cadence:
    """Due whenever a multiple of `every` env steps is reached or passed; never if `every` is 0."""

    def __init__(self, every: int, start: int = 0):
        self.every = every
        self.next = self._after(start)  # the env step at which it is due next

    def due(self, now: int) -> bool:
        if now < self.next:
            return False
        self.next = self._after(now)
        return True

    def _after(self, step: int) -> float:
        return (step // self.every + 1) * self.every if self.every else math.inf


class RunClock:
    """Wall-clock figures of a run: of this session, which began at `started`, and of the ones before it."""

    def __init__(self, loop: Loop, started: float, seconds_before: float):
        self._loop, self._started, self._seconds_before = loop, started, seconds_before
        self._steps_before = loop.env_steps

    def seconds(self) -> float:
        """Seconds of all sessions so far."""
        return self._seconds_before + self._elapsed()

    def steps_per_second(self) -> float:
        """Env steps per second of this session."""
        return (self._loop.env_steps - self._steps_before) / self._elapsed()

    def metrics(self) -> dict[str, float]:
        """The wall-clock part of a metric line: totals, and the share of each part of the loop in this session."""
        elapsed, collector = self._elapsed(), self._loop.collector
        shares = {
            "time_env": collector.seconds_env / elapsed,
            "time_act": collector.seconds_acting / elapsed,
            "time_learn": self._loop.seconds_learning / elapsed,
        }
        return {
            "wall_seconds": self._seconds_before + elapsed,
            "steps_per_second": (self._loop.env_steps - self._steps_before) / elapsed,
            **shares,
            **(collector.shares(elapsed) if isinstance(collector, ActorCollector) else {}),
            "time_other": max(0.0, 1.0 - sum(shares.values())),
        }

    def _elapsed(self) -> float:
        return max(time.perf_counter() - self._started, 1e-9)
