"""Named metrics of updates, and their averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Metrics = dict[str, Tensor]


def mean_metrics(history: Sequence[Mapping[str, Tensor]]) -> Metrics:
    """Average each metric over the updates that computed it."""
    if len(history) == 1:
        return dict(history[0])  # what the average would be, without two operations per metric
    columns: dict[str, list[Tensor]] = {}
    for metrics in history:
        for name, value in metrics.items():
            columns.setdefault(name, []).append(value)
    return {name: torch.stack(values).mean() for name, values in columns.items()}
