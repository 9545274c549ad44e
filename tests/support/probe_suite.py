"""How every algorithm is put through the probe envs.

A new algorithm needs nothing here if its model is one that the library has: `subject` reads it by its model and takes
the usual settings of its loop. An entry in `SUBJECTS` is for an algorithm that needs settings of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.on_policy import PolicyBatch, RolloutBatch
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.r2d2 import rescaled, restored
from rl_training.config.train_config import TrainConfig
from rl_training.envs.probes import ConstantRewardProbe, probe_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.experiment.registry import get_algorithm, get_spec
from rl_training.models.mlp_acer import MLPACERModel
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_c51 import MLPC51Network
from rl_training.models.mlp_continuous import MLPDeterministicActorCritic, MLPSquashedGaussianActorCritic
from rl_training.models.mlp_crossq import MLPCrossQModel
from rl_training.models.mlp_d4pg import MLPD4PGModel
from rl_training.models.mlp_iqn import MLPIQNNetwork
from rl_training.models.mlp_mpo import MLPMPOModel
from rl_training.models.mlp_naf import MLPNAFModel
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.models.mlp_q import MLPQNetwork
from rl_training.models.mlp_quantiles import MLPQuantileNetwork
from rl_training.models.mlp_rainbow import MLPRainbowNetwork
from rl_training.models.mlp_redq import MLPREDQModel
from rl_training.models.mlp_td7 import MLPTD7Model
from rl_training.models.mlp_tqc import MLPTQCModel
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
from rl_training.models.recurrent.recurrent_q import RecurrentQNetwork
from rl_training.runtime.auto_settings import limited_threads
from rl_training.runtime.loops import Loop

GAMMA = 0.8  # small, so that values far down a chain settle within a second
BOTH_MODES = pytest.mark.parametrize(
    "mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP], ids=lambda mode: mode.name.lower()
)
ValueFunction = Callable[[torch.Tensor], torch.Tensor]  # [B, ...] -> [B]


class Reader:
    """What a family of learners believes, and how to make it believe something else."""

    loss = "{algo}_loss"  # the function of the algorithm's file that gets the values to regress to

    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        """V(s) under the learner's own policy, [B]."""
        raise NotImplementedError

    def values_along(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        """V of the observations of one episode, in their order; only a learner with memory minds the order."""
        return self.values(learner, obs)

    def action_values(self, learner: Any, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor | None:
        """Q(s, a) [B]; None where the learner has no such thing."""
        return None

    def probabilities(self, learner: Any, obs: torch.Tensor) -> torch.Tensor | None:
        """pi(.|s) over discrete actions; None where the learner has none."""
        return None

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        """From now on the learner bootstraps from `function`, whatever it has learned."""
        raise NotImplementedError

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Observations and the values they are regressed to, out of a call of the algorithm's loss."""
        return batch.obs, loss_arguments[1]


class ActorCriticReader(Reader):
    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.value(obs)

    def probabilities(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.policy(obs).softmax(-1)

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        learner.model.value = function
        learner.model.value_numpy = lambda obs: function(torch.from_numpy(obs)).numpy()

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        data = next(argument for argument in loss_arguments if isinstance(argument, PolicyBatch))
        return data.obs, data.returns


class VTraceReader(ActorCriticReader):
    """V(s) comes out of the same forward pass as the policy; the critic stays in the graph, with no weight."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        super().assume_values(learner, function)
        evaluate = learner.model.evaluate_actions

        def evaluate_actions(obs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
            log_probs, entropy, values = evaluate(obs, actions)
            return log_probs, entropy, function(obs) + 0.0 * values

        learner.model.evaluate_actions = evaluate_actions


class RecurrentReader(ActorCriticReader):
    """Values and actions for first observations of episodes; `values_along` one remembers what came before."""

    def values_along(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        memory, values = None, []
        for row in obs.numpy():
            _, extras = learner.model.act(row[None], None, memory)
            memory = extras["memory"]
            values.append(extras["values"])
        return torch.from_numpy(np.concatenate(values))

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        learner.model.value = lambda obs, memory=None: function(obs)
        act = learner.model.act

        def judged_act(obs: np.ndarray, *arguments: Any) -> Any:
            actions, extras = act(obs, *arguments)
            return actions, extras | {"values": function(torch.from_numpy(obs)).numpy()}

        learner.model.act = judged_act


class ActionValueReader(ActorCriticReader):
    """ACER: V is the mean of Q under the policy; in the probes returns bootstrap from what is assumed."""

    def action_values(self, learner: Any, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs).gather(1, actions.long()).squeeze(1)

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        both = learner.model.policy_and_q

        def policy_and_q(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            probs, q = both(obs)
            return probs, function(obs)[:, None] + 0.0 * q

        learner.model.policy_and_q = policy_and_q

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        return batch.obs[:-1][batch.mask], loss_arguments[3]


class TrustRegionReader(ActorCriticReader):
    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        super().assume_values(learner, function)
        learner.fit_critic = lambda data: {}  # a plain function has nothing to fit


class QNetworkReader(Reader):
    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs).amax(1)

    def action_values(self, learner: Any, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs).gather(1, actions.long()).squeeze(1)

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        # Action 1 is worth less: only a maximum over the actions gives the function itself.
        learner.target.module.q_values = lambda obs: torch.stack([function(obs), function(obs) - 1.0], 1)


class RecurrentQReader(Reader):
    """R2D2: Q of first observations of episodes, or along an episode, on the scale of rewards."""

    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return restored(learner.model.q_values(obs).amax(1), learner.config.rescaling)

    def values_along(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        memory = torch.from_numpy(learner.model.initial_memory(1))
        return restored(learner.model.unroll(obs[:, None], memory)[:, 0].amax(1), learner.config.rescaling)

    def action_values(self, learner: Any, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        q = learner.model.q_values(obs).gather(1, actions.long()).squeeze(1)
        return restored(q, learner.config.rescaling)

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        def unroll(obs: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
            values = function(obs.flatten(0, 1)).unflatten(0, obs.shape[:2])
            return rescaled(torch.stack([values, values - 1.0], -1), learner.config.rescaling)

        learner.target.module.unroll = unroll

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        target, mask = loss_arguments[1:3]
        # The probes run with the default of `rescaling`.
        return batch.obs[batch.burn_steps : -1][mask], restored(target[mask], 1e-3)


class DeterministicReader(Reader):
    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs, learner.model.actor(obs)).amin(0)

    def action_values(self, learner: Any, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs, actions).amin(0)

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        critics = len(learner.model.critics)
        learner.target.module.q_value = lambda obs, actions: function(obs)
        learner.target.module.q_values = lambda obs, actions: function(obs).expand(critics, -1)


def two_masses(values: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """Logits of distributions with the given means: all mass on the two atoms around each."""
    distances = (values[..., None] - support).abs() / (support[1] - support[0])
    return (1 - distances).clamp(min=1e-30).log()


class CategoricalReader(QNetworkReader):
    """Q is the mean of a distribution; what is assumed has to fit its support, which is made wide enough."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        support = learner.model.support
        support.copy_(torch.linspace(-50.0, 50.0, len(support)))
        learner.target.module.distribution_logits = lambda obs: two_masses(
            torch.stack([function(obs), function(obs) - 1.0], 1), support
        )

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        _, target, support, *_ = loss_arguments
        return batch.obs, target @ support


class QuantileReader(QNetworkReader):
    """Q is the mean of quantiles, and so is what is assumed: the quantiles lie around it."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        spread = torch.linspace(-1.0, 1.0, learner.model.num_quantiles)
        learner.target.module.quantiles = lambda obs: (
            torch.stack([function(obs), function(obs) - 1.0], 1)[..., None] + spread
        )

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        return batch.obs, loss_arguments[1].mean(1)


class ImplicitQuantileReader(QuantileReader):
    """The same for any fractions: as many quantiles as are asked for."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        learner.target.module.quantiles = lambda obs, taus: (
            torch.stack([function(obs), function(obs) - 1.0], 1)[..., None] + torch.linspace(-1.0, 1.0, taus.shape[-1])
        )


class FreshQReader(QNetworkReader):
    """PQN: no target network. What acting says about a state is what returns bootstrap from."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        def q_values(obs: np.ndarray) -> np.ndarray:
            values = function(torch.from_numpy(obs))
            return torch.stack([values, values - 1.0], 1).numpy()

        learner.q_values = q_values

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        minibatch = next(argument for argument in loss_arguments if isinstance(argument, RolloutBatch))
        return minibatch.obs, minibatch.returns


class NoisyCategoricalReader(CategoricalReader):
    """Rainbow: the same for any noise."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        super().assume_values(learner, function)
        logits = learner.target.module.distribution_logits
        learner.target.module.distribution_logits = lambda obs, *noise: logits(obs)


class CategoricalActorReader(CategoricalReader):
    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs, learner.model.actor(obs))

    def action_values(self, learner: Any, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs, actions)

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        support = learner.model.support
        support.copy_(torch.linspace(-50.0, 50.0, len(support)))
        learner.target.module.distribution_logits = lambda obs, actions: two_masses(function(obs), support)


class SoftReader(DeterministicReader):
    """The soft value at the mean action. The temperature of the probes is so small that it adds nothing."""

    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs, learner.model.actor(obs)[0].tanh()).amin(0)


class SoftQuantileReader(SoftReader):
    """TQC: Q is the mean of quantiles; what is assumed has all of them in one place."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        shape = (learner.config.num_critics, -1, learner.config.num_quantiles)
        learner.target.module.quantiles = lambda obs, actions: function(obs)[:, None].expand(*shape)

    def targets(self, batch: Any, loss_arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        return batch.obs, loss_arguments[1].mean(1)


class JointReader(SoftReader):
    """CrossQ: the second half of the joint pass is what targets bootstrap from."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        q_values = learner.model.q_values

        def half_assumed(obs: torch.Tensor, actions: torch.Tensor, *, batch_statistics: bool = False) -> torch.Tensor:
            values = q_values(obs, actions, batch_statistics=batch_statistics)
            if not batch_statistics:
                return values
            now, later = obs.chunk(2)
            return torch.cat([values[:, : len(now)], function(later).expand(2, -1)], 1)

        learner.model.q_values = half_assumed


class EnsembleReader(SoftReader):
    """REDQ and DroQ: the same, whatever is dropped."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        critics = len(learner.model.critics)
        learner.target.module.q_values = lambda obs, actions, masks=None: function(obs).expand(critics, -1)


class EmbeddedReader(DeterministicReader):
    """TD7: targets are clipped to a range, which is made wide enough for what is assumed."""

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        learner.value_range.lower.fill_(-1e6)
        learner.value_range.upper.fill_(1e6)
        learner.value_range.renew = lambda: None
        learner.target.module.values_at = lambda features, zs, actions: function(features).expand(2, -1)


class ParabolaReader(Reader):
    """NAF: the value of a state is an output of its own."""

    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.state_values(obs)

    def action_values(self, learner: Any, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return learner.model.q_values(obs, actions)

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        learner.target.module.state_values = function


class SampledReader(DeterministicReader):
    """MPO: targets average over actions of the target policy; `mpo_loss` is the policy's, the critic's is shared."""

    loss = "critic_loss"

    def values(self, learner: Any, obs: torch.Tensor) -> torch.Tensor:
        return learner.model.q_value(obs, learner.model.actor(obs)[0])

    def assume_values(self, learner: Any, function: ValueFunction) -> None:
        learner.target.module.q_value = lambda obs, actions: function(obs).expand(len(actions), -1)


@dataclass(frozen=True)
class Subject:
    """An algorithm with settings under which it learns a probe in about a second."""

    reader: Reader
    settings: Mapping[str, Any]
    steps: int
    num_envs: int = 4
    model: Mapping[str, Any] = field(default_factory=dict)
    remembers: bool = False


def _replay(**settings: Any) -> dict[str, Any]:
    return {"buffer_size": 2000, "batch_size": 32, "learning_starts": 200, "train_frequency": 1, **settings}


# Every value of a probe fits, and none is an end of the support, which softmax would reach only slowly.
ATOMS = {"num_atoms": 21, "support_low": -6.0, "support_high": 6.0}

SUBJECTS: dict[str, Subject] = {
    "ppo": Subject(
        ActorCriticReader(),
        {"num_steps": 16, "minibatch_size": 32, "update_epochs": 4, "learning_rate": 1e-2},
        steps=2600,
        model={"initial_log_std": -0.7},
    ),
    "a2c": Subject(
        ActorCriticReader(),
        {"num_steps": 8, "learning_rate": 1e-2, "optimizer": "adam", "gae_lambda": 0.95},
        steps=5000,
        model={"initial_log_std": -0.7},
    ),
    "a3c": Subject(
        ActorCriticReader(),
        {"num_steps": 8, "learning_rate": 1e-2, "optimizer": "adam", "gae_lambda": 0.95},
        steps=5000,
        model={"initial_log_std": -0.7},
    ),
    "impala": Subject(
        VTraceReader(),
        {"num_steps": 8, "learning_rate": 1e-2, "optimizer": "adam", "gae_lambda": 0.95},
        steps=7000,
        model={"initial_log_std": -0.7},
    ),
    "appo": Subject(
        VTraceReader(),
        {"num_steps": 16, "num_minibatches": 2, "update_epochs": 4, "learning_rate": 1e-2},
        steps=3500,
        model={"initial_log_std": -0.7},
    ),
    "trpo": Subject(
        TrustRegionReader(),
        {"num_steps": 16, "minibatch_size": 32, "update_epochs": 8, "learning_rate": 1e-2, "max_kl": 0.05},
        steps=3500,
        model={"initial_log_std": -0.7},
    ),
    "acktr": Subject(
        ActorCriticReader(),
        {"num_steps": 4, "learning_rate": {"start": 0.2, "end": 0.01}, "max_kl": 0.002, "gae_lambda": 0.95}
        | {"momentum": 0.0},
        steps=5000,
        model={"initial_log_std": -0.7},
    ),
    "acer": Subject(
        ActionValueReader(),
        {"num_steps": 8, "learning_rate": {"start": 2e-2, "end": 1e-3}, "optimizer": "adam", "replay_starts": 100}
        | {"buffer_size": 2000, "entropy_coef": 0.0},
        steps=2500,
    ),
    "ppg": Subject(
        ActorCriticReader(),
        # Normalized advantages never fade, and with them the policy would shake the trunk under the values for ever.
        {"num_steps": 16, "minibatch_size": 32, "update_epochs": 4, "normalize_advantages": False}
        | {"learning_rate": {"start": 1e-2, "end": 0.0}, "auxiliary_learning_rate": {"start": 3e-3, "end": 0.0}}
        | {"policy_phases": 4, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 32},
        steps=3500,
        model={"initial_log_std": -0.7},
    ),
    "recurrent_ppo": Subject(
        RecurrentReader(),
        {"num_steps": 16, "minibatch_size": 32, "update_epochs": 4, "learning_rate": {"start": 1e-2, "end": 0.0}}
        | {"sequence_length": 4, "memory_size": 16},
        steps=3500,
        model={"initial_log_std": -0.7},
        remembers=True,
    ),
    "dqn": Subject(
        QNetworkReader(), _replay(learning_rate=5e-3, tau=0.1, exploration=1.0, max_grad_norm=None), steps=750
    ),
    "apex_dqn": Subject(
        QNetworkReader(),
        _replay(learning_rate=5e-3, tau=0.1, exploration=1.0, max_grad_norm=None, n_step=1, dueling=False, double=False)
        | {"prioritized": False},
        steps=750,
    ),
    "c51": Subject(
        CategoricalReader(),
        _replay(learning_rate=5e-3, tau=0.1, exploration=1.0, max_grad_norm=None, **ATOMS),
        steps=750,
    ),
    "pqn": Subject(
        FreshQReader(),
        {"num_steps": 16, "minibatch_size": 32, "update_epochs": 4, "exploration": 1.0, "q_lambda": 0.5}
        | {"learning_rate": {"start": 3e-2, "end": 3e-3}, "max_grad_norm": None},
        steps=3500,
        model={"layer_norm": True, "activation": "relu"},
    ),
    "iqn": Subject(
        ImplicitQuantileReader(),
        _replay(learning_rate={"start": 1e-2, "end": 0.0}, tau=0.1, exploration=1.0, max_grad_norm=None)
        | {"num_taus": 8, "num_target_taus": 8, "num_acting_taus": 8, "num_cosines": 8},
        steps=1000,
    ),
    "rainbow": Subject(
        NoisyCategoricalReader(),
        _replay(learning_rate=5e-3, tau=0.1, max_grad_norm=None, n_step=1, prioritized=False, double=False, **ATOMS),
        steps=1000,
    ),
    "r2d2": Subject(
        RecurrentQReader(),
        _replay(learning_rate=1e-2, tau=0.1, exploration=1.0, max_grad_norm=None, n_step=1, double=False)
        | {"sequence_length": 6, "burn_in": 2, "memory_size": 16, "prioritized": False},
        steps=1000,
        remembers=True,
    ),
    "qr_dqn": Subject(
        QuantileReader(),
        _replay(learning_rate=5e-3, tau=0.1, exploration=1.0, max_grad_norm=None, num_quantiles=4),
        steps=750,
    ),
    "ddpg": Subject(
        DeterministicReader(),
        _replay(actor_learning_rate=3e-3, critic_learning_rate=1e-2, tau=0.1),
        steps=750,
        model={"activation": "relu"},
    ),
    "d4pg": Subject(
        CategoricalActorReader(),
        _replay(actor_learning_rate=3e-3, critic_learning_rate=1e-2, tau=0.1, n_step=1, **ATOMS),
        steps=750,
        model={"activation": "relu"},
    ),
    "apex_d4pg": Subject(
        CategoricalActorReader(),
        _replay(actor_learning_rate=3e-3, critic_learning_rate=1e-2, tau=0.1, n_step=1, prioritized=False, **ATOMS),
        steps=750,
        model={"activation": "relu"},
    ),
    "td3": Subject(
        DeterministicReader(),
        _replay(actor_learning_rate=6e-3, critic_learning_rate=1e-2, tau=0.2),
        steps=750,
        model={"activation": "relu"},
    ),
    "apex_td3": Subject(
        DeterministicReader(),
        _replay(actor_learning_rate=6e-3, critic_learning_rate=1e-2, tau=0.2, n_step=1, prioritized=False),
        steps=750,
        model={"activation": "relu"},
    ),
    "sac": Subject(
        SoftReader(),
        _replay(actor_learning_rate=2e-3, critic_learning_rate=1e-2, tau=0.1, temperature=1e-3),
        steps=750,
        model={"activation": "relu"},
    ),
    "tqc": Subject(
        SoftQuantileReader(),
        _replay(actor_learning_rate=2e-3, critic_learning_rate=1e-2, tau=0.1, temperature=1e-3)
        | {"num_quantiles": 5, "dropped_quantiles": 1},
        steps=750,
        model={"activation": "relu"},
    ),
    "td7": Subject(
        EmbeddedReader(),
        _replay(actor_learning_rate=6e-3, critic_learning_rate={"start": 1e-2, "end": 0.0}, copy_every=10)
        | {"evaluated_policy": "last", "embedding_size": 8},
        steps=1200,
        model={"activation": "relu"},
    ),
    "crossq": Subject(
        JointReader(),
        # What is learned has to come to rest for the running statistics to fit it, and small batches are biased: the
        # critic learns with the statistics of a batch, and the actor with the running ones.
        _replay(actor_learning_rate={"start": 4e-3, "end": 0.0}, critic_learning_rate={"start": 1e-2, "end": 0.0})
        | {"policy_delay": 1, "temperature": 1e-3, "batch_size": 128},
        steps=1500,
        model={"activation": "relu"},
    ),
    "redq": Subject(
        EnsembleReader(),
        _replay(actor_learning_rate=2e-3, critic_learning_rate=1e-2, tau=0.1, temperature=1e-3)
        | {"num_critics": 3, "policy_delay": 1, "gradient_steps": 1},
        steps=750,
        model={"activation": "relu"},
    ),
    "droq": Subject(
        EnsembleReader(),
        _replay(actor_learning_rate=2e-3, critic_learning_rate=1e-2, tau=0.1, temperature=1e-3)
        | {"policy_delay": 1, "gradient_steps": 1},
        steps=750,
        model={"activation": "relu"},
    ),
    "naf": Subject(ParabolaReader(), _replay(learning_rate=1e-2, tau=0.1), steps=750),
    "mpo": Subject(
        SampledReader(),
        _replay(actor_learning_rate=5e-3, critic_learning_rate=1e-2, tau=0.1, num_action_samples=10)
        | {"mean_kl": 0.1, "covariance_kl": 0.05, "initial_covariance_multiplier": 1.0, "initial_temperature": 0.2},
        steps=900,
        model={"activation": "relu", "initial_log_std": -0.7},
    ),
}


def action_kinds(algo: str) -> list[bool]:
    """For each kind of probe that the algorithm can take, whether its actions are continuous."""
    kinds = get_spec(algo).actions
    return [continuous for kind, continuous in (("discrete", False), ("box", True)) if kind in kinds]


READERS: dict[type, type[Reader]] = {
    MLPActorCritic: ActorCriticReader,
    MLPPPGModel: ActorCriticReader,
    MLPACERModel: ActionValueReader,
    LSTMActorCritic: RecurrentReader,
    MLPQNetwork: QNetworkReader,
    MLPC51Network: CategoricalReader,
    MLPQuantileNetwork: QuantileReader,
    MLPIQNNetwork: ImplicitQuantileReader,
    MLPRainbowNetwork: NoisyCategoricalReader,
    RecurrentQNetwork: RecurrentQReader,
    MLPDeterministicActorCritic: DeterministicReader,
    MLPD4PGModel: CategoricalActorReader,
    MLPSquashedGaussianActorCritic: SoftReader,
    MLPTQCModel: SoftQuantileReader,
    MLPTD7Model: EmbeddedReader,
    MLPCrossQModel: JointReader,
    MLPREDQModel: EnsembleReader,
    MLPNAFModel: ParabolaReader,
    MLPMPOModel: SampledReader,
}
USUAL: dict[str, Mapping[str, Any]] = {
    "on-policy": {"num_steps": 16, "minibatch_size": 32, "update_epochs": 4, "learning_rate": 1e-2},
    "on-policy, replay": {"num_steps": 8, "learning_rate": 1e-2},
    "replay": _replay(
        learning_rate=5e-3,
        actor_learning_rate=3e-3,
        critic_learning_rate=1e-2,
        tau=0.1,
        exploration=1.0,
        max_grad_norm=None,
        **ATOMS,
    ),
}


@cache
def subject(algo: str) -> Subject:
    """The entry of an algorithm, or the usual settings of its loop and the reader of its model."""
    if algo in SUBJECTS:
        return SUBJECTS[algo]
    row, spec = get_algorithm(algo), get_spec(algo)
    config = TrainConfig(algo=algo, env_id="probe")
    env = ConstantRewardProbe(continuous=action_kinds(algo)[0])
    learner = spec.learner(Spaces(env.observation_space, env.action_space), config, Streams(0))
    if type(learner.model) not in READERS:
        pytest.fail(
            f"{algo} has a new model, {type(learner.model).__name__}: add a reader of it to probe_suite.READERS"
        )
    settings = {name: value for name, value in USUAL[row.loop].items() if name in spec.config.model_fields}
    model = {"activation": "relu"} if "box" in row.actions and row.loop == "replay" else {"initial_log_std": -0.7}
    return Subject(READERS[type(learner.model)](), settings, 750 if row.loop == "replay" else 3500, model=model)


def build_loop(
    algo: str,
    envs: VectorEnv,
    *,
    seed: int = 0,
    steps: int | None = None,
    model: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Loop:
    """The algorithm's learner and loop on these envs, as `workflows.train` puts them together."""
    chosen = subject(algo)
    config = TrainConfig(
        algo=algo,
        env_id="probe",
        seed=seed,
        num_envs=envs.num_envs,
        total_timesteps=steps or chosen.steps,
        model={"hidden_sizes": (32,), **chosen.model, **(model or {})},
        algo_kwargs={"gamma": GAMMA, **chosen.settings, **settings},
    )
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    streams = Streams(seed)
    spec = get_spec(algo)
    return spec.loop(envs, spaces, spec.learner(spaces, config, streams), config, streams)


def train_on_probe(
    algo: str,
    probe: Callable[..., gym.Env[Any, Any]],
    *,
    mode: AutoresetMode = AutoresetMode.SAME_STEP,
    seed: int = 0,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Learner:
    """Train on the probe and give back the learner, ready to be read."""
    envs = probe_vector_env(probe, subject(algo).num_envs, autoreset_mode=mode, **parameters)
    loop = build_loop(algo, envs, seed=seed, steps=steps, **(settings or {}))
    with limited_threads(1):
        for _ in loop:
            pass
    return loop.learner


@torch.no_grad()
def values_of(algo: str, learner: Learner, observations: Any, *, episode: bool = False) -> np.ndarray:
    """V of each observation on its own, or with `episode` of each after those before it."""
    reader = subject(algo).reader
    read = reader.values_along if episode else reader.values
    return read(learner, torch.tensor(observations, dtype=torch.float32)).numpy()


def greedy_env_actions(learner: Learner, observations: Any) -> np.ndarray:
    """What the agent would do without exploring, in the env's own units."""
    action = learner.act(np.array(observations, np.float32), explore=False)
    return learner.spaces.to_env_actions(action.actions)


def record_targets(
    algo: str, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Fills up, update by update, with the observations learned from and the values they were regressed to."""
    module = import_module(type(learner).__module__)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    batches: list[Any] = []
    name = subject(algo).reader.loss.format(algo=algo)
    loss, update = getattr(module, name), learner.update

    def watched_update(batch: Any) -> Any:
        batches[:] = [batch]
        return update(batch)

    def watched_loss(*arguments: Any, **options: Any) -> Any:
        seen.append(subject(algo).reader.targets(batches[0], arguments))
        return loss(*arguments, **options)

    monkeypatch.setattr(learner, "update", watched_update)
    monkeypatch.setattr(module, name, watched_loss)
    # An Ape-X learner calls the step of its sibling, which finds the loss in its own file.
    monkeypatch.setattr(import_module(loss.__module__), loss.__name__, watched_loss)
    return seen
