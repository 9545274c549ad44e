"""The learner: what an algorithm is to the rest of the library. It acts, it updates, it has state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.algorithms.common.streams import Streams
from rl_training.config.base import Schedule
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.models.encoders import check_same_encoder


@dataclass(slots=True)  # not frozen: one is made in every step, and that would take three times as long
class Action:
    """What `act` decides: actions on the policy's own scale, and what the update will want back."""

    actions: np.ndarray
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    memory: Any = None


@dataclass(frozen=True, slots=True)
class UpdateResult(Mapping[str, Tensor]):
    """Named metrics of one update, and new priorities for the sampled rows when replay is prioritised."""

    metrics: dict[str, Tensor]
    priorities: np.ndarray | None = None

    def __getitem__(self, name: str) -> Tensor:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


class Counter:
    """A number that is part of the state."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.value = int(state["value"])


class Learner(ABC):
    """Base of every algorithm. It never steps an env, samples a buffer, logs, or touches a file.

    State is found, not listed: every attribute that has a `state_dict` (networks, targets, optimizers,
    normalisers, noise, counters, random streams) is saved and restored, together with `updates`.
    """

    model: Any

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        self.spaces = spaces
        self.model_config = config.model
        self.total_timesteps = config.total_timesteps
        self.num_envs = config.num_envs
        self.compiles = config.compile == "on" and config.algo_kwargs.why_not_compilable() is None
        self.device = resolve_device(config.device)
        self.streams = streams
        self.updates = 0
        self.env_steps = 0  # set by the loop; schedules read it
        self.reward_scale, self.reward_clip = config.algo_kwargs.reward_scale, config.algo_kwargs.reward_clip

    @abstractmethod
    def act(
        self,
        obs: np.ndarray,
        *,
        explore: bool,
        episode_starts: np.ndarray | None = None,
        memory: Any = None,
    ) -> Action:
        """Actions for encoded observations [N, ...]. Without `explore` it is deterministic and draws no numbers."""

    @abstractmethod
    def update(self, batch: Any) -> UpdateResult:
        """Learn from one rollout or one replay batch."""

    def observe(self, obs: np.ndarray, valid: np.ndarray | None = None) -> None:
        """Take fresh observations, the valid ones, into the model's statistics if it keeps any. Each is seen once."""
        normalizer = getattr(self.model, "normalizer", None)
        if normalizer is not None:
            normalizer.update(obs if valid is None else obs[valid])

    def shape_rewards(self, rewards: np.ndarray) -> np.ndarray:
        """Scale, then clip, what the learner sees. The return that is logged stays raw."""
        if self.reward_scale != 1.0:
            rewards = rewards * np.float32(self.reward_scale)
        if self.reward_clip is not None:
            rewards = np.clip(rewards, -self.reward_clip, self.reward_clip)
        return rewards

    def advice(self, metrics: Mapping[str, Any]) -> str | None:
        """One line for the user when a line of metrics shows that a setting does not fit the task."""
        return None

    def scheduled(self, schedule: Schedule) -> float:
        return schedule.at(self.env_steps, self.total_timesteps)

    def compiled(self, step: Callable[..., Any], *, rows: int) -> Callable[..., Any]:
        """`step(batch, ...)` in the form that the run asks for; `rows` is the size that batches usually have."""
        return CompiledStep(step, rows) if self.compiles else step

    def to_device(self, module: nn.Module) -> Any:
        return module.to(self.device)

    def state_dict(self) -> dict[str, Any]:
        parts = {name: part.state_dict() for name, part in sorted(vars(self).items()) if hasattr(part, "state_dict")}
        return {"updates": self.updates, "parts": parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        mine = {name for name, part in vars(self).items() if hasattr(part, "state_dict")}
        if mine != set(state["parts"]):
            odd = ", ".join(sorted(mine ^ set(state["parts"])))
            raise ValueError(f"the saved parts do not fit this learner: {odd}")
        check_same_encoder(state["parts"].get("model", ()), self.model.state_dict())
        for name, part_state in state["parts"].items():
            getattr(self, name).load_state_dict(part_state)
        self.updates = int(state["updates"])


def resolve_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: cuda is not available here, use device=auto or device=cpu", key="device")
    return torch.device(name)


def build_seeded(streams: Streams, build: Any) -> Any:
    """Run a model's constructor under the run's `init` stream, leaving torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.seed_for("init"))
        return build()
