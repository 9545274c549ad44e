"""Helpers for the tests of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.base import leaf_types
from rl_training.config.loading import load_config
from rl_training.config.messages import sections
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError

BASE = {"algo": "ppo", "env_id": "CartPole-v1"}
BUILT_IN = list(ALGORITHMS)


def refused(source: Any, overrides: Any = ()) -> str:
    """The error message, which must be a single printable line."""
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    message = str(caught.value)
    assert message.isprintable(), repr(message)
    assert caught.value.exit_code == 2
    return message


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# Every numeric field with values just outside its range. A schedule is tested as a number.
OUT_OF_RANGE: dict[str, list[float]] = {
    "seed": [-1, 2**63],
    "total_timesteps": [0, -5],
    "num_envs": [0],
    "env_timeout": [0, -1.5],
    "action_bound": [0.0, -2.0],
    "threads": [0],
    "log_every": [0],
    "eval_every": [-1],
    "eval_episodes": [0, 1_000_001],
    "eval_max_steps": [0],
    "checkpoint_every": [-1],
    "keep_checkpoints": [0],
    "observation_clip": [0.0],
    "encoder_size": [0],
    "gamma": [0.0, 1.001],
    "max_grad_norm": [0.0],
    "reward_scale": [0.0],
    "reward_clip": [0.0],
    "num_steps": [0],
    "gae_lambda": [-0.01, 1.01],
    "learning_rate": [-1e-9],
    "entropy_coef": [-0.1],
    "value_coef": [-0.1],
    "minibatch_size": [0],
    "update_epochs": [0],
    "clip_range": [-0.1],
    "rho_bar": [0.0, -1.0],
    "c_bar": [0.0],
    "pg_rho_bar": [0.0],
    "num_minibatches": [0],
    "kl_coef": [-0.1],
    "value_clip_range": [0.0],
    "target_kl": [0.0],
    "adam_epsilon": [0.0],
    "rmsprop_decay": [-0.1, 1.0],
    "optimizer_epsilon": [0.0],
    "buffer_size": [0],
    "batch_size": [0],
    "learning_starts": [-1],
    "train_frequency": [0],
    "gradient_steps": [0, -2],
    "n_step": [0],
    "warm_up_repeat": [0],
    "priority_exponent": [-0.1, 1.1],
    "importance_exponent": [-0.1, 1.1],
    "priority_epsilon": [0.0],
    "exploration": [-0.1, 1.1],
    "target_update_every": [0],
    "tau": [0.0, 1.1],
    "actor_learning_rate": [-1e-9],
    "critic_learning_rate": [-1e-9],
    "temperature_learning_rate": [-1e-9],
    "exploration_noise": [-0.1],
    "policy_delay": [0],
    "target_noise": [-0.1],
    "target_noise_clip": [-0.1],
    "temperature": [0.0],
    "initial_temperature": [0.0],
    "dual_learning_rate": [-1e-9],
    "num_action_samples": [0],
    "improvement_kl": [0.0],
    "mean_kl": [0.0],
    "covariance_kl": [0.0],
    "penalty_kl": [0.0],
    "initial_mean_multiplier": [0.0],
    "initial_covariance_multiplier": [0.0],
    "max_kl": [-1e-9],
    "damping": [-0.1],
    "conjugate_gradient_steps": [0],
    "line_search_steps": [0],
    "line_search_decay": [0.0, 1.0],
    "policy_phases": [0],
    "auxiliary_epochs": [0],
    "auxiliary_minibatch_size": [0],
    "auxiliary_learning_rate": [-1e-9],
    "embedding_learning_rate": [-1e-9],
    "rescaling": [0.0, -1e-3],
    "novelty_learning_rate": [-1e-9],
    "noise_interval": [0],
    "clone_coef": [-0.1],
    "num_atoms": [1],
    "max_lag": [0],
    "samples_per_insert": [0.0, -1.0],
    "memory_size": [0],
    "memory_layers": [0],
    "sequence_length": [0],
}


def out_of_range(algo: str, section: str, name: str) -> list[float]:
    """Values that the field must refuse: those of the table, else some just beyond its declared bounds."""
    if name in OUT_OF_RANGE:
        return OUT_OF_RANGE[name]
    field = sections(TrainConfig, algo)[section].model_fields[name]
    whole = int in leaf_types(field.annotation)
    return [
        bound + sign * ((1 if whole else 0.01) if inclusive else 0)
        for constraint in field.metadata
        for attribute, sign, inclusive in (("ge", -1, True), ("gt", -1, False), ("le", 1, True), ("lt", 1, False))
        if (bound := getattr(constraint, attribute, None)) is not None
    ]


def every_field() -> list[tuple[str, str, str]]:
    """(algorithm, section, field) for each setting; settings outside algo_kwargs appear once, for ppo."""
    rows = []
    for algo in BUILT_IN:
        for section, model in sections(TrainConfig, algo).items():
            if algo == "ppo" or section == "algo_kwargs":
                rows += [(algo, section, name) for name in model.model_fields]
    return rows


def place(algo: str, section: str, name: str, value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {**BASE, "algo": algo}
    for outer in reversed(section.split(".")[1:]):
        name, value = outer, {name: value}
    section = section.partition(".")[0]
    return {**data, section: {name: value}} if section else {**data, name: value}
