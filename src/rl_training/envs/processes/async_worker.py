"""The worker side of the `async` backend: a process that runs one env and answers the supervisor's commands."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from typing import Any

import numpy as np

from rl_training.envs.env_runner import EnvRunner
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.failures import reason_of, trace_of
from rl_training.envs.processes.async_messages import HEADER, pack, receive, unpack
from rl_training.envs.processes.process_tree import on_parents_death
from rl_training.envs.processes.shared_block import SharedBlock
from rl_training.errors import raise_interrupts
from rl_training.text import describe_error


def work(makers: list[EnvMaker], connection: socket.socket, index: int) -> None:
    """Make env `index`, then answer commands until the socket closes."""
    if not settle_in():
        return
    try:
        env = makers[index]()
        runner = EnvRunner(env)
        spaces = (env.observation_space, env.action_space, dict(env.metadata or {}), env.render_mode)
        greeting = pack(b"k", spaces)
    except BaseException as error:
        raise_interrupts(error)
        with contextlib.suppress(ConnectionError):
            connection.sendall(refusal(error))
        return
    with contextlib.suppress(ConnectionError):  # the supervisor is gone; what the env raises never gets here
        connection.sendall(greeting)
        _serve(connection, env, runner, index)
    try:
        env.close()
    except BaseException as error:
        raise_interrupts(error)
        with contextlib.suppress(OSError):
            connection.sendall(pack(b"n", reason_of(error)))


def settle_in() -> bool:
    """What a worker process does first; False if the process that forked it is gone already."""
    nursery = os.getppid()
    on_parents_death(signal.SIGKILL)
    if os.getppid() != nursery:
        return False
    os.setpgid(0, 0)  # programs that the env starts are in this group, by which they are found and ended
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # a fork does not copy the thread pool, and an env that uses it would wait forever
    return True


def _serve(connection: socket.socket, env: Any, runner: EnvRunner, index: int) -> None:
    block = None
    while True:
        header, descriptors = receive(connection, HEADER.size)
        if not header:
            return
        kind, length = HEADER.unpack(header)
        content = unpack(read_body(connection, length))
        if kind == b"m":
            block = SharedBlock(env.observation_space, env.action_space, content, descriptors[0])
            os.close(descriptors[0])
            continue
        if kind == b"c":
            return
        assert block is not None
        try:
            reply = _reset(runner, block, index, content) if kind == b"r" else _step(runner, block, index)
        except BaseException as error:
            raise_interrupts(error)
            reply = pack(b"f", (reason_of(error), trace_of(error)))
        connection.sendall(reply)


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


def refusal(error: BaseException) -> bytes:
    """The error itself if it can be pickled, so that the message is the same as without a process."""
    try:
        message = pack(b"x", error)
        unpack(message[HEADER.size :])
    except Exception:
        return pack(b"x", RuntimeError(describe_error(error)))
    return message


def read_body(connection: socket.socket, length: int) -> bytearray:
    body = bytearray(length)
    view = memoryview(body)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError
        view = view[count:]
    return body
