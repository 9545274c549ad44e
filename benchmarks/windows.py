"""Measure a running training process in windows of a few seconds, on command.

A worker process trains forever. Between windows it waits for a line on its standard input, so that two workers can
alternate on an otherwise idle machine, both after imports, compilation and warm-up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

# What a window is measured by. The time of the processor does not count what other programs take.
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}


class Windows:
    """Call `between_rounds` after each learning phase. It returns False when the measurement is over."""

    def __init__(self, warm_up: float, clock: str = "wall"):
        self.clock = CLOCKS[clock]
        self.started = self.clock()
        self.length, self.first_step, self.rounds = warm_up, 0, 0

    def between_rounds(self, env_steps: int) -> bool:
        self.rounds += 1
        elapsed = self.clock() - self.started
        if elapsed < self.length or self.rounds < 2:
            return True
        sys.stdout.write(json.dumps({"steps": env_steps - self.first_step, "seconds": elapsed}) + "\n")
        sys.stdout.flush()
        command = sys.stdin.readline().strip()
        if not command:
            return False
        self.length, self.first_step, self.rounds = float(command), env_steps, 0
        self.started = self.clock()
        return True
