"""Name of an algorithm -> where its parts live. A leaf: it imports nothing until a name is looked up.

Another package adds an algorithm with an entry point in the group `rl_training.algorithms` whose object is
an `Entry`. The entry must live in a module that does not import torch: it is read to check configs.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.base import AlgorithmConfig

ENTRY_POINT_GROUP = "rl_training.algorithms"


@dataclass(frozen=True)
class Entry:
    """Addresses, each `module:attribute`, imported on first use."""

    config: str
    spec: str
    learner: str


ALGORITHMS: dict[str, Entry] = {
    "ppo": Entry(
        config="rl_training.config.ppo:PPOConfig",
        spec="rl_training.runtime.ppo_trainer:PPO_SPEC",
        learner="rl_training.algorithms.ppo:PPO",
    ),
    "a2c": Entry(
        config="rl_training.config.a2c:A2CConfig",
        spec="rl_training.runtime.a2c_trainer:A2C_SPEC",
        learner="rl_training.algorithms.a2c:A2C",
    ),
    "impala": Entry(
        config="rl_training.config.impala:IMPALAConfig",
        spec="rl_training.runtime.impala_trainer:IMPALA_SPEC",
        learner="rl_training.algorithms.impala:IMPALA",
    ),
    "appo": Entry(
        config="rl_training.config.appo:APPOConfig",
        spec="rl_training.runtime.appo_trainer:APPO_SPEC",
        learner="rl_training.algorithms.appo:APPO",
    ),
    "trpo": Entry(
        config="rl_training.config.trpo:TRPOConfig",
        spec="rl_training.runtime.trpo_trainer:TRPO_SPEC",
        learner="rl_training.algorithms.trpo:TRPO",
    ),
    "ppg": Entry(
        config="rl_training.config.ppg:PPGConfig",
        spec="rl_training.runtime.ppg_trainer:PPG_SPEC",
        learner="rl_training.algorithms.ppg:PPG",
    ),
    "recurrent_ppo": Entry(
        config="rl_training.config.recurrent_ppo:RecurrentPPOConfig",
        spec="rl_training.runtime.recurrent_ppo_trainer:RECURRENT_PPO_SPEC",
        learner="rl_training.contrib.recurrent_ppo:RecurrentPPO",
    ),
    "dqn": Entry(
        config="rl_training.config.dqn:DQNConfig",
        spec="rl_training.runtime.dqn_trainer:DQN_SPEC",
        learner="rl_training.algorithms.dqn:DQN",
    ),
    "c51": Entry(
        config="rl_training.config.c51:C51Config",
        spec="rl_training.runtime.c51_trainer:C51_SPEC",
        learner="rl_training.algorithms.c51:C51",
    ),
    "ddpg": Entry(
        config="rl_training.config.ddpg:DDPGConfig",
        spec="rl_training.runtime.ddpg_trainer:DDPG_SPEC",
        learner="rl_training.algorithms.ddpg:DDPG",
    ),
    "d4pg": Entry(
        config="rl_training.config.d4pg:D4PGConfig",
        spec="rl_training.runtime.d4pg_trainer:D4PG_SPEC",
        learner="rl_training.algorithms.d4pg:D4PG",
    ),
    "td3": Entry(
        config="rl_training.config.td3:TD3Config",
        spec="rl_training.runtime.td3_trainer:TD3_SPEC",
        learner="rl_training.algorithms.td3:TD3",
    ),
    "sac": Entry(
        config="rl_training.config.sac:SACConfig",
        spec="rl_training.runtime.sac_trainer:SAC_SPEC",
        learner="rl_training.algorithms.sac:SAC",
    ),
    "naf": Entry(
        config="rl_training.config.naf:NAFConfig",
        spec="rl_training.runtime.naf_trainer:NAF_SPEC",
        learner="rl_training.algorithms.naf:NAF",
    ),
    "mpo": Entry(
        config="rl_training.config.mpo:MPOConfig",
        spec="rl_training.runtime.mpo_trainer:MPO_SPEC",
        learner="rl_training.algorithms.mpo:MPO",
    ),
}


def algorithm_names() -> list[str]:
    """Built-in algorithms in the order of the table, then those of other packages by name."""
    others = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*ALGORITHMS, *sorted(others - ALGORITHMS.keys())]


def get_entry(name: str) -> Entry:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            entry = point.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise ConfigError(
                f"algo: {name} of {point.value} cannot be imported ({reason}); repair or uninstall it",
                key="algo",
            ) from error
        if not isinstance(entry, Entry):
            raise ConfigError(
                f"algo: {name} of {point.value} is not a rl_training.experiment.registry.Entry", key="algo"
            )
        return entry
    names = algorithm_names()
    nearest = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    shown = "".join(character for character in name if character.isprintable())[:60]
    raise ConfigError(f"algo: unknown algorithm {shown!r}, known are {', '.join(names)}{hint}", key="algo")


def get_config_class(name: str) -> type[AlgorithmConfig]:
    config_class: type[AlgorithmConfig] = _resolve(get_entry(name).config)
    return config_class


def get_spec(name: str) -> Any:
    """The algorithm's `AlgorithmSpec`; this is where torch gets imported."""
    return _resolve(get_entry(name).spec)


def get_learner(name: str) -> Any:
    return _resolve(get_entry(name).learner)


def _resolve(address: str) -> Any:
    module, _, attribute = address.partition(":")
    return getattr(import_module(module), attribute)
