"""The `ray` backend: actors on the machines of a Ray cluster. This is the only file that imports ray.

Ray starts processes, carries orders and deliveries, and knows which machines there are. Deadlines, replacements and the
account of env steps are ours, as with the other backends: Ray notices a frozen machine only after about a minute, and
an actor that Ray restarted by itself would have two supervisors.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rl_training._version import __version__
from rl_training.config.base import RolloutConfig
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvSource
from rl_training.envs.processes.async_messages import HEADER, unpack
from rl_training.envs.processes.async_vector import CONSTRUCTOR_PATIENCE
from rl_training.errors import ConfigError, EnvError
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.fleet_protocol import FleetLost, Greeting
from rl_training.runtime.fleet.post import Post, compile_seconds, give_back, silence
from rl_training.runtime.fleet.ray_setup import (
    answers,
    cause_of,
    check_store,
    end_services,
    ends_within,
    is_ray_head,
    kept_handlers,
    object_store_size,
    session_folder,
)
from rl_training.runtime.fleet.remote_actor import Luggage, RemoteActor
from rl_training.runtime.fleet.tickets import Ticket
from rl_training.text import describe_error, one_line, reason

_ray: Any = ray  # some of its functions have no annotations
INLINE_BYTES = 100_000  # weights up to this size travel with each ticket; larger ones go once to each machine
GET_SECONDS = 5.0  # to take an object that has arrived
CLOSE_SECONDS = 1.0  # for actors to close their envs
LEAVE_SECONDS = 5.0  # for Ray to end if its head is lost
PROBE_SECONDS, PROBES = 1.0, 3  # how often the head is looked for, and how often in vain until it counts as lost
ANSWER_SECONDS = 2.0  # for a machine to accept a connection
SUSPECT_SECONDS = 120.0  # a machine whose actor was silent gets no new one for so long: Ray takes 66 s to give it up


class RayActor(RemoteActor):
    """The side of an actor that Ray runs."""

    def make(self) -> tuple[Greeting, str, str] | bytes:
        """Make the envs. The answer says what they are, which machine this is, and which version is installed on it."""
        answer = self.make_envs()
        if isinstance(answer, bytes):
            return answer
        return answer, ray.get_runtime_context().get_node_id(), __version__


@dataclass
class RayPost(Post):
    """The place of an actor, with its process of now. Its works are answers that are to come."""

    handle: Any = None
    made: Any = None  # the answer of `make` that is due
    node: str | None = None  # the machine, once it is known or chosen


class RayFleet:
    """Actors on a Ray cluster: the one at `runtime.address`, or one on this machine that lasts as long as the run."""

    def __init__(self, config: TrainConfig, env: EnvSource | None):
        self._start_config, self._env, self._settings = config, env, config.runtime
        self._timeout = config.runtime.actor_timeout
        self._posts = [RayPost() for _ in range(config.runtime.actors)]
        self._config: TrainConfig | None = None
        self._greeting: Greeting | None = None
        self._published: Sequence[np.ndarray] = ()
        self._put: tuple[Sequence[np.ndarray], Any] = ((), None)  # the weights that are in the object store
        self._suspects: dict[str, float] = {}  # machines that are silent or have a silent actor, and until when
        self._vital: dict[str, str] = {}  # what must answer, and where
        self._probed_at, self._waits_for_room, self._is_lost = 0.0, False, False
        self._remote: Any = ray.remote(RayActor)
        self._stack = contextlib.ExitStack()  # what ends with the fleet
        self._folder: str | None = None  # of a cluster that is started here
        self.notes: list[str] = []

    def start(self) -> Greeting:
        self._connect()
        self._check_cpus()
        self._check_travels()
        for index in range(len(self._posts)):
            self._start(index)
        deadline = time.monotonic() + CONSTRUCTOR_PATIENCE * self._timeout
        greetings = [self._first_greeting(index, deadline) for index in range(len(self._posts))]
        self._greeting = greetings[0]
        return self._greeting

    def equip(self, config: TrainConfig, state: Sequence[np.ndarray]) -> None:
        self._config = config
        self._check_store(config, sum(array.nbytes for array in state))
        for post in self._posts:
            self._equip(post)

    def publish(self, state: Sequence[np.ndarray]) -> None:
        self._published = state

    def grant(self, ticket: Ticket) -> None:
        post = self._posts[ticket.actor]
        post.order(post.handle.collect.remote(ticket, self._weights()), self._timeout)

    def poll(self, seconds: float) -> list[Delivery | ActorFailure]:
        self._check_head()
        due = {ref: index for index, post in enumerate(self._posts) for ref in (post.made, *post.works) if ref}
        started = time.monotonic()
        ready, _ = ray.wait(list(due), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = ray.wait(list(due), num_returns=len(due), timeout=0)
        give_back(self._posts, time.monotonic() - started - seconds)
        events: list[Delivery | ActorFailure] = []
        for ref in sorted(ready, key=due.__getitem__):
            if (event := self._read(due[ref], ref)) is not None:
                events.append(event)
        events += self._late()  # also while others deliver
        return events

    def replace(self, actor: int) -> None:
        self._put_down(self._posts[actor])
        self._start(actor)
        self._equip(self._posts[actor])

    def alive(self) -> int:
        return sum(post.has_envs for post in self._posts)

    def close(self) -> None:
        """End all actors, and the cluster if it was started for them. Works on a half-started fleet too."""
        if self._vital and not self._is_lost:
            handles = [post.handle for post in self._posts if post.handle is not None]
            with contextlib.suppress(RayError, ValueError):
                closing = [handle.close.remote() for handle in handles]
                if closing:
                    ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
                for handle in handles:
                    ray.kill(handle)
        self._posts, self._vital, self._put = [], {}, ((), None)
        self._stack.close()

    # The cluster.

    def _connect(self) -> None:
        """Join the cluster that the settings name, or start one."""
        address = self._settings.address
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            folder = self._stack.enter_context(session_folder())
            self._folder = folder
            options |= {"num_cpus": len(self._posts), "num_gpus": 0, "object_store_memory": object_store_size()}
            options |= {"include_dashboard": False, "_temp_dir": folder}
        elif address != "auto" and not is_ray_head(address):
            raise ConfigError(f"runtime.address: no Ray cluster answers at {address}", key="runtime.address")
        if not ray.is_initialized():  # else by the program that uses this library: it is left as it is
            self._stack.callback(self._leave)
            self._join(address, options)
        here = ray.get_runtime_context()
        node = self._nodes()[here.get_node_id()]
        raylet = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        self._vital = {"the head of the Ray cluster": here.gcs_address, "Ray on this machine": raylet}

    def _join(self, address: str | None, options: dict[str, Any]) -> None:
        with kept_handlers():
            try:
                ray.init(address or "local", **options)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError, RayError) as error:
                joined = f"no Ray cluster can be joined at {address}" if address else "no Ray cluster can be started"
                raise ConfigError(
                    f"runtime.address: {joined}: {one_line(reason(error))}", key="runtime.address"
                ) from None
        if address is None and "RAY_AUTH_MODE" not in os.environ:
            raise ConfigError(
                "runtime.backend: set RAY_AUTH_MODE=token before ray is imported, or leave that to the run"
            )

    def _leave(self) -> None:
        """End the cluster, or the connection to one that was joined. Without its head, Ray may take a minute for that:
        then nobody waits for it, here or at the end of the process."""
        if not self._is_lost:
            ray.shutdown()
        elif not ends_within(LEAVE_SECONDS, ray.shutdown):
            atexit.unregister(ray.shutdown)
            if self._folder is not None:
                end_services(self._folder)

    def _check_travels(self) -> None:
        """ConfigError if the env cannot be pickled. Ray would say it at length."""
        try:
            _ray.cloudpickle.dumps((self._env, Luggage.of(self._start_config)))
        except Exception as error:
            raise ConfigError(
                f"env: it cannot be sent to the actors of a Ray cluster ({describe_error(error)}): pass an env id, or "
                "a function that makes everything it needs inside"
            ) from None

    def _check_head(self, *, now: bool = False) -> None:
        """FleetLost if the cluster has lost its head, or this machine its part. Ray would end this process, or wait."""
        if not now and time.monotonic() - self._probed_at < PROBE_SECONDS:
            return
        for what, where in self._vital.items():
            attempts = PROBES
            while not answers(where, ANSWER_SECONDS):
                attempts -= 1
                if attempts == 0:
                    self._is_lost = True
                    raise FleetLost(f"{what} ({where}) is gone")
                time.sleep(PROBE_SECONDS)
        self._probed_at = time.monotonic()

    def _nodes(self) -> dict[str, dict[str, Any]]:
        """The machines of the cluster by their id. Without a head, Ray would look for it for a minute."""
        self._check_head(now=True)
        return {node["NodeID"]: node for node in _ray.nodes() if node["Alive"]}

    def _is_there(self, name: str) -> bool:
        """Whether Ray runs on a machine. The cluster notices the end of a machine later than that of an actor."""
        node = self._nodes().get(name)
        return node is not None and answers(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", ANSWER_SECONDS)

    def _room(self, node: dict[str, Any]) -> int:
        """The actors that a machine has CPUs for."""
        return int(node["Resources"].get("CPU", 0) / (self._settings.cpus_per_actor or 1))

    def _check_cpus(self) -> None:
        room, actors = sum(map(self._room, self._nodes().values())), len(self._posts)
        if room < actors:
            raise ConfigError(
                f"runtime.actors: the Ray cluster has CPUs for {room} actors with cpus_per_actor="
                f"{self._settings.cpus_per_actor or 1:g}, not for {actors}: use fewer, lower it or add nodes",
                key="runtime.actors",
            )

    def _check_store(self, config: TrainConfig, weights: int) -> None:
        """A rollout is in the store of its actor's machine and in that of the learner's. Small objects are in none."""
        assert self._greeting is not None
        rows = config.num_envs
        if isinstance(config.algo_kwargs, RolloutConfig):
            rows *= config.algo_kwargs.num_steps
        needed = 2 * (rows * self._greeting.spaces.row_bytes + weights)
        sizes = [int(node["Resources"].get("object_store_memory", 0)) for node in self._nodes().values()]
        check_store(needed, min(sizes), joined=self._settings.address is not None)

    # The actors.

    def _start(self, index: int) -> None:
        node = self._place()
        options: dict[str, Any] = {
            "num_cpus": self._settings.cpus_per_actor or 1,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "DEFAULT" if node is None else NodeAffinitySchedulingStrategy(node, soft=True),
        }
        luggage = Luggage.of(self._start_config)
        handle = self._remote.options(**options).remote(self._start_config, self._env, index, luggage)
        self._posts[index] = RayPost(handle=handle, made=handle.make.remote(), node=node)

    def _equip(self, post: RayPost) -> None:
        assert self._config is not None
        post.compile_seconds = compile_seconds(self._config)
        post.handle.equip.remote(self._config)

    def _place(self) -> str | None:
        """Anywhere (None), unless a machine is a suspect: then the one with the most room of the others, if any has."""
        now = time.monotonic()
        self._suspects = {node: until for node, until in self._suspects.items() if until > now}
        if not self._suspects:
            return None
        taken = Counter(post.node for post in self._posts if post.handle is not None)
        room = {name: self._room(node) - taken[name] for name, node in self._nodes().items()}
        others = [name for name in room if name not in self._suspects and room[name] > 0]
        return max(others, key=room.__getitem__, default=None)

    def _weights(self) -> Any:
        """The published weights as they are now, or where they are in the object store."""
        if sum(array.nbytes for array in self._published) <= INLINE_BYTES:
            return self._published
        known, ref = self._put
        if len(known) != len(self._published) or not all(map(np.array_equal, known, self._published)):
            known = [array.copy() for array in self._published]
            ref = ray.put(known)
            self._put = known, ref
        return ref

    def _first_greeting(self, index: int, deadline: float) -> Greeting:
        """Wait for the first word of an actor. What its env raised in the making is raised here."""
        post = self._posts[index]
        ready, _ = ray.wait([post.made], timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise EnvError(
                f"actor {index} did not make its envs within {CONSTRUCTOR_PATIENCE * self._timeout:g} s: set "
                "runtime.actor_timeout higher, or free CPUs of the Ray cluster"
            )
        try:
            answer = ray.get(post.made, timeout=GET_SECONDS)
        except (RayError, ImportError, AttributeError) as error:
            raise EnvError(
                f"actor {index} could not start: {cause_of(error)}; every machine needs rl_training {__version__} with "
                "the extra ray, and the packages of the env"
            ) from None
        if isinstance(answer, bytes):
            raise unpack(answer[HEADER.size :])
        greeting, post.node, version = answer
        if version != __version__:
            raise ConfigError(
                f"runtime.address: a machine of the cluster has rl_training {version}, this one {__version__}: install "
                "the same version on all",
                key="runtime.address",
            )
        post.made = None
        post.answered(self._timeout)
        assert isinstance(greeting, Greeting)
        return greeting

    def _read(self, index: int, ref: Any) -> Delivery | ActorFailure | None:
        """What an actor has answered. None for a greeting, and for an answer after the end of its actor."""
        post = self._posts[index]
        made = post.made
        if ref not in (made, *post.works):
            return None
        try:
            answer = ray.get(ref, timeout=GET_SECONDS)
        except RayError as error:
            if post.node is not None and not self._is_there(post.node):
                self._suspects[post.node] = time.monotonic() + SUSPECT_SECONDS
            self._put_down(post)
            return ActorFailure(index, cause_of(error))
        if ref == made:
            if isinstance(answer, bytes):
                self._put_down(post)
                return ActorFailure(index, f"its env could not be made again: {unpack(answer[HEADER.size :])}")
            post.made, post.node = None, answer[1]
            post.answered(self._timeout)
            return None
        post.answered(self._timeout, ref)
        if isinstance(answer, Delivery):
            return copy.deepcopy(answer)  # what Ray hands out lies in the object store, and cannot be written to
        self._put_down(post)
        return answer if isinstance(answer, ActorFailure) else None

    def _late(self) -> Iterator[ActorFailure]:
        """The actors that are silent beyond their deadline."""
        for index, post in enumerate(self._posts):
            if not post.is_late():
                continue
            if post.made is not None and self._lacks_room():
                post.deadline = time.monotonic() + self._timeout
                continue
            if post.node is not None:
                self._suspects[post.node] = time.monotonic() + SUSPECT_SECONDS
            self._put_down(post)
            yield silence(index, self._timeout)

    def _lacks_room(self) -> bool:
        """Whether an actor waits for CPUs because machines are gone. That is told once."""
        room = sum(map(self._room, self._nodes().values()))
        lacks = room < len(self._posts)
        if lacks and not self._waits_for_room:
            self.notes.append(f"the Ray cluster has CPUs for {room} of {len(self._posts)} actors: the others wait")
        self._waits_for_room = lacks
        return lacks

    def _put_down(self, post: RayPost) -> None:
        """End the process of a post. One on a frozen machine ends when it can; nobody listens to it any more."""
        if post.handle is not None:
            with contextlib.suppress(RayError, ValueError):
                ray.kill(post.handle)
        post.handle = post.made = None
        post.works, post.deadline, post.has_envs = [], float("inf"), False
