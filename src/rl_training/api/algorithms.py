"""The managed API: `PPO("CartPole-v1", seed=0).learn(50_000).evaluate()`, the same for every algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.api.managed import Env, ManagedAlgorithm
from rl_training.contrib.api import RecurrentPPO as RecurrentPPO
from rl_training.experiment.registry import get_learner
from rl_training.storage.checkpoints import read_manifest, resolve_checkpoint


class PPO(ManagedAlgorithm):
    """Proximal policy optimisation, for any actions (Schulman et al., 2017)."""

    algorithm = "ppo"


class A2C(ManagedAlgorithm):
    """Advantage actor-critic, for any actions (Mnih et al., 2016, without its asynchrony)."""

    algorithm = "a2c"


class IMPALA(ManagedAlgorithm):
    """Importance-weighted actor-learner with V-trace, for any actions (Espeholt et al., 2018)."""

    algorithm = "impala"


class APPO(ManagedAlgorithm):
    """PPO on rollouts that may be stale, with V-trace, for any actions (Petrenko et al., 2020; Luo et al., 2019)."""

    algorithm = "appo"


class TRPO(ManagedAlgorithm):
    """Trust region policy optimisation, for any actions (Schulman et al., 2015)."""

    algorithm = "trpo"


class PPG(ManagedAlgorithm):
    """Phasic policy gradient, for any actions (Cobbe et al., 2020)."""

    algorithm = "ppg"


class DQN(ManagedAlgorithm):
    """Deep Q-network, for discrete actions (Mnih et al., 2015); double, dueling, n-step and priorities by option."""

    algorithm = "dqn"


class C51(ManagedAlgorithm):
    """Q-learning on distributions of returns, for discrete actions (Bellemare et al., 2017); options as DQN's."""

    algorithm = "c51"


class DDPG(ManagedAlgorithm):
    """Deep deterministic policy gradient, for continuous actions (Lillicrap et al., 2016)."""

    algorithm = "ddpg"


class D4PG(ManagedAlgorithm):
    """DDPG with a distributional critic and n-step returns, for continuous actions (Barth-Maron et al., 2018)."""

    algorithm = "d4pg"


class TD3(ManagedAlgorithm):
    """Twin delayed DDPG, for continuous actions (Fujimoto et al., 2018)."""

    algorithm = "td3"


class SAC(ManagedAlgorithm):
    """Soft actor-critic, for continuous actions (Haarnoja et al., 2018)."""

    algorithm = "sac"


class NAF(ManagedAlgorithm):
    """Normalised advantage functions: Q-learning for continuous actions (Gu et al., 2016)."""

    algorithm = "naf"


class MPO(ManagedAlgorithm):
    """Maximum a posteriori policy optimisation, for continuous actions (Abdolmaleki et al., 2018)."""

    algorithm = "mpo"


def managed_class(algorithm: str) -> type[ManagedAlgorithm]:
    """The class of an algorithm; one that another package registered without a class gets a plain one."""
    for known in ManagedAlgorithm.__subclasses__():
        if getattr(known, "algorithm", None) == algorithm:
            return known
    learner = get_learner(algorithm)
    return type(learner.__name__, (ManagedAlgorithm,), {"algorithm": algorithm, "__doc__": learner.__doc__})


def load(path: str | Path, env: Env | None = None, **options: Any) -> ManagedAlgorithm:
    """`PPO.load`, `DQN.load`, ...: of the class that the checkpoint was made by. Options as in there."""
    found = resolve_checkpoint(path, options.get("output_dir", "runs"), segments="skip")
    return managed_class(read_manifest(found).algorithm).load(path, env, **options)
