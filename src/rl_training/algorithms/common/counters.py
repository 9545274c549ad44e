"""Numbers that count: the clock of a run, and counts that belong to a learner's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """The environment steps of a run: its loop advances the clock, and its learner's schedules read it.

    The loop saves the count. A learner does not: it can start another run, which counts from 0.
    """

    env_steps: int = 0


class Counter:
    """A count that is part of a learner's state."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.value = int(state["value"])
