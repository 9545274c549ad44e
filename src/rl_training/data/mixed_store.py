"""Observations with images beside other parts: each image frame by frame, the rest whole.

A row of bytes has numbers, then images, then the action mask (see envs/spaces.py). An image goes to a frame store of
its own, which keeps each of its frames once. The other bytes are stored as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rl_training.data.frame_store import FrameStore
from rl_training.data.observation_store import ObservationStore, WholeObservations
from rl_training.data.replay_layout import Column, ReplayLayout


class MixedStore(ObservationStore):
    """A store for the bytes that are no image, and one for each image. Names of an image's columns carry its number."""

    def __init__(self, layout: ReplayLayout) -> None:
        rest, images = _layouts(layout)
        self._places = [slice(start, stop) for start, stop, _ in layout.images]
        self._rest_columns = _rest_columns(layout)
        self._num_envs, self._row_shape = layout.num_envs, layout.observation_shape
        self._rest = WholeObservations(rest) if len(self._rest_columns) else None
        self._stores = [FrameStore(image) for image in images]
        self.rows = {
            name: column
            for prefix, store in self._named()
            for name, column in ((f"{prefix}{name}", column) for name, column in store.rows.items())
        }

    def _named(self) -> list[tuple[str, ObservationStore]]:
        stores: list[tuple[str, ObservationStore]] = [] if self._rest is None else [("", self._rest)]
        return stores + [(f"image_{number}_", store) for number, store in enumerate(self._stores)]

    @staticmethod
    def columns(layout: ReplayLayout) -> dict[str, Column]:
        rest, images = _layouts(layout)
        found = WholeObservations.columns(rest) if rest.observation_shape[0] else {}
        for number, image in enumerate(images):
            found |= {f"image_{number}_{name}": column for name, column in FrameStore.columns(image).items()}
        return found

    @classmethod
    def predicted_bytes(cls, layout: ReplayLayout) -> int:
        rest, images = _layouts(layout)
        whole = WholeObservations.predicted_bytes(rest) if rest.observation_shape[0] else 0
        return whole + sum(FrameStore.predicted_bytes(image) for image in images)

    @property
    def nbytes(self) -> int:
        return sum(store.nbytes for _, store in self._named())

    def write(self, row: int, obs: np.ndarray, next_obs: np.ndarray) -> Sequence[int]:
        lost: set[int] = set()
        if self._rest is not None:
            self._rest.write(row, obs[:, self._rest_columns], next_obs[:, self._rest_columns])
        for place, store in zip(self._places, self._stores, strict=True):
            lost.update(store.write(row, obs[:, place], next_obs[:, place]))
        return sorted(lost)

    def read(self, indices: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        both = tuple(np.empty((len(rows), *self._row_shape), np.uint8) for rows in (indices, last))
        if self._rest is not None:
            for rows, part in zip(both, self._rest.read(indices, last), strict=True):
                rows[:, self._rest_columns] = part
        for place, store in zip(self._places, self._stores, strict=True):
            for rows, part in zip(both, store.read(indices, last), strict=True):
                rows[:, place] = part.reshape(len(part), -1)
        return both[0], both[1]

    def description(self) -> dict[str, Any]:
        return {
            "images": [
                [place.start, place.stop, store.stack] for place, store in zip(self._places, self._stores, strict=True)
            ]
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            f"{prefix}{name}": value for prefix, store in self._named() for name, value in store.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for prefix, store in self._named():
            store.load_state_dict({name: state[f"{prefix}{name}"] for name in store.state_dict()})

    def export_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            f"{prefix}{name}": array
            for prefix, store in self._named()
            for name, array in store.export_rows(_own(rows, prefix)).items()
        }

    def refuses_rows(self, arrays: Mapping[str, np.ndarray]) -> str | None:
        reasons = (store.refuses_rows(_own(arrays, prefix)) for prefix, store in self._named())
        return next((reason for reason in reasons if reason is not None), None)

    def import_rows(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
        masks = [store.import_rows(_own(arrays, prefix)) for prefix, store in self._named()]
        found = [mask for mask in masks if mask is not None]
        return np.logical_and.reduce(found) if found else None


def _own(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _rest_columns(layout: ReplayLayout) -> np.ndarray:
    is_image = np.zeros(layout.observation_shape, bool)
    for start, stop, _ in layout.images:
        is_image[start:stop] = True
    return np.flatnonzero(~is_image)


def _layouts(layout: ReplayLayout) -> tuple[ReplayLayout, list[ReplayLayout]]:
    """The layouts of the bytes beside the images, and of each image. A stack with its own dimension comes first."""
    rest = replace(layout, observation_shape=(len(_rest_columns(layout)),), images=())
    images = [
        replace(layout, observation_shape=shape, stack=shape[0] if len(shape) == 4 else 1, images=())
        for _, _, shape in layout.images
    ]
    return rest, images
