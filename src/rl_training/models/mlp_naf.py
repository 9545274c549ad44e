"""The network of NAF: one MLP for the best action, the state value and the curvature of Q."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.encoder import build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.mlp import ActingForward, acting_forward, mlp

# Beyond this limit the square of exp(entry) could overflow, and one bad batch would end the run.
LOG_DIAGONAL_LIMIT = 10.0


class MLPNAFModel(NormalizingModel):
    """Q(s, a) = V(s) - 1/2 (a - mu)^T P (a - mu),  P = L L^T,  L lower triangular with a positive diagonal.

    The outputs are mu before its tanh [A], the entries of L row by row [A (A + 1) / 2] with logarithms on the
    diagonal, and V [1]. P is positive definite, so the best action is always mu(s).
    """

    layout: Tensor
    diagonal: Tensor

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__()
        self.action_dim = size = spaces.action_dim
        self.entries = size * (size + 1) // 2
        self.normalizer = make_normalizer(spaces, config)
        self.encoder = build_encoder(spaces, config)
        self.network = mlp(self.encoder.output_size, size + self.entries + 1, config)
        # The position of each matrix element in the list of entries; elements above the diagonal are not used.
        rows, columns = np.indices((size, size))
        layout = np.where(columns <= rows, rows * (rows + 1) // 2 + columns, 0)
        self.register_buffer("layout", torch.from_numpy(layout), persistent=False)
        self.register_buffer("diagonal", torch.from_numpy(np.diag(layout).copy()), persistent=False)
        self._acting: ActingForward | None = None

    def _outputs(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs = self.network(self.encoder(self._normalized(obs)))
        mean, entries, value = outputs.split([self.action_dim, self.entries, 1], -1)
        return mean.tanh(), entries, value.squeeze(-1)

    def _factor(self, entries: Tensor) -> Tensor:
        diagonal = entries[..., self.diagonal].clamp(-LOG_DIAGONAL_LIMIT, LOG_DIAGONAL_LIMIT).exp()
        return entries[..., self.layout].tril(-1) + torch.diag_embed(diagonal)

    def actor(self, obs: Tensor) -> Tensor:
        """mu(s) [B, A] in [-1, 1], the action with the largest Q."""
        return self._outputs(obs)[0]

    def state_values(self, obs: Tensor) -> Tensor:
        """V(s) [B], the largest Q of each state."""
        return self._outputs(obs)[2]

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) [B]."""
        mean, entries, value = self._outputs(obs)
        # The quadratic form is the squared length of L^T (a - mu), so rounding cannot make it negative.
        scaled = torch.einsum("...ij,...i->...j", self._factor(entries), actions - mean)
        return value - 0.5 * scaled.square().sum(-1)

    def _outputs_numpy(self, obs: np.ndarray) -> np.ndarray:
        if self._acting is None:
            self._acting = acting_forward(self.network, self.encoder, self.normalizer)
        return self._acting(obs)

    def act(self, obs: np.ndarray) -> np.ndarray:
        actions: np.ndarray = np.tanh(self._outputs_numpy(obs)[:, : self.action_dim])
        return actions

    def act_with_factor(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mu(s) [N, A] and L(s) [N, A, A], for noise with the covariance (L L^T)^-1."""
        outputs = self._outputs_numpy(obs)
        entries = torch.from_numpy(outputs[:, self.action_dim : -1]).to(self.layout.device)
        return np.tanh(outputs[:, : self.action_dim]), self._factor(entries).cpu().numpy()
