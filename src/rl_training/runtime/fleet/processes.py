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
from rl_training.envs.async_messages import HEADER, pack, unpack
from rl_training.envs.async_nursery import Nursery, Worker
from rl_training.envs.async_vector import CONSTRUCTOR_PATIENCE
from rl_training.envs.env_types import EnvSource
from rl_training.envs.forker import ForkerGone, how_it_ended
from rl_training.errors import EnvError
from rl_training.runtime.fleet.actor_process import work
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.fleet_protocol import Greeting
from rl_training.runtime.fleet.shared_parcel import Layout, SharedParcel
from rl_training.runtime.fleet.tickets import Ticket

MESSAGE_SECONDS = 5.0  # to read a message that has begun to arrive
SUSPENDED_SECONDS = 2.0  # a wait that takes this much longer than asked: this process itself was stopped meanwhile


@dataclass
class Post:
    """The place of one actor: its process of now, and what it is expected to do."""

    worker: Worker | None = None
    parcel: SharedParcel | None = None
    owed: int = 0  # answers that are due: more than one if a ticket was abandoned
    deadline: float = float("inf")  # of the first of them
    greeted: bool = False


class ProcessFleet:
    """Actors in processes of their own."""

    def __init__(self, config: TrainConfig, env: EnvSource | None):
        self._timeout = config.runtime.actor_timeout
        self._posts = [Post() for _ in range(config.runtime.actors)]
        self._config: TrainConfig | None = None
        self._layout: Layout = []
        self._published: Sequence[np.ndarray] = ()
        self._owner = os.getpid()
        self._nursery = Nursery(partial(work, config, env), "actor")
        self.notes = self._nursery.notes

    def start(self) -> Greeting:
        for index, post in enumerate(self._posts):
            post.worker = self._nursery.start(index)
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
        if not post.owed:  # else the answer before is due first, and a new ticket gives no new time for that
            patience = self._timeout if post.greeted else self._timeout * (1 + CONSTRUCTOR_PATIENCE)
            post.deadline = time.monotonic() + patience
        post.owed += 1
        self._tell(post, pack(b"t", ticket))

    def poll(self, seconds: float) -> list[Delivery | ActorFailure]:
        watched = {worker.connection.fileno(): index for index, worker in self._workers()}
        poll = select.poll()
        for descriptor in watched:
            poll.register(descriptor, select.POLLIN)
        started = time.monotonic()
        ready = [watched[descriptor] for descriptor, _ in poll.poll(seconds * 1000)]
        overslept = time.monotonic() - started - seconds
        if overslept > SUSPENDED_SECONDS:
            for post in self._posts:
                post.deadline += overslept
        events: list[Delivery | ActorFailure] = []
        for index in sorted(ready):
            if (event := self._read(index)) is not None:
                events.append(event)
        now = time.monotonic()
        for index, worker in self._workers():
            # While others deliver, only the deadline: to look at a process takes a system call.
            silent = index not in ready and (not ready or now >= self._posts[index].deadline)
            if silent and (down := self._check(index, worker)) is not None:
                events.append(down)
        return events

    def replace(self, actor: int) -> None:
        post = self._posts[actor]
        self._put_down(post)
        self._posts[actor] = post = Post(self._nursery.start(actor))
        self._equip(post)

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
        post.greeted = True
        assert isinstance(content, Greeting)
        return content

    def _equip(self, post: Post) -> None:
        assert self._config is not None and post.worker is not None
        post.parcel = SharedParcel(self._layout)
        message = pack(b"e", (self._config, self._layout))
        with contextlib.suppress(OSError):  # an actor that is gone is noticed when its answer is due
            post.worker.connection.settimeout(self._timeout)
            socket.send_fds(post.worker.connection, [message[: HEADER.size]], [post.parcel.descriptor])
            post.worker.connection.sendall(message[HEADER.size :])

    def _tell(self, post: Post, message: bytes) -> None:
        assert post.worker is not None
        with contextlib.suppress(OSError):
            post.worker.connection.settimeout(self._timeout)
            post.worker.connection.sendall(message)

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
            post.greeted = True
            self._wait_for_next(post)
            return None
        if kind == b"d":
            assert post.parcel is not None
            delivery = post.parcel.get(content)
            assert isinstance(delivery, Delivery)
            post.owed -= 1
            self._wait_for_next(post)
            return delivery
        if not isinstance(content, ActorFailure):  # what making an env raised
            content = ActorFailure(index, f"its env could not be made again: {content}")
        self._put_down(post)
        return content

    def _wait_for_next(self, post: Post) -> None:
        """An actor has answered: the time for its next answer, if one is due, starts now."""
        post.deadline = time.monotonic() + self._timeout if post.owed else float("inf")

    def _check(self, index: int, worker: Worker) -> ActorFailure | None:
        """Whether a silent actor is gone or late."""
        post = self._posts[index]
        if worker.is_lost():
            return self._gone(index)
        if time.monotonic() < post.deadline:
            return None
        self._put_down(post)
        reason = f"it gave no answer within {self._timeout:g} s (runtime.actor_timeout) and was killed"
        return ActorFailure(index, reason, timed_out=True)

    def _gone(self, index: int) -> ActorFailure:
        """Why an actor is gone. If the process that forked it is gone too, the actor is not to blame."""
        try:
            return ActorFailure(index, f"its process {how_it_ended(self._end(self._posts[index], 1.0))}")
        except ForkerGone as gone:
            reason = f"its process ended with the one that starts the actor processes, which {gone}"
            return ActorFailure(index, reason, blameless=True)

    def _put_down(self, post: Post) -> None:
        with contextlib.suppress(ForkerGone):  # then it is gone already
            self._end(post, 0.0)

    def _end(self, post: Post, patience: float) -> int:
        """End the process of a post, if it has one, and return how it ended. ForkerGone if nobody knows."""
        worker, post.worker = post.worker, None
        if post.parcel is not None:
            post.parcel.close()
            post.parcel = None
        return 0 if worker is None else self._nursery.end(worker, patience)
