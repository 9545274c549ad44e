"""Reference values for quantiles, Q(lambda) and noisy layers, used by record_oracles.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import rlax
import torch

Recorded = tuple[str, dict[str, Any], dict[str, Any]]


def quantile_losses() -> Iterator[Recorded]:
    """Losses, averaged over the rows, and their gradients in the estimates.

    rlax sums over the estimates of a row; sb3-contrib sums (QR-DQN) or averages (TQC).
    """
    from sb3_contrib.common.utils import quantile_huber_loss

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(21)
    quantiles, targets, taus = 2 * rng.normal(size=(4, 5)), 2 * rng.normal(size=(4, 3)), rng.uniform(size=(4, 5))
    inputs = {"quantiles": quantiles, "targets": targets, "taus": taus, "reduction": "sum"}

    def mean_loss(estimates: Any) -> Any:
        return jax.vmap(rlax.quantile_regression_loss, (0, 0, 0, None))(estimates, taus, targets, 1.0).mean()

    loss, slope = jax.value_and_grad(mean_loss)(quantiles)
    yield "rlax.quantile_regression_loss", inputs, {"loss": loss, "gradient": slope}

    midpoints = (np.arange(5) + 0.5) / 5
    for reduction in ("sum", "mean"):
        estimates = torch.tensor(quantiles, requires_grad=True)
        sums = reduction == "sum"
        loss = quantile_huber_loss(estimates, torch.tensor(targets), sum_over_quantiles=sums)
        loss.backward()
        inputs = {"quantiles": quantiles, "targets": targets, "taus": midpoints, "reduction": reduction}
        yield "sb3_contrib quantile_huber_loss", inputs, {"loss": loss.item(), "gradient": estimates.grad}
