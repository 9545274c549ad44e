"""How many CPU threads a run uses. Small networks are fastest with one: there is nothing to share out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from rl_training.config.train_config import TrainConfig

WIDE_LAYER = 256
WIDE_BATCH = 256
MOST_THREADS = 4


def resolve_threads(config: TrainConfig, observation_shape: tuple[int, ...] = ()) -> int:
    """`auto`: one thread for narrow networks or small batches, more for images or where 256 rows meet layers of 256."""
    if config.threads != "auto":
        return config.threads
    settings = config.algo_kwargs
    rows = getattr(settings, "batch_size", getattr(settings, "minibatch_size", 0))
    wide = max(config.model.hidden_sizes, default=0) >= WIDE_LAYER and rows >= WIDE_BATCH
    if not wide and len(observation_shape) < 3:
        return 1
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    # What torch has now is what the user allows (OMP_NUM_THREADS): more threads than that on a machine that is
    # shared wait for each other, and training becomes many times slower.
    return max(1, min(MOST_THREADS, available, torch.get_num_threads()))


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Torch gets `count` threads, NumPy's BLAS one (it only ever sees the few rows of acting)."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(1, "blas"):
            yield
    finally:
        torch.set_num_threads(before)
