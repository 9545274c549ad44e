"""`train_<name>`: training that belongs to one algorithm and refuses the config of another."""

from __future__ import annotations

from typing import Any, Protocol

from rl_training.config.algorithm_table import get_algorithm
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.runtime.workflows import TrainResult, train


class Trainer(Protocol):
    def __call__(self, config: TrainConfig, **options: Any) -> TrainResult: ...


def trainer(name: str) -> Trainer:
    """`train_<name>(config, **options)`; options as in `workflows.train`."""

    def train_algorithm(config: TrainConfig, **options: Any) -> TrainResult:
        if config.algo != name:
            raise ConfigError(
                f"algo: train_{name} got a config for {config.algo}; use rl_training.train",
                key="algo",
            )
        return train(config, **options)

    train_algorithm.__name__ = train_algorithm.__qualname__ = f"train_{name}"
    train_algorithm.__doc__ = f"Train {get_algorithm(name).title} (`algo: {name}`); options as in `workflows.train`."
    return train_algorithm
