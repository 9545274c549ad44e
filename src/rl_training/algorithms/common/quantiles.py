"""Return distributions as quantiles: the Huber quantile loss, with its reduction in its name, and fixed fractions.

The two losses differ by the number of quantiles, that is, in their step size. QR-DQN (arXiv:1710.10044) and IQN
(arXiv:1806.06923) sum over the quantiles that are fitted, TQC (arXiv:2005.04269) averages over them. All of them
average over the samples of the target.
"""

from __future__ import annotations

import torch
from torch import Tensor


def quantile_midpoints(count: int) -> Tensor:
    """tau_i = (i + 1/2) / N for i = 0 .. N - 1, the fractions that minimize the 1-Wasserstein error.   [N]"""
    return (torch.arange(count, dtype=torch.float32) + 0.5) / count


def quantiles_of(quantiles: Tensor, actions: Tensor) -> Tensor:
    """The quantiles of one action per row: [B, A, N], [B] -> [B, N]."""
    return quantiles.gather(1, actions[:, None, None].expand(-1, 1, quantiles.shape[2])).squeeze(1)


def quantile_loss_summed(quantiles: Tensor, targets: Tensor, taus: Tensor) -> Tensor:
    """sum_i mean_j rho_tau_i(target_j - quantile_i): the sum over the quantiles, the mean over the targets.

    Shapes as in `quantile_loss_mean`.
    """
    return _pairwise_losses(quantiles, targets, taus).mean(-1).sum(-1)


def quantile_loss_mean(quantiles: Tensor, targets: Tensor, taus: Tensor) -> Tensor:
    """mean_i mean_j rho_tau_i(target_j - quantile_i): the mean over both the quantiles and the targets.

    `quantiles` [..., N] are the estimates for the fractions `taus` [..., N] or [N], and `targets` [..., M] are samples
    of the distribution to fit. Leading dimensions broadcast: targets [B, M] serve quantiles [critics, B, N].
    """
    return _pairwise_losses(quantiles, targets, taus).mean((-2, -1))


def _pairwise_losses(quantiles: Tensor, targets: Tensor, taus: Tensor) -> Tensor:
    """rho_tau(u) = |tau - 1(u < 0)| Huber(u)  for u = target_j - quantile_i, with kappa = 1.   [..., N, M]

    An estimate below a target has u > 0 and weight tau. With the other sign, 1 - tau would be learned: the mean and the
    greedy action stay the same, only the order of the quantiles turns around.
    """
    errors = targets[..., None, :] - quantiles[..., :, None]
    clipped = errors.clamp(-1.0, 1.0)
    huber = clipped * (errors - 0.5 * clipped)
    weights = torch.where(errors < 0, 1.0 - taus[..., None], taus[..., None])
    return weights * huber
