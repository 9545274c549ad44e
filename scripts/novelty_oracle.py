"""torchrl's loss of random network distillation on given networks and statistics. Used by record_oracles.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.transforms.rnd import RunningMeanStd
from torchrl.objectives.rnd import RNDLoss

ROWS, INPUTS, HIDDEN, OUTPUTS = 6, 3, 4, 5


def network(rng: np.random.Generator, sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
    made = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=tuple(parameter.shape)).astype(np.float32)))
    return made


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in module.parameters()]


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        random = network(rng, (INPUTS, HIDDEN, OUTPUTS))
        imitation = network(rng, (INPUTS, HIDDEN, HIDDEN, OUTPUTS))
        seen = (rng.normal(size=(40, INPUTS)) * [1.0, 5.0, 0.1] + [0.0, 3.0, -1.0]).astype(np.float32)
        obs = (rng.normal(size=(ROWS, INPUTS)) * [2.0, 20.0, 1.0]).astype(np.float32)
        statistics = RunningMeanStd(shape=(INPUTS,))
        statistics.update(torch.from_numpy(seen))
        batch = TensorDict({"next": {"observation": torch.from_numpy(obs)}}, [ROWS])
        options = {"obs_rms": statistics, "obs_clip": 5.0, "update_fraction": 1.0}
        errors = RNDLoss(imitation, random, reduction="none", **options)(batch)["loss_predictor"]
        loss = RNDLoss(imitation, random, **options)(batch)["loss_predictor"]
        loss.backward()
        inputs = {"random": weights(random), "imitation": weights(imitation), "seen": seen, "obs": obs}
        gradients = [parameter.grad for parameter in imitation.parameters()]
        outputs = {"errors": errors.detach(), "loss": loss.detach(), "gradients": gradients}
        yield "torchrl RNDLoss", inputs, outputs
