"""The actor's side of the `process` backend: makes its envs, then works off tickets until its socket closes."""

from __future__ import annotations

import contextlib
import os
import socket
import time

from threadpoolctl import threadpool_limits

from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvSource
from rl_training.envs.processes.async_messages import HEADER, pack, receive, unpack
from rl_training.envs.processes.async_worker import read_body, refusal, settle_in
from rl_training.errors import raise_interrupts
from rl_training.runtime.fleet.actor import Actor
from rl_training.runtime.fleet.delivery import failure_of
from rl_training.runtime.fleet.shared_parcel import SharedParcel


def work(config: TrainConfig, env: EnvSource | None, connection: socket.socket, index: int) -> None:
    """Be actor `index`. An env that cannot be made, or fails later, is an answer; then the process ends."""
    if not settle_in():
        return
    with threadpool_limits(1, "blas"), contextlib.suppress(ConnectionError):  # the learner is gone
        try:
            actor = Actor(config, env, index)
            greeting = pack(b"k", actor.greeting)
        except BaseException as error:
            raise_interrupts(error)
            connection.sendall(refusal(error))
            return
        try:
            connection.sendall(greeting)
            _serve(connection, actor)
        finally:
            actor.close()


def _serve(connection: socket.socket, actor: Actor) -> None:
    parcel = None
    while True:
        idle_since = time.perf_counter()
        header, descriptors = receive(connection, HEADER.size)
        if not header:
            return
        kind, length = HEADER.unpack(header)
        content = unpack(read_body(connection, length))
        if kind == b"c":
            return
        try:
            if kind == b"e":
                config, layout = content
                parcel = SharedParcel(layout, os.dup(descriptors[0]))
                os.close(descriptors[0])
                actor.equip(config)
                continue
            assert parcel is not None
            actor.adopt(parcel.weights)
            delivery = actor.collect(content, time.perf_counter() - idle_since)
            answer = pack(b"d", parcel.put(delivery))
        except BaseException as error:
            raise_interrupts(error)
            connection.sendall(pack(b"x", failure_of(actor.index, error)))
            return
        connection.sendall(answer)
