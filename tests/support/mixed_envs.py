"""An env with a camera and numbers, an encoder for it, and spaces with images at several places."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

CAMERA = gym.spaces.Box(0, 255, (12, 10, 3), np.uint8)
MIXED = gym.spaces.Dict(
    {
        "camera": CAMERA,
        "inner": gym.spaces.Tuple((gym.spaces.Box(-9.0, 9.0, (2, 2), np.float32), gym.spaces.Discrete(3, start=1))),
        "map": gym.spaces.Box(0, 255, (2, 9, 11), np.uint8),
        "speed": gym.spaces.Box(-9.0, 9.0, (1,), np.float32),
    }
)


class Lit(gym.Env[Any, Any]):
    """The camera is bright or dark, `sign` is 1 or -1: the best action is their product. Episodes last 8 steps."""

    def __init__(self, discrete: bool = False) -> None:
        self.observation_space = gym.spaces.Dict(
            {"camera": CAMERA, "sign": gym.spaces.Box(-1.0, 1.0, (1,), np.float32)}
        )
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (1,))
        self.discrete = discrete

    def _look(self) -> dict[str, Any]:
        self.light, self.sign = (int(self.np_random.integers(2)) for _ in range(2))
        image = self.np_random.integers(0, 60, CAMERA.shape) + 180 * self.light
        return {"camera": image.astype(np.uint8), "sign": np.float32([2 * self.sign - 1])}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        wanted = (2 * self.light - 1) * (2 * self.sign - 1)
        given = 2 * int(action) - 1 if self.discrete else float(np.asarray(action).ravel()[0])
        self.elapsed += 1
        return self._look(), -abs(given - wanted), False, self.elapsed == 8, {}


def lit() -> Lit:
    return Lit()


def lit_discrete() -> Lit:
    return Lit(discrete=True)


class CameraEncoder(nn.Module):
    """An encoder of the user's own for `Lit`: the mean of the camera and the sign."""

    def __init__(self, observation_space: gym.spaces.Dict, width: int = 8) -> None:
        super().__init__()
        assert isinstance(observation_space, gym.spaces.Dict)
        self.out_features = width
        self.hidden = nn.Linear(2, width)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        camera = observations["camera"]
        assert camera.dtype == torch.uint8 and camera.shape[1:] == CAMERA.shape
        light = camera.float().mean((1, 2, 3), keepdim=False)[:, None] / 255
        return torch.relu(self.hidden(torch.cat([light, observations["sign"]], 1)))


class VectorNet(nn.Module):
    """An encoder of the user's own for vectors."""

    def __init__(self, observation_space: gym.Space[Any], width: int = 6) -> None:
        super().__init__()
        assert observation_space.shape is not None
        self.layers = nn.Sequential(
            nn.Linear(int(np.prod(observation_space.shape)), width), nn.LayerNorm(width), nn.ELU()
        )
        self.out_features = width

    def forward(self, observations: Tensor) -> Tensor:
        outputs: Tensor = self.layers(observations.flatten(1))
        return outputs


class PretrainedNet(nn.Module):
    """An encoder of the user's own with a part that is frozen, and one that learns. Both start with known weights."""

    def __init__(self, observation_space: gym.Space[Any], width: int = 6) -> None:
        super().__init__()
        assert observation_space.shape is not None
        size = int(np.prod(observation_space.shape))
        self.frozen, self.layer = nn.Linear(size, size), nn.Linear(size, width)
        nn.init.eye_(self.frozen.weight)
        nn.init.eye_(self.layer.weight)
        self.frozen.requires_grad_(False)
        self.out_features = width

    def forward(self, observations: Tensor) -> Tensor:
        return torch.tanh(self.layer(torch.tanh(self.frozen(observations.flatten(1)))))
