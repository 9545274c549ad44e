"""Measuring a run that is under way in windows of a few seconds, on command.

A worker process trains for ever. Between windows it waits for a line on its standard input, so that two workers can
take turns on an otherwise idle machine: each has its imports, its compiling and its warm-up behind it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TextIO


class Windows:
    """Call `between_rounds` where the run has just learned. It returns False when there is no more to measure."""

    def __init__(self, warm_up: float, out: TextIO = sys.stdout):
        self.started, self.out = time.perf_counter(), out
        self.length, self.first_step, self.rounds = warm_up, 0, 0

    def between_rounds(self, env_steps: int, rounds_at_least: int = 2) -> bool:
        self.rounds += 1
        elapsed = time.perf_counter() - self.started
        if elapsed < self.length or self.rounds < rounds_at_least:
            return True
        self.out.write(json.dumps({"steps": env_steps - self.first_step, "seconds": elapsed}) + "\n")
        self.out.flush()
        command = sys.stdin.readline().strip()
        if not command:
            return False
        self.length, self.first_step, self.rounds = float(command), env_steps, 0
        self.started = time.perf_counter()
        return True
