"""R2D2: deep Q-learning with memory, from replayed windows of trajectories.

Kapturowski, Ostrovski, Quan, Munos, Dabney (2019), OpenReview r1lyTjAqYX. The Q-network has an LSTM or GRU. A window of
replay starts from the memory that the policy had when it acted there (stored state); its first `burn_in` steps only
bring that memory up to date, without gradients. Targets are n-step double Q-learning with values rescaled by h; a
window is sampled by 0.9 max + 0.1 mean of its TD errors.

DRQN (Hausknecht and Stone 2015, arXiv:1507.06527, with bootstrapped random updates) is a setting of it: `stored_state:
false`, `burn_in: 0`, `prioritized: false`, `n_step: 1`, `double: false`, `dueling: false` and `rescaling: null`.

Deviations: without actors there is one epsilon on a schedule (`exploration={start: 1.0, end: 0.05}`), where the paper
has 256 actors with one each. With several actors (`runtime.actors`) each has its own, by the ladder of Ape-X, but they
wait for the learner (lockstep). At the start of an episode a window has no burn-in, because the memory is known
there: it is empty. The paper never learns from the first steps of an episode. The network does not see the previous
action and reward. n-step returns are shorter at the end of a window, behind which nothing is known. All steps of a
batch have the same weight, so a window that its episode cuts short counts less. The weights of prioritized replay
(`importance_exponent=0.6`) are relative to the largest one in the batch. Target copies are counted in env steps, and
the target may instead follow softly (`tau`). Gradients are clipped by their norm (`max_grad_norm=10`). The layers,
which follow the memory, are `hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal`. Windows and
priorities have the defaults of the paper: `sequence_length=80`, `burn_in=40`, `n_step=5` and `priority_exponent=0.9`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.actor_ladder import EpsilonLadder
from rl_training.algorithms.common.exploration import epsilon_greedy
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.r2d2 import R2D2Config
from rl_training.config.train_config import TrainConfig
from rl_training.data.trajectory_replay import Windows, window_priorities
from rl_training.envs.spaces import Spaces
from rl_training.models.recurrent.recurrent_q import RecurrentQNetwork


def rescaled(x: Tensor, epsilon: float | None) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x; without epsilon x itself."""
    return x if epsilon is None else x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + epsilon * x


def restored(x: Tensor, epsilon: float | None) -> Tensor:
    """The inverse of h: sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)."""
    if epsilon is None:
        return x
    size = x.abs() + 1.0 + epsilon
    # (root - 1) / (2 epsilon), without a difference that would lose half of the digits of a float32.
    quotient = 2.0 * size / ((1.0 + 4.0 * epsilon * size).sqrt() + 1.0)
    return x.sign() * (quotient.square() - 1.0)


def n_step_returns(rewards: Tensor, discounts: Tensor, values: Tensor, mask: Tensor, n_step: int) -> Tensor:
    """Rewards of m steps and the value after them; m is n, or less at the end of the window.   [L, S]

        G_t = sum_{k = 0 .. m-1} D_k r_{t+k} + D_m v_{t+m},  D_k = d_t ... d_{t+k-1}

    `values` [L, S] belong to the observation AFTER each step. A discount of 0 ends the sum.
    """
    steps = len(rewards)
    # Behind the last step of a window there is nothing to add: its return is that of its last step alone.
    returns = rewards + discounts * values
    continues = torch.zeros_like(mask)
    continues[:-1] = mask[1:]
    result = returns
    for _ in range(n_step - 1):
        longer = torch.zeros_like(result)
        longer[: steps - 1] = result[1:]
        result = torch.where(continues, rewards + discounts * longer, returns)
    return result


def r2d2_target(batch: Windows, next_values: Tensor, config: R2D2Config) -> Tensor:
    """y_t = h(G_t),  v_{t+m} = h^-1 (Q'(s_{t+m}, a*)).   [L, S]

    `next_values` [L, S] are Q'(., a*) of the target network at the observation after each step, on the scale of h.
    """
    values = restored(next_values, config.rescaling)
    returns = n_step_returns(batch.rewards, batch.discounts, values, batch.mask, config.n_step)
    return rescaled(returns, config.rescaling)


def r2d2_loss(q: Tensor, target: Tensor, mask: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """L = 1/N sum_t w (y_t - Q(s_t, a_t))^2 / 2, over the N steps of all windows. [L, S]; w [S] belongs to a window."""
    losses = 0.5 * (q - target).square()
    if weights is not None:
        losses = weights * losses
    count = mask.sum()
    loss = torch.where(mask, losses, 0.0).sum() / count
    means = {"q_mean": q.detach(), "target_q_mean": target}
    metrics = {name: torch.where(mask, value, 0.0).sum() / count for name, value in means.items()}
    return loss, {"loss": loss.detach(), **metrics}


class R2D2(Learner[R2D2Config]):
    """Epsilon-greedy on a recurrent Q-network that is fitted to targets of a slower one."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        self.model: RecurrentQNetwork = self.build(
            lambda: RecurrentQNetwork(
                spaces,
                config.model,
                cell=settings.cell,
                memory_size=settings.memory_size,
                memory_layers=settings.memory_layers,
                dueling=settings.dueling,
            )
        )
        self.optimizer = self.add_optimizer(self.model, settings.learning_rate)
        self.target: TargetNetwork[RecurrentQNetwork] = TargetNetwork(self.model, copied=True)
        self._ladder = EpsilonLadder(config)

    def take_place(self, index: int) -> None:
        self._ladder.take_place(index)

    def exploration_rate(self) -> float:
        """The probability of a random action, now."""
        return self.scheduled(self.config.exploration) if self._ladder.epsilon is None else self._ladder.epsilon

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        values, after = self.model.act_values(obs, memory, episode_starts)
        actions: np.ndarray = values.argmax(1)
        if explore:
            epsilon, masks = self.exploration_rate(), self.spaces.action_masks(obs)
            greedy, rng = actions, self.streams["exploration"]
            actions = epsilon_greedy(lambda _: greedy, obs, self.model.num_actions, epsilon, rng, masks)
        return Action(actions, {}, after)

    def remember(self, obs: np.ndarray, episode_starts: np.ndarray, memory: Any) -> Any:
        return self.model.act_values(obs, memory, episode_starts)[1]

    def update(self, batch: Windows) -> UpdateResult:
        batch = batch.to(self.device)
        self.set_learning_rates()
        metrics, errors = self._gradient_step(batch)
        self.updates += 1
        if self.config.tau is not None:
            self.target.follow(self.config.tau)
        else:
            self.target.copy_every(self.env_steps, self.config.target_update_every)
        metrics |= self.probe(lambda: self.model.unroll(batch.obs[batch.burn_steps :], self._start(self.model, batch)))
        metrics["exploration"] = torch.tensor(self.exploration_rate(), device=self.device)
        metrics["learning_rate"] = self.scheduled_tensor(self.config.learning_rate)
        if not self.config.prioritized:
            return UpdateResult(metrics)
        return UpdateResult(metrics, window_priorities(errors.cpu().numpy(), batch.mask.cpu().numpy()))

    def _gradient_step(self, batch: Windows) -> tuple[Metrics, Tensor]:
        obs = batch.obs[batch.burn_steps :]
        q_all = self.model.unroll(obs, self._start(self.model, batch))
        with torch.no_grad():
            target_q = self.target.module.unroll(obs, self._start(self.target.module, batch))[1:]
            chosen = (q_all.detach()[1:] if self.config.double else target_q).argmax(-1, keepdim=True)
            target = r2d2_target(batch, target_q.gather(-1, chosen).squeeze(-1), self.config)
        # Padding may show an action that is not allowed there, whose value is -inf.
        q = q_all[:-1].gather(-1, batch.actions[..., None]).squeeze(-1).where(batch.mask, 0.0)
        loss, metrics = r2d2_loss(q, target, batch.mask, batch.weights)
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics, q.detach() - target

    def _start(self, model: RecurrentQNetwork, batch: Windows) -> Tensor:
        """The memory [S, ...] where the steps to learn from start, by this network's own weights after the burn-in."""
        assert batch.memory is not None
        memory = batch.memory if self.config.stored_state else torch.zeros_like(batch.memory)
        if not batch.burn_steps:
            return memory
        memory = memory.clone()
        # Few lengths differ: windows at the start of an episode have no burn-in, almost all others the whole one.
        for steps in batch.burn_in.unique().tolist():
            if steps:
                windows = (batch.burn_in == steps).nonzero().squeeze(1)
                memory[windows] = model.remembered(
                    batch.obs[batch.burn_steps - steps : batch.burn_steps, windows], memory[windows]
                )
        return memory
