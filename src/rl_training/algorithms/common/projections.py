"""Return distributions over fixed atoms: the projected Bellman target and its loss, shared by C51 and D4PG.

Bellemare, Dabney, Munos (2017), arXiv:1707.06887. Probabilities are [B, atoms]; the support [atoms] is evenly
spaced and rising.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.models.distributions import bellman_atoms

CLIPPED_LIMIT = 0.02  # share of the targets' mass outside the support that is worth a word


def make_support(low: float, high: float, num_atoms: int) -> Tensor:
    return torch.linspace(low, high, num_atoms)


def project(atoms: Tensor, probabilities: Tensor, support: Tensor) -> Tensor:
    """Mass at any `atoms` [B, any] on the support: clipped to its ends, then shared by the two nearest atoms.

    p_i = sum_j max(0, 1 - |clip(atom_j) - z_i| / spacing) * probability_j

    The nearer atom gets more, in proportion: within the support the mean is kept.
    """
    low, high, last = support[0], support[-1], len(support) - 1
    position = (atoms.clamp(low, high) - low) * (last / (high - low))
    # The lower neighbour is never the last atom, and the upper one is the next: an atom that is hit exactly gets
    # share 1 from one side. Floor and ceil would be the same atom there, with shares of 0: its mass would be lost.
    lower = position.floor().clamp(0, last - 1)
    upward = probabilities * (position - lower)
    index = lower.long()
    nothing = probabilities.new_zeros(len(atoms), len(support))
    return nothing.scatter_add(1, index, probabilities - upward).scatter_add(1, index + 1, upward)


def categorical_projection(rewards: Tensor, discounts: Tensor, next_probabilities: Tensor, support: Tensor) -> Tensor:
    """The distribution of r + d Z(s'), on the support again (algorithm 1 of the paper).   [B, atoms]

    d is the batch's discount: gamma^n, or 0 after termination, where all mass lands on the reward.
    """
    return project(bellman_atoms(rewards, discounts, support), next_probabilities, support)


def clipped_share(rewards: Tensor, discounts: Tensor, next_probabilities: Tensor, support: Tensor) -> Tensor:
    """Mean share of the target mass that lay outside the support and was clipped to its edge."""
    # Rounding may take r + d * high over an upper end that was chosen as r / (1 - d) exactly.
    slack = 0.01 * (support[1] - support[0])
    atoms = bellman_atoms(rewards, discounts, support)
    outside = (atoms < support[0] - slack) | (atoms > support[-1] + slack)
    return (next_probabilities * outside).sum(1).mean()


def cross_entropy(logits: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """mean_b w_b * -sum_i m_i log p_i  for p = softmax(logits) and target m, both [B, atoms]; w [B] or 1."""
    losses = F.cross_entropy(logits, target, reduction="none")
    return (losses if weights is None else weights * losses).mean()


def kl_divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(m || softmax(logits)) of each row, without gradient: the cross entropy less what no fit could take away.   [B]

    It is what prioritised replay samples by.
    """
    divergence = (torch.xlogy(target, target) - target * logits.detach().log_softmax(1)).sum(1)
    return divergence.clamp(min=0.0)


def support_advice(metrics: Mapping[str, Any], low: float, high: float) -> str | None:
    """What to tell the user about metrics whose targets do not fit the support."""
    if metrics.get("support_clipped", 0.0) <= CLIPPED_LIMIT:
        return None
    return (
        f"more than {CLIPPED_LIMIT:.0%} of the targets' mass lies outside of the support [{low:g}, {high:g}] and is "
        f"clipped to its edge (metric support_clipped): widen support_low and support_high, or lower reward_scale"
    )
