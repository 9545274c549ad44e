"""Which settings of a stored run may be changed when it is resumed, and which of them change its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.program import call
from rl_training.runtime.auto_settings import compile_setting_on_resume

# How and where a run is computed. With another value it continues well, but not bit for bit.
CHANGES_NUMBERS = ("compile", "precision", "threads", "device", "vector_backend", "checkpoint_every")
# What a run reports and keeps.
REPORTS = (
    "total_timesteps",
    "env_timeout",
    "log_every",
    "eval_every",
    "eval_episodes",
    "eval_max_steps",
    "keep_checkpoints",
    "log_info",
    "stop_at_return",
    "patience",
    "record_every",
    "callbacks",
    "sinks",
    "tensorboard",
    "wandb_project",
)


# The settings of `runtime` that belong to the experiment; where its actors run does not.
RUNTIME_OF_THE_EXPERIMENT = ("actors", "mode")


def changed_on_resume(
    stored: TrainConfig, overrides: Mapping[str, Any] | Sequence[str], total_timesteps: int | None = None
) -> tuple[TrainConfig, list[str]]:
    """The config of a resumed run, and the changes after which it does not continue bit for bit, in words.

    ConfigError for a setting that would make it another experiment.
    """
    config = load_config(stored, overrides) if overrides else stored
    changed = [name for name in TrainConfig.model_fields if getattr(config, name) != getattr(stored, name)]
    if "runtime" in changed:
        _check_runtime(stored, config)
        changed.remove("runtime")  # where actors run changes no number
    for name in changed:
        if name not in (*CHANGES_NUMBERS, *REPORTS):
            raise ConfigError(
                f"{name}: cannot change when a run is resumed, only {', '.join((*CHANGES_NUMBERS, *REPORTS))} can; "
                f"start a new run with `{call('train')}` instead",
                key=name,
            )
    if total_timesteps is not None:
        config = load_config(config, {"total_timesteps": total_timesteps})
    if "compile" not in changed:  # a changed value is checked when the loop is built
        config = compile_setting_on_resume(config)
    words = [
        f"{name} {getattr(stored, name)} -> {getattr(config, name)}" for name in CHANGES_NUMBERS if name in changed
    ]
    return config, words


def _check_runtime(stored: TrainConfig, config: TrainConfig) -> None:
    """ConfigError if another number of actors or another mode would make it another experiment."""
    old, new = stored.runtime.resolved(stored.algo), config.runtime.resolved(config.algo)
    others = [f"runtime.{name}" for name in type(new).model_fields if name not in RUNTIME_OF_THE_EXPERIMENT]
    for name in RUNTIME_OF_THE_EXPERIMENT:
        if getattr(old, name) != getattr(new, name):
            raise ConfigError(
                f"runtime.{name}: cannot change from {getattr(old, name)} to {getattr(new, name)} when a run is "
                f"resumed, only {', '.join(others)} can; start a new run with `{call('train')}` instead",
                key=f"runtime.{name}",
            )
