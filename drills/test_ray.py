"""Items 5, 6 and 12 on a Ray cluster: machines that are killed or freeze, a head that is gone, and what is open."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import wait_for
from figures import record_figure
from ray_processes import ACTOR, GCS, RAYLET, ray_processes
from rl_training.envs.processes.process_tree import descendants
from rl_training.runtime.fleet.ray_setup import SMALLEST_STORE, keep_private
from spawning_env import is_running
from test_actors import MINUTES, endless_run, left_after, train_lines, wrong_lines
from test_network import sockets_off_loopback

pytestmark = pytest.mark.xdist_group("ray")
RAY_TIMEOUT = 15.0  # actors on Ray start more slowly than processes, and they have five times as long for that


@contextlib.contextmanager
def three_machines() -> Iterator[tuple[str, list[int]]]:
    """A cluster of three nodes with two CPUs each: the address of its head, and the raylets of the two others."""
    before = dict(os.environ)
    keep_private(joins=False)
    pytest.importorskip("ray", reason="the extra ray is not installed")
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        Path(folder, "ray").mkdir()
        options: dict[str, Any] = {"num_cpus": 2, "object_store_memory": SMALLEST_STORE, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=options)
        try:
            head = set(ray_processes(RAYLET))
            for _ in range(2):
                cluster.add_node(num_cpus=2, object_store_memory=SMALLEST_STORE)
            yield cluster.address, [each for each in ray_processes(RAYLET) if each not in head]
        finally:
            for each in ray_processes(RAYLET):
                os.kill(each, signal.SIGCONT)
            cluster.shutdown()
            os.environ.clear()
            os.environ.update(before)


def newest(folder: Path) -> tuple[int, int]:
    line = train_lines(folder)[-1]
    return line["actor_restarts"], line["actors_alive"]


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_actors_of_a_lost_machine_are_replaced_on_the_others(how: str, tmp_path: Path) -> None:
    with (
        three_machines() as (address, others),
        endless_run(tmp_path, "async", "unlimited", "ray", address=address, actor_timeout=RAY_TIMEOUT) as run,
    ):
        machine = max(others, key=lambda raylet: len(ray_processes(ACTOR, raylet)))
        actors = ray_processes(ACTOR, machine)
        assert actors, "no actor is on a machine without the head"
        lost_at = time.monotonic()
        for process in [machine, *descendants(machine)] if how == "frozen" else [machine]:
            os.kill(process, signal.SIGSTOP if how == "frozen" else signal.SIGKILL)
        wait_for(lambda: newest(tmp_path)[0] >= len(actors), run, MINUTES)
        name = f"actors of a Ray node that is {how} are replaced after (deadline {RAY_TIMEOUT:.0f} s)"
        record_figure(6, name, time.monotonic() - lost_at, f"<= {RAY_TIMEOUT + 2:g} s")
        wait_for(lambda: newest(tmp_path)[1] == 4, run, MINUTES)
        if how == "frozen":
            for process in [*descendants(machine), machine]:
                os.kill(process, signal.SIGCONT)
        steps = train_lines(tmp_path)[-1]["env_steps"]
        wait_for(lambda: train_lines(tmp_path)[-1]["env_steps"] > steps + 20_000, run, MINUTES)
        run.send_signal(signal.SIGTERM)
        assert run.wait(MINUTES) == 75
        name = f"metric lines whose account does not add up, with a Ray node that is {how}"
        record_figure(6, name, wrong_lines(train_lines(tmp_path)), "= 0")
        assert not any(map(is_running, actors))


def test_kill_9_of_the_learner_leaves_nothing_of_the_cluster_that_it_started(tmp_path: Path) -> None:
    with endless_run(tmp_path, "pipelined", backend="ray", actor_timeout=60) as run:
        below = descendants(run.pid)
        assert len(ray_processes(ACTOR, run.pid)) == 4
        run.kill()
        run.wait()
        record_figure(6, "processes of Ray left 10 s after kill -9 of a learner", left_after(10.0, below), "= 0")


@pytest.mark.parametrize("service", [GCS, RAYLET])
def test_a_run_whose_head_is_gone_is_saved_and_can_be_resumed(service: str, tmp_path: Path) -> None:
    with endless_run(tmp_path, "pipelined", backend="ray", actor_timeout=60) as run:
        below = descendants(run.pid)
        (head,) = ray_processes(service, run.pid)
        lost_at = time.monotonic()
        os.kill(head, signal.SIGKILL)
        assert run.wait(MINUTES) == 75
        name = f"a run is saved and ends after the {service.rpartition('/')[2]} of its Ray head is killed, after"
        record_figure(5, name, time.monotonic() - lost_at, "<= 20 s")
        assert left_after(5.0, below) == 0
    steps = train_lines(tmp_path)[-1]["env_steps"] + 1000
    words = ["resume", "latest", "--output-dir", str(tmp_path / "runs"), "--total-timesteps", str(steps), "--quiet"]
    words += ["--set", "runtime.backend=inline"]
    assert subprocess.run([sys.executable, "-m", "rl_training", *words]).returncode == 0


def test_what_a_run_on_ray_opens(tmp_path: Path) -> None:
    """It is recorded, so that the manual can say what to close. Other backends open nothing: see test_network.py."""
    with endless_run(tmp_path, "pipelined", backend="ray", actor_timeout=60) as run:
        processes = [run.pid, *descendants(run.pid)]
        listening = {each for each in sockets_off_loopback(processes) if each.endswith(":0000")}
        assert listening
        record_figure(12, "ports that a run with 4 actors on a local Ray opens", len(listening), "<= 20")
        asked_at = time.monotonic()
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(MINUTES) == 75
        record_figure(5, "Ctrl-C in a run with 4 actors on Ray: time to exit", time.monotonic() - asked_at, "<= 10 s")
        assert left_after(5.0, processes) == 0


def test_a_stranger_without_the_token_is_refused(tmp_path: Path) -> None:
    with endless_run(tmp_path, "pipelined", backend="ray", actor_timeout=60) as run:
        (head,) = ray_processes(GCS, run.pid)
        words = Path(f"/proc/{head}/cmdline").read_bytes().decode().split("\0")
        port = next(word.partition("=")[2] for word in words if word.startswith("--gcs_server_port="))
        if port == "0":
            pytest.skip("this Ray does not say its port")
        code = f"import ray; ray.init('{socket.gethostbyname(socket.gethostname())}:{port}')"
        environment = {**os.environ, "HOME": str(tmp_path), "RAY_AUTH_TOKEN": "0" * 64, "RAY_AUTH_MODE": "token"}
        stranger = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert stranger.returncode != 0
        run.send_signal(signal.SIGTERM)
        assert run.wait(MINUTES) == 75
