"""The loss of an ensemble of critics with one target, for the continuous replay algorithms."""

from __future__ import annotations

from torch import Tensor

from rl_training.algorithms.common.metrics import Metrics


def critic_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """sum_i mean_b w_b (Q_i(s, a) - y)^2 for critics [critics, B] and one target [B].

    w are importance weights when replay is prioritized, else 1.
    """
    errors = (q_values - target).square()
    loss = (errors if weights is None else weights * errors).mean(1).sum()
    return loss, {
        "critic_loss": loss.detach(),
        "q_mean": q_values.detach().mean(),
        "target_q_mean": target.mean(),
    }


def td_errors(q_values: Tensor, target: Tensor) -> Tensor:
    """|TD error| per row, averaged over the critics: the priorities of prioritized replay."""
    return (q_values.detach() - target).abs().mean(0)
