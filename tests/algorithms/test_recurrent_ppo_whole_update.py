"""Whole updates of recurrent PPO against a reference that takes one sequence at a time, without padding."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from on_policy_helpers import learn_from, parameters_of
from recurrent_helpers import MEMORIES, carried_rollout, recurrent_learner, stepped
from rl_training.algorithms.common.rewards import ReturnNormalizer
from rl_training.algorithms.common.streams import Streams
from rl_training.contrib import recurrent_ppo
from rl_training.contrib.recurrent_ppo import recurrent_ppo_loss
from rl_training.data.recurrent_rollout_buffer import RecurrentRolloutBuffer
from rl_training.data.rollout import Rollout
from slow_formulas import slow_advantages

GAMMA, TRACE, LENGTH = 0.9, 0.7, 4
SETTINGS: dict[str, Any] = {
    "num_envs": 3,
    "gamma": GAMMA,
    "gae_lambda": TRACE,
    "sequence_length": LENGTH,
    "minibatch_size": 16,
    "update_epochs": 2,
    "learning_rate": {"start": 4e-3, "end": 0.0},
    "clip_range": {"start": 0.4, "end": 0.0},
    "entropy_coef": {"start": 0.08, "end": 0.0},
}
SHARE_LEFT = 0.75  # of every schedule, at env step 250 of 1000


def sequences_of(rollout: Rollout) -> dict[int, list[int]]:
    """Rows [t * N + env] of every sequence by its first: cut where an episode starts, or at `LENGTH` steps."""
    found: dict[int, list[int]] = {}
    num_steps, num_envs = rollout.rewards.shape
    for env in range(num_envs):
        rows: list[int] = []
        for t in range(num_steps):
            if not rollout.valid[t, env]:
                rows = []
                continue
            if not rows or rollout.episode_starts[t, env] or len(rows) == LENGTH:
                rows = []
                found[t * num_envs + env] = rows
            rows.append(t * num_envs + env)
    return found


def run_memory(model: Any, index: int, inputs: Tensor, memory: Tensor) -> Tensor:
    """Outputs [L, H] of one recurrent network over one sequence, from one row of a memory [parts, H]."""
    network = [model.actor_memory, model.critic_memory or model.actor_memory][index]
    parts = len(memory) // (1 if model.critic_memory is None else 2)
    own = memory[-parts:] if index else memory[:parts]
    if isinstance(network, nn.GRU):
        return network(inputs, own.contiguous())[0]
    return network(inputs, (own[0::2].contiguous(), own[1::2].contiguous()))[0]


class Reference:
    """Ordinary modules, torch.optim.Adam and torch's own clipping; slow returns; every formula written out."""

    def __init__(self, learner: Any):
        self.config, self.model = learner.config, copy.deepcopy(learner.model)
        rate, epsilon = SHARE_LEFT * 4e-3, learner.config.adam_epsilon
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, eps=epsilon)
        self.stream = Streams(learner.streams.seed)["minibatches"]

    def update(self, rollout: Rollout, found: dict[str, np.ndarray], rewards: np.ndarray) -> dict[str, np.ndarray]:
        scaled = copy.copy(rollout)
        scaled.rewards = rewards
        advantages = slow_advantages(scaled, found, GAMMA, TRACE)
        self.columns = {
            "advantages": advantages,
            "returns": advantages + found["values"],
            "values": found["values"],
            "log_probs": rollout.extras["log_probs"],
        }
        before = np.concatenate([rollout.initial_memory[None], rollout.extras["memory"][:-1]])
        before = np.where(rollout.episode_starts[..., None, None], 0, before).astype(np.float32)
        self.memories = torch.from_numpy(before).flatten(0, 1)
        sequences, buffer = sequences_of(rollout), RecurrentRolloutBuffer(LENGTH)
        buffer.store(rollout)
        for _ in range(self.config.update_epochs):
            for rows, _ in buffer.minibatches(self.config.minibatch_size, self.stream):
                chosen = [sequence for first, sequence in sequences.items() if first in set(rows.tolist())]
                assert sorted(row for sequence in chosen for row in sequence) == sorted(rows.tolist())
                self._step(rollout, chosen)
        return self.columns

    def _step(self, rollout: Rollout, chosen: list[list[int]]) -> None:
        columns: dict[str, list[Tensor]] = {"log_probs": [], "entropy": [], "values": []}
        obs, actions = (torch.from_numpy(x.reshape(-1, *x.shape[2:])) for x in (rollout.obs, rollout.actions))
        for rows in chosen:
            seen, judged = (run_memory(self.model, i, obs[rows], self.memories[rows[0]]) for i in (0, 1))
            parameters = self.model._with_log_std(self.model.actor(seen))
            columns["log_probs"].append(self.model.distribution.log_prob(parameters, actions[rows]))
            columns["entropy"].append(self.model.distribution.entropy(parameters))
            columns["values"].append(self.model.critic(judged)[:, 0])
        new = {name: torch.cat(parts) for name, parts in columns.items()}
        every = [row for sequence in chosen for row in sequence]
        old = {name: torch.from_numpy(value.ravel()[every]).float() for name, value in self.columns.items()}
        advantages = (old["advantages"] - old["advantages"].mean()) / old["advantages"].std()
        ratio, clip = (new["log_probs"] - old["log_probs"]).exp(), SHARE_LEFT * 0.4
        policy = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
        errors = (new["values"] - old["returns"]) ** 2
        if (most := self.config.value_clip_range) is not None:
            near = old["values"] + (new["values"] - old["values"]).clamp(-most, most)
            errors = torch.maximum(errors, (near - old["returns"]) ** 2)
        loss = -policy.mean() + 0.5 * 0.5 * errors.mean() - SHARE_LEFT * 0.08 * new["entropy"].mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.optimizer.step()


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("discrete", memory) for name, memory in MEMORIES.items()},
    "box": ("box", {}),
    "gradients not clipped": ("discrete", {"max_grad_norm": None}),
    "gradients clipped hard": ("discrete", {"max_grad_norm": 0.01}),
    "Adam's epsilon": ("discrete", {"adam_epsilon": 0.1}),
    "values clipped": ("discrete", {"value_clip_range": 0.05}),
    "rewards normalized": ("discrete", {"normalize_rewards": True}),
    "rewards scaled and clipped": ("discrete", {"reward_scale": 0.5, "reward_clip": 1.0}),
}


@pytest.mark.parametrize("next_step_resets", [False, True], ids=["same_step", "next_step"])
@pytest.mark.parametrize(("kind", "case"), CASES.values(), ids=CASES.keys())
def test_an_update_equals_the_reference(kind: str, case: dict[str, Any], next_step_resets: bool) -> None:
    learner = recurrent_learner(kind, **SETTINGS, **case)
    learner.clock.env_steps = 250
    rollout = carried_rollout(learner, 23, next_step_resets=next_step_resets)
    rewards = rollout.rewards * np.float32(case.get("reward_scale", 1.0))
    rewards = rewards.clip(-case["reward_clip"], case["reward_clip"]) if "reward_clip" in case else rewards
    if "normalize_rewards" in case:
        rewards = ReturnNormalizer(GAMMA, 3)(rewards, rollout.episode_starts, rollout.valid)
    reference, before = Reference(learner), parameters_of(learner.model)
    columns = reference.update(rollout, stepped(learner, rollout), rewards)
    metrics = learn_from(learner, rollout)
    assert int(learner.optimizer.steps) == 2 * round(rollout.valid.sum() / 16)
    # Adam's first steps are as long as the learning rate, whatever the gradient: rounding shows where it is near 0.
    apart = (parameters_of(learner.model) - parameters_of(reference.model)).abs()
    assert (apart > 1e-5).float().mean() < 0.002 and apart.max() < 2e-3
    assert (parameters_of(learner.model) - before).abs().mean() > 1e-4
    values, returns = (columns[name][rollout.valid] for name in ("values", "returns"))
    explained = 1 - np.var(returns - values) / np.var(returns)
    assert metrics["explained_variance"].item() == pytest.approx(explained, abs=1e-4)
    assert metrics["learning_rate"].item() == pytest.approx(SHARE_LEFT * 4e-3)


def test_the_step_that_would_come_after_too_large_a_move_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[float] = []

    def spy(*arguments: Any, **settings: Any) -> Any:
        loss, metrics = recurrent_ppo_loss(*arguments, **settings)
        moves.append(metrics["approx_kl"].item())
        return loss, metrics

    monkeypatch.setattr(recurrent_ppo, "recurrent_ppo_loss", spy)
    learner = recurrent_learner(**SETTINGS)
    learner.update(carried_rollout(learner, 23))
    farther = [i for i, move in enumerate(moves) if i > 1 and move > 1.05 * max(moves[:i])]
    for taken in farther[:2]:
        limit = (max(moves[:taken]) + moves[taken]) / 2
        learner = recurrent_learner(**SETTINGS, target_kl=limit)
        learner.update(carried_rollout(learner, 23))
        assert int(learner.optimizer.steps) == taken
    assert len(farther) >= 2


@pytest.mark.parametrize(
    ("memory", "networks", "layers"),
    list(zip(MEMORIES.values(), (2, 2, 1, 1, 2), (1, 1, 1, 2, 3), strict=True)),
    ids=MEMORIES.keys(),
)
def test_the_learner_has_the_memory_that_is_asked_for(memory: dict[str, Any], networks: int, layers: int) -> None:
    model = recurrent_learner(**{"memory_size": 6, **memory}).model
    parts = 1 if memory.get("cell") == "gru" else 2
    assert isinstance(model.actor_memory, nn.GRU if parts == 1 else nn.LSTM)
    assert model.memory_shape == (networks * layers * parts, 6)
