"""An env that fails on demand, in every way there is."""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

WAYS = ("raise", "exit", "leave", "segfault", "sleep", "stop", "shape", "dtype")


class FaultyEnv(gym.Env[Any, Any]):
    """Counts its steps in the observation; episodes end at `length`. Fails in the way `how` at step `fail_at` of an
    episode, or at its reset (0), in the env whose seed modulo 10 is `which` (any, if negative), as often as the file
    `times` has bytes."""

    def __init__(
        self,
        how: str = "raise",
        fail_at: int = 4,
        which: int = 1,
        times: str | None = None,
        length: int = 6,
        slow: float = 0,
        box: bool = False,
    ) -> None:
        self.observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,)) if box else gym.spaces.Discrete(3)
        self.how, self.fail_at, self.which, self.times, self.length = how, fail_at, which, times, length
        self.chosen = False
        time.sleep(slow)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.elapsed = 0
        if seed is not None:
            self.chosen = self.which < 0 or seed % 10 == self.which
        self.mark = self.np_random.integers(1000)
        if self.fail_at == 0:
            self._fail()
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self.elapsed += 1
        if self.elapsed == self.fail_at:
            broken = self._fail()
            if broken is not None:
                return broken, 1.0, False, False, {}
        return self._look(), float(self.elapsed), self.elapsed == self.length, False, {}

    def _look(self) -> np.ndarray:
        return np.array([self.elapsed, self.mark], np.float32)

    def _fail(self) -> Any:
        if not self.chosen or not self._may():
            return None
        if self.how == "raise":
            raise ZeroDivisionError("the wheel came off")
        if self.how == "exit":
            os._exit(7)
        if self.how == "leave":
            sys.exit(3)
        if self.how == "segfault":
            faulthandler.disable()  # pytest would have it print every stack
            ctypes.string_at(0)
        if self.how == "sleep":
            time.sleep(1000)
        if self.how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        return np.zeros(3, np.float32) if self.how == "shape" else np.array(["a", "b"])

    def _may(self) -> bool:
        if self.times is None:
            return True
        # Envs of one run get here at the same moment: without the lock two of them would take the same byte.
        with Path(self.times).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            left = os.fstat(file.fileno()).st_size
            file.truncate(max(0, left - 1))
        return left > 0
