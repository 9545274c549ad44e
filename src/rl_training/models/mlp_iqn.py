"""Implicit quantiles: a network that estimates any quantile of the return of each discrete action, plain or dueling."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.encoder import FlatPixels, VectorEncoder, build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.layers.blocks import HiddenLayers
from rl_training.models.mlp import ActingForward, mlp, numpy_forward


class MLPIQNNetwork(NormalizingModel):
    """Z_tau(s, a) = f(psi(s) * phi(tau))_a  with  phi(tau) = ReLU(W cos(pi i tau) + b), i = 0 .. n-1  (eq. 4).

    psi is the encoder of images, or the first hidden layer for vectors; f has the other hidden layers. `acting_taus`
    [K] are the fractions whose mean is the value of an action.
    """

    acting_taus: Tensor
    frequencies: Tensor

    def __init__(
        self, spaces: Spaces, config: ModelConfig, *, acting_taus: Tensor, num_cosines: int = 64, dueling: bool = False
    ):
        super().__init__()
        self.mask_size = spaces.mask_size
        self.encoder = build_encoder(spaces, config)
        self.normalizer = make_normalizer(spaces, config)
        size, self.num_actions = self.encoder.output_size, spaces.action_sizes[0]
        sizes = config.hidden_sizes
        self.trunk: HiddenLayers | None = None
        if isinstance(self.encoder, (VectorEncoder, FlatPixels)) and sizes:
            first, sizes = config.model_copy(update={"hidden_sizes": sizes[:1]}), sizes[1:]
            self.trunk = HiddenLayers(*list(mlp(size, 1, first))[:-1])  # without the output layer
            size = config.hidden_sizes[0]
        rest = config.model_copy(update={"hidden_sizes": sizes})
        self.tau_layer = nn.Linear(num_cosines, size)
        self.advantage = mlp(size, self.num_actions, rest)
        self.state_value = mlp(size, 1, rest) if dueling else None
        self.register_buffer("acting_taus", acting_taus, persistent=False)
        self.register_buffer("frequencies", math.pi * torch.arange(num_cosines), persistent=False)
        self._acting: ActingForward | None = None

    def forward(self, obs: Tensor) -> Tensor:
        return self.q_values(obs)

    def quantiles(self, obs: Tensor, taus: Tensor) -> Tensor:
        """The quantiles of each action at the fractions `taus` [B, N] of its row, or [N] of all rows.   [B, A, N]"""
        psi: Tensor = self.encoder(self._normalized(obs))
        if self.trunk is not None:
            psi = self.trunk(psi)
        phi = torch.relu(self.tau_layer(torch.cos(taus[..., None] * self.frequencies)))
        mixed = psi[:, None] * phi
        quantiles: Tensor = self.advantage(mixed)
        if self.state_value is not None:
            quantiles = self.state_value(mixed) + quantiles - quantiles.mean(2, keepdim=True)
        return quantiles.transpose(1, 2)

    def q_values(self, obs: Tensor) -> Tensor:
        """The mean over the acting fractions: expected returns [B, actions]; -inf for actions that are not allowed."""
        return self.masked(self.quantiles(obs, self.acting_taus).mean(2), obs)

    def advantage_numpy(self, obs: np.ndarray) -> np.ndarray:
        """The mean of `advantage` over the acting fractions: NumPy in and out, no autograd.   [B, actions]"""
        if self._acting is None:
            self._acting = self._acting_forward()
        return self._acting(obs)

    def greedy_actions(self, obs: np.ndarray) -> np.ndarray:
        """The allowed action with the largest mean in each row. The dueling value is the same for all, not needed."""
        actions: np.ndarray = self.masked_numpy(self.advantage_numpy(obs), obs).argmax(1)
        return actions

    def _acting_forward(self) -> ActingForward:
        if not isinstance(self.encoder, VectorEncoder) or self.tau_layer.weight.device.type != "cpu":
            return ActingForward(self._torch_q_values)
        trunk = numpy_forward(self.trunk) if self.trunk is not None else lambda rows: rows
        head, count = numpy_forward(self.advantage), len(self.acting_taus)
        weight, bias = self.tau_layer.weight.detach().numpy().T, self.tau_layer.bias.detach().numpy()
        cosines = torch.cos(self.acting_taus[:, None] * self.frequencies).numpy()

        def forward(obs: np.ndarray) -> np.ndarray:
            psi = trunk(self._normalized_numpy(obs))
            phi = np.maximum(cosines.dot(weight) + bias, 0)
            outputs = head((psi[:, None] * phi).reshape(len(obs) * count, -1))
            means: np.ndarray = outputs.reshape(len(obs), count, self.num_actions).mean(1)
            return means

        return ActingForward(forward)

    def _torch_q_values(self, obs: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return self.q_values(torch.from_numpy(obs).to(self.acting_taus.device)).cpu().numpy()
