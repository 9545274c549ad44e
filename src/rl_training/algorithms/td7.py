"""TD7: TD3 on learned embeddings of states and actions (SALE), with LAP replay and a kept best policy.

Fujimoto, Chang, Smith, Gu, Precup, Meger (2023), arXiv:2306.02451. An embedding z_sa of a state and an action is
trained to predict the embedding z_s of the next state, and by nothing else. Actor and critics see fixed copies of both
embeddings beside their usual inputs. Every `copy_every` updates the targets copy the networks, and the fixed embedding
copies the trained one. Values of targets are clipped to the range that targets had before the last copy. Replay is LAP
(arXiv:2007.06049): a floor of the priorities, and a loss without importance weights that goes with it.

The policy that acts is frozen for a trial of one or more episodes. If the worst of them has at least the return of the
best trial so far, the policy is kept (the paper calls it a checkpoint). Published scores are those of the kept policy.
So are those of evaluations here, unless `evaluated_policy` is last. Until the first trial has ended, that is the
one to evaluate.

Deviations: an update follows each step, where the authors make as many as a trial had steps after it; the policy that
acts is frozen all the same. When trials get longer, the best return so far is lowered by a tenth of its size (the
authors multiply it by 0.9, which raises a negative one). Priorities are sampled by strata. Warm-up is
`learning_starts=100` uniform random steps (25,000 in the paper). The networks have `hidden_sizes=[64, 64]` with
`activation=tanh` and `initialization=orthogonal` (256 and 256 units, ReLU in the actor, ELU elsewhere).

Options beyond the paper: `n_step` above 1 does not correct for the older policies of the steps in between;
`importance_exponent=0.0` above 0 adds importance weights. With several environments, only episodes that lie within a
trial count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.common.learner import Action, FinishedEpisode, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.optimizer import flatten_parameters, vectors_of
from rl_training.algorithms.common.replay_learner import NoisyActorCritic
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.td7 import TD7Config
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_td7 import Embedding, MLPTD7Model, copy_weights, policy_copy


def embedding_loss(zsa: Tensor, next_zs: Tensor) -> Tensor:
    """L = mean (z_sa - z_s')^2, where z_s' has no gradient.   [B, size] each"""
    return F.mse_loss(zsa, next_zs.detach())


def td7_target(batch: Transitions, next_q: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """y = r + d * clip(min_i Q'_i(s', a'), y_min, y_max).   [B]

    a' is the target actor's action with clipped noise; y_min and y_max are `low` and `high`. `next_q` is [2, B]. d is
    the batch's discount: gamma^n, or 0 after termination.
    """
    return batch.rewards + batch.discounts * next_q.amin(0).clamp(low, high)


def td7_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """LAP's loss: sum_i mean_b w h(|Q_i(s, a) - y|).

        h(e) = e^2 / 2 if e < 1,  h(e) = e if e >= 1

    Huber's loss would have e - 1/2 above 1. Below the floor of the priorities rows are sampled uniformly, so the loss
    is the squared one; above it, the sampling by |e| makes up for the slope. q_values [2, B].
    """
    errors = (q_values - target).abs()
    losses = torch.where(errors < 1.0, 0.5 * errors.square(), errors)
    loss = (losses if weights is None else weights * losses).mean(1).sum()
    return loss, {"critic_loss": loss.detach(), "q_mean": q_values.detach().mean(), "target_q_mean": target.mean()}


def td7_actor_loss(q_values: Tensor) -> Tensor:
    """L = -mean_i Q_i(s, mu(s)), over both critics."""
    return -q_values.mean()


class ValueRange(nn.Module):
    """The least and the greatest target so far, and those before the last copy, which bound the next values."""

    lower: Tensor
    upper: Tensor
    least: Tensor
    greatest: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, start in (("lower", 0.0), ("upper", 0.0), ("least", 1e8), ("greatest", -1e8)):
            self.register_buffer(name, torch.tensor(start))

    def see(self, targets: Tensor) -> None:
        self.least.copy_(torch.minimum(self.least, targets.amin()))
        self.greatest.copy_(torch.maximum(self.greatest, targets.amax()))

    def renew(self) -> None:
        self.lower.copy_(self.least)
        self.upper.copy_(self.greatest)


class Trials:
    """The results of trials: how the policy that acts has done so far, and how the best one did."""

    def __init__(self) -> None:
        self.started_at = 0  # the env step
        self.episodes = 0
        self.worst: float | None = None
        self.best: float | None = None
        self.are_late = False

    def add(self, total_reward: float) -> None:
        self.episodes += 1
        self.worst = total_reward if self.worst is None else min(self.worst, total_reward)

    @property
    def has_failed(self) -> bool:
        """Whether an episode was worse than the worst of the best policy: the trial can end at once."""
        return self.worst is not None and self.best is not None and self.worst < self.best

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in vars(self):
            setattr(self, name, state[name])


class TD7(NoisyActorCritic[TD7Config, MLPTD7Model]):
    """Twin critics and a delayed actor on fixed embeddings; evaluations play the policy whose trial was best."""

    policies: ClassVar[tuple[str, ...]] = ("kept", "last")

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        # The embedding that learns. The one in the model is fixed, and that in the target is the fixed one before it.
        self.embedding: Embedding = self.model.learning_embedding()
        self.embedding_optimizer = self.add_optimizer(self.embedding, self.config.embedding_learning_rate)
        self.value_range = ValueRange().to(self.device)
        self.acting, self.kept = policy_copy(self.model), policy_copy(self.model)
        flatten_parameters(self.acting.parameters())  # one vector: what actors elsewhere get
        self.trials = Trials()
        self.evaluated_policy = self.config.evaluated_policy

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        if explore:
            return Action(self.noise.apply(self.acting.act(obs), self.streams["exploration"], episode_starts))
        has_kept = self.evaluated_policy == "kept" and self.trials.best is not None
        return Action((self.kept if has_kept else self.model).act(obs))

    def acting_tensors(self) -> list[Tensor]:
        return [*vectors_of(self.acting.parameters()), *self.acting.buffers()]

    def _gradient_step(self, batch: Transitions, noise: Tensor, actor_too: bool) -> tuple[Metrics, Tensor]:
        model, target_model = self.model, self.target.module
        metrics: Metrics = {"embedding_loss": self._learn_embedding(batch)}
        with torch.no_grad():
            next_features, next_zs = target_model.embedded(batch.next_obs)
            next_actions = (target_model.actions_at(next_features, next_zs) + noise).clamp(-1.0, 1.0)
            next_q = target_model.values_at(next_features, next_zs, next_actions)
            target = td7_target(batch, next_q, self.value_range.lower, self.value_range.upper)
            self.value_range.see(target)
            features, zs = model.embedded(batch.obs)
        q_values = model.values_at(features, zs, batch.actions)
        loss, critic_metrics = td7_loss(q_values, target, batch.weights)
        metrics |= critic_metrics
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        if actor_too:
            actions = model.actions_at(features, zs)
            metrics |= self.actor_step(td7_actor_loss(model.values_at(features, zs, actions)))
        return metrics, (q_values.detach() - target).abs().amax(0)

    def _learn_embedding(self, batch: Transitions) -> Tensor:
        normalized = self.model.normalized
        with torch.no_grad():
            _, next_zs = self.embedding(normalized(batch.next_obs))
        _, zs = self.embedding(normalized(batch.obs))
        loss = embedding_loss(self.embedding.predicted(zs, batch.actions), next_zs)
        self.embedding_optimizer.step(loss)
        return loss.detach()

    def step_inputs(self, batch: Transitions) -> tuple[Tensor, bool]:
        """The noise of the target actions, and whether the actor learns in this update."""
        limit = self.config.target_noise_clip
        noise = self.normal_noise("target_noise", batch.actions.shape) * self.config.target_noise
        return noise.clamp(-limit, limit), (self.updates + 1) % self.config.policy_delay == 0

    def update(self, batch: Transitions) -> UpdateResult:
        result = super().update(batch)
        if self.updates % self.config.copy_every == 0:
            self.target.follow()  # first: its embedding is the fixed one that the critic has learned with
            copy_weights(self.model.embedding, self.embedding)
            self.value_range.renew()
        return result

    def episodes(self, finished: Sequence[FinishedEpisode]) -> None:
        """Judge the policy that acts; after its trial, keep it if it was best, and start another trial."""
        trials, config = self.trials, self.config
        if not trials.are_late and self.updates >= config.late_trials_after:
            trials.are_late = True
            trials.best = None if trials.best is None else trials.best - 0.1 * abs(trials.best)
        for episode in finished:
            # Random warm-up steps, and steps of the policy before this one, belong to no trial.
            started = max(trials.started_at if trials.started_at <= self.env_steps else 0, config.learning_starts)
            if episode.length * self.num_envs > self.env_steps - started:
                continue
            trials.add(episode.total_reward)
            is_over = trials.episodes >= (config.late_trial_episodes if trials.are_late else config.trial_episodes)
            if trials.has_failed or is_over:
                self._end_trial()

    def _end_trial(self) -> None:
        trials = self.trials
        if not trials.has_failed:
            trials.best = trials.worst
            copy_weights(self.kept, self.acting)
        trials.started_at, trials.episodes, trials.worst = self.env_steps, 0, None
        copy_weights(self.acting, self.model)

    def make_model(self) -> MLPTD7Model:
        return MLPTD7Model(self.spaces, self.model_config, embedding_size=self.config.embedding_size)
