"""MPO: maximum a posteriori policy optimization, as expectation maximization.

Abdolmaleki et al. (2018), arXiv:1806.06920, with the M-step of arXiv:1812.02256, which bounds mean and covariance
separately. E-step: actions sampled from the target policy get the weights softmax(Q / eta), which is the best policy
within a KL bound of it. M-step: the policy is fitted to the weighted samples, with one KL bound for each dimension of
its mean and of its standard deviation. The temperature eta and the multipliers of the bounds are dual variables, which
are learned too.

Deviations: targets follow softly (`tau=0.005`) instead of being copied at intervals; n-step returns have no correction
for the change of the policy (the papers use Retrace, later work no correction); the policy's mean passes through tanh,
and its samples are clipped to [-1, 1] for the critic and the environment; `max_grad_norm`, if it is set, also clips the
gradient of the duals; uniform random actions during warm-up; the penalty on samples outside the action bounds comes
from later multi-objective work, and is off by default. The networks have `hidden_sizes=[64, 64]` with `activation=tanh`
and `initialization=orthogonal`. Prioritized replay is an option that the papers do not have: its weights are relative
to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import ActorCriticLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.mpo import MPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import LOG_SQRT_2PI
from rl_training.models.mlp_mpo import MLPMPOModel

# softplus(-18) is 1.5e-8: practically zero, yet close enough for a bound to become active again soon.
DUAL_FLOOR = -18.0


class Bound(NamedTuple):
    """A KL divergence [B, A], its limit, and the dual variable that enforces it (positive, broadcast to the KL)."""

    kl: Tensor
    multiplier: Tensor
    limit: float


def mpo_target(rewards: Tensor, discounts: Tensor, next_q: Tensor) -> Tensor:
    """y = r + d * mean_j Q'(s', a_j),  a_j ~ pi'(.|s').   next_q [S, B]; d is gamma^n, or 0 after termination."""
    return rewards + discounts * next_q.mean(0)


def mpo_weights(q_values: Tensor, temperature: Tensor) -> Tensor:
    """q_j = softmax_j(Q(s, a_j) / eta): the E-step, over the samples of each state.   [S, B]"""
    return (q_values / temperature).softmax(0)


def mpo_temperature_loss(q_values: Tensor, temperature: Tensor, limit: float) -> Tensor:
    """g(eta) = eta eps + mean_b eta log mean_j exp(Q(s_b, a_j) / eta), the convex dual of the E-step's bound."""
    log_mean = (q_values / temperature).logsumexp(0) - math.log(len(q_values))
    return (temperature * (limit + log_mean)).mean()


def mpo_loss(
    log_probs: Tensor, weights: Tensor, temperature_loss: Tensor, bounds: Sequence[Bound]
) -> tuple[Tensor, Metrics]:
    """-mean_b sum_j q_j log pi(a_j|s_b) + sum alpha KL + g(eta) + sum alpha (eps - KL)

    The first two terms move the policy, with alpha constant; the others move only the dual variables, with the KL
    constant. So alpha grows while its bound is violated, and shrinks while it holds. log_probs and weights are [S, B].
    """
    policy_loss = -(weights.detach() * log_probs).sum(0).mean()
    penalty = torch.stack([(b.multiplier.detach() * b.kl).mean(0).sum() for b in bounds]).sum()
    dual_loss = torch.stack([(b.multiplier * (b.limit - b.kl.detach())).mean(0).sum() for b in bounds]).sum()
    loss = policy_loss + penalty + temperature_loss + dual_loss
    return loss, {
        "actor_loss": loss.detach(),
        "policy_loss": policy_loss.detach(),
        "kl_penalty": penalty.detach(),
        "temperature_loss": temperature_loss.detach(),
        "dual_loss": dual_loss.detach(),
    }


def decoupled_gaussian(
    actions: Tensor, mean: Tensor, log_std: Tensor, target_mean: Tensor, target_log_std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """log N(a; mu, sigma') + log N(a; mu', sigma) [S, B], and both KLs from the target policy, [B, A] each.

    The mean is fitted with the target's deviation, and the deviation with the target's mean (arXiv:1812.02256, section
    4.2). Otherwise a policy would first shrink its deviation around a mean that has not moved yet.
    """

    def log_normal(center: Tensor, log_deviation: Tensor) -> Tensor:
        scaled = (actions - center) * (-log_deviation).exp()
        return (-0.5 * scaled.square() - log_deviation - LOG_SQRT_2PI).sum(-1)

    log_probs = log_normal(mean, target_log_std) + log_normal(target_mean, log_std)
    mean_kl = 0.5 * (mean - target_mean).square() * (-2 * target_log_std).exp()
    difference = target_log_std - log_std
    covariance_kl = 0.5 * ((2 * difference).exp() - 1) - difference
    return log_probs, mean_kl, covariance_kl


class Duals(nn.Module):
    """The dual variables; softplus makes them positive."""

    def __init__(self, action_dim: int, config: MPOConfig):
        super().__init__()
        self.temperature = self._start(1, config.initial_temperature)
        self.mean = self._start(action_dim, config.initial_mean_multiplier)
        self.covariance = self._start(action_dim, config.initial_covariance_multiplier)
        self.penalty = None if config.penalty_kl is None else self._start(1, config.initial_temperature)

    @staticmethod
    def _start(size: int, value: float) -> nn.Parameter:
        return nn.Parameter(torch.full((size,), value + math.log(-math.expm1(-value))))

    def values(self) -> dict[str, Tensor]:
        return {name: F.softplus(parameter) for name, parameter in self.named_parameters()}


class MPO(ActorCriticLearner[MPOConfig, MLPMPOModel]):
    """A Gaussian policy that is fitted to the better ones among its own samples, within bounds on the change."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.duals = self.build(lambda: Duals(spaces.action_dim, self.config))
        self.dual_optimizer = self.add_optimizer(self.duals, self.config.dual_learning_rate)

    def _gradient_step(self, batch: Transitions, noise: Tensor) -> tuple[Metrics, Tensor]:
        target_model = self.target.module
        with torch.no_grad():
            next_mean, next_log_std = target_model.actor(batch.next_obs)
            next_q = target_model.q_value(batch.next_obs, next_mean + next_log_std.exp() * noise[0])
            target = mpo_target(batch.rewards, batch.discounts, next_q)
        q_values = self.model.q_values(batch.obs, batch.actions)
        loss, metrics = critic_loss(q_values, target, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        metrics |= self._improve(batch.obs, noise[1])
        self.target.follow(self.config.tau)
        return metrics, td_errors(q_values, target)

    def _improve(self, obs: Tensor, noise: Tensor) -> Metrics:
        """E-step and M-step at the batch's states, with one backward pass for the policy and the duals."""
        config, target_model = self.config, self.target.module
        with torch.no_grad():
            target_mean, target_log_std = target_model.actor(obs)
            samples = target_mean + target_log_std.exp() * noise
            sample_q = target_model.q_value(obs, samples)
        duals = self.duals.values()
        sample_weights = mpo_weights(sample_q, duals["temperature"])
        temperature_loss = mpo_temperature_loss(sample_q, duals["temperature"], config.improvement_kl)
        shares = sample_weights.detach()
        # xlogy: a share of zero adds zero; written out it would be NaN.
        metrics = {"improvement_kl": torch.xlogy(shares, shares * len(samples)).sum(0).mean()}
        if config.penalty_kl is not None:
            outside = -torch.linalg.vector_norm(samples - samples.clamp(-1.0, 1.0), dim=-1)
            sample_weights = sample_weights + mpo_weights(outside, duals["penalty"])
            temperature_loss = temperature_loss + mpo_temperature_loss(outside, duals["penalty"], config.penalty_kl)
        mean, log_std = self.model.actor(obs)
        log_probs, mean_kl, covariance_kl = decoupled_gaussian(samples, mean, log_std, target_mean, target_log_std)
        bounds = (
            Bound(mean_kl, duals["mean"], config.mean_kl),
            Bound(covariance_kl, duals["covariance"], config.covariance_kl),
        )
        loss, loss_metrics = mpo_loss(log_probs, sample_weights, temperature_loss, bounds)
        actor_parameters, dual_parameters = self.actor_optimizer.parameters, self.dual_optimizer.parameters
        gradients = [g.reshape(-1) for g in torch.autograd.grad(loss, [*actor_parameters, *dual_parameters])]
        split = len(actor_parameters)
        metrics["actor_grad_norm"] = self.actor_optimizer.apply(torch.cat(gradients[:split]))
        self.dual_optimizer.apply(torch.cat(gradients[split:]))
        self.dual_optimizer.vector.clamp_(min=DUAL_FLOOR)
        return (
            metrics
            | loss_metrics
            | {
                "mean_kl": mean_kl.detach().mean(),
                "covariance_kl": covariance_kl.detach().mean(),
                "policy_std": log_std.detach().exp().mean(),
                "temperature": duals["temperature"].detach().squeeze(),
                "mean_multiplier": duals["mean"].detach().mean(),
                "covariance_multiplier": duals["covariance"].detach().mean(),
            }
        )

    def step_inputs(self, batch: Transitions) -> tuple[Tensor]:
        """Noise [2, S, B, A] for the actions that are sampled at the next states and at the states."""
        return (self.normal_noise("policy_noise", (2, self.config.num_action_samples, *batch.actions.shape)),)

    def make_model(self) -> MLPMPOModel:
        return MLPMPOModel(self.spaces, self.model_config)
