"""Whether a run compiles its gradient step: only one that takes enough of them gets the compiling back."""

from __future__ import annotations

from typing import Literal

from rl_training.algorithms.common.compile.compiled_step import can_compile
from rl_training.config.base import OnPolicyConfig, ReplayConfig
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError

# Compiling takes 10 to 30 seconds on a slow core and saves 0.4 ms or more of each step of a small network.
PAYS_FROM_STEPS = 40_000


def resolve_compile(config: TrainConfig, device: str) -> Literal["on", "off"]:
    """`auto`: on the CPU, where there is a C++ compiler, when the run plans enough gradient steps."""
    reason = config.algo_kwargs.why_not_compilable()
    if config.compile == "on":
        if reason is not None:
            raise ConfigError(f"compile: {config.algo} {reason}, use compile=off", key="compile")
        if not can_compile():
            raise ConfigError("compile: needs a C++ compiler such as g++, or use compile=off", key="compile")
        return "on"
    pays = reason is None and device == "cpu" and planned_gradient_steps(config) >= PAYS_FROM_STEPS
    return "on" if config.compile == "auto" and pays and can_compile() else "off"


def compile_setting_on_resume(config: TrainConfig) -> TrainConfig:
    """The settings of a run that goes on: compiled if it was, and only then, or it would not go on exactly."""
    if config.compile != "on" or config.algo_kwargs.why_not_compilable() is not None:
        # Older runs may say `on` where nothing was compiled, or nothing at all.
        return config.model_copy(update={"compile": "off"})
    if not can_compile():
        raise ConfigError(
            "compile: the run was compiled and needs a C++ compiler such as g++ to go on exactly, install one",
            key="compile",
        )
    return config


def planned_gradient_steps(config: TrainConfig) -> int:
    settings = config.algo_kwargs
    if isinstance(settings, ReplayConfig):
        rounds = (config.total_timesteps - settings.learning_starts) // settings.train_frequency
        return rounds * (settings.train_frequency if settings.gradient_steps == -1 else settings.gradient_steps)
    if not isinstance(settings, OnPolicyConfig):
        return 0
    rows = getattr(settings, "minibatch_size", settings.num_steps * config.num_envs)
    return config.total_timesteps * getattr(settings, "update_epochs", 1) // rows
