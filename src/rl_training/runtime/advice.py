"""What a learner has to say about its own metrics, passed on once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl_training.algorithms.common.learner import Learner


class Adviser:
    """Tells a learner's advice when two lines of metrics in a row call for it, and then not again.

    One line proves little: at first a network is wrong about everything.
    """

    def __init__(self, learner: Learner, tell: Callable[[str], None]) -> None:
        self._learner, self._tell = learner, tell
        self._last: str | None = None
        self._told: set[str] = set()

    def look(self, line: Mapping[str, Any]) -> None:
        advice = self._learner.advice(line)
        if advice is not None and advice == self._last and advice not in self._told:
            self._told.add(advice)
            self._tell(advice)
        self._last = advice
