"""The learners: one file per algorithm, and the mathematics they share in small modules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.algorithms.a2c import A2C
    from rl_training.algorithms.appo import APPO
    from rl_training.algorithms.c51 import C51
    from rl_training.algorithms.common.learner import Learner, UpdateResult
    from rl_training.algorithms.d4pg import D4PG
    from rl_training.algorithms.ddpg import DDPG
    from rl_training.algorithms.dqn import DQN
    from rl_training.algorithms.impala import IMPALA
    from rl_training.algorithms.mpo import MPO
    from rl_training.algorithms.naf import NAF
    from rl_training.algorithms.ppg import PPG
    from rl_training.algorithms.ppo import PPO
    from rl_training.algorithms.sac import SAC
    from rl_training.algorithms.td3 import TD3
    from rl_training.algorithms.trpo import TRPO
    from rl_training.contrib.recurrent_ppo import RecurrentPPO

__all__ = [
    "A2C",
    "APPO",
    "C51",
    "D4PG",
    "DDPG",
    "DQN",
    "IMPALA",
    "MPO",
    "NAF",
    "PPG",
    "PPO",
    "SAC",
    "TD3",
    "TRPO",
    "Learner",
    "RecurrentPPO",
    "UpdateResult",
]


def __getattr__(name: str) -> Any:
    # On demand: torch takes long to import.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "RecurrentPPO":
        return import_module("rl_training.contrib.recurrent_ppo").RecurrentPPO
    home = "learner" if name in ("Learner", "UpdateResult") else name.lower()
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
