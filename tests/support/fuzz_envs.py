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


class WithoutText(Exception):
    """An exception of which nothing can be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class RustPanic(BaseException):
    """As libraries in Rust raise it: not an `Exception`."""


class LooksLikeAScalar:
    shape = ()

    def item(self) -> Any:
        raise RuntimeError("no item")


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


class RaisesWithoutText(Calm):
    def step(self, action: Any) -> Any:
        raise WithoutText


class PanicsInStep(Calm):
    def step(self, action: Any) -> Any:
        raise RustPanic("index out of bounds")


class PanicsInConstructor(Calm):
    def __init__(self, render_mode: str | None = None) -> None:
        raise RustPanic("index out of bounds")


class PanicsInClose(Calm):
    def close(self) -> None:
        raise RustPanic("index out of bounds")


class ReturnsFour(Calm):
    """As envs for old Gym do."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class RewardsWithText(Calm):
    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), "\x1b[31mred", False, False, {}


class RewardsTooMuch(Calm):
    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), 10**400, False, False, {}


class Reports(Calm):
    """Base of envs with an odd info."""

    info: Any = {"score": 0.5, "is_success": True}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], self.info


class ReportsNothing(Reports):
    info = None


class ReportsAList(Reports):
    info = [1, 2]


class ReportsOddly(Reports):
    info = {"score": WithoutText(), "is_success": LooksLikeAScalar(), "\x1b[31m": 1, 3: 4}


class ReportsEscapes(Reports):
    info = {"score": "\x1b[31mred\n\u202e", "is_success": float("nan")}


class ReportsOurNames(Reports):
    info = {"rl_training/restarted": [0, 1], "rl_training/last_infos": 3}


class DrawsNothing(Calm):
    def render(self) -> Any:
        return np.zeros((0, 0, 3), np.uint8)


class DrawsObjects(Calm):
    def render(self) -> Any:
        return np.full((8, 8, 3), LooksLikeAScalar(), object)


class DrawsALine(Calm):
    def render(self) -> Any:
        return np.full((1, 100, 3), self.elapsed, np.uint8)


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


ODD = [name for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, Calm)]
for name in ODD:
    gym.register(f"{name}-v0", globals()[name])
