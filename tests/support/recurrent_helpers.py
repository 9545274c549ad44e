"""Helpers for the tests of recurrent PPO: rollouts with memory, and a policy that acts on one observation at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from on_policy_helpers import make_learner, make_rollout
from rl_training.data.rollout import Rollout

MEMORIES: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"cell": "gru"},
    "lstm, shared": {"shared_memory": True},
    "gru, shared, two layers": {"cell": "gru", "shared_memory": True, "memory_layers": 2},
    "lstm, three layers": {"memory_layers": 3},
}


def recurrent_learner(spaces: Any = "discrete", **settings: Any) -> Any:
    return make_learner("recurrent_ppo", spaces, **{"memory_size": 5, "sequence_length": 4, **settings})


def carried_rollout(learner: Any, num_steps: int = 17, seed: int = 0, *, next_step_resets: bool = False) -> Rollout:
    """A rollout that continues a previous one: half of its environments start in the middle of an episode."""
    before = make_rollout(learner, 5, seed + 100)
    rollout = make_rollout(learner, num_steps, seed, next_step_resets=next_step_resets)
    rollout.episode_starts[0] = np.arange(learner.num_envs) % 2 == 0
    rollout.initial_memory = before.extras["memory"][-1]
    memory = rollout.initial_memory
    for t, obs in enumerate(rollout.obs):
        action = learner.act(obs, explore=True, episode_starts=rollout.episode_starts[t], memory=memory)
        memory = action.memory
        rollout.actions[t] = action.actions
        for name, value in action.extras.items():
            rollout.extras[name][t] = value
    return rollout


class Stepper:
    """The torch modules of the model, applied to one environment and one observation at a time."""

    def __init__(self, model: Any):
        self.model = model
        self.cells = [
            self._cells(network) for network in (model.actor_memory, model.critic_memory or model.actor_memory)
        ]
        self.forget()

    @staticmethod
    def _cells(network: Any) -> list[Any]:
        kind = torch.nn.LSTMCell if isinstance(network, torch.nn.LSTM) else torch.nn.GRUCell
        cells = []
        for layer in range(network.num_layers):
            cell = kind(getattr(network, f"weight_ih_l{layer}").shape[1], network.hidden_size)
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            cell.load_state_dict({name: getattr(network, f"{name}_l{layer}") for name in names})
            cells.append(cell)
        return cells

    def forget(self) -> None:
        self.states: list[list[Any]] = [[None] * len(cells) for cells in self.cells]

    def remember(self, memory: np.ndarray) -> None:
        """Load one row of a memory [parts, H]: hidden (and cell) state of each layer, policy before value."""
        rows = [torch.from_numpy(row[None].copy()) for row in memory]
        lstm = isinstance(self.model.actor_memory, torch.nn.LSTM)
        states = [(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)] if lstm else rows
        layers = len(self.cells[0])
        self.states = [list(states[:layers]), list(states[-layers:])]

    @torch.no_grad()
    def step(self, obs: np.ndarray) -> tuple[torch.Tensor, float]:
        """Distribution parameters [1, P] and the value; updates the memory."""
        found = []
        for cells, states in zip(self.cells, self.states, strict=True):
            x = self.model._input(torch.from_numpy(obs[None]))
            for layer, cell in enumerate(cells):
                states[layer] = cell(x, states[layer])
                x = states[layer][0] if isinstance(states[layer], tuple) else states[layer]
            found.append(x)
        return self.model._with_log_std(self.model.actor(found[0])), float(self.model.critic(found[1]))


def stepped(learner: Any, rollout: Rollout) -> dict[str, np.ndarray]:
    """log pi(a_t), entropy, V(o_t) and V of the true next observation for every step [T, N], one env at a time."""
    model, shape = learner.model, rollout.rewards.shape
    found = {name: np.zeros(shape) for name in ("log_probs", "entropy", "values", "next_values")}
    finals = {(t, e): i for i, (t, e) in enumerate(zip(rollout.final_steps, rollout.final_envs, strict=True))}
    for env in range(shape[1]):
        stepper = Stepper(model)
        if rollout.initial_memory is not None:
            stepper.remember(rollout.initial_memory[env])
        for t in range(shape[0]):
            if rollout.episode_starts[t, env]:
                stepper.forget()
            parameters, found["values"][t, env] = stepper.step(rollout.obs[t, env])
            action = torch.from_numpy(rollout.actions[t, env][None])
            found["log_probs"][t, env] = model.distribution.log_prob(parameters, action)
            found["entropy"][t, env] = model.distribution.entropy(parameters)
            following = rollout.last_obs[env] if t == shape[0] - 1 else rollout.obs[t + 1, env]
            if (t, env) in finals:
                following = rollout.final_obs[finals[t, env]]
            states = [list(states) for states in stepper.states]
            _, found["next_values"][t, env] = stepper.step(following)
            stepper.states = states
    return found
