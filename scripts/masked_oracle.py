"""sb3-contrib's masked categorical distributions on random logits and masks. Used by record_oracles.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.distributions import (
    MaskableCategoricalDistribution,
    MaskableMultiCategoricalDistribution,
)

ROWS = 6
SIZES = {"MaskableCategoricalDistribution": [5], "MaskableMultiCategoricalDistribution": [3, 2, 4]}


def random_masks(rng: np.random.Generator, sizes: list[int]) -> np.ndarray:
    """Masks with at least one allowed action per choice; the last row allows only one of each."""
    parts = []
    for size in sizes:
        part = rng.random((ROWS, size)) < 0.5
        part[-1] = False
        part[np.arange(ROWS), rng.integers(size, size=ROWS)] = True
        parts.append(part)
    return np.concatenate(parts, 1)


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for name, sizes in SIZES.items():
        rng = np.random.default_rng(len(sizes))
        logits = rng.normal(size=(ROWS, sum(sizes))) * 2
        logits = logits.astype(np.float32)
        masks = random_masks(rng, sizes)
        starts = np.cumsum([0, *sizes[:-1]])
        actions = np.stack([masks[:, s : s + n].argmax(1) for s, n in zip(starts, sizes, strict=True)], 1)
        if len(sizes) == 1:
            distribution: Any = MaskableCategoricalDistribution(sizes[0])
            taken = torch.from_numpy(actions[:, 0])
        else:
            distribution = MaskableMultiCategoricalDistribution(sizes)
            taken = torch.from_numpy(actions)
        leaf = torch.from_numpy(logits).requires_grad_()
        distribution = distribution.proba_distribution(leaf)
        distribution.apply_masking(masks)
        log_probs, entropy = distribution.log_prob(taken), distribution.entropy()
        (log_probs.sum() + 0.3 * entropy.sum()).backward()
        inputs = {"sizes": sizes, "logits": logits, "masks": masks.astype(int), "actions": actions, "entropy_coef": 0.3}
        outputs = {"log_probs": log_probs.detach(), "entropy": entropy.detach(), "gradient": leaf.grad}
        yield f"sb3_contrib {name}", inputs, outputs
