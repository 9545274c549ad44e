"""NaN and infinity in an update: found in that update, at the cost of reading two or three numbers."""

from __future__ import annotations

import math
from typing import Any

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.errors import NumericalError

# The norm of the gradient stands for each of its entries; a loss that is no number has no gradient that is one. An
# algorithm's own losses (critic_loss, actor_loss) are parts of what its gradient norms are taken of.
WATCHED = ("loss", "critic_loss", "grad_norm", "critic_grad_norm", "actor_grad_norm", "auxiliary_grad_norm")


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
    broken = [name for name in WATCHED if name in metrics and not math.isfinite(metrics[name])]
    if not broken:
        return
    name = broken[0]
    field = "gradient" if name.endswith("grad_norm") else "loss"
    raise NumericalError(
        f"{name} is {metrics[name]} at env step {learner.env_steps}: training has diverged in update "
        f"{learner.updates}; lower the learning rate or clip gradients (max_grad_norm), then resume from the last "
        f"checkpoint",
        field=field,
        env_step=learner.env_steps,
        evidence=batch,
        metrics=metrics,
    )
