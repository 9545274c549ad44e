"""Closing envs: whatever `close` of an env raises is one note. It never changes the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import gymnasium as gym

from rl_training.envs.failures import reason_of
from rl_training.errors import raise_interrupts


def close_all(*closes: Callable[[], object]) -> None:
    """Call the `close` of every env; a failure is noted, and the others are closed all the same."""
    for close in closes:
        try:
            close()
        except BaseException as error:
            raise_interrupts(error)
            note_failed_close(reason_of(error))


@contextmanager
def closed_after(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Close an env at the end of a block."""
    try:
        yield env
    finally:
        close_all(env.close)


@cache  # envs of one kind fail in the same way, in every evaluation: one line says it
def note_failed_close(reason: str) -> None:
    logging.getLogger("rl_training").warning("note: close() of an env failed: %s; no result is affected", reason)
