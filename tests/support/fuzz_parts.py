"""Encoders, wrappers and sinks that misbehave, for cases of the fuzzer: `fuzz_parts:ExitsAsEncoder` and the like."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from fuzz_callbacks import ESCAPE
from fuzz_envs import RustPanic, WithoutText
from rl_training import Sink


class Encodes(nn.Module):
    """Without surprises: one layer on flat observations."""

    def __init__(self, observation_space: Any, width: int = 4) -> None:
        super().__init__()
        self.out_features = width
        self.layer = nn.Linear(int(np.prod(observation_space.shape)), width)

    def forward(self, observations: Any) -> Any:
        return self.layer(observations.flatten(1))


class ExitsAsEncoder(Encodes):
    def __init__(self, observation_space: Any) -> None:
        sys.exit(0)


class PanicsAsEncoder(Encodes):
    def __init__(self, observation_space: Any) -> None:
        raise RustPanic("index out of bounds")


class RaisesAsEncoder(Encodes):
    def __init__(self, observation_space: Any) -> None:
        raise ValueError(ESCAPE)


class ExitsInForward(Encodes):
    def forward(self, observations: Any) -> Any:
        sys.exit(0)


class RaisesInForward(Encodes):
    def forward(self, observations: Any) -> Any:
        raise WithoutText


class FailsInTraining(Encodes):
    """Works in the trial and while it acts, and fails in the first update."""

    def forward(self, observations: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(ESCAPE)
        return super().forward(observations)


class EncodesNaN(Encodes):
    def forward(self, observations: Any) -> Any:
        return super().forward(observations) * float("nan")


class SaysAHugeSize(Encodes):
    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.out_features = 2**40


class HidesItsSize(Encodes):
    """`out_features` is code that fails."""

    def __getattr__(self, name: str) -> Any:
        if name == "out_features":
            raise WithoutText
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "out_features":
            super().__setattr__(name, value)


class Wraps(gym.Wrapper[Any, Any, Any, Any]):
    """Without surprises."""


class ExitsAsWrapper(Wraps):
    def __init__(self, env: Any) -> None:
        sys.exit(0)


class PanicsAsWrapper(Wraps):
    def __init__(self, env: Any) -> None:
        raise RustPanic("index out of bounds")


class RaisesAsWrapper(Wraps):
    def __init__(self, env: Any) -> None:
        raise ValueError(ESCAPE)


class ExitsInWrapperStep(Wraps):
    def step(self, action: Any) -> Any:
        sys.exit(0)


class RaisesInWrapperClose(Wraps):
    def close(self) -> None:
        raise WithoutText


class LosesItsSpaces(Wraps):
    @property
    def observation_space(self) -> Any:
        return None


class GivesAHugeSpace(Wraps):
    @property
    def observation_space(self) -> Any:
        return gym.spaces.Box(-1, 1, (2**20, 2**20), np.float32)


class ForgetsTheInfo(Wraps):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class Listens(Sink):
    """Without surprises."""

    name = "listens"

    def __init__(self, **options: Any) -> None:
        self.options = options


class ExitsAsSink(Listens):
    def __init__(self) -> None:
        sys.exit(0)


class RaisesInOpen(Listens):
    def open(self, run: Any) -> None:
        raise ValueError(ESCAPE)


class ExitsInOpen(Listens):
    def open(self, run: Any) -> None:
        sys.exit(0)


class ExitsInWrite(Listens):
    def write(self, line: Any) -> None:
        sys.exit(0)


class PanicsInFlush(Listens):
    def flush(self) -> None:
        raise RustPanic("index out of bounds")


class RaisesInSinkClose(Listens):
    def close(self) -> None:
        raise WithoutText


class NamesAnEscape(Listens):
    name = ESCAPE

    def write(self, line: Any) -> None:
        raise ValueError


class ChangesItsLine(Listens):
    """The lines of other sinks and of the metric file stay as they are."""

    def write(self, line: Any) -> None:
        line["env_steps"] = line["mean_return"] = ESCAPE


def _names(base: type) -> list[str]:
    return [name for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, base)]


ENCODERS, WRAPPERS = _names(Encodes), _names(Wraps)
SINKS = _names(Listens)
