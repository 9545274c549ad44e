"""Crash replay: repeats a crash file in this process, with the same environment, seed and recorded actions."""

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
from rl_training.errors import CheckpointError
from rl_training.runtime.crash_reports import ENV_FAILURE
from rl_training.runtime.run_envs import require_env
from rl_training.storage.durable_files import read_json


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
    document = read_json(Path(path))
    if not isinstance(document, dict) or document.get("kind") != ENV_FAILURE:
        raise CheckpointError(f"{path}: not the crash file of an env; look in runs/<name>/crash/")
    if document.get("actions") is None:
        raise CheckpointError(f"{path}: cannot be replayed, the action history was too long or spans several envs")
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
        raise CheckpointError(f"{path}: not a complete crash file: {type(error).__name__} {error}") from None


def reproduce(path: str | Path, env: Callable[..., gym.Env[Any, Any]] | None = None) -> int:
    """Repeat a crash file; EnvFailed, with the environment's own exception as its cause, if it fails again.

    An environment that ends its process ends this one. Returns the number of steps if nothing failed.
    """
    crash = read_crash_file(path)
    if env is None:
        require_env(crash.env_id)
    replayed = make_env(env or crash.env_id, {} if env is not None else crash.env_kwargs)
    call, number, episode_step, action = "reset", 0, 0, None
    try:
        runner = EnvRunner(replayed)
        runner.reset(crash.seed)
        if crash.random_state is not None:
            set_random_state(replayed, crash.random_state)
            runner.reset()
        call = "step"
        for recorded in crash.actions:
            number, episode_step = number + 1, episode_step + 1
            action = np.asarray(recorded, replayed.action_space.dtype)[()]
            *_, final = runner.step(action)
            if final is not None:  # the runner has reset the environment
                episode_step = 0
    except (Exception, SystemExit) as error:
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
    replayed.close()
    return len(crash.actions)
