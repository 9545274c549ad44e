"""What is refused, kept private and checked before a Ray cluster is joined or started. No cluster is needed for it."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from rl_training import load_config
from rl_training.envs.processes.process_tree import descendants
from rl_training.errors import ConfigError
from rl_training.runtime.fleet import ray_setup
from rl_training.runtime.fleet.ray_setup import (
    answers,
    check_store,
    end_services,
    ends_within,
    is_ray_head,
    keep_private,
    object_store_size,
    session_folder,
)
from rl_training.runtime.workflows import train
from spawning_env import wait_until_gone
from waiting import wait_until

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        ({"address": "auto"}, "runtime.address: only runtime.backend ray joins a cluster, this run has auto; set"),
        ({"address": "auto", "backend": "process"}, "runtime.address: only runtime.backend ray joins a cluster"),
        ({"address": "here", "backend": "ray"}, "runtime.address: 'here' is not valid, use auto or host:port of the"),
        ({"address": "ray://a:10001", "backend": "ray"}, "runtime.address: 'ray://a:10001' is not valid, use auto"),
        ({"cpus_per_actor": 2}, "runtime.cpus_per_actor: only a cluster that is joined shares out its CPUs"),
        ({"cpus_per_actor": 2, "backend": "ray"}, "runtime.cpus_per_actor: only a cluster that is joined"),
        ({"cpus_per_actor": 0, "backend": "ray", "address": "auto"}, "runtime.cpus_per_actor: 0"),
    ],
)
def test_settings_of_a_cluster_that_would_do_nothing_are_refused(runtime: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("impala/cartpole", {f"runtime.{name}": value for name, value in runtime.items()})
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)


@pytest.mark.parametrize("address", ["auto", "10.0.0.7:6379", "head.example.org:6379", "[fe80::1]:6379"])
def test_addresses_of_a_cluster(address: str) -> None:
    config = load_config("impala/cartpole", {"runtime.backend": "ray", "runtime.address": address})
    settings = config.runtime.resolved("impala")
    assert (settings.backend, settings.mode, settings.address) == ("ray", "pipelined", address)


def test_without_ray_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "rl_training.runtime.fleet.ray_actors", raising=False)
    config = load_config("impala/cartpole", {"runtime.backend": "ray", "output_dir": str(tmp_path / "runs")})
    with pytest.raises(ConfigError, match=r"runtime.backend: ray is not installed: install the extra .*\[ray\]"):
        train(config, show=False)
    assert not (tmp_path / "runs").exists()


def test_a_run_without_ray_does_not_import_it(tmp_path: Path) -> None:
    code = (
        "import sys, rl_training.cli, rl_training.runtime.fleet.fleet_setup as setup; from rl_training import IMPALA\n"
        f"IMPALA('CartPole-v1', num_envs=2, runtime={{'actors': 2}}, output_dir={str(tmp_path)!r}).learn(64)\n"
        "sys.exit(any(name.partition('.')[0] == 'ray' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 0


def test_a_token_is_made_for_its_owner_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".ray" / "auth_token"
    keep_private(joins=True)
    assert not path.exists() and "RAY_AUTH_MODE" not in os.environ  # a cluster that is joined has its own
    keep_private(joins=False)
    assert os.environ["RAY_AUTH_MODE"] == "token" and os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    token = path.read_text()
    assert len(token) >= 32 and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    keep_private(joins=True)
    assert path.read_text() == token and stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "config" / "token"))
    (tmp_path / "config").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match=r"the token of the Ray cluster cannot be kept in .* set RAY_AUTH_TOKEN_PATH"):
        keep_private(joins=False)


def test_shared_memory_that_is_too_small_is_refused_with_the_size_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_setup, "available_bytes", lambda: 10**12)
    for free, size in ((10**12, ray_setup.LARGEST_STORE), (10**9, 8 * 10**8)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: Usage(free, 0, free))
        assert object_store_size() == size
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**26, 0, 2**26))
    with pytest.raises(ConfigError, match=r"needs at least 105 MB of shared memory, /dev/shm has 67 MB free"):
        object_store_size()


@pytest.mark.parametrize("joined", [False, True])
def test_rollouts_that_do_not_fit_into_the_object_store_are_refused(joined: bool) -> None:
    check_store(100, 100, joined=joined)
    with pytest.raises(ConfigError, match=r"need 3.0 GB of Ray's object store, which has 80 MB: .*=3000000000") as end:
        check_store(3 * 10**9, 80 * 10**6, joined=joined)
    assert ("runtime.address=auto" in str(end.value)) is not joined


def test_a_head_answers_while_its_port_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert answers(address, 5.0)
    assert not answers(address, 5.0)
    assert not answers("127.0.0.1:99999", 5.0)


@pytest.mark.parametrize(
    ("answer", "is_head"),
    [
        (ray_setup.EMPTY_SETTINGS, True),
        (b"\x00\x00\x06\x04\x00" + bytes(10), True),
        (b"", False),
        (b"HTTP/1.1 400", False),
    ],
)
def test_a_service_that_does_not_speak_the_language_of_ray_is_no_head(answer: bytes, is_head: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert is_ray_head(f"127.0.0.1:{server.getsockname()[1]}", 60.0) is is_head
        thread.join()


def test_a_service_that_says_nothing_is_no_head_after_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_ray_head(f"127.0.0.1:{server.getsockname()[1]}", 0.2)
    assert not is_ray_head("127.0.0.1:99999", 5.0)


ORPHANS = """
import subprocess, sys
with open(sys.argv[1] + "/log", "w") as log:
    print(subprocess.Popen(["sleep", "1000"], stdout=log, start_new_session=True).pid)
"""


def test_what_is_left_of_a_cluster_ends_with_its_folder() -> None:
    """A process that writes there and has no parent. One of this program that does so is let alone."""
    with session_folder() as folder:
        made = subprocess.run([sys.executable, "-c", ORPHANS, folder], stdout=subprocess.PIPE, text=True)
        with open(f"{folder}/other", "w") as log:
            own = subprocess.Popen(["sleep", "1000"], stdout=log)
    assert not Path(folder).exists()
    wait_until_gone([int(made.stdout)])
    assert own.poll() is None
    own.kill()
    own.wait()


def test_a_cluster_that_does_not_answer_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    changes = {"runtime.backend": "ray", "runtime.address": address, "output_dir": str(tmp_path / "runs")}
    with pytest.raises(ConfigError, match=f"runtime.address: no Ray cluster answers at {address}"):
        train(load_config("impala/cartpole", changes), show=False)
    assert not (tmp_path / "runs").exists()


def test_a_call_that_does_not_end_is_not_waited_for() -> None:
    hangs = threading.Event()
    assert ends_within(60.0, lambda: None)
    assert not ends_within(0.05, hangs.wait)
    hangs.set()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_the_services_of_a_lost_cluster_end_with_what_they_have_started_and_the_folder_goes() -> None:
    program = (
        "import subprocess, sys, time\nif len(sys.argv) > 1: subprocess.Popen([sys.executable, '-c', sys.argv[2]])"
    )
    sleep = "import time; time.sleep(1000)"
    with session_folder() as folder:
        words = [sys.executable, "-c", f"{program}\n{sleep}", f"--session-dir={folder}/session_1", sleep]
        with subprocess.Popen(words) as service:
            wait_until(lambda: len(descendants(service.pid)) == 1)
            processes = [service.pid, *descendants(service.pid)]
            end_services(folder)
        wait_until_gone(processes)
    assert not Path(folder).exists()  # what removes it is none of the services


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_an_actor_ends_with_the_process_that_has_started_it_although_nobody_ends_it() -> None:
    actor = """
import os, time
from rl_training import load_config
from rl_training.runtime.fleet.remote_actor import Luggage, RemoteActor
config = load_config("impala/cartpole")
RemoteActor(config, None, 0, Luggage.of(config))
print(os.getpid(), flush=True)
time.sleep(1000)
"""
    start = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen([sys.executable, "-c", start, actor], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        process = int(starter.stdout.readline())
        starter.kill()
    wait_until_gone([process])
