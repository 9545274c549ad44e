"""Random windows for the tests of learners that look along time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.data.trajectory_replay import Windows
from rl_training.envs.spaces import Spaces


def make_windows(
    spaces: Spaces,
    lengths: list[int],
    burn_in: list[int] | None = None,
    *,
    seed: int = 0,
    memory_shape: tuple[int, ...] | None = None,
    weights: bool = False,
    padding: int = 0,
    gamma: float = 0.9,
) -> Windows:
    """Windows of these lengths. The last step of some terminates. `padding` adds time that belongs to no window."""
    rng = np.random.default_rng(seed)
    count, steps, burn_in = len(lengths), max(lengths) + padding, burn_in or [0] * len(lengths)
    burn_steps = max(burn_in)
    longest = max(lengths)
    shape = (longest, count)

    def padded(values: np.ndarray) -> torch.Tensor:
        # What is in the padding must not matter: it is large, and differs from everything else.
        extra = np.full((padding, *values.shape[1:]), 3, values.dtype)
        return torch.from_numpy(np.concatenate([values, extra]))

    mask = np.arange(longest)[:, None] < np.array(lengths)
    terminated = (np.arange(longest)[:, None] == np.array(lengths) - 1) & (rng.random(count) < 0.5)
    probs = rng.dirichlet(np.ones(spaces.action_sizes[0]), size=shape).astype(np.float32)
    obs = rng.standard_normal((burn_steps + longest + 1, count, *spaces.observation_shape)).astype(np.float32)
    assert len(obs) + padding == burn_steps + steps + 1
    memory: Any = None
    if memory_shape is not None:
        memory = torch.from_numpy(rng.standard_normal((count, *memory_shape)).astype(np.float32))
    return Windows(
        obs=padded(obs),
        actions=padded(rng.integers(spaces.action_sizes[0], size=shape)),
        rewards=padded(np.where(mask, 3 * rng.standard_normal(shape), 0).astype(np.float32)),
        discounts=padded(np.where(terminated, 0.0, gamma).astype(np.float32)),
        mask=torch.cat([torch.from_numpy(mask), torch.zeros(padding, count, dtype=torch.bool)]),
        burn_in=torch.tensor(burn_in),
        memory=memory,
        extras={"probs": padded(probs)},
        weights=torch.from_numpy(rng.uniform(0.2, 1.0, count).astype(np.float32)) if weights else None,
        indices=np.arange(count),
    )
