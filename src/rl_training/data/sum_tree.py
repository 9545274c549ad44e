"""A sum tree, for sampling items in proportion to their priority."""

from __future__ import annotations

import numpy as np

# A wide tree needs few levels, and NumPy costs are per call: with 16 children a million leaves need 5 levels.
FAN_OUT = 16


def _level_sizes(capacity: int) -> list[int]:
    """Entries per level from the leaves up, each padded to whole families; the last is one family."""
    sizes = []
    entries = capacity
    while True:
        families = -(-entries // FAN_OUT)
        sizes.append(families * FAN_OUT)
        if families == 1:
            return sizes
        entries = families


class SumTree:
    """`capacity` non-negative leaves in float64; setting and searching are vectorized over a batch.

    A parent is always recomputed from its children, left to right, and never adjusted by a difference. The tree is a
    pure function of its leaves, so it cannot drift, and a restored tree is bit-equal.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"sum tree capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._levels = [np.zeros((size // FAN_OUT, FAN_OUT)) for size in _level_sizes(capacity)]
        self._flat = [level.reshape(-1) for level in self._levels]
        self._total = 0.0

    @staticmethod
    def predicted_bytes(capacity: int) -> int:
        return 8 * sum(_level_sizes(capacity))

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self._levels)

    @property
    def total(self) -> float:
        return self._total

    def get(self, indices: np.ndarray) -> np.ndarray:
        return self._flat[0].take(indices)

    def largest(self) -> float:
        """The largest leaf."""
        return float(self._flat[0].max())

    def set(self, indices: np.ndarray, values: np.ndarray | float) -> None:
        """Set leaves. Of a repeated index the last value counts."""
        self._flat[0][indices] = values
        nodes = indices
        for level, parents in zip(self._levels, self._flat[1:], strict=False):
            nodes = nodes // FAN_OUT
            # Not `sum`: the order of its additions is up to NumPy, and must equal the cumsum in `find`.
            parents[nodes] = level[nodes].cumsum(axis=1)[:, -1]
        self._total = float(self._flat[-1].cumsum()[-1])

    def find(self, prefix_sums: np.ndarray) -> np.ndarray:
        """The leaf whose share of [0, total) contains each prefix sum; never a leaf of value 0."""
        if not self._total > 0.0:
            raise ValueError("the sum tree has no positive priority")
        prefix = np.array(prefix_sums, dtype=np.float64)
        nodes = np.zeros(len(prefix), dtype=np.int64)
        families = np.arange(len(prefix))
        for level in reversed(self._levels):
            sums = level[nodes].cumsum(axis=1)
            # Rounding can move a prefix to or past the end of its family. Kept strictly below the end, the first sum
            # above it exists, and its child is positive because the sums rise there.
            np.minimum(prefix, np.nextafter(sums[:, -1], 0.0), out=prefix)
            child = (sums > prefix[:, None]).argmax(axis=1)
            prefix -= np.where(child > 0, sums[families, child - 1], 0.0)
            nodes = nodes * FAN_OUT + child
        return nodes
