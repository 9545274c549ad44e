"""Q-network with memory: an LSTM or GRU between the observations and the values of the actions."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.encoder import VectorEncoder, build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.mlp import ActingForward, acting_forward, mlp
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


class RecurrentQNetwork(NormalizingModel):
    """Normalized, encoded observations -> recurrent network -> one MLP, or two if dueling.

    The memory is an array [N, parts, memory_size] with one row per environment: for each layer the hidden state and,
    for an LSTM, the cell state.
    """

    def __init__(
        self,
        spaces: Spaces,
        config: ModelConfig,
        *,
        cell: Literal["lstm", "gru"] = "lstm",
        memory_size: int = 64,
        memory_layers: int = 1,
        dueling: bool = True,
    ):
        super().__init__()
        check_recurrence(cell, memory_size, memory_layers)
        self.mask_size = spaces.mask_size
        self.encoder = build_encoder(spaces, config)
        self.normalizer = make_normalizer(spaces, config)
        self.num_actions = spaces.action_sizes[0]
        self.memory: Recurrence = CELLS[cell](self.encoder.output_size, memory_size, memory_layers)
        self.advantage = mlp(memory_size, self.num_actions, config)
        self.state_value = mlp(memory_size, 1, config) if dueling else None
        initialize_recurrence(self.memory, config.initialization)
        self.memory_shape = (memory_layers * memory_parts(self.memory), memory_size)
        self._acting_steps: _Acting | None = None

    def initial_memory(self, count: int) -> np.ndarray:
        """The empty memory of `count` environments."""
        return np.zeros((count, *self.memory_shape), np.float32)

    def q_values(self, obs: Tensor, memory: Tensor | None = None) -> Tensor:
        """Q(h, .) [B, actions] one step after `memory`, which is empty by default; -inf where not allowed."""
        if memory is None:
            memory = obs.new_zeros((len(obs), *self.memory_shape), dtype=torch.float32)
        return self.unroll(obs[None], memory)[0]

    def unroll(self, obs: Tensor, memory: Tensor) -> Tensor:
        """Q [T, S, actions] along S sequences of observations [T, S, ...] that start from `memory` [S, ...]."""
        rows = obs.flatten(0, 1)
        outputs, _ = self.memory(self._features(rows).unflatten(0, obs.shape[:2]), torch_state(self.memory, memory))
        hidden = outputs.flatten(0, 1)
        values: Tensor = self.advantage(hidden)
        if self.state_value is not None:
            values = self.state_value(hidden) + values - values.mean(1, keepdim=True)
        masked: Tensor = self.masked(values, rows).unflatten(0, obs.shape[:2])
        return masked

    @torch.no_grad()
    def remembered(self, obs: Tensor, memory: Tensor) -> Tensor:
        """The memory [S, ...] after the observations [T, S, ...], which nothing is learned from."""
        _, state = self.memory(
            self._features(obs.flatten(0, 1)).unflatten(0, obs.shape[:2]), torch_state(self.memory, memory)
        )
        after = torch.empty_like(memory)
        store_state(state, after)
        return after

    def act_values(
        self, obs: np.ndarray, memory: np.ndarray | None = None, episode_starts: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """For one step: the advantages [N, actions], -inf where not allowed, and the next memory.

        Without the value of the state, which is the same for all actions. Arguments are not changed.
        """
        before = checked_memory(self.memory_shape, len(obs), memory, episode_starts)
        if self._acting_steps is None:
            self._acting_steps = _Acting(self)
        acting = self._acting_steps
        if acting.step is None:
            with torch.inference_mode():
                rows, state = (torch.from_numpy(part).to(acting.device) for part in (obs, before))
                features, kept = self._features(rows), torch.empty_like(state)
                outputs, last = self.memory(features[None], torch_state(self.memory, state))
                store_state(last, kept)
                hidden, after = outputs[0].cpu().numpy(), kept.cpu().numpy()
        else:
            after = np.empty_like(before)
            hidden = acting.step(self._features_numpy(obs), before, after)
        return self.masked_numpy(acting.advantage(hidden), obs), after

    def _features(self, obs: Tensor) -> Tensor:
        features: Tensor = self.encoder(self._normalized(obs))
        return features

    def _features_numpy(self, obs: np.ndarray) -> np.ndarray:
        if not isinstance(self.encoder, VectorEncoder):
            with torch.inference_mode():
                return self._features(torch.from_numpy(obs)).numpy()
        return self._normalized_numpy(obs)


class _Acting:
    """Forward passes on views of one model's weights. As with `ActingForward`, its copy and its pickle are None."""

    def __init__(self, model: RecurrentQNetwork):
        self.device = next(model.parameters()).device
        self.step: NumpyStep | None = numpy_step(model.memory) if self.device.type == "cpu" else None
        self.advantage: ActingForward = acting_forward(model.advantage)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()
