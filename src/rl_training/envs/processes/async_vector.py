"""The `async` backend: one supervised process per env. An env that raises, dies, hangs or returns bad data is replaced.

The step in which an env failed is not a transition: its row is marked in `infos[RESTARTED]`, has reward 0 and shows
the first observation of the replacement. The collector truncates the broken episode at the last valid observation.
The number of replacements is limited; when the limit is reached, the run ends with the last failure (exit code 3).
With the same seeds and without failures, every bit is the same as with the `sync` backend.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rl_training.envs.env_closer import close_all, note_failed_close
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.failures import LAST_INFOS, RESTARTED, ActionHistory, EnvFailed, EnvFailure
from rl_training.envs.processes.async_messages import pack, received_messages, unpack
from rl_training.envs.processes.async_nursery import Nursery, NurseryLost, Worker
from rl_training.envs.processes.async_worker import work
from rl_training.envs.processes.forker import ForkerGone, how_it_ended
from rl_training.envs.processes.shared_block import SharedBlock
from rl_training.envs.sync_vector import seeds_of
from rl_training.errors import raise_interrupts
from rl_training.text import describe_error

DEFAULT_TIMEOUT = 60.0
RESTARTS_PER_ENV, WITHIN_SECONDS = 3, 600.0
RESTARTS_PER_RUN = 20
# A constructor may load a game, a level or a simulator: it gets this many times the timeout of a step.
CONSTRUCTOR_PATIENCE = 5


class WorkerError(Exception):
    """A worker did not answer, or answered with an error; `trace` is the env's traceback if it sent one.

    `blameless`: the env did nothing wrong, its process ended with the nursery.
    """

    def __init__(self, reason: str, trace: str = "", timed_out: bool = False, blameless: bool = False):
        super().__init__(reason)
        self.reason, self.trace, self.timed_out, self.blameless = reason, trace, timed_out, blameless


class AsyncVector(VectorEnv[Any, Any, Any]):
    """One process per env, with same-step autoreset.

    `failures` lists the envs that failed and were replaced, `notes` what else happened to their processes.
    """

    def __init__(self, makers: Sequence[EnvMaker], timeout: float = DEFAULT_TIMEOUT):
        self.num_envs, self.timeout = len(makers), timeout
        self._make: EnvMaker = makers[0]
        self._local_env: Any = None
        self.failures: list[EnvFailure] = []
        self._failed_at: list[list[float]] = [[] for _ in makers]
        self._history = ActionHistory(self.num_envs)
        self._block: SharedBlock | None = None
        self._owner = os.getpid()
        self._nursery = Nursery(partial(work, list(makers)))
        self.notes = self._nursery.notes
        self._workers: list[Worker | None] = [None] * self.num_envs
        try:
            for index in range(self.num_envs):
                self._workers[index] = self._nursery.start(index)
            greetings = [self._greeting(index) for index in range(self.num_envs)]
        except WorkerError as down:
            self.close()
            raise EnvFailed(EnvFailure(down.reason, "the making", trace=down.trace)) from None
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space, self.metadata, self.render_mode = greetings[0]
        for observation_space, action_space, _, _ in greetings[1:]:
            if (observation_space, action_space) != (self.single_observation_space, self.single_action_space):
                self.close()
                raise RuntimeError("the envs differ in their spaces: all must be made with the same arguments")
        self.metadata["autoreset_mode"] = AutoresetMode.SAME_STEP
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._block = SharedBlock(self.single_observation_space, self.single_action_space, self.num_envs)
        for index in range(self.num_envs):
            self._hand_over(index)

    def local_env(self) -> Any:
        """An env of the same kind in this process, for what the envs can say without being stepped."""
        if self._local_env is None:
            self._local_env = self._make()
        return self._local_env

    @property
    def processes(self) -> list[int]:
        return [worker.process for worker in self._workers if worker is not None]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seeds = seeds_of(seed, self.num_envs)
        self._history.begin(seeds)
        self._tell_all([pack(b"r", (each, options)) for each in seeds])
        deadline = time.monotonic() + self.timeout
        infos: dict[str, Any] = {}
        for index in range(self.num_envs):
            try:
                info = self._answer(index, deadline)
            except WorkerError as down:
                # The same seed again: a failure that is not the env's fault then changes nothing.
                info = self._replace(index, "reset", down, seeds[index], options)
            infos = self._add_info(infos, info or {}, index)
        return self._memory.read(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._history.add(actions)
        self._memory.actions[:] = actions
        self._tell_all([pack(b"s")] * self.num_envs)
        deadline = time.monotonic() + self.timeout
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        infos: dict[str, Any] = {}
        down: dict[int, WorkerError] = {}
        for index in range(self.num_envs):
            try:
                answer = self._answer(index, deadline)
            except WorkerError as reason:
                down[index] = reason
                continue
            if answer is None:
                continue
            terminated[index], truncated[index], info, final = answer
            if final is not None:
                infos = self._add_info(infos, {"final_obs": final[0], "final_info": final[1]}, index)
                infos.setdefault(LAST_INFOS, {})[index] = final[1]  # as it is: arrays would cut 0.5 to an integer
                self._history.episode(index, final[2])
            infos = self._add_info(infos, info, index)
        rewards = self._memory.rewards.copy()
        for index, problem in down.items():
            rewards[index] = 0.0
            info = self._replace(index, "step", problem, self._next_seed(index))
            infos = self._add_info(infos, {**(info or {}), RESTARTED: True}, index)
        self._history.skipped += len(down)
        return self._memory.read(), rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Works on a half-built object too, after a constructor that failed."""
        if os.getpid() != self._owner:
            return  # this is a forked copy of the object, and the workers belong to the original
        if self._local_env is not None:
            close_all(self._local_env.close)
            self._local_env = None
        workers = [worker for worker in self._workers if worker is not None]
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.connection.settimeout(0.1)
                worker.connection.sendall(pack(b"c"))
        self._nursery.close()
        for worker in workers:
            for kind, body in received_messages(worker.connection):
                if kind == b"n":
                    note_failed_close(unpack(body))
            worker.connection.close()
        self._workers = []
        if self._block is not None:
            os.close(self._block.descriptor)
            self._block = None  # this releases the mapping

    def __del__(self) -> None:
        if not self.closed and hasattr(self, "_workers"):
            self.close()

    @property
    def _memory(self) -> SharedBlock:
        assert self._block is not None
        return self._block

    def _end(self, worker: Worker, patience: float) -> int:
        """Wait for a worker and kill it if it takes longer than `patience`; returns how it ended."""
        try:
            return self._nursery.end(worker, patience)
        except ForkerGone as gone:
            raise WorkerError(f"the process that starts the env processes {gone}", blameless=True) from None

    def _greeting(self, index: int) -> Any:
        patience = CONSTRUCTOR_PATIENCE * self.timeout
        return self._answer(index, time.monotonic() + patience, patience)

    def _hand_over(self, index: int) -> None:
        worker = self._workers[index]
        assert worker is not None
        with contextlib.suppress(OSError):  # a worker that is gone is noticed at its first answer
            socket.send_fds(worker.connection, [pack(b"m", self.num_envs)], [self._memory.descriptor])

    def _tell_all(self, messages: list[bytes]) -> None:
        for worker, message in zip(self._workers, messages, strict=True):
            assert worker is not None
            with contextlib.suppress(OSError):
                worker.connection.settimeout(self.timeout)
                worker.connection.sendall(message)

    def _answer(self, index: int, deadline: float, patience: float | None = None) -> Any:
        """The answer of a worker. If there is none, or it is an error, the worker is ended and WorkerError raised."""
        worker = self._workers[index]
        assert worker is not None
        try:
            kind, body = worker.receive(deadline)
            if kind == b"k":
                return unpack(body)
        except TimeoutError:
            self._workers[index] = None
            self._end(worker, 0.0)
            waited = f"{patience or self.timeout:g} s"
            raise WorkerError(
                f"it gave no answer within {waited} (env_timeout) and was killed", timed_out=True
            ) from None
        except OSError:
            self._workers[index] = None
            raise WorkerError(f"its process {how_it_ended(self._end(worker, 1.0))}") from None
        self._workers[index] = None
        self._end(worker, 0.0)
        content = unpack(body)
        raise content if kind == b"x" else WorkerError(*content)

    def _replace(
        self, index: int, call: str, down: WorkerError, seed: int | None, options: dict[str, Any] | None = None
    ) -> Any:
        """Start a new process for this env and reset it with `seed`; returns the info of that reset."""
        while True:
            if not down.blameless:
                self._survive(self._history.failure(index, call, down.reason, down.trace, down.timed_out))
            self._history.seeded(index, seed)
            try:
                call = "the making"
                self._workers[index] = self._nursery.start(index)
                self._greeting(index)
                self._hand_over(index)
                call = "reset"
                worker = self._workers[index]
                assert worker is not None
                with contextlib.suppress(OSError):
                    worker.connection.sendall(pack(b"r", (seed, options)))
                return self._answer(index, time.monotonic() + self.timeout)
            except WorkerError as again:
                down = again
            except NurseryLost:
                raise
            except BaseException as error:  # raised by the env's constructor
                raise_interrupts(error)
                down = WorkerError(describe_error(error))

    def _survive(self, failure: EnvFailure) -> None:
        assert failure.env_index is not None
        now = time.monotonic()
        mine = self._failed_at[failure.env_index]
        recent = sum(now - then < WITHIN_SECONDS for then in mine)
        if recent >= RESTARTS_PER_ENV or len(self.failures) >= RESTARTS_PER_RUN:
            limit = f"the run has reached its limit of {RESTARTS_PER_RUN} environment replacements"
            if recent >= RESTARTS_PER_ENV:
                minutes = f"{WITHIN_SECONDS / 60:.0f} minutes"
                limit = f"it was already replaced {recent} times within {minutes}, which is the limit"
            raise EnvFailed(replace(failure, remark=f"; {limit}"))
        mine.append(now)
        self.failures.append(failure)

    def _next_seed(self, index: int) -> int | None:
        """The seed of the episode after a failure. It differs from the last one, which could fail again."""
        seed = self._history.seeds[index]
        if seed is None:
            return None
        return int(np.random.SeedSequence([seed, len(self._failed_at[index])]).generate_state(1)[0])
