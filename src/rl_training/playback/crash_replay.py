"""A crash file, played again: the same env, the same seed, the same actions, in this one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.env_runner import EnvRunner, set_random_state
from rl_training.envs.factory import make_env
from rl_training.envs.failures import EnvFailed, EnvFailure, reason_of, trace_of
from rl_training.errors import CheckpointError, EnvError
from rl_training.runtime.agent import CALLABLE_PREFIX
from rl_training.runtime.crash_reports import ENV_FAILURE
from rl_training.storage.durable_files import read_json


@dataclass(frozen=True)
class CrashFile:
    """What `reproduce` reads of one."""

    env_id: str
    env_kwargs: dict[str, Any]
    seed: int | None
    actions: list[Any]
    random_state: dict[str, Any] | None
    reason: str


def read_crash_file(path: str | Path) -> CrashFile:
    document = read_json(Path(path))
    if not isinstance(document, dict) or document.get("kind") != ENV_FAILURE:
        raise CheckpointError(f"{path}: is no crash file of an env; they are in the crash folder of a run")
    if document.get("actions") is None:
        raise CheckpointError(f"{path}: holds no actions, the way to the failure was too long or belongs to many envs")
    try:
        return CrashFile(
            str(document["env_id"]),
            dict(document["env_kwargs"]),
            document["seed"],
            list(document["actions"]),
            document["random_state"],
            str(document["reason"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: is not a whole crash file: {type(error).__name__} {error}") from None


def reproduce(path: str | Path, env: Callable[..., gym.Env[Any, Any]] | None = None) -> int:
    """Step through a crash file; EnvFailed, with the env's own exception as its cause, if it fails again.

    An env that ends or stops its process does so with this one. Returns the number of steps when nothing failed.
    """
    crash = read_crash_file(path)
    if env is None and crash.env_id.startswith(CALLABLE_PREFIX):
        name = crash.env_id.removeprefix(CALLABLE_PREFIX)
        raise EnvError(f"the env was the Python object {name}: call rl_training.playback.crash_replay.reproduce")
    made = make_env(env or crash.env_id, {} if env is not None else crash.env_kwargs)
    call, number, action = "reset", 0, None
    try:
        runner = EnvRunner(made)
        runner.reset(crash.seed)
        if crash.random_state is not None:
            set_random_state(made, crash.random_state)
            runner.reset()
        call = "step"
        for given in crash.actions:
            number += 1
            action = np.asarray(given, made.action_space.dtype)[()]
            runner.step(action)
    except (Exception, SystemExit) as error:
        failure = EnvFailure(
            reason_of(error),
            call,
            seed=crash.seed,
            episode_step=number,
            last_action=None if action is None else np.asarray(action).tolist(),
            trace=trace_of(error),
            remark=f" (action {number} of {len(crash.actions)} in the file)" if number else "",
        )
        raise EnvFailed(failure) from error
    made.close()
    return len(crash.actions)
