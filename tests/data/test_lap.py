"""LAP: a floor of the priorities, and a highest priority that is looked up again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout

LAP = PriorityOptions(exponent=0.4, floor=1.0, refresh_every=2)


def buffer_of(rows: int, options: PriorityOptions = LAP) -> ReplayBuffer:
    buffer = ReplayBuffer(ReplayLayout(8, 1, (1,), "float32", (1,), "float32"), gamma=0.9, prioritized=options)
    add(buffer, rows)
    return buffer


def add(buffer: ReplayBuffer, rows: int = 1) -> None:
    for _ in range(rows):
        zeros: Any = np.zeros((1, 1), np.float32)
        buffer.add(zeros, zeros, np.zeros(1, np.float32), zeros, np.zeros(1, bool), np.zeros(1, bool))


def priorities_of(buffer: ReplayBuffer) -> np.ndarray:
    return np.asarray(buffer.state_dict()["priorities"])


def test_errors_below_the_floor_count_as_the_floor() -> None:
    buffer = buffer_of(4)
    buffer.update_priorities(np.arange(4), np.array([0.01, -0.5, 1.0, -32.0]))
    np.testing.assert_allclose(priorities_of(buffer), [1.0, 1.0, 1.0, 4.0])
    plain = buffer_of(2, PriorityOptions(exponent=0.4, epsilon=0.5))
    plain.update_priorities(np.arange(2), np.array([0.5, 31.5]))
    np.testing.assert_allclose(priorities_of(plain), [1.0, 4.0])


@pytest.mark.parametrize(
    ("refresh_every", "remaining", "expected"), [(2, 0.1, 1.0), (2, 2.0**2.5, 2.0), (0, 0.1, 4.0), (0, 2.0**2.5, 4.0)]
)
def test_the_highest_priority_is_that_of_the_stored_rows_after_a_refresh(
    refresh_every: int, remaining: float, expected: float
) -> None:
    buffer = buffer_of(3, PriorityOptions(exponent=0.4, floor=1.0, refresh_every=refresh_every))
    buffer.update_priorities(np.array([0]), np.array([32.0]))
    add(buffer)
    assert priorities_of(buffer)[3] == pytest.approx(4.0)
    buffer.update_priorities(np.array([0, 3]), np.array([0.1, remaining]))  # the second update
    add(buffer)
    assert priorities_of(buffer)[4] == pytest.approx(expected)


def test_the_count_of_updates_is_state() -> None:
    one, two = buffer_of(3), buffer_of(3)
    one.update_priorities(np.array([0]), np.array([32.0]))
    rows = one.export_rows(0, 3)
    two.load_state_dict(one.state_dict())
    two.import_rows(0, rows)
    for buffer in (one, two):
        buffer.update_priorities(np.array([0]), np.array([0.1]))
        add(buffer)
    np.testing.assert_array_equal(priorities_of(one), priorities_of(two))
    assert priorities_of(one)[3] == 1.0
    assert "priority_updates" not in buffer_of(1, PriorityOptions()).state_dict()
