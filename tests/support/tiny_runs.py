"""Runs of a few dozen steps, for the tests that put every registered algorithm through the same contract."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.config.base import RolloutConfig
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.experiment.registry import ALGORITHMS, get_algorithm, get_config_class, get_spec
from rl_training.runtime.trainer import trainer
from rl_training.runtime.workflows import TrainResult

EVERY_ALGORITHM = pytest.mark.parametrize("algorithm", ALGORITHMS)
STEPS = 64
ROOT = Path(__file__).resolve().parents[2]


class Blocks(gym.Env[Any, Any]):
    """Five steps of reward 1; observations and actions are samples of whatever spaces are asked for."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], reward: float = 1.0) -> None:
        self.observation_space, self.action_space, self.reward = observation_space, action_space, reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.elapsed = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.elapsed += 1
        return self.observation_space.sample(), self.reward, self.elapsed == 5, False, {}


def env_of(algorithm: str) -> str:
    return "CartPole-v1" if "discrete" in get_spec(algorithm).actions else "Pendulum-v1"


def class_name(algorithm: str) -> str:
    return get_algorithm(algorithm).class_name


def tiny_settings(algorithm: str, output_dir: Path | str, **settings: Any) -> dict[str, Any]:
    """Bare settings that make any algorithm learn, save and evaluate within a fraction of a second."""
    fields = get_config_class(algorithm).model_fields
    family: dict[str, Any] = {"learning_starts": 16, "batch_size": 8, "buffer_size": 500, "train_frequency": 2}
    family |= {"sequence_length": 6, "burn_in": 2, "memory_size": 8}
    if issubclass(get_config_class(algorithm), RolloutConfig):
        family = {"num_steps": 16, "minibatch_size": 8, "update_epochs": 2}
        family |= {"policy_phases": 2, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 8}
        family |= {"sequence_length": 4, "memory_size": 8, "buffer_size": 500, "replay_starts": 16}
    if algorithm == "rainbow":
        family["support_high"] = 100.0  # its three-step returns of CartPole leave the default support
    run = {"output_dir": str(output_dir), "total_timesteps": STEPS, "log_every": 16, "eval_episodes": 1}
    own = {name: value for name, value in family.items() if name in fields}
    return {**run, "hidden_sizes": (8,), **own, **settings}


def tiny_config(algorithm: str, output_dir: Path | str, **settings: Any) -> TrainConfig:
    base = {"algo": algorithm, "env_id": env_of(algorithm)}
    return load_config(base, tiny_settings(algorithm, output_dir, **settings))


def managed(algorithm: str, output_dir: Path | str, env: Any = None, **settings: Any) -> Any:
    """The algorithm's managed class, made for a tiny run."""
    import rl_training

    options = {name: settings.pop(name) for name in ("eval_env", "preset") if name in settings}
    settings = {"defaults": "fixed", **tiny_settings(algorithm, output_dir, **settings)}  # one environment, say
    return getattr(rl_training, class_name(algorithm))(env or env_of(algorithm), **options, **settings)


def train_function(algorithm: str) -> Any:
    """`train_<name>` of its module, or one made from the table where an algorithm has no module."""
    name = f"rl_training.runtime.{algorithm}_trainer"
    return getattr(import_module(name), f"train_{algorithm}") if find_spec(name) else trainer(algorithm)


def train_tiny(algorithm: str, output_dir: Path | str, **settings: Any) -> TrainResult:
    result: TrainResult = train_function(algorithm)(tiny_config(algorithm, output_dir, **settings), show=False)
    return result


def some_observations(algorithm: str, count: int = 32) -> np.ndarray:
    env = gym.make(env_of(algorithm))
    env.observation_space.seed(0)
    return np.stack([np.clip(env.observation_space.sample(), -2.0, 2.0) for _ in range(count)])
