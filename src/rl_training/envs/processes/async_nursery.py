"""The processes behind the `async` backend, and behind actors: a keeper, the nursery that it forks, and the workers.

The supervisor forks the keeper early, before anything large exists. The keeper forks the nursery, which forks one
worker per env. So a worker or a nursery that is replaced in the middle of a run starts in milliseconds, needs nothing
pickled, and does not keep pages of a replay buffer alive that the supervisor overwrites.

Nothing outlives the supervisor, whichever process is killed or stopped:

- The keeper ends when its socket closes or its parent dies, and ends everything below it first. The kernel wakes it if
  it was stopped. Its session is its own, so that signals to the group of the supervisor do not reach it.
- Each worker leads a process group, which is killed when the worker ends. Programs that left the group belong to the
  nursery when their parent has ended (Linux), and are killed at the end of the run.
- If the nursery is killed, the kernel ends the workers (Linux), the keeper ends what they started, and the supervisor
  asks for another nursery. If the keeper is killed, the nursery continues.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from functools import partial

from rl_training.envs.processes.async_messages import HEADER, read_exactly
from rl_training.envs.processes.forker import Forker, ForkerClient, ForkerGone, Work, fork, how_it_ended, never_return
from rl_training.envs.processes.process_tree import (
    adopt_orphans,
    end_family,
    end_session,
    has_ended,
    kill,
    on_parents_death,
)
from rl_training.errors import EnvError

RESTARTS, WITHIN_SECONDS = 3, 600.0
# One deadline for all closing work: envs get the first second, their nursery the second one, the keeper the third.
ENV_SECONDS, NURSERY_SECONDS, CLOSING_SECONDS = 1.0, 2.0, 3.0


class NurseryLost(EnvError):
    """The process that forks the workers ends again and again."""


class Worker:
    """One worker process: its id, its socket, the process that forked it and the keeper of that."""

    def __init__(self, process: int, connection: socket.socket, nursery: ForkerClient, keeper: ForkerClient) -> None:
        self.process, self.connection, self.nursery, self.keeper = process, connection, nursery, keeper

    def receive(self, deadline: float) -> tuple[bytes, bytearray]:
        kind, length = HEADER.unpack(read_exactly(self.connection, HEADER.size, deadline, self.is_lost))
        return kind, read_exactly(self.connection, length, deadline, self.is_lost)

    def is_lost(self) -> bool:
        """Whether the worker is known to have ended, although a program that it started may hold its socket."""
        for watcher in (self.keeper, self.nursery):
            watcher.wake()
        return self.nursery.is_gone() or has_ended(self.process)


class Nursery:
    """Starts and ends worker processes, and replaces the process that forks them. `notes` has a line for each time.

    Worker i runs `work(socket, i)`. `kind` says in messages what the workers are.
    """

    def __init__(self, work: Work, kind: str = "env") -> None:
        self.notes: list[str] = []
        self._work, self._kind = work, kind
        self._replaced_at: list[float] = []
        self._workers: list[Worker] = []
        self._keeper = _start_keeper(work)
        try:
            self._nursery = self._new_nursery()
        except BaseException:
            end_session(self._keeper.process, CLOSING_SECONDS)
            self._reap_keeper()
            self._keeper.close()
            raise

    @property
    def processes(self) -> list[int]:
        """The keeper and the process that forks the workers."""
        return [self._keeper.process, self._nursery.process]

    def start(self, index: int) -> Worker:
        """A new process for worker `index`; replaces the nursery first if it is gone."""
        while True:
            try:
                worker = Worker(*self._nursery.start(index), self._nursery, self._keeper)
            except ForkerGone as gone:
                self._replace(str(gone))
                continue
            self._workers.append(worker)
            return worker

    def end(self, worker: Worker, patience: float) -> int:
        """Wait for a worker and kill it if it takes longer than `patience`; returns how it ended.

        ForkerGone if the nursery of this worker is gone, and the worker with it.
        """
        self._workers.remove(worker)
        try:
            if worker.nursery is not self._nursery:
                raise ForkerGone("was replaced")
            return worker.nursery.end(worker.process, patience)
        finally:
            worker.connection.close()

    def close(self) -> None:
        """End every process, within one deadline for all of them."""
        started = time.monotonic()
        self._nursery.quit(ENV_SECONDS)
        self._keeper.quit(NURSERY_SECONDS)
        while not (self._reap_keeper() and self._nursery.has_ended()):
            if time.monotonic() - started > CLOSING_SECONDS:
                self._force_end()
                break
            time.sleep(0.005)
        for client in (self._nursery, self._keeper):
            client.close()

    def _force_end(self) -> None:
        end_family(self._keeper.process)
        self._end_member(self._nursery.process)
        for worker in self._workers:
            self._end_member(worker.process)
        end_session(self._keeper.process, 1.0)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._keeper.process, 0)

    def _end_member(self, process: int) -> None:
        """Kill a process and what it started, if it is one of ours: its id may already be that of another process."""
        with contextlib.suppress(OSError):
            if os.getsid(process) == self._keeper.process:
                end_family(process)

    def _reap_keeper(self) -> bool:
        """Whether the keeper has ended. Until it is reaped here, its process id belongs to it."""
        try:
            return os.waitpid(self._keeper.process, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def _replace(self, reason: str) -> None:
        """Start another nursery. The workers of the old one are gone, or ended here."""
        with contextlib.suppress(ForkerGone):
            code = self._keeper.end(self._nursery.process, 0.0)
            reason = how_it_ended(code) if reason == "is gone" else reason
        for worker in self._workers:
            if worker.nursery is self._nursery:
                self._end_member(worker.process)
                with contextlib.suppress(OSError):
                    worker.connection.shutdown(socket.SHUT_RDWR)
        now = time.monotonic()
        self._replaced_at = [then for then in self._replaced_at if now - then < WITHIN_SECONDS]
        if len(self._replaced_at) >= RESTARTS:
            raise NurseryLost(
                f"the process that starts the {self._kind} processes {reason}; it was already replaced {RESTARTS} "
                f"times within {WITHIN_SECONDS / 60:.0f} minutes, which is the limit: look for what ends it, such as a "
                f"memory limit"
            )
        self._replaced_at.append(now)
        self.notes.append(
            f"replaced the process that starts the {self._kind} processes: it {reason}; new episodes start"
        )
        self._nursery.close()
        self._nursery = self._new_nursery()

    def _new_nursery(self) -> ForkerClient:
        try:
            return ForkerClient(*self._keeper.start())
        except ForkerGone:
            # The keeper is gone as well. A new one is a copy of this process, large data included: the last resort.
            end_session(self._keeper.process, 1.0)
            kill([self._keeper.process])
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._keeper.process, 0)
            self._keeper.close()
            self._keeper = _start_keeper(self._work)
            return ForkerClient(*self._keeper.start())


def _start_keeper(work: Work) -> ForkerClient:
    if not hasattr(os, "fork"):
        raise OSError("this system cannot fork processes, use vector_backend 'sync'")
    ours, theirs = socket.socketpair()
    supervisor = os.getpid()
    process = fork()
    if process == 0:
        ours.close()
        never_return(partial(_keep, theirs, work, supervisor))
    theirs.close()
    return ForkerClient(process, ours)


def _keep(requests: socket.socket, work: Work, supervisor: int) -> None:
    os.setsid()
    adopt_orphans()
    on_parents_death(signal.SIGCONT)
    Forker(requests, partial(_nurse, work), supervisor, grace=ENV_SECONDS).serve()


def _nurse(work: Work, requests: socket.socket, index: int) -> None:
    adopt_orphans()
    Forker(requests, work).serve()
