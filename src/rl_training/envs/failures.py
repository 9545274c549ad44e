"""Env failures: one line that names the failure, and everything needed to replay it in one process."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import EnvError
from rl_training.text import describe_error, one_line

HISTORY_BYTES = 2_000_000
LAST_INFOS = "rl_training/last_infos"  # in infos: the last info of each env whose episode ended in this step
RESTARTED = "rl_training/restarted"  # in infos: the envs that broke in this step. Envs do not use such a name.


@dataclass(frozen=True)
class EnvFailure:
    """A failure of one env.

    `actions` lead from a reset to the failure: from the seeded reset or, if that is too long ago, from the start of the
    episode, which `random_state` (the state of the env's generator before it) reproduces. None means that the start of
    the episode is too long ago as well.
    """

    reason: str
    call: str = "step"
    env_index: int | None = None
    seed: int | None = None
    env_step: int | None = None  # of the run, before the call
    steps_before: int = 0  # of all envs together since they were reset, before the call
    episode_step: int = 0
    last_action: Any = None
    actions: list[Any] | None = None
    random_state: dict[str, Any] | None = None
    trace: str = ""
    timed_out: bool = False
    in_evaluation: bool = False
    remark: str = ""

    def __str__(self) -> str:
        who = "the env" if self.env_index is None else f"env {self.env_index}"
        where = [] if self.seed is None else [f"seed {self.seed}"]
        where += [] if self.env_step is None else [f"env step {self.env_step}"]
        where += [f"step {self.episode_step} of its episode"] if self.episode_step else []
        where += [] if self.last_action is None else [f"last action {_short(self.last_action)}"]
        call = f"{self.call} of an evaluation" if self.in_evaluation else self.call
        return f"{who} failed in {call} ({', '.join(where)}): {self.reason}{self.remark}"


class EnvFailed(EnvError):
    """An env failed while it ran; `failure` has the details."""

    def __init__(self, failure: EnvFailure):
        super().__init__(str(failure))
        self.failure = failure

    def locate(self, env_step: int) -> None:
        """Add the env step of the run, which the env itself does not know."""
        self.failure = replace(self.failure, env_step=env_step)
        self.args = (str(self.failure),)


def reason_of(error: BaseException) -> str:
    """Where an exception was raised, and what it says, on one line."""
    text = describe_error(error)
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}: {text}"


def trace_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _short(action: Any) -> str:
    return one_line(np.array2string(np.asarray(action), threshold=20), 100)


class ActionHistory:
    """The last actions of all envs, in a ring of a few megabytes, and where the episode of each env starts in it."""

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self._ring: np.ndarray | None = None
        self.begin([None] * num_envs)

    def begin(self, seeds: Sequence[int | None]) -> None:
        """All envs are about to be reset with these seeds."""
        self.time = 0
        self.skipped = 0  # rows of envs that broke, which are not env steps
        self.seeds = list(seeds)
        self._seeded = [0] * self.num_envs
        self._episode = [0] * self.num_envs
        self._random_states: list[dict[str, Any] | None] = [None] * self.num_envs

    def add(self, actions: Any) -> None:
        actions = np.asarray(actions)
        if self._ring is None or self._ring.shape[1:] != actions.shape:
            rows = int(np.clip(HISTORY_BYTES // max(1, actions.nbytes), 10, 100_000))
            self._ring = np.empty((rows, *actions.shape), actions.dtype)
            self._ring.fill(0)  # claims the memory now: growing page by page would look like a leak
        self._ring[self.time % len(self._ring)] = actions
        self.time += 1

    def seeded(self, env: int, seed: int | None) -> None:
        """This env alone is about to be reset with a seed."""
        self.seeds[env], self._seeded[env] = seed, self.time
        self.episode(env, None)

    def episode(self, env: int, random_state: dict[str, Any] | None) -> None:
        """This env started an episode after its last action; `random_state` is from before the reset."""
        self._episode[env], self._random_states[env] = self.time, random_state

    def failure(self, env: int, call: str, reason: str, trace: str = "", timed_out: bool = False) -> EnvFailure:
        start, state = self._seeded[env], None
        if not self._holds(start):
            start, state = self._episode[env], self._random_states[env]
        known = self._holds(start) and (state is not None or start == self._seeded[env])
        return EnvFailure(
            reason=reason,
            call=call,
            env_index=env,
            seed=self.seeds[env],
            steps_before=(self.time - (call == "step")) * self.num_envs - self.skipped,
            episode_step=self.time - self._episode[env],
            last_action=self._action(env, self.time - 1).tolist() if call == "step" else None,
            actions=[self._action(env, time).tolist() for time in range(start, self.time)] if known else None,
            random_state=state,
            trace=trace,
            timed_out=timed_out,
        )

    def _holds(self, time: int) -> bool:
        return self._ring is None or self.time - time <= len(self._ring)

    def _action(self, env: int, time: int) -> np.ndarray:
        assert self._ring is not None
        row: np.ndarray = self._ring[time % len(self._ring)][env]
        return row
