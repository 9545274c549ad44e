"""Named random streams: one seed per run, one independent generator per use.

No code draws from a global generator. Evaluation, exploration, minibatch order and replay sampling each have their own
stream, so an extra draw from one stream never shifts another.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def derived_seed(seed: int, *path: str | int) -> int:
    """A 31-bit seed for `path` (a purpose, an env number, ...), derived from the run's seed."""
    return int(_sequence(seed, path).generate_state(1)[0] >> 1)


def _sequence(seed: int, path: tuple[str | int, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in path]
    return np.random.SeedSequence(seed, spawn_key=words)


def check_positions(states: Mapping[str, Any]) -> None:
    """Raise what the generators of an actor would raise when they are set to these positions."""
    for state in states.values():
        np.random.PCG64(0).state = state


class Streams:
    """Generators by name, created on first use; their positions are part of every checkpoint."""

    def __init__(self, seed: int):
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __getitem__(self, name: str) -> np.random.Generator:
        if name not in self._generators:
            self._generators[name] = np.random.Generator(np.random.PCG64(_sequence(self.seed, (name,))))
        return self._generators[name]

    def seed_for(self, *path: str | int) -> int:
        return derived_seed(self.seed, *path)

    def state_dict(self) -> dict[str, Any]:
        states = {name: generator.bit_generator.state for name, generator in sorted(self._generators.items())}
        return {"seed": self.seed, "generators": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["seed"] != self.seed:
            raise ValueError(f"the checkpoint's seed is {state['seed']}, the config's is {self.seed}")
        for name, generator_state in state["generators"].items():
            self[name].bit_generator.state = generator_state
