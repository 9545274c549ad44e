"""Crash replay: repeats a crash file in this process, with the same environment, seed and recorded actions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.env_closer import close_all
from rl_training.envs.env_runner import EnvRunner, set_random_state
from rl_training.envs.factory import make_env
from rl_training.envs.failures import EnvFailed, EnvFailure, reason_of, trace_of
from rl_training.errors import CheckpointError, raise_interrupts
from rl_training.runtime.output.crash_reports import ENV_FAILURE
from rl_training.runtime.setup.run_envs import require_env
from rl_training.storage.durable_files import read_json
from rl_training.text import describe_error, one_line

LONGEST_NAME = 500
MOST_ACTIONS = 200_000  # an evaluation ends episodes that are longer

# What a run writes for each field.
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "env_id": lambda value: isinstance(value, str) and 0 < len(value) <= LONGEST_NAME,
    "env_kwargs": lambda value: isinstance(value, dict),
    "seed": lambda value: value is None or (type(value) is int and 0 <= value < 2**64),
    "actions": lambda value: value is None or (isinstance(value, list) and len(value) <= MOST_ACTIONS),
    "random_state": lambda value: value is None or isinstance(value, dict),
    "reason": lambda value: isinstance(value, str),
}


@dataclass(frozen=True)
class CrashFile:
    """The part of a crash file that `reproduce` needs."""

    env_id: str
    env_kwargs: dict[str, Any]
    seed: int | None
    actions: list[Any]
    random_state: dict[str, Any] | None
    reason: str


def read_crash_file(path: str | Path) -> CrashFile:
    """The content of a crash file; one that a run cannot have written raises CheckpointError."""
    document = read_json(Path(path))
    if not isinstance(document, dict) or document.get("kind") != ENV_FAILURE:
        raise CheckpointError(f"{path}: not the crash file of an env; look in runs/<name>/crash/")
    for name, is_valid in _FIELDS.items():
        if name not in document:
            raise CheckpointError(f"{path}: not a complete crash file: {name} is missing")
        if not is_valid(document[name]):
            raise CheckpointError(f"{path}: not a crash file that can be replayed: {name} is not valid")
    if document["actions"] is None:
        raise CheckpointError(f"{path}: cannot be replayed, the action history was too long or spans several envs")
    fields = {name: document[name] for name in _FIELDS}
    return CrashFile(**fields | {"reason": one_line(document["reason"], 1000)})


def reproduce(path: str | Path, env: Callable[..., gym.Env[Any, Any]] | None = None) -> int:
    """Repeat a crash file; EnvFailed, with the environment's own exception as its cause, if it fails again.

    An environment that ends its process ends this one. Returns the number of steps if nothing failed.
    """
    crash = read_crash_file(path)
    if env is None:
        require_env(crash.env_id)
    replayed = make_env(env or crash.env_id, {} if env is not None else crash.env_kwargs)
    actions = _as_actions(path, crash.actions, replayed.action_space)
    call, number, episode_step, action = "reset", 0, 0, None
    try:
        runner = EnvRunner(replayed)
        runner.reset(crash.seed)
        if crash.random_state is not None:
            _restore_random_state(path, replayed, crash.random_state)
            runner.reset()
        call = "step"
        for action in actions:
            number, episode_step = number + 1, episode_step + 1
            *_, final = runner.step(action)
            if final is not None:  # the runner has reset the environment
                episode_step = 0
    except CheckpointError:
        raise
    except BaseException as error:
        raise_interrupts(error)
        failure = EnvFailure(
            reason_of(error),
            call,
            seed=crash.seed,
            episode_step=episode_step,
            last_action=None if action is None else np.asarray(action).tolist(),
            trace=trace_of(error),
            remark=f" (action {number} of {len(crash.actions)} in the file)" if number else "",
        )
        raise EnvFailed(failure) from error
    close_all(replayed.close)
    return len(crash.actions)


def _as_actions(path: str | Path, recorded: list[Any], space: gym.Space[Any]) -> list[Any]:
    """The recorded actions as the env takes them: a run gives its envs only actions of their space."""
    actions = []
    for number, value in enumerate(recorded, 1):
        action = _as_action(value, space)
        if action is None:
            raise CheckpointError(f"{path}: action {number} of {len(recorded)} is not in {one_line(space, 200)}")
        actions.append(action)
    return actions


def _as_action(value: Any, space: gym.Space[Any]) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        return None
    if array.dtype.kind not in "biuf" or array.shape != (space.shape or ()):
        return None
    if not np.can_cast(array.dtype, space.dtype or array.dtype, "same_kind"):
        return None
    action = array.astype(space.dtype)[()]
    return action if space.contains(action) else None


def _restore_random_state(path: str | Path, env: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    try:
        with warnings.catch_warnings():
            # NumPy 1 wraps a number that is out of range and only warns.
            warnings.simplefilter("error", DeprecationWarning)
            set_random_state(env, state)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, DeprecationWarning) as error:
        reason = describe_error(error)
        raise CheckpointError(f"{path}: its random_state does not fit the generator of the env ({reason})") from None
