"""Actor-critic with memory: an LSTM or GRU between the observations and the heads."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.data.recurrent_rollout_buffer import Sequences
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.models.encoders.encoder import VectorEncoder
from rl_training.models.mlp import ActingForward, acting_forward, mlp
from rl_training.models.policy import PolicyModel
from rl_training.models.recurrent.numpy_memory import NumpyStep, memory_parts, numpy_step
from rl_training.models.recurrent.recurrence import (
    CELLS,
    Recurrence,
    check_recurrence,
    checked_memory,
    initialize_recurrence,
    store_state,
    torch_state,
)


class LSTMActorCritic(PolicyModel):
    """Normalized, encoded observations -> recurrent network -> one MLP each for policy and value.

    With `shared_memory`, policy and value use and train one recurrent network; otherwise each has one. The memory is
    an array [N, parts, memory_size] with one row per environment: for each recurrent network and layer the hidden
    state and, for an LSTM, the cell state. A step first sets the rows of `episode_starts` to zero.
    """

    def __init__(
        self,
        spaces: Spaces,
        config: ModelConfig,
        *,
        cell: Literal["lstm", "gru"] = "lstm",
        memory_size: int = 64,
        memory_layers: int = 1,
        shared_memory: bool = False,
    ):
        super().__init__(spaces, config)
        check_recurrence(cell, memory_size, memory_layers)
        self.actor_memory: Recurrence = CELLS[cell](self.input_size, memory_size, memory_layers)
        self.critic_memory: Recurrence | None = None
        if not shared_memory:
            self.critic_memory = CELLS[cell](self.input_size, memory_size, memory_layers)
        self.actor = mlp(memory_size, self.policy_outputs, config, output_gain=0.01)
        self.critic = mlp(memory_size, 1, config.for_critic(), output_gain=1.0)
        for network in self._networks():
            initialize_recurrence(network, config.initialization)
        self._parts = memory_layers * memory_parts(self.actor_memory)
        self.memory_shape = (len(self._networks()) * self._parts, memory_size)
        self._acting_steps: _Acting | None = None

    def initial_memory(self, count: int) -> np.ndarray:
        """The empty memory of `count` environments."""
        return np.zeros((count, *self.memory_shape), np.float32)

    def act(
        self,
        obs: np.ndarray,
        rng: np.random.Generator | None = None,
        memory: np.ndarray | None = None,
        episode_starts: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """One step: actions (sampled, or the mode if `rng` is None), `values`, the next `memory` and `log_probs`.

        There are `log_probs` only for sampled actions. None as `memory` is the empty memory. Arguments are not changed.
        """
        before = checked_memory(self.memory_shape, len(obs), memory, episode_starts)
        outputs, values, after = self._act_numpy(obs, before)
        extras = {"values": values, "memory": after}
        outputs = self._policy_parameters_numpy(outputs, obs)
        if rng is None:
            return self.distribution.mode(outputs), extras
        actions, extras["log_probs"] = self.distribution.sample(outputs, rng)
        return actions, extras

    def evaluate_actions(
        self, obs: Tensor, actions: Tensor, sequences: Sequences | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """log pi(a|s), entropy and value, each [B]; without `sequences` every row starts an episode."""
        actor_features, critic_features = self.unroll(self._input(obs), sequences)
        parameters = self._policy_parameters(self.actor(actor_features), obs)
        value = self.critic(critic_features).squeeze(-1)
        return self.distribution.log_prob(parameters, actions), self.distribution.entropy(parameters), value

    def unroll(self, features: Tensor, sequences: Sequences | None) -> tuple[Tensor, Tensor]:
        """Run the recurrent networks over whole sequences; return the features of policy and value, [B, memory_size].

        Only this method pads: it arranges the rows by time, runs every network once and selects the rows again.
        """
        if sequences is None:
            memory = features.new_zeros(len(features), *self.memory_shape)
            return self._step(features, memory)[:2]
        if tuple(sequences.memory.shape[1:]) != self.memory_shape:
            shape = tuple(sequences.memory.shape[1:])
            raise ConfigError(f"memory: the shape {shape} per sequence is not valid, expected {self.memory_shape}")
        inputs = features[sequences.place]
        outputs = []
        for index, network in enumerate(self._networks()):
            output, _ = network(inputs, self._state(sequences.memory, index))
            outputs.append(output.flatten(0, 1)[sequences.rows])
        return outputs[0], outputs[-1]

    def value(self, obs: Tensor, memory: Tensor | None = None) -> Tensor:
        """State values [B], one step after `memory` [B, ...], which is empty by default."""
        features = self._input(obs)
        if memory is None:
            memory = features.new_zeros(len(features), *self.memory_shape)
        values: Tensor = self.critic(self._step(features, memory)[1]).squeeze(-1)
        return values

    def policy(self, obs: Tensor) -> Tensor:
        """Distribution parameters [B, P] for the first observations of episodes."""
        return self._policy_parameters(self.actor(self.unroll(self._input(obs), None)[0]), obs)

    def _networks(self) -> list[Recurrence]:
        return [self.actor_memory] if self.critic_memory is None else [self.actor_memory, self.critic_memory]

    def _state(self, memory: Tensor, index: int) -> Tensor | tuple[Tensor, Tensor]:
        """The memory of network `index` in torch's layout: [layers, B, H], twice for an LSTM."""
        return torch_state(self.actor_memory, memory[:, index * self._parts : (index + 1) * self._parts])

    def _step(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of all networks: the features of policy and value [B, H], and the next memory."""
        outputs, after = [], torch.empty_like(memory)
        for index, network in enumerate(self._networks()):
            output, state = network(features[None], self._state(memory, index))
            outputs.append(output[0])
            store_state(state, after[:, index * self._parts : (index + 1) * self._parts])
        return outputs[0], outputs[-1], after

    def _act_numpy(self, obs: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Policy outputs [N, P], values [N] and the next memory: NumPy on the CPU, torch elsewhere."""
        if self._acting_steps is None:
            self._acting_steps = _Acting(self)
        acting = self._acting_steps
        if acting.steps is None:
            with torch.inference_mode():
                features = self._input(torch.from_numpy(obs).to(acting.device))
                results = self._step(features, torch.from_numpy(before).to(acting.device))
                actor_features, critic_features, after = (result.cpu().numpy() for result in results)
        else:
            inputs = self._features_numpy(obs)
            after = np.empty_like(before)
            outputs = [
                step(inputs, before[:, parts], after[:, parts])
                for step, parts in zip(acting.steps, acting.slices, strict=True)
            ]
            actor_features, critic_features = outputs[0], outputs[-1]
        return acting.actor(actor_features), acting.critic(critic_features)[:, 0], after

    def _features_numpy(self, obs: np.ndarray) -> np.ndarray:
        if not isinstance(self.encoder, VectorEncoder):
            with torch.inference_mode():
                return self._input(torch.from_numpy(obs)).numpy()
        return self._normalized_numpy(obs)


class _Acting:
    """Forward passes on views of one model's weights. As with `ActingForward`, its copy and its pickle are None."""

    def __init__(self, model: LSTMActorCritic):
        self.device = next(model.parameters()).device
        networks = model._networks()
        self.steps: list[NumpyStep] | None = None
        if self.device.type == "cpu":
            self.steps = [numpy_step(network) for network in networks]
        self.slices = [slice(i * model._parts, (i + 1) * model._parts) for i in range(len(networks))]
        self.actor: ActingForward = acting_forward(model.actor)
        self.critic: ActingForward = acting_forward(model.critic)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()
