"""A process that forks children on request, notices when they end, and ends them with everything they have started.

`Forker` is that process, `ForkerClient` its other end. A request is answered with one number:

- `start i`, with a socket: forks a child that runs `work(socket, i)`; the answer is its process id.
- `end p s`: waits s seconds for child p and then kills it; the answer is its exit code, or minus the signal.
- `quit s`: waits s seconds for all children, kills what is left of them and exits; there is no answer.

When a child ends, its socket is shut down. The requester therefore sees the end of the child even if a program that
the child has started still holds the socket.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from rl_training.envs.processes.async_messages import read_exactly, receive
from rl_training.envs.processes.process_tree import descendants, end_family, end_group, kill

ANSWER = struct.Struct("!i")
# A fork takes milliseconds. A busy machine may be slow, but not this slow.
ANSWER_SECONDS = 5.0
SWEEP_SECONDS = 1.0
# How often a process without a request looks whether its parent lives, in case nothing else says so.
TICK_SECONDS = 1.0

Work = Callable[[socket.socket, int], None]


class ForkerGone(Exception):
    """The process that forks children has ended, or does not answer."""


class Forker:
    """Serves requests until `quit`, until the other end of its socket closes, or until `parent` has ended.

    Without `quit`, children get `grace` seconds to end by themselves.
    """

    def __init__(self, requests: socket.socket, work: Work, parent: int | None = None, grace: float = 0.0) -> None:
        self._requests, self._work, self._parent, self._grace = requests, work, parent, grace
        self._children: dict[int, socket.socket] = {}
        self._ended: dict[int, int] = {}
        self._bell, self._ring = os.pipe()
        for end in (self._bell, self._ring):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGCONT):
            signal.signal(number, ignore_signal)  # with a handler, it rings the bell

    def serve(self) -> None:
        patience = None
        while patience is None and not self._is_orphan():
            self._reap()
            if self._wait(TICK_SECONDS, self._requests):
                patience = self._answer()
        self._end_all(self._grace if patience is None else patience)

    def _is_orphan(self) -> bool:
        return self._parent is not None and os.getppid() != self._parent

    def _answer(self) -> float | None:
        """Answer one request. A number means that it was the last one, and how long the children have to end."""
        request, descriptors = receive(self._requests, 64)
        if not request:
            return self._grace
        word, *numbers = request.decode().split()
        if word == "quit":
            return float(numbers[0])
        if word == "start":
            answer = self._start(descriptors[0], int(numbers[0]))
        else:
            answer = self._end(int(numbers[0]), float(numbers[1]))
        try:
            self._requests.sendall(ANSWER.pack(answer))
        except ConnectionError:
            return self._grace
        return None

    def _start(self, descriptor: int, index: int) -> int:
        os.set_inheritable(descriptor, False)
        connection = socket.socket(fileno=descriptor)
        try:
            process = fork()
        except OSError as error:  # for example a limit of processes
            connection.close()
            return -(error.errno or errno.EAGAIN)
        if process == 0:
            never_return(partial(self._become_child, connection, index))
        self._children[process] = connection
        return process

    def _become_child(self, connection: socket.socket, index: int) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        for end in (self._bell, self._ring):
            os.close(end)
        for other in (self._requests, *self._children.values()):
            other.close()
        self._work(connection, index)

    def _end(self, process: int, patience: float) -> int:
        deadline = time.monotonic() + patience
        while process in self._children:
            if time.monotonic() >= deadline:
                end_family(process)
            self._wait(min(0.1, max(0.001, deadline - time.monotonic())))
            self._reap()
        return self._ended.pop(process, 0)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._bury(ended[0], os.waitstatus_to_exitcode(ended[1]))

    def _bury(self, process: int, code: int) -> None:
        connection = self._children.pop(process, None)
        if connection is None:
            return  # an orphan that an env has left
        self._ended[process] = code
        end_group(process)  # the number of a group that still has members is not given to another process
        if not self._children:
            # Orphans of a living child may be in use. Now there is none.
            kill(descendants(os.getpid()))
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _wait(self, seconds: float, requests: socket.socket | None = None) -> bool:
        """Wait until a child has ended or there is a request; returns whether there is one."""
        poll = select.poll()
        for source in (self._bell, requests):
            if source is not None:
                poll.register(source, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        if self._bell in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell, 4096)
        return bool(ready - {self._bell})

    def _end_all(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        self._reap()
        while self._children and time.monotonic() < deadline:
            self._wait(deadline - time.monotonic())
            self._reap()
        deadline = time.monotonic() + SWEEP_SECONDS
        while self._sweep() and time.monotonic() < deadline:
            self._wait(0.01)

    def _sweep(self) -> bool:
        """Kill whatever lives below this process. Whether there was anything."""
        for child in list(self._children):
            end_family(child)
        left_over = descendants(os.getpid())
        kill(left_over)
        self._reap()
        return bool(left_over or self._children)


class ForkerClient:
    """The other end of a `Forker`: sends requests and waits for answers, but never for long."""

    def __init__(self, process: int, requests: socket.socket) -> None:
        self.process, self._requests = process, requests
        self._given_up = ""

    def start(self, index: int = 0) -> tuple[int, socket.socket]:
        """Fork a child; returns its process id and the socket that it serves. OSError if the system refuses."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = self._ask(f"start {index}", 0.0, theirs)
            if process < 0:
                raise OSError(-process, os.strerror(-process))
            return process, ours
        except BaseException:
            ours.close()
            raise

    def end(self, process: int, patience: float) -> int:
        """Wait for a child and kill it if it takes longer than `patience`; returns how it ended."""
        return self._ask(f"end {process} {patience}", patience)

    def quit(self, patience: float) -> None:
        self.wake()
        with contextlib.suppress(OSError):
            self._requests.settimeout(0.1)
            self._requests.sendall(f"quit {patience}".encode())

    def is_gone(self) -> bool:
        """Whether it is known to have ended, or has failed to answer."""
        return bool(self._given_up) or self.has_ended()

    def has_ended(self) -> bool:
        """Whether the other end of the socket is closed."""
        try:
            self._requests.setblocking(False)
            return not self._requests.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._requests.close()

    def _ask(self, request: str, patience: float, *passed: socket.socket) -> int:
        if self._given_up:
            raise ForkerGone(self._given_up)
        seconds = patience + ANSWER_SECONDS
        self.wake()
        # Final unless the answer arrives: a late one must not be taken for the answer to another request.
        self._given_up = "was interrupted"
        try:
            self._requests.settimeout(seconds)
            socket.send_fds(self._requests, [request.encode()], [each.fileno() for each in passed])
            (answer,) = ANSWER.unpack(read_exactly(self._requests, ANSWER.size, time.monotonic() + seconds))
        except OSError as error:
            self._given_up = f"gave no answer within {seconds:g} s" if isinstance(error, TimeoutError) else "is gone"
            raise ForkerGone(self._given_up) from None
        self._given_up = ""
        return int(answer)

    def wake(self) -> None:
        """Continue the process if something has stopped it. To one that runs, this does nothing."""
        if not self.has_ended():  # then its process id may already be that of another process
            with contextlib.suppress(OSError):
                os.kill(self.process, signal.SIGCONT)


def fork() -> int:
    """`os.fork`, without a copy of buffered text in the child."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    with warnings.catch_warnings():
        # Newer Pythons warn about forks with threads. Ours hold no lock that an env needs, and the libraries of an env
        # are forked by every other vector env with processes too.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def never_return(run: Callable[[], None]) -> None:
    """Run a forked child to its end. The code that forked it never runs twice."""
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Schedulers signal every process of a job; only the one that trains reacts. A handler, not SIG_IGN:
            # programs that the env starts would inherit that.
            signal.signal(number, ignore_signal)
        run()
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def ignore_signal(number: int, frame: Any) -> None:
    pass


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
