"""Return distributions over fixed atoms: the projected Bellman target and its loss, for C51 and D4PG.

Bellemare, Dabney, Munos (2017), arXiv:1707.06887. Probabilities are [B, atoms]. The support [atoms] is evenly spaced
and increasing.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.models.distributions import bellman_atoms


def make_support(low: float, high: float, num_atoms: int) -> Tensor:
    return torch.linspace(low, high, num_atoms)


def project(atoms: Tensor, probabilities: Tensor, support: Tensor) -> Tensor:
    """Project probability mass at any `atoms` [B, any] onto the support: clip, then share between the nearest atoms.

        p_i = sum_j max(0, 1 - |clip(atom_j) - z_i| / spacing) probability_j

    Shares are linear in the distance, so the projection keeps the mean within the support.
    """
    low, high, last = support[0], support[-1], len(support) - 1
    position = (atoms.clamp(low, high) - low) * (last / (high - low))
    # The lower neighbor is never the last atom, and the upper one comes next: mass exactly on an atom goes there with
    # share 1. With floor and ceil, both neighbors would be that atom, with shares of 0, and the mass would be lost.
    lower = position.floor().clamp(0, last - 1)
    upward = probabilities * (position - lower)
    index = lower.long()
    nothing = probabilities.new_zeros(len(atoms), len(support))
    return nothing.scatter_add(1, index, probabilities - upward).scatter_add(1, index + 1, upward)


def categorical_projection(rewards: Tensor, discounts: Tensor, next_probabilities: Tensor, support: Tensor) -> Tensor:
    """The distribution of r + d Z(s'), projected onto the support (algorithm 1 of the paper).   [B, atoms]

    d is the batch's discount: gamma^n, or 0 after termination, where the reward gets all the mass.
    """
    return project(bellman_atoms(rewards, discounts, support), next_probabilities, support)


def clipped_share(rewards: Tensor, discounts: Tensor, next_probabilities: Tensor, support: Tensor) -> Tensor:
    """Mean share of the target mass that lies outside the support and is clipped to its edge."""
    # Slack for rounding: r + d * high may exceed an upper end that was chosen as exactly r / (1 - d).
    slack = 0.01 * (support[1] - support[0])
    atoms = bellman_atoms(rewards, discounts, support)
    outside = (atoms < support[0] - slack) | (atoms > support[-1] + slack)
    return (next_probabilities * outside).sum(1).mean()


def cross_entropy(logits: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """mean_b w_b * -sum_i m_i log p_i  for p = softmax(logits) and target m, both [B, atoms]; w [B] or 1."""
    losses = F.cross_entropy(logits, target, reduction="none")
    return (losses if weights is None else weights * losses).mean()


def kl_divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(m || softmax(logits)) of each row, without gradient: the priorities of prioritized replay.   [B]

    It is the cross entropy minus the entropy of the target, which no fit can remove.
    """
    divergence = (torch.xlogy(target, target) - target * logits.detach().log_softmax(1)).sum(1)
    return divergence.clamp(min=0.0)
