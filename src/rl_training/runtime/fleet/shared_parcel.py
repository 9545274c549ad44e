"""Memory that the learner shares with one actor: the weights that go with a ticket, then the arrays of a delivery.

A message that announces the content travels by socket. The arrays themselves are copied once into the shared memory by
their sender, and once out of it by their receiver. Only one side writes at a time: the learner while the actor has no
ticket, the actor while it has one.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from rl_training.envs.shared_block import ALIGNMENT, new_descriptor

Layout = list[tuple[tuple[int, ...], np.dtype[Any]]]  # the weights: shape and type of each array
Announcement = tuple[bytes, list[int]]  # a pickled object without its arrays, and their sizes in bytes


class SharedParcel:
    """The learner creates one per actor; the actor opens it by its descriptor. It has no name that could leak."""

    def __init__(self, layout: Layout, descriptor: int | None = None):
        self._layout = layout
        self._start = sum(_aligned(int(np.prod(shape)) * dtype.itemsize) for shape, dtype in layout)
        self.descriptor = new_descriptor() if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, max(ALIGNMENT, self._start))
        self._memory = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)

    def write_weights(self, arrays: Sequence[np.ndarray]) -> None:
        for view, array in zip(self.weights(), arrays, strict=True):
            view[...] = array

    def weights(self) -> list[np.ndarray]:
        """Views of the weights in this memory."""
        views, start = [], 0
        for shape, dtype in self._layout:
            count = int(np.prod(shape))
            views.append(np.frombuffer(self._memory, dtype, count, start).reshape(shape))
            start += _aligned(count * dtype.itemsize)
        return views

    def put(self, content: Any) -> Announcement:
        """Write the arrays of an object behind the weights. The memory grows if it has to."""
        arrays: list[memoryview] = []
        file = io.BytesIO()
        ForkingPickler(file, 5, True, lambda part: arrays.append(part.raw())).dump(content)
        sizes = [array.nbytes for array in arrays]
        needed = self._start + sum(map(_aligned, sizes))
        if needed > len(self._memory):
            os.ftruncate(self.descriptor, needed)
            self._memory = mmap.mmap(self.descriptor, needed)
        start = self._start
        for array, size in zip(arrays, sizes, strict=True):
            self._memory[start : start + size] = array
            start += _aligned(size)
        return file.getvalue(), sizes

    def get(self, announcement: Announcement) -> Any:
        """A copy of what the other side has put."""
        body, sizes = announcement
        available = os.fstat(self.descriptor).st_size
        if available > len(self._memory):
            self._memory = mmap.mmap(self.descriptor, available)
        copies, start = [], self._start
        for size in sizes:
            copies.append(bytearray(self._memory[start : start + size]))
            start += _aligned(size)
        return ForkingPickler.loads(body, buffers=copies)

    def close(self) -> None:
        os.close(self.descriptor)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
