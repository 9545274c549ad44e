"""Envs that misbehave, for cases of the fuzzer: `fuzz_envs:RaisesInStep-v0` and the like."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

RUN = Path("runs/new")


class Calm(gym.Env[Any, Any]):
    """Episodes of ten steps, without surprises."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.elapsed = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.elapsed += 1
        return np.full(4, self.elapsed / 10, np.float32), 1.0, self.elapsed == 10, False, {}

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)


class RaisesInStep(Calm):
    def step(self, action: Any) -> Any:
        if self.elapsed == 4:
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


class ExitsInConstructor(Calm):
    def __init__(self, render_mode: str | None = None) -> None:
        sys.exit(0)


class ExitsInStep(Calm):
    def step(self, action: Any) -> Any:
        sys.exit(0)


class RaisesInTest(Calm):
    """Fails only in evaluations, which pass `test`."""

    def __init__(self, render_mode: str | None = None, test: bool = False) -> None:
        super().__init__(render_mode)
        self.test = test

    def step(self, action: Any) -> Any:
        if self.test:
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


class RaisesInClose(Calm):
    def close(self) -> None:
        raise RuntimeError("the door is stuck")


class NoRender(Calm):
    metadata = {"render_modes": []}

    def __init__(self) -> None:
        super().__init__()

    def render(self) -> Any:
        raise NotImplementedError


class Wanders(Calm):
    """Changes the working directory of the process; nothing may be written there."""

    def step(self, action: Any) -> Any:
        os.chdir(os.path.join(os.environ["HOME"], os.pardir, "outside"))
        return super().step(action)


class DamagesRunFile(Calm):
    """Damages the run that it is in, as a careless program may; the run of the cases is named `new`."""

    def step(self, action: Any) -> Any:
        RUN.joinpath("run.json").write_text("[]")
        return super().step(action)


class RemovesRunFile(Calm):
    def step(self, action: Any) -> Any:
        RUN.joinpath("run.json").unlink(missing_ok=True)
        return super().step(action)


class MovesRun(Calm):
    def step(self, action: Any) -> Any:
        if RUN.exists():
            RUN.rename("runs/moved")
        return super().step(action)


class RemovesRun(Calm):
    def step(self, action: Any) -> Any:
        shutil.rmtree(RUN, ignore_errors=True)
        return super().step(action)


class SeesNaN(Calm):
    def step(self, action: Any) -> Any:
        return np.full(4, np.nan, np.float32), *super().step(action)[1:]


for each in Calm.__subclasses__():
    gym.register(f"{each.__name__}-v0", each)
gym.register("Calm-v0", Calm)
