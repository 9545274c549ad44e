"""The network of NAF: one MLP that gives an action, a state value and the curvature of Q between them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp import ActingForward, acting_forward, mlp
from rl_training.models.normalizer import make_normalizer

# exp() of a diagonal entry beyond this would overflow once it is squared, and one bad batch would end the run.
LOG_DIAGONAL_LIMIT = 10.0


class MLPNAFModel(nn.Module):
    """Q(s, a) = V(s) - 1/2 (a - mu)^T P (a - mu),  P = L L^T,  L lower triangular with a positive diagonal.

    The outputs side by side: mu before its tanh [A], the entries of L row by row [A (A + 1) / 2] with logarithms on
    the diagonal, V [1]. Because P is positive definite, the best action is mu(s), whatever the weights are.
    """

    layout: Tensor
    diagonal: Tensor

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__()
        self.action_dim = size = spaces.action_dim
        self.entries = size * (size + 1) // 2
        self.normalizer = make_normalizer(spaces, config)
        self.network = mlp(int(np.prod(spaces.observation_shape)), size + self.entries + 1, config)
        # Where in the list of entries the matrix finds its own; above the diagonal it does not matter.
        rows, columns = np.indices((size, size))
        layout = np.where(columns <= rows, rows * (rows + 1) // 2 + columns, 0)
        self.register_buffer("layout", torch.from_numpy(layout), persistent=False)
        self.register_buffer("diagonal", torch.from_numpy(np.diag(layout).copy()), persistent=False)
        self._acting: ActingForward | None = None

    def _outputs(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs = self.network(obs if self.normalizer is None else self.normalizer(obs))
        mean, entries, value = outputs.split([self.action_dim, self.entries, 1], -1)
        return mean.tanh(), entries, value.squeeze(-1)

    def _factor(self, entries: Tensor) -> Tensor:
        diagonal = entries[..., self.diagonal].clamp(-LOG_DIAGONAL_LIMIT, LOG_DIAGONAL_LIMIT).exp()
        return entries[..., self.layout].tril(-1) + torch.diag_embed(diagonal)

    def actor(self, obs: Tensor) -> Tensor:
        """mu(s) [B, A] in [-1, 1], where Q is largest."""
        return self._outputs(obs)[0]

    def state_values(self, obs: Tensor) -> Tensor:
        """V(s) [B], the largest Q there is."""
        return self._outputs(obs)[2]

    def factor(self, obs: Tensor) -> Tensor:
        """L(s) [B, A, A]; the precision is L L^T."""
        return self._factor(self._outputs(obs)[1])

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[B]"""
        mean, entries, value = self._outputs(obs)
        # L^T (a - mu): its squared length is the quadratic form, which therefore cannot come out negative.
        scaled = torch.einsum("...ij,...i->...j", self._factor(entries), actions - mean)
        return value - 0.5 * scaled.square().sum(-1)

    def _outputs_numpy(self, obs: np.ndarray) -> np.ndarray:
        if self._acting is None:
            self._acting = acting_forward(self.network)
        return self._acting(obs if self.normalizer is None else self.normalizer.numpy(obs))

    def act(self, obs: np.ndarray) -> np.ndarray:
        return np.tanh(self._outputs_numpy(obs)[:, : self.action_dim])

    def act_with_factor(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mu(s) [N, A] and L(s) [N, A, A], for noise that is shaped by it."""
        outputs = self._outputs_numpy(obs)
        entries = torch.from_numpy(outputs[:, self.action_dim : -1]).to(self.layout.device)
        return np.tanh(outputs[:, : self.action_dim]), self._factor(entries).cpu().numpy()
