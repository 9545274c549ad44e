"""What a Ray cluster needs of this machine: room in shared memory, a token that only its owner can read, a head.

Nothing in here imports ray: its settings are read when it is imported, so they are made first.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rl_training.data.replay_memory import LARGEST_SHARE, available_bytes
from rl_training.envs.processes.process_tree import descendants, kill
from rl_training.errors import ConfigError
from rl_training.storage.real_files import open_own_descriptor
from rl_training.text import one_line, reason

SHARED_MEMORY = Path("/dev/shm")
SMALLEST_STORE, LARGEST_STORE = 80 * 2**20, 4 * 2**30  # Ray refuses less than 75 MiB; pages are taken as they are used
STORE_SHARE = 0.3  # of the memory that is free
LONGEST_FOLDER = 20  # the path of a socket may have 107 characters, of which Ray takes some 80
# Ends what has a file of the folder open and is not below the process that started the cluster.
SWEEPER = """
import glob, os, shutil, signal, sys, time
sys.stdin.read()
folder, owner = sys.argv[1] + "/", int(sys.argv[2])

def parent(process):
    with open(f"/proc/{process}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])

def is_left(process):
    opened = any(os.readlink(path).startswith(folder) for path in glob.glob(f"/proc/{process}/fd/*"))
    while opened and process > 1:
        if process == owner:
            return False
        process = parent(process)
    return opened

for turn in range(50):
    found = False
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            if is_left(int(name)):
                found = True
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass
    if not found and turn > 1:  # a file may have been closed while it was looked at
        break
    time.sleep(0.1)
shutil.rmtree(folder, ignore_errors=True)
"""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, section 3.4
EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame of length 0 and type 4 (sections 4.1 and 6.5)
HEAD_SECONDS = 5.0  # for an answer of a machine that is to be there


def keep_private(*, joins: bool) -> None:
    """Send no usage statistics, and protect the token of the cluster. One that is started here always has one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it, Ray warns about its next version
    os.environ.setdefault("RAY_worker_niceness", "0")  # not 15: actors have the priority of the learner
    if not joins and "ray" not in sys.modules:  # once it is imported, newer versions turn tokens on by themselves
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if "RAY_AUTH_TOKEN" in os.environ:
        return
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        if not joins and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # another run was faster
                descriptor = open_own_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.write(descriptor, secrets.token_hex(32).encode("ascii"))
                os.close(descriptor)
        if path.exists() and path.stat().st_mode & 0o077:  # Ray writes it for everybody to read
            path.chmod(0o600)
    except OSError as error:
        raise ConfigError(
            f"runtime.backend: the token of the Ray cluster cannot be kept in {path} ({reason(error)}): set "
            "RAY_AUTH_TOKEN_PATH to a file that you can write"
        ) from None


def object_store_size() -> int:
    """Bytes for the object store of a cluster on this machine. ConfigError if shared memory has no room for one."""
    available = available_bytes()
    size = LARGEST_STORE if available is None else min(LARGEST_STORE, int(STORE_SHARE * available))
    if SHARED_MEMORY.is_dir():
        free = shutil.disk_usage(SHARED_MEMORY).free
        size = min(size, int(LARGEST_SHARE * free))
        if size < SMALLEST_STORE:
            raise ConfigError(
                f"runtime.backend: Ray's object store needs at least {_size(SMALLEST_STORE / LARGEST_SHARE)} of shared "
                f"memory, {SHARED_MEMORY} has {_size(free)} free: make it larger (docker run --shm-size) or use "
                "backend process",
                key="runtime.backend",
            )
    return max(size, SMALLEST_STORE)


@contextlib.contextmanager
def session_folder() -> Iterator[str]:
    """A new folder for the logs and sockets of a cluster, with a path that leaves room for the names of sockets.

    A small process waits until this one leaves the context or ends, however it ends. Then it kills what is left of the
    cluster, which is found by the logs that it writes to the folder, and removes the folder. Ray itself forgets some of
    its processes if its head or its learner is killed.
    """
    usual = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="rl-ray-", dir=usual if len(usual) <= LONGEST_FOLDER else "/tmp")
    command = [sys.executable, "-I", "-S", "-c", SWEEPER, folder, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):  # waits for its end
        yield folder


def check_store(needed: int, size: int, *, joined: bool) -> None:
    """ConfigError if the rollouts and weights that are under way at once do not fit into the object store."""
    if needed <= size:
        return
    larger = f"ray start --object-store-memory={needed}"
    way_out = f"start the cluster with {larger}" if joined else f"{larger} --head, then set runtime.address=auto"
    raise ConfigError(
        f"runtime.backend: rollouts and weights under way need {_size(needed)} of Ray's object store, which has "
        f"{_size(size)}: lower num_steps or num_envs, or {way_out}",
        key="runtime.backend",
    )


def answers(address: str, seconds: float = HEAD_SECONDS) -> bool:
    """Whether something accepts connections at host:port. A process that is frozen does, too."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def is_ray_head(address: str, seconds: float = HEAD_SECONDS) -> bool:
    """Whether a service like Ray's is at host:port: it speaks gRPC, so it answers HTTP/2 with settings of its own.

    Ray itself waits for minutes for a service that accepts connections and says nothing it knows.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as connection:
            connection.settimeout(seconds)
            connection.sendall(HTTP2_PREFACE + EMPTY_SETTINGS)
            answer = connection.recv(len(EMPTY_SETTINGS))
    except (OSError, ValueError, OverflowError):
        return False
    return answer[3:4] == EMPTY_SETTINGS[3:4]


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


@contextlib.contextmanager
def kept_handlers() -> Iterator[None]:
    """Ray takes SIGTERM for itself. The run answers it, with a save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def ends_within(seconds: float, action: Callable[[], Any]) -> bool:
    """Whether a call ends within `seconds`. One that does not goes on in its thread, and nobody waits for it."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def end_services(folder: str) -> None:
    """Kill the services of the cluster that this process has started with this folder, and what they have started."""
    for process in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if os.fsencode(f"{folder}/") in Path(f"/proc/{process}/cmdline").read_bytes():  # the sweeper has no slash
                kill([process, *descendants(process)])


def cause_of(error: BaseException) -> str:
    """Why an actor is gone, in words that do not depend on the version of Ray."""
    kind, text = type(error).__name__, str(error)
    if kind == "OutOfMemoryError" or "running low on memory" in text:
        return "Ray ended its process because its machine had too little memory"
    if "node has died" in text or "node was terminated" in text or "node died" in text:
        return "its machine left the Ray cluster"
    if kind == "ActorUnschedulableError":
        return "no machine of the Ray cluster has room for it"
    if "ModuleNotFoundError" in text or "ImportError" in text:
        line = next(line for line in reversed(text.splitlines()) if "Error" in line)
        return f"its process could not be set up: {one_line(line)}"
    return "its process ended"
