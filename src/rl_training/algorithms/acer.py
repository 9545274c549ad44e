"""ACER: actor-critic with experience replay, for discrete actions.

Wang, Bapst, Heess, Mnih, Munos, Kavukcuoglu, de Freitas (2016), arXiv:1611.01224, sections 3.1 to 3.3 and algorithm 2.
Each rollout is learned from once as it comes; then Poisson(`replay_ratio`) updates replay windows of older rollouts. Q
is fitted to Retrace returns. The policy gradient caps importance weights and corrects what the cap cuts off. Each row
of it, a gradient in the probabilities, is projected so that it does not lead away from an average policy.

Deviations: one process steps all environments and learns. Windows end with their episodes; a truncated one bootstraps
from its true final observation. A batch of replay has as many windows as environments. The entropy bonus
(`entropy_coef=0.01`) is part of the gradient that is projected. On vectors, policy and Q are separate networks; on
images they share the encoder, and `value_coef=0.5` weighs how much Q trains it. Losses are averaged over steps.
RMSprop has the form of TensorFlow; gradients are clipped by their norm (`max_grad_norm=10`). The part for continuous
actions (stochastic dueling networks) is not here.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.optimizer import chosen_optimizer
from rl_training.algorithms.common.retrace import retrace_returns
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.acer import ACERConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.replay_layout import Column
from rl_training.data.trajectory_replay import Windows
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_acer import MLPACERModel

SMALLEST = 1e-6  # keeps the quotients of probabilities finite


def policy_gradient(
    probs: Tensor,
    behavior: Tensor,
    actions: Tensor,
    returns: Tensor,
    q: Tensor,
    values: Tensor,
    *,
    cap: float,
    entropy_coef: float,
) -> Tensor:
    """The gradient in pi(.|s) that is to be followed, with the entropy bonus.   [B, A]

        g(b) = 1[b = a] min(c, rho(a)) (G - V) / pi(a)  +  max(0, 1 - c / rho(b)) (Q(b) - V)  -  c_e (log pi(b) + 1)
        rho(b) = pi(b|s) / mu(b|s)                                                                  (eq. 7 and 9)

    `probs`, `behavior` and `q` are [B, A], the rest [B]; all are constants.
    """
    ratios = probs / behavior.clamp(min=SMALLEST)
    chosen = actions[:, None]
    taken = probs.gather(1, chosen).clamp(min=SMALLEST)
    weight = ratios.gather(1, chosen).clamp(max=cap)
    gradient = (1.0 - cap / ratios.clamp(min=SMALLEST)).clamp(min=0.0) * (q - values[:, None])
    gradient = gradient.scatter_add(1, chosen, weight * (returns - values)[:, None] / taken)
    return gradient - entropy_coef * (probs.clamp(min=SMALLEST).log() + 1.0)


def trust_region(gradient: Tensor, probs: Tensor, average: Tensor, delta: float) -> Tensor:
    """z = g - max(0, (k * g - delta) / |k|^2) k,  k = -pi_avg / pi                                       (eq. 12)

    k is the gradient of KL(pi_avg || pi) in pi, where pi_avg is the average policy. z is the closest gradient to g
    along which KL rises by no more than delta. All [B, A].
    """
    slope = -average / probs.clamp(min=SMALLEST)
    excess = ((slope * gradient).sum(1) - delta) / slope.square().sum(1).clamp(min=SMALLEST)
    return gradient - excess.clamp(min=0.0)[:, None] * slope


def acer_loss(
    probs: Tensor, gradient: Tensor, q_taken: Tensor, returns: Tensor, value_coef: float
) -> tuple[Tensor, Metrics]:
    """L = -mean sum_b pi(b|s) z(b)  +  c_v 1/2 mean (G - Q(s, a))^2

    Its gradient in the policy is z (`gradient`, a constant) through pi. `probs` and `gradient` [B, A], the rest [B].
    """
    policy_loss = -(probs * gradient).sum(1).mean()
    value_loss = 0.5 * (returns - q_taken).square().mean()
    loss = policy_loss + value_coef * value_loss
    metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss}
    return loss, {name: value.detach() for name, value in metrics.items()}


class ACER(Learner[ACERConfig]):
    """One gradient step on each batch of windows, fresh or replayed."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPACERModel = self.build(lambda: MLPACERModel(spaces, config.model))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate, **chosen_optimizer(self.config))
        self.average: TargetNetwork[MLPACERModel] = TargetNetwork(self.model)

    def replay_columns(self, spaces: Spaces) -> dict[str, Column]:
        """The probabilities of all actions when a step was taken."""
        return {"probs": ((spaces.action_sizes[0],), np.dtype(np.float32))}

    def update(self, batch: Windows) -> UpdateResult:
        batch = batch.to(self.device)
        self.set_learning_rates()
        metrics = self._gradient_step(batch)
        self.average.follow(1.0 - self.config.average_decay)
        self.updates += 1
        metrics |= self.probe(lambda: self.model.policy_and_q(batch.obs[0]))
        metrics["learning_rate"] = self.scheduled_tensor(self.config.learning_rate)
        return UpdateResult(metrics)

    def _gradient_step(self, batch: Windows) -> Metrics:
        config, mask = self.config, batch.mask
        obs = batch.obs[batch.burn_steps :]
        every_probs, every_q = (part.unflatten(0, obs.shape[:2]) for part in self.model.policy_and_q(obs.flatten(0, 1)))
        actions = batch.actions[..., None]
        with torch.no_grad():
            values = (every_probs * every_q).sum(-1)
            behavior = batch.extras["probs"]
            taken = every_probs[:-1].gather(-1, actions).squeeze(-1)
            ratios = taken / behavior.gather(-1, actions).squeeze(-1).clamp(min=SMALLEST)
            q_taken = every_q[:-1].gather(-1, actions).squeeze(-1)
            returns = retrace_returns(
                q_taken, values, ratios, batch.rewards, batch.discounts, mask, config.retrace_lambda
            )[mask]
            probs = every_probs[:-1][mask]
            gradient = policy_gradient(
                probs,
                behavior[mask],
                batch.actions[mask],
                returns,
                every_q[:-1][mask],
                values[:-1][mask],
                cap=config.importance_cap,
                entropy_coef=self.scheduled(config.entropy_coef),
            )
            average, _ = self.average.module.policy_and_q(obs[:-1][mask])
            if config.max_kl is not None:
                projected = trust_region(gradient, probs, average, config.max_kl)
            else:
                projected = gradient
            extra = self._extra_metrics(probs, average, ratios[mask], gradient, projected)
        q = every_q[:-1].gather(-1, actions).squeeze(-1)[mask]
        loss, metrics = acer_loss(every_probs[:-1][mask], projected, q, returns, config.value_coef)
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics | extra

    @staticmethod
    def _extra_metrics(probs: Tensor, average: Tensor, ratios: Tensor, before: Tensor, after: Tensor) -> Metrics:
        logs = [part.clamp(min=SMALLEST).log() for part in (probs, average)]
        return {
            "entropy": -(probs * logs[0]).sum(1).mean(),
            "kl_average": (average * (logs[1] - logs[0])).sum(1).mean(),
            "projected": (before != after).any(1).float().mean(),
            "ratio_mean": ratios.mean(),
        }
