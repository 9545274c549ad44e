"""Actors on Ray that are killed, freeze, raise or bring nonsense, and a run that is stopped: nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import tiny_config, wait_for, write_config
from faulty_envs import FaultyEnv
from fleet_helpers import run
from ray_processes import ACTOR, ray_processes
from rl_training import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.processes.process_tree import descendants
from rl_training.errors import ConfigError, EnvError, NumericalError
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.fleet_protocol import FleetLost
from rl_training.runtime.fleet.post import COMPILE_SECONDS
from rl_training.runtime.fleet.tickets import Ticket
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import load_checkpoint
from rl_training.telemetry.recorder import read_metrics
from run_cases import CASES, TwoKnobs, assert_same_run, stop_at
from spawning_env import wait_until_gone

pytestmark = pytest.mark.xdist_group("ray")  # they share a cluster


def config_of(address: str, folder: Path, mode: str = "async", **changes: Any) -> TrainConfig:
    runtime = {"actors": 2, "backend": "ray", "mode": mode, "address": address, "cpus_per_actor": 0.5}
    base = {
        "algo": "impala",
        "env_id": "CartPole-v1",
        "num_envs": 4,
        "total_timesteps": 400,
        "checkpoint_every": 0,
        "eval_episodes": 1,
        "log_every": 20,
        "output_dir": str(folder),
        "run_name": "run",
        "runtime": {**runtime, "actor_timeout": 300},
        "model": {"hidden_sizes": [8]},
        "algo_kwargs": {"num_steps": 10},
    }
    return load_config({**base, **changes})


def test_a_killed_and_a_frozen_actor_are_replaced_and_the_account_is_exact(ray_address: str, tmp_path: Path) -> None:
    from rl_training.runtime.fleet.ray_actors import RayFleet

    endless = config_of(ray_address, tmp_path, total_timesteps=10_000_000)
    with open_loop(endless, None, None, StopSignals()) as loop:
        crew = loop.collector
        assert isinstance(crew, ActorCollector) and isinstance(crew.fleet, RayFleet)
        known = set(ray_processes(ACTOR))
        stopped: list[int] = []
        for number, progress in enumerate(loop):
            counts = crew.ledger.counts()
            assert counts["env_steps_learned"] + counts["env_steps_stale"] == progress.env_steps
            assert counts["env_steps_granted"] == sum(
                counts[f"env_steps_{name}"] for name in ("learned", "stale", "lost", "in_flight")
            )
            if number == 2:
                os.kill(min(known), signal.SIGKILL)
            if not stopped and crew.restarts == 1 and crew.fleet.alive() == 2:
                stopped = [max(set(ray_processes(ACTOR)) & known)]
                os.kill(stopped[0], signal.SIGSTOP)
                crew.fleet._timeout = 15.0  # only now: actors of a busy machine start slowly
                for post in crew.fleet._posts:
                    post.deadline -= 300 - 15
            known |= set(ray_processes(ACTOR)) if number % 100 == 0 else set()
            if crew.restarts == 2 and crew.fleet.alive() == 2:
                break
        assert crew.ledger.lost > 0 and len(crew.notes) == 2
        assert crew.notes[0].endswith("its process ended; its envs start new episodes")
        assert "it gave no answer within 15 s (runtime.actor_timeout) and was killed" in crew.notes[1]
        known |= set(ray_processes(ACTOR))
    wait_until_gone([*known])


def test_an_env_that_raises_costs_its_actor_and_leaves_a_crash_file(ray_address: str, tmp_path: Path) -> None:
    times = tmp_path / "times"
    times.write_bytes(b"x")

    def make() -> FaultyEnv:  # a closure: it travels by value
        return FaultyEnv("raise", which=-1, times=str(times))

    result = train(config_of(ray_address, tmp_path, env_id="callable:make"), env=make, show=False)
    assert result.env_steps == 400
    (path,) = (tmp_path / "run" / "crash").iterdir()
    assert "the wheel came off" in json.loads(path.read_text())["reason"]
    last = [line for line in read_metrics(tmp_path / "run") if line["kind"] == "train"][-1]
    assert last["actor_restarts"] == last["env_restarts"] == 1 and last["actors_alive"] == 2


class NoNumber(TwoKnobs):
    """Its reward is not a number in the third step of an episode."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if self.elapsed == 3 else reward, *rest


def test_a_number_that_is_not_finite_ends_the_run_and_names_the_env(ray_address: str, tmp_path: Path) -> None:
    config = config_of(ray_address, tmp_path, env_id="callable:NoNumber", vector_backend="sync")
    with pytest.raises(NumericalError, match=r"env [0-3] returned a reward that is not finite") as end:
        train(config, env=NoNumber, show=False)
    assert end.value.exit_code == 4


def test_what_cannot_run_on_the_cluster_is_refused_before_a_run_directory_exists(
    ray_address: str, tmp_path: Path
) -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"env: it cannot be sent to the actors of a Ray cluster .*lock"):
        train(config_of(ray_address, tmp_path, env_id="callable:x"), env=lambda: (lock, TwoKnobs())[1], show=False)
    runtime = {"actors": 4, "backend": "ray", "address": ray_address}
    with pytest.raises(ConfigError, match=r"runtime.actors: the Ray cluster has CPUs for 2 actors .* not for 4"):
        train(config_of(ray_address, tmp_path, runtime=runtime), show=False)
    large = config_of(ray_address, tmp_path, algo_kwargs={"num_steps": 1_000_000}, total_timesteps=10_000_000)
    with pytest.raises(ConfigError, match=r"need \d+ MB of Ray's object store, which has 84 MB: .*object-store-memory"):
        train(large, show=False)
    assert not list(tmp_path.iterdir())


def test_a_run_moves_from_ray_to_one_process_to_processes_without_a_change_in_a_bit(
    ray_address: str, tmp_path: Path
) -> None:
    case = CASES["appo, box, target policy"]
    whole = run(case, tmp_path / "whole", actors=2, backend="inline", mode="pipelined")
    place = {"backend": "ray", "address": ray_address, "cpus_per_actor": 0.5}
    part = run(case, tmp_path / "parts", stop_at(case.steps // 4), actors=2, mode="pipelined", **place)
    assert load_checkpoint(part.checkpoint).exact
    here = {"runtime.address": None, "runtime.cpus_per_actor": None}
    inline = {"runtime.backend": "inline", **here}
    part = resume(part.run_dir, overrides=inline, callback=stop_at(case.steps // 2), show=False)
    last = resume(part.run_dir, overrides={"runtime.backend": "process"}, show=False)
    assert_same_run(whole.run_dir, last.run_dir)


def test_ctrl_c_ends_a_run_and_the_cluster_that_it_has_started(tmp_path: Path) -> None:
    """All of its processes get the signal, as from a terminal. The learner alone answers: it saves."""
    config = tiny_config("impala", num_envs=2, runtime={"backend": "ray"}, total_timesteps=10_000_000)
    path = write_config(tmp_path / "config.yaml", {**config, "log_every": 64, "checkpoint_every": 0})
    scratch = Path(tempfile.mkdtemp(dir="/tmp"))  # a short path: there are sockets in it
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(scratch)}
    for name in [name for name in environment if name.startswith("RAY_")]:
        del environment[name]
    words = [sys.executable, "-m", "rl_training", "train", str(path), "--output-dir", str(tmp_path), "--quiet"]
    with subprocess.Popen(words, env=environment, start_new_session=True, text=True, stderr=subprocess.PIPE) as process:
        wait_for(lambda: any("train" in each.read_text() for each in tmp_path.glob("*/metrics.jsonl")), process, 300)
        below = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        _, text = process.communicate(timeout=300)
    assert process.returncode == 75, text
    wait_until_gone(below)
    scratch.rmdir()  # nothing is in it
    assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600


def test_an_env_that_cannot_be_made_on_the_cluster_says_why(ray_address: str, tmp_path: Path) -> None:
    def make() -> TwoKnobs:
        raise OSError("no such level")

    with pytest.raises(EnvError, match="cannot be made: OSError: no such level"):
        train(config_of(ray_address, tmp_path, env_id="callable:make"), env=make, show=False)
    assert not list(tmp_path.iterdir())


class Handle:
    """In place of an actor's handle: it takes orders, and answers to them are never ready."""

    def __init__(self) -> None:
        self.collect = self.equip = self

    def remote(self, *order: Any) -> object:
        return object()


def idle_fleet(address: str, folder: Path) -> Any:
    """A fleet that has joined no cluster, with two actors that do nothing."""
    from rl_training.runtime.fleet.ray_actors import RayFleet, RayPost

    fleet = RayFleet(config_of(address, folder), None)
    fleet._posts = [RayPost(handle=Handle(), node=name) for name in "ab"]
    return fleet


def test_an_actor_that_does_not_answer_gets_no_new_time_with_the_tickets_that_follow_checkpoints(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_training.runtime.fleet import ray_actors

    fleet = idle_fleet(ray_address, tmp_path)
    post = fleet._posts[0]
    post.has_envs = True  # the first answer of an actor has more time, in which it makes its envs
    deadlines = []
    for number in range(3):
        fleet.grant(Ticket(number, 0, 0, 0, 0, 10))
        deadlines.append(post.deadline)
    first = deadlines[0]
    assert deadlines == [first] * 3 and first < float("inf")
    monkeypatch.setattr(ray_actors.ray, "get", lambda ref, timeout: Delivery(0, 0, 0, 0, None, [], {}))
    answers = list(post.works)
    fleet._read(0, answers[0])
    assert first < post.deadline < float("inf")  # of the second answer
    for answer in answers[1:]:
        fleet._read(0, answer)
    assert post.deadline == float("inf")


def test_an_actor_that_compiles_has_more_time_for_its_first_delivery(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replacement has it again."""
    from rl_training.runtime.fleet.ray_actors import RayPost

    fleet = idle_fleet(ray_address, tmp_path)
    fleet._posts = fleet._posts[:1]
    monkeypatch.setattr(fleet, "_check_store", lambda config, weights: None)
    monkeypatch.setattr(fleet, "_put_down", lambda post: None)
    monkeypatch.setattr(fleet, "_start", lambda index: fleet._posts.__setitem__(index, RayPost(handle=Handle())))
    alone = {"actors": 1, "backend": "ray", "mode": "lockstep", "address": ray_address}
    compiled = {"algo": "a2c", "compile": "on", "vector_backend": "batched", "device": "cpu"}
    for backend, seconds in (("batched", COMPILE_SECONDS), ("sync", 0.0)):
        fleet.equip(config_of(ray_address, tmp_path, **compiled | {"runtime": alone, "vector_backend": backend}), ())
        assert fleet._posts[0].compile_seconds == seconds
        fleet._posts[0].compile_seconds = 0.0
        fleet.replace(0)
        assert fleet._posts[0].compile_seconds == seconds


def test_replacements_go_to_the_machines_that_answer_and_have_room(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray takes a machine that is frozen or was just killed for a good one."""
    from rl_training.runtime.fleet import ray_actors

    fleet = idle_fleet(ray_address, tmp_path)
    place = {"NodeManagerAddress": "localhost", "NodeManagerPort": 1, "Resources": {"CPU": 0.5}}
    monkeypatch.setattr(fleet, "_nodes", lambda: dict.fromkeys("abcd", place))

    def raise_error(ref: Any, timeout: float) -> None:
        raise ray_actors.RayError("the actor is dead")

    monkeypatch.setattr(ray_actors.ray, "get", raise_error)
    monkeypatch.setattr(ray_actors.ray, "kill", lambda handle: None)
    for index in (0, 1):
        fleet.grant(Ticket(index, index, 0, 0, 0, 10))
        assert isinstance(fleet._read(index, fleet._posts[index].works[0]), ActorFailure)
    assert set(fleet._suspects) == {"a", "b"}  # nothing listens at their port
    for post in fleet._posts:
        post.handle, post.node = Handle(), fleet._place()
    assert {post.node for post in fleet._posts} == {"c", "d"}
    assert fleet._place() is None  # no room but on the suspects


def test_a_lost_cluster_is_left_in_time_although_ray_does_not_end(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_training.runtime.fleet import ray_actors

    fleet, hangs, forgotten = idle_fleet(ray_address, tmp_path), threading.Event(), []
    monkeypatch.setattr(ray_actors, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(ray_actors.ray, "shutdown", hangs.wait)
    monkeypatch.setattr(ray_actors.atexit, "unregister", forgotten.append)
    monkeypatch.setattr(ray_actors, "PROBE_SECONDS", 0.0)
    fleet._stack.callback(fleet._leave)
    fleet._vital = {"the head": "localhost:1"}
    with pytest.raises(FleetLost, match=r"the head \(localhost:1\) is gone"):
        fleet._nodes()
    fleet.close()
    assert forgotten == [hangs.wait]  # the end of this process does not wait for it either
    hangs.set()
