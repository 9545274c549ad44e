"""Item 12: no default run opens a connection off this machine."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from cli_helpers import tiny_config, write_config
from figures import record_figure
from rl_training.experiment.registry import ALGORITHMS

# Python imports sitecustomize first in every process that inherits the path. Forked processes keep its hook.
WATCHER = """
import os, sys

NAMES = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")
LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "urllib.Request")

def is_local(socket, address):
    if int(socket.family) not in (2, 10):
        return True  # not an internet socket, but a pipe between processes
    return isinstance(address, tuple) and str(address[0]).startswith(("127.", "::1", "localhost"))

def hook(event, arguments):
    off = event in NAMES and not is_local(*arguments[:2]) or event in LOOKUPS and "localhost" not in repr(arguments)
    if off or event == "import" and arguments[0].partition(".")[0] in ("wandb", "sentry_sdk", "posthog"):
        with open(os.environ["NETWORK_LOG"], "a") as file:
            file.write(f"{event} {arguments!r:.200}\\n")

sys.addaudithook(hook)
"""

COMMANDS = """
import json, sys
from rl_training.cli import main

def run(*words):
    code = main([str(word) for word in words])
    assert code == 0, (words, code)

for config in sys.argv[1:]:
    runs = config + ".runs"
    run("train", config, "--output-dir", runs, "--json", "--quiet")
    settings = json.load(open(config))
    if settings["algo"] in ("ppo", "dqn"):
        longer = settings["total_timesteps"] + 64
        run("resume", "latest", "--output-dir", runs, "--total-timesteps", longer, "--quiet")
        run("eval", "latest", "--output-dir", runs, "--episodes", 1)
        run("predict", "latest", "--output-dir", runs, "--obs", "[0.0, 0.1, 0.0, -0.1]")
        run("play", "latest", "--output-dir", runs, "--gif", runs + "/play.gif")
        run("inspect", "latest", "--output-dir", runs)
        run("list", "runs", "--output-dir", runs)
        run("list", "algorithms")
"""


def children(process: int) -> list[int]:
    processes = [process]
    for parent in processes:
        try:
            text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        processes += [int(word) for word in text.split()]
    return processes


def sockets_off_loopback(processes: list[int]) -> set[str]:
    """The sockets that the kernel lists for these processes, including those opened outside of Python."""
    inodes = set()
    for process in processes:
        try:
            for entry in os.scandir(f"/proc/{process}/fd"):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            continue
    off = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes and not _is_loopback(words[1].partition(":")[0]):
                off.add(f"{table} {words[1]} {words[2]}")
    return off


def _is_loopback(address: str) -> bool:
    packed = b"".join(struct.pack("<I", int(address[i : i + 8], 16)) for i in range(0, len(address), 8))
    text = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    return text.startswith("127.") or text == "::1"


def watched(folder: Path, configs: list[Path]) -> tuple[set[str], int]:
    """Run the commands for each config; return what left loopback, and the largest number of processes at a time."""
    (folder / "sitecustomize.py").write_text(WATCHER)
    log = folder / "network.log"
    paths = [str(folder), *filter(None, sys.path)]
    environment = {**os.environ, "NETWORK_LOG": str(log), "PYTHONPATH": os.pathsep.join(paths)}
    sockets, most = set[str](), 0
    with (folder / "output").open("w") as output:
        command = [sys.executable, "-c", COMMANDS, *map(str, configs)]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        while process.poll() is None:
            tree = children(process.pid)
            most = max(most, len(tree))
            sockets |= sockets_off_loopback(tree)
            time.sleep(0.05)
    assert process.returncode == 0, (folder / "output").read_text()
    return sockets | set(log.read_text().splitlines() if log.exists() else ()), most


def is_finished(runs: Path) -> bool:
    (file,) = runs.glob("*/run.json")
    return bool(json.loads(file.read_text())["status"] == "finished")


def test_the_watchers_see_what_they_should(tmp_path: Path) -> None:
    """The hook and the kernel's table both show a socket that is bound to all interfaces."""
    (tmp_path / "sitecustomize.py").write_text(WATCHER)
    log = tmp_path / "network.log"
    code = "import socket, sys; s = socket.create_server(('0.0.0.0', 0)); print(flush=True); sys.stdin.read()"
    environment = {**os.environ, "NETWORK_LOG": str(log), "PYTHONPATH": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(sockets_off_loopback([process.pid])) == 1
        process.communicate(b"")
    assert "socket.bind" in log.read_text()


def test_no_default_run_of_any_algorithm_leaves_the_machine(tmp_path: Path) -> None:
    settings = {name: tiny_config(name, tensorboard=True) for name in ALGORITHMS}
    settings["workers"] = tiny_config("ppo", num_envs=2, vector_backend="async")
    settings["actors"] = tiny_config("impala", num_envs=4, runtime={"actors": 2})
    configs = [write_config(tmp_path / f"{name}.yaml", settings[name]) for name in settings]
    events, processes = watched(tmp_path, configs)
    assert processes >= 3, "the env workers were not watched"
    assert events == set()
    trained = sum(is_finished(tmp_path / f"{name}.yaml.runs") for name in ALGORITHMS)
    what = "algorithms trained, all there are; ppo and dqn resumed, evaluated, played and listed too"
    record_figure(12, what, trained, f"= {len(ALGORITHMS)}")
    record_figure(12, "sockets off loopback, names looked up, telemetry packages imported", len(events), "= 0")
