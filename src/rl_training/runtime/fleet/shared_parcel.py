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
from pickle import PickleBuffer
from typing import Any

import numpy as np

from rl_training.data.experience import Experience
from rl_training.data.gradient_push import Push
from rl_training.data.rollout import Rollout
from rl_training.envs.processes.shared_block import ALIGNMENT, new_descriptor
from rl_training.runtime.collection.steps import Episode, Step

Layout = list[tuple[tuple[int, ...], np.dtype[Any]]]  # the weights: shape and type of each array
Places = list[tuple[int, int]]  # where arrays begin and end, counted from the end of the weights
Announcement = tuple[bytes, Places]  # a pickled object without its arrays, and where they are


class Packer(ForkingPickler):
    """Pickles what actors deliver so that it is rebuilt in few calls: the learner waits for that in each update."""

    def reducer_override(self, item: Any) -> Any:
        if type(item) is np.ndarray and item.flags.c_contiguous and not item.dtype.hasobject:
            return np.ndarray, (item.shape, item.dtype, PickleBuffer(item.data))
        if isinstance(item, (Rollout, Step, Push, Experience, Episode)):
            return type(item), tuple(getattr(item, name) for name in item.__slots__)
        return NotImplemented


class SharedParcel:
    """The learner creates one per actor; the actor opens it by its descriptor. It has no name that could leak."""

    def __init__(self, layout: Layout, descriptor: int | None = None):
        self._layout = layout
        self._start = sum(_aligned(int(np.prod(shape)) * dtype.itemsize) for shape, dtype in layout)
        self.descriptor = new_descriptor() if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, max(ALIGNMENT, self._start))
        self._map(os.fstat(self.descriptor).st_size)

    def write_weights(self, arrays: Sequence[np.ndarray]) -> None:
        for view, array in zip(self.weights, arrays, strict=True):
            view[...] = array

    def put(self, content: Any) -> Announcement:
        """Write the arrays of an object behind the weights. The memory grows if it has to."""
        arrays: list[memoryview] = []
        file = io.BytesIO()
        Packer(file, 5, True, lambda part: arrays.append(part.raw())).dump(content)
        places: Places = []
        end = 0
        for array in arrays:
            places.append((end, end + array.nbytes))
            end = _aligned(end + array.nbytes)
        if self._start + end > len(self._memory):
            os.ftruncate(self.descriptor, self._start + end)
            self._map(self._start + end)
        for array, (first, last) in zip(arrays, places, strict=True):
            self._memory[self._start + first : self._start + last] = array
        return file.getvalue(), places

    def get(self, announcement: Announcement) -> Any:
        """A copy of what the other side has put."""
        body, places = announcement
        end = self._start + (places[-1][1] if places else 0)
        if end > len(self._memory):
            self._map(os.fstat(self.descriptor).st_size)
        copy = memoryview(bytearray(memoryview(self._memory)[self._start : end]))
        return ForkingPickler.loads(body, buffers=[copy[first:last] for first, last in places])

    def _map(self, size: int) -> None:
        """Open the memory with its size of now, and the views of the weights in it."""
        self._memory, self.weights = mmap.mmap(self.descriptor, size), []
        start = 0
        for shape, dtype in self._layout:
            count = int(np.prod(shape))
            self.weights.append(np.frombuffer(self._memory, dtype, count, start).reshape(shape))
            start += _aligned(count * dtype.itemsize)

    def close(self) -> None:
        os.close(self.descriptor)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
