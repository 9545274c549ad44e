"""The `process` backend: one process per actor on this machine. An actor that dies or does not answer is replaced.

The processes come from the same nursery as those of `vector_backend: async`: a keeper, forked before anything large
exists, ends everything when the learner ends, however it ends. Tickets and answers go through unnamed sockets, weights
and rollouts through unnamed shared memory: nothing is opened that another program could connect to.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvSource
from rl_training.envs.processes.async_messages import HEADER, pack, unpack
from rl_training.envs.processes.async_nursery import Nursery, Worker
from rl_training.envs.processes.async_vector import CONSTRUCTOR_PATIENCE
from rl_training.envs.processes.forker import ForkerGone, how_it_ended
from rl_training.errors import EnvError
from rl_training.runtime.fleet.actor_process import work
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.fleet_protocol import Greeting
from rl_training.runtime.fleet.post import Post, compile_seconds, give_back, silence
from rl_training.runtime.fleet.shared_parcel import Layout, SharedParcel
from rl_training.runtime.fleet.tickets import Ticket

MESSAGE_SECONDS = 5.0  # to read a message that has begun to arrive


@dataclass
class ProcessPost(Post):
    """The place of an actor, with its process of now. Its works are numbers of tickets."""

    worker: Worker | None = None
    parcel: SharedParcel | None = None


class ProcessFleet:
    """Actors in processes of their own."""

    def __init__(self, config: TrainConfig, env: EnvSource | None):
        self._timeout = config.runtime.actor_timeout
        self._posts = [ProcessPost() for _ in range(config.runtime.actors)]
        self._config: TrainConfig | None = None
        self._layout: Layout = []
        self._published: Sequence[np.ndarray] = ()
        self._poll = select.poll()
        self._watched: dict[int, int] = {}  # descriptors of sockets, and their actors
        self._owner = os.getpid()
        self._nursery = Nursery(partial(work, config, env), "actor")
        self.notes = self._nursery.notes

    def start(self) -> Greeting:
        for index in range(len(self._posts)):
            self._hire(index)
        greetings = [self._greeting(index) for index in range(len(self._posts))]
        return greetings[0]

    def equip(self, config: TrainConfig, state: Sequence[np.ndarray]) -> None:
        self._config, self._layout = config, [(array.shape, array.dtype) for array in state]
        for post in self._posts:
            self._equip(post)

    def publish(self, state: Sequence[np.ndarray]) -> None:
        self._published = state

    def grant(self, ticket: Ticket) -> None:
        post = self._posts[ticket.actor]
        assert post.parcel is not None and post.worker is not None
        post.parcel.write_weights(self._published)
        post.order(ticket.number, self._timeout)
        with contextlib.suppress(OSError):  # an actor that is gone is noticed when its answer is due
            post.worker.connection.settimeout(self._timeout)
            post.worker.connection.sendall(pack(b"t", ticket))

    def poll(self, seconds: float) -> list[Delivery | ActorFailure]:
        started = time.monotonic()
        ready = [self._watched[descriptor] for descriptor, _ in self._poll.poll(seconds * 1000)]
        give_back(self._posts, time.monotonic() - started - seconds)
        events: list[Delivery | ActorFailure] = []
        for index in sorted(ready):
            if (event := self._read(index)) is not None:
                events.append(event)
        for index, worker in self._workers():
            if index in ready:
                continue
            is_late = self._posts[index].is_late()
            # While others deliver, only the deadline: to look at a process takes a system call.
            if (is_late or not ready) and worker.is_lost():
                events.append(self._gone(index))
            elif is_late:
                self._put_down(self._posts[index])
                events.append(silence(index, self._timeout))
        return events

    def replace(self, actor: int) -> None:
        self._put_down(self._posts[actor])
        self._hire(actor)
        self._equip(self._posts[actor])

    def alive(self) -> int:
        return sum(not worker.is_lost() for _, worker in self._workers())

    def close(self) -> None:
        """End every process within three seconds. Works on a half-started fleet too."""
        if os.getpid() != self._owner:
            return
        for post in self._posts:
            if post.worker is not None:
                with contextlib.suppress(OSError):
                    post.worker.connection.settimeout(0.1)
                    post.worker.connection.sendall(pack(b"c"))
        self._nursery.close()
        for post in self._posts:
            if post.worker is not None:
                post.worker.connection.close()
            if post.parcel is not None:
                post.parcel.close()
        self._posts = []

    def _hire(self, index: int) -> None:
        worker = self._nursery.start(index)
        self._posts[index] = ProcessPost(worker=worker)
        self._watched[worker.connection.fileno()] = index
        self._poll.register(worker.connection, select.POLLIN)

    def _workers(self) -> list[tuple[int, Worker]]:
        return [(index, post.worker) for index, post in enumerate(self._posts) if post.worker is not None]

    def _greeting(self, index: int) -> Greeting:
        """Wait for the first word of an actor. What its env raised in the making is raised here."""
        post = self._posts[index]
        assert post.worker is not None
        seconds = CONSTRUCTOR_PATIENCE * self._timeout
        try:
            kind, body = post.worker.receive(time.monotonic() + seconds)
        except TimeoutError:
            raise EnvError(
                f"actor {index} did not make its envs within {seconds:g} s: set runtime.actor_timeout higher"
            ) from None
        except OSError:
            raise EnvError(f"actor {index} could not start: {self._gone(index).reason}") from None
        content = unpack(body)
        if kind == b"x":
            raise content
        post.answered(self._timeout)
        assert isinstance(content, Greeting)
        return content

    def _equip(self, post: ProcessPost) -> None:
        assert self._config is not None and post.worker is not None
        post.compile_seconds = compile_seconds(self._config)
        post.parcel = SharedParcel(self._layout)
        message = pack(b"e", (self._config, self._layout))
        with contextlib.suppress(OSError):
            post.worker.connection.settimeout(self._timeout)
            socket.send_fds(post.worker.connection, [message[: HEADER.size]], [post.parcel.descriptor])
            post.worker.connection.sendall(message[HEADER.size :])

    def _read(self, index: int) -> Delivery | ActorFailure | None:
        """One message of an actor. None for a greeting."""
        post = self._posts[index]
        assert post.worker is not None
        try:
            kind, body = post.worker.receive(time.monotonic() + MESSAGE_SECONDS)
        except OSError:  # a TimeoutError is one too: the actor stopped in the middle of a message
            return self._gone(index)
        content = unpack(body)
        if kind == b"k":
            post.answered(self._timeout)
            return None
        if kind == b"d":
            assert post.parcel is not None
            delivery = post.parcel.get(content)
            assert isinstance(delivery, Delivery)
            post.answered(self._timeout, delivery.number)
            return delivery
        if not isinstance(content, ActorFailure):  # what making an env raised
            content = ActorFailure(index, f"its env could not be made again: {content}")
        self._put_down(post)
        return content

    def _gone(self, index: int) -> ActorFailure:
        """Why an actor is gone. If the process that forked it is gone too, the actor is not to blame."""
        try:
            return ActorFailure(index, f"its process {how_it_ended(self._end(self._posts[index], 1.0))}")
        except ForkerGone as gone:
            reason = f"its process ended with the one that starts the actor processes, which {gone}"
            return ActorFailure(index, reason, blameless=True)

    def _put_down(self, post: ProcessPost) -> None:
        with contextlib.suppress(ForkerGone):  # then it is gone already
            self._end(post, 0.0)

    def _end(self, post: ProcessPost, patience: float) -> int:
        """End the process of a post, if it has one, and return how it ended. ForkerGone if nobody knows."""
        worker, post.worker = post.worker, None
        if post.parcel is not None:
            post.parcel.close()
            post.parcel = None
        if worker is None:
            return 0
        self._poll.unregister(worker.connection)
        del self._watched[worker.connection.fileno()]
        return self._nursery.end(worker, patience)
