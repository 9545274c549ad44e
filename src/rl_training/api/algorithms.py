"""The managed API: `PPO("CartPole-v1", seed=0).learn(50_000).evaluate()`, the same for every algorithm.

The classes below are written out for editors and type checkers. An algorithm that is only in the algorithm table gets
its class from `managed_class`, under the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.api.managed import Env, ManagedAlgorithm
from rl_training.config.algorithm_table import class_names, get_algorithm
from rl_training.storage.checkpoints import read_manifest, resolve_checkpoint


class PPO(ManagedAlgorithm, algorithm="ppo"): ...


class A2C(ManagedAlgorithm, algorithm="a2c"): ...


class IMPALA(ManagedAlgorithm, algorithm="impala"): ...


class APPO(ManagedAlgorithm, algorithm="appo"): ...


class TRPO(ManagedAlgorithm, algorithm="trpo"): ...


class ACKTR(ManagedAlgorithm, algorithm="acktr"): ...


class ACER(ManagedAlgorithm, algorithm="acer"): ...


class PPG(ManagedAlgorithm, algorithm="ppg"): ...


class PQN(ManagedAlgorithm, algorithm="pqn"): ...


class DQN(ManagedAlgorithm, algorithm="dqn"): ...


class C51(ManagedAlgorithm, algorithm="c51"): ...


class QRDQN(ManagedAlgorithm, algorithm="qr_dqn"): ...


class IQN(ManagedAlgorithm, algorithm="iqn"): ...


class Rainbow(ManagedAlgorithm, algorithm="rainbow"): ...


class R2D2(ManagedAlgorithm, algorithm="r2d2"):
    """Q-learning with a memory, an LSTM or GRU, for discrete actions and partially observable environments.

    `predict(observation, state=state, episode_start=...)` takes and returns the memory; None is an empty one.
    """


class DDPG(ManagedAlgorithm, algorithm="ddpg"): ...


class D4PG(ManagedAlgorithm, algorithm="d4pg"): ...


class TD3(ManagedAlgorithm, algorithm="td3"): ...


class SAC(ManagedAlgorithm, algorithm="sac"): ...


class NAF(ManagedAlgorithm, algorithm="naf"): ...


class MPO(ManagedAlgorithm, algorithm="mpo"): ...


class TQC(ManagedAlgorithm, algorithm="tqc"): ...


class TD7(ManagedAlgorithm, algorithm="td7"): ...


class CrossQ(ManagedAlgorithm, algorithm="crossq"): ...


class REDQ(ManagedAlgorithm, algorithm="redq"): ...


class DroQ(ManagedAlgorithm, algorithm="droq"): ...


class RecurrentPPO(ManagedAlgorithm, algorithm="recurrent_ppo"):
    """PPO with a memory, an LSTM or GRU, for any actions and for partially observable environments.

    `predict(observation, state=state, episode_start=...)` takes and returns the memory; None is an empty one.
    """


_CLASSES: dict[str, type[ManagedAlgorithm]] = {
    known.algorithm: known for known in ManagedAlgorithm.__subclasses__() if known.__module__.startswith("rl_training.")
}


def managed_class(algorithm: str) -> type[ManagedAlgorithm]:
    """The class of an algorithm; one that has none yet gets it here."""
    if algorithm not in _CLASSES:
        name = get_algorithm(algorithm).class_name
        _CLASSES[algorithm] = type(name, (ManagedAlgorithm,), {"__module__": __name__}, algorithm=algorithm)
    return _CLASSES[algorithm]


def load(path: str | Path, env: Env | None = None, **options: Any) -> ManagedAlgorithm:
    """Load a saved agent or a run with the class of its algorithm; options as in `ManagedAlgorithm.load`."""
    checkpoint = resolve_checkpoint(path, options.get("output_dir", "runs"), segments="skip")
    return managed_class(read_manifest(checkpoint).algorithm).load(path, env, **options)


def __getattr__(name: str) -> type[ManagedAlgorithm]:
    if name in class_names():
        return managed_class(class_names()[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
