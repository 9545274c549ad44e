"""What the replay tests share: learners on small spaces, random batches, plain networks and recorded oracles."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.common.learner import Action, Learner, UpdateResult
from rl_training.algorithms.common.streams import Streams
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.experiment.registry import get_spec
from rl_training.runtime.loops import ReplayLoop

OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
DISCRETE = Spaces(OBSERVATIONS, gym.spaces.Discrete(4))
# Unequal bounds off zero: what holds on the policy's scale must not depend on them.
BOX = Spaces(OBSERVATIONS, gym.spaces.Box(np.array([0.0, -2.0], np.float32), np.array([3.0, 2.0], np.float32)))

ORACLES = Path(__file__).resolve().parent.parent / "fixtures" / "oracles"


def make_config(
    algo: str,
    *,
    total_timesteps: int = 1000,
    num_envs: int = 1,
    seed: int = 0,
    model: dict[str, Any] | None = None,
    **algo_kwargs: Any,
) -> TrainConfig:
    small = {"hidden_sizes": (8, 8)} | (model or {})
    return TrainConfig.model_validate(
        {
            "algo": algo,
            "env_id": "Probe-v0",
            "total_timesteps": total_timesteps,
            "num_envs": num_envs,
            "seed": seed,
            "model": small,
            "algo_kwargs": algo_kwargs,
        }
    )


def make_learner(algo: str, spaces: Spaces, **settings: Any) -> Any:
    config = make_config(algo, **settings)
    return get_spec(algo).learner(spaces, config, Streams(config.seed))


def make_loop(algo: str, envs: Any, **settings: Any) -> ReplayLoop:
    config = make_config(algo, num_envs=envs.num_envs, **settings)
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    streams = Streams(config.seed)
    return ReplayLoop(envs, spaces, get_spec(algo).learner(spaces, config, streams), config, streams)


def make_batch(spaces: Spaces, size: int, seed: int, *, weights: bool = False, n_step: int = 1) -> Transitions:
    """Random transitions. A window may be cut short or end in a terminal state, so the discounts differ by row."""
    rng = np.random.default_rng(seed)
    if spaces.action_kind == "box":
        actions: Any = rng.uniform(-1, 1, (size, spaces.action_dim)).astype(np.float32)
    else:
        actions = rng.integers(spaces.action_sizes[0], size=size)
    steps = rng.integers(1, n_step + 1, size=size)
    discounts = np.where(rng.random(size) < 0.25, 0.0, 0.9**steps)
    return Transitions(
        obs=torch.from_numpy(rng.standard_normal((size, *spaces.observation_shape)).astype(np.float32)),
        actions=torch.from_numpy(actions),
        rewards=torch.from_numpy((3 * rng.standard_normal(size)).astype(np.float32)),
        next_obs=torch.from_numpy(rng.standard_normal((size, *spaces.observation_shape)).astype(np.float32)),
        discounts=torch.from_numpy(discounts.astype(np.float32)),
        weights=torch.from_numpy(rng.uniform(0.1, 1.0, size).astype(np.float32)) if weights else None,
        indices=np.arange(size),
    )


def plain_copy(network: nn.Sequential) -> nn.Sequential:
    """Ordinary modules with parameters of their own, equal to those of `network`."""
    layers: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, nn.Linear):
            linear = nn.Linear(layer.in_features, layer.out_features, dtype=layer.weight.dtype)
            linear.load_state_dict({"weight": layer.weight.detach().clone(), "bias": layer.bias.detach().clone()})
            layers.append(linear)
        else:
            layers.append(type(layer)())
    return nn.Sequential(*layers)


def disturb(module: nn.Module, seed: int = 0) -> None:
    """Move every parameter at random: a target network that differs from its online network tells them apart."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def soft_update(target: nn.Module, online: nn.Module, tau: float) -> None:
    with torch.no_grad():
        for old, new in zip(target.parameters(), online.parameters(), strict=True):
            old.copy_((1 - tau) * old + tau * new)


def assert_same_parameters(ours: nn.Module, theirs: nn.Module, tolerance: float = 1e-6) -> None:
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=0, atol=tolerance)


def snapshot(module: nn.Module) -> Tensor:
    """All parameters as one vector, copied."""
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).clone()


class _Objective(nn.Module):
    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor]):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self) -> Tensor:
        return self.loss(self.model)


def actor_gradient_is_exact(model: nn.Module, loss: Callable[[Any], Tensor]) -> bool:
    """Whether the gradient of `loss(model)` in the actor's parameters agrees with finite differences."""
    objective = _Objective(copy.deepcopy(model).double(), loss)
    named = {name: p for name, p in objective.named_parameters() if "policy_network" in name}

    def of_parameters(*values: Tensor) -> Any:
        return torch.func.functional_call(objective, dict(zip(named, values, strict=True)), ())

    parameters = [p.detach().clone().requires_grad_() for p in named.values()]
    return bool(torch.autograd.gradcheck(of_parameters, parameters))


def oracle(name: str) -> dict[str, Any]:
    """Recorded inputs and outputs of an independent implementation; scripts/record_oracles.py makes them."""
    document: dict[str, Any] = json.loads((ORACLES / f"{name}.json").read_text())
    return document


def kolmogorov_distance(samples: np.ndarray, low: float, high: float) -> float:
    """Largest gap between the empirical distribution and the uniform one on [low, high]."""
    ordered = (np.sort(samples.ravel().astype(np.float64)) - low) / (high - low)
    ranks = np.arange(1, len(ordered) + 1) / len(ordered)
    return float(max((ranks - ordered).max(), (ordered - ranks + 1 / len(ordered)).max()))


def kolmogorov_limit(count: int) -> float:
    """The distance that uniform samples exceed once in a thousand tests."""
    return 1.95 / count**0.5


class Recorder(Learner):
    """Acts always alike, learns nothing, and writes down what it is asked and when."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.acted_at: list[int] = []
        self.updated_at: list[int] = []
        self.batches: list[Transitions] = []
        self.observed: list[np.ndarray] = []

    def act(self, obs: np.ndarray, **_: Any) -> Action:
        self.acted_at.append(self.env_steps)
        shape = (len(obs), *self.spaces.action_shape)
        return Action(np.zeros(shape, np.float32 if self.spaces.action_kind == "box" else np.int64))

    def observe(self, obs: np.ndarray, valid: np.ndarray | None = None) -> None:
        self.observed.append(obs.copy() if valid is None else obs[valid])

    def update(self, batch: Transitions) -> UpdateResult:
        self.updated_at.append(self.env_steps)
        self.batches.append(batch)
        self.updates += 1
        return UpdateResult({}, np.arange(len(batch), dtype=np.float32) / 7 if batch.weights is not None else None)


def recording_loop(envs: Any, **settings: Any) -> tuple[ReplayLoop, Recorder]:
    config = make_config("dqn", num_envs=envs.num_envs, **settings)
    spaces, streams = Spaces(envs.single_observation_space, envs.single_action_space), Streams(0)
    learner = Recorder(spaces, config, streams)
    return ReplayLoop(envs, spaces, learner, config, streams), learner
