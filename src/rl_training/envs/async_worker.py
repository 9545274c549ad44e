"""The worker side of the `async` backend: processes that each run one env, and the process that starts and ends them.

The supervisor forks one process early, the nursery, which runs no env and holds no large data; workers are forked from
it. A worker that is replaced in the middle of a run therefore starts in milliseconds, needs nothing pickled, and does
not keep pages of a replay buffer alive that the supervisor overwrites.

No process outlives its parent: the nursery ends when its socket closes, and ends its workers first. If the nursery is
killed, the kernel ends the workers (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from rl_training.envs.env_runner import EnvRunner
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.failures import reason_of, trace_of
from rl_training.envs.shared_block import SharedBlock

HEADER = struct.Struct("!cI")  # the kind of message, and the number of bytes that follow
PR_SET_PDEATHSIG = 1
# Closing the socket is not enough: another nursery that was forked meanwhile has a copy of it.
QUIT = b"quit"


def pack(kind: bytes, content: Any = None) -> bytes:
    body = b"" if content is None else bytes(ForkingPickler.dumps(content))
    return HEADER.pack(kind, len(body)) + body


def unpack(body: bytes | bytearray) -> Any:
    return ForkingPickler.loads(body) if body else None


def start_nursery(makers: list[EnvMaker]) -> tuple[int, socket.socket]:
    """Fork the nursery; returns its process id and the socket that takes its commands."""
    if not hasattr(os, "fork"):
        raise OSError("this system cannot fork processes, use vector_backend 'sync'")
    ours, theirs = socket.socketpair()
    process = _fork()
    if process == 0:
        ours.close()
        _never_return(partial(_nursery, theirs, makers))
    theirs.close()
    return process, ours


def _fork() -> int:
    # Otherwise the child would write its copy of the buffered text a second time.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    with warnings.catch_warnings():
        # Newer Pythons warn about forks with threads. Ours hold no lock that an env needs, and the libraries of an env
        # are forked by every other vector env with processes too.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _never_return(run: Callable[[], None]) -> None:
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Terminals and schedulers signal every process of a group; only the one that trains reacts. A handler, not
            # SIG_IGN: programs that the env starts would inherit that.
            signal.signal(number, _ignore)
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


def _ignore(number: int, frame: Any) -> None:
    pass


def _nursery(commands: socket.socket, makers: list[EnvMaker]) -> None:
    """`start i` with a socket forks a worker for env i, `end p s` waits s seconds for process p and then kills it."""
    children: set[int] = set()
    while True:
        request, descriptors, _, _ = socket.recv_fds(commands, 64, 1)
        if not request or request == QUIT:
            break
        word, *numbers = request.decode().split()
        if word == "start":
            answer = _fork()
            if answer == 0:
                commands.close()
                _never_return(partial(_work, socket.socket(fileno=descriptors[0]), int(numbers[0]), makers))
            children.add(answer)
            os.close(descriptors[0])
        else:
            process = int(numbers[0])
            answer = end_child(process, float(numbers[1])) if process in children else 0
            children.discard(process)
        commands.send(str(answer).encode())
    for child in children:
        end_child(child, 0.0)


def end_child(process: int, patience: float) -> int:
    """Wait for a child and kill it if it takes longer than `patience`; returns its exit code, or minus the signal."""
    deadline = time.monotonic() + patience
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(process, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        time.sleep(0.005)


def _work(connection: socket.socket, index: int, makers: list[EnvMaker]) -> None:
    """Make env `index`, then answer commands until the socket closes."""
    nursery = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != nursery:
            return
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # a fork does not copy the thread pool, and an env that uses it would wait forever
    try:
        env = makers[index]()
        spaces = (env.observation_space, env.action_space, dict(env.metadata or {}), env.render_mode)
        greeting = pack(b"k", spaces)
    except (Exception, SystemExit) as error:
        connection.sendall(_refusal(error))
        return
    connection.sendall(greeting)
    runner, block = EnvRunner(env), None
    while True:
        header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, 1)
        if not header:
            break
        kind, length = HEADER.unpack(header)
        content = unpack(_read(connection, length))
        if kind == b"m":
            block = SharedBlock(env.observation_space, env.action_space, content, descriptors[0])
            os.close(descriptors[0])
            continue
        if kind == b"c":
            break
        assert block is not None
        try:
            reply = _reset(runner, block, index, content) if kind == b"r" else _step(runner, block, index)
        except (Exception, SystemExit) as error:
            reply = pack(b"f", (reason_of(error), trace_of(error)))
        connection.sendall(reply)
    env.close()


def _reset(runner: EnvRunner, block: SharedBlock, index: int, content: Any) -> bytes:
    observation, info = runner.reset(*content)
    block.write(index, observation)
    return pack(b"k", info or None)


def _step(runner: EnvRunner, block: SharedBlock, index: int) -> bytes:
    # A copy: the env may keep its action, and the next action is written to the same memory.
    observation, block.rewards[index], *rest = runner.step(np.array(block.actions[index])[()])
    block.write(index, observation)
    _, _, info, final = rest
    return pack(b"k", rest if info or final is not None else None)


def _refusal(error: BaseException) -> bytes:
    """The error itself if it can be pickled, so that the message is the same as without a process."""
    try:
        message = pack(b"x", error)
        unpack(message[HEADER.size :])
    except Exception:
        return pack(b"x", RuntimeError(f"{type(error).__name__}: {error}"))
    return message


def _read(connection: socket.socket, length: int) -> bytearray:
    body = bytearray(length)
    view = memoryview(body)
    while view:
        count = connection.recv_into(view)
        if not count:
            os._exit(0)  # the supervisor is gone
        view = view[count:]
    return body
