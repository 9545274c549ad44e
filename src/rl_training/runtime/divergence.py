"""Divergence: NaN or infinity in the metrics of training. There is one verdict and one message for it.

`check_update` looks at each update, at the cost of reading two or three numbers; `check_metrics` looks at all metrics
of a line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.errors import NumericalError

# The norm of a gradient covers each of its entries, and a loss that is not finite has no finite gradient. Other losses
# of an algorithm (critic_loss, actor_loss) are parts of what these norms are taken of.
WATCHED = ("loss", "critic_loss", "grad_norm", "critic_grad_norm", "actor_grad_norm", "auxiliary_grad_norm")
# Explained variance is undefined when all returns are equal. The spread of returns is there to be looked at: if it
# overflows, so does the loss.
MAY_BE_UNDEFINED = ("explained_variance", "target_std")


def check_update(result: UpdateResult, batch: Any, learner: Learner) -> None:
    """NumericalError, with the batch and all metrics, if the loss or a gradient of this update is not finite."""
    total = 0.0
    for name in WATCHED:
        value = result.metrics.get(name)
        if value is not None:
            total += value.item()
    if math.isfinite(total):
        return
    metrics = {name: float(value) for name, value in result.metrics.items()}
    watched = {name: metrics[name] for name in WATCHED if name in metrics}
    check_metrics(watched, learner.env_steps, learner.updates, evidence=batch, all_metrics=metrics)


def check_metrics(
    metrics: Mapping[str, float],
    env_step: int,
    updates: int,
    *,
    evidence: Any = None,
    all_metrics: Mapping[str, float] | None = None,
) -> None:
    """NumericalError if a metric is not finite. The error carries `evidence` and all metrics for the crash report."""
    for name, value in metrics.items():
        if math.isfinite(value) or name in MAY_BE_UNDEFINED:
            continue
        raise NumericalError(
            f"{name} is {value} at env step {env_step}, update {updates}: training has diverged; lower the learning "
            f"rate or clip gradients (max_grad_norm), then resume from the last checkpoint",
            field="gradient" if name.endswith("grad_norm") else "loss" if name.endswith("loss") else "metric",
            env_step=env_step,
            evidence=evidence,
            metrics=metrics if all_metrics is None else all_metrics,
        )
