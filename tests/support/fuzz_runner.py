"""Run a command of the CLI in a forked child of this process, which has imported everything: a few hundredths of a
second per call, with limits, and with its processor time, memory, output and exit code."""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import os
import pkgutil
import re
import resource
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_tree import HOME, SCRATCH, WORK

ASK_AFTER_SECONDS = 4.0  # of processor time: then a command that may run for long gets Ctrl-C
KILL_AFTER_SECONDS = 6.0  # of processor time, for a command that only reads files
KILL_LONG_AFTER_SECONDS = 16.0
IDLE_SECONDS = 15.0  # asleep without any processor time: the command waits for something that never comes
DEADLINE_SECONDS = 600.0
LOOK_SECONDS = 0.1  # between two looks at the processor time of a command
MORE_MEMORY = 3 * 2**30  # beyond what the parent has: a forged size must not bring the machine down
LARGEST_FILE = 2**28
CAPABILITIES_OF_ROOT = (1, 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: root reads what no one else may
HEAVY_PACKAGES = (
    "matplotlib.pyplot",
    "imageio.v3",
    "PIL.Image",
    "pygame",
    "rich.table",
    "fuzz_callbacks",
    "fuzz_parts",
)


@dataclass(frozen=True)
class Outcome:
    """What a call did. `code` is negative for a signal; `asked`: it ran until Ctrl-C; `stuck`: it had to be killed."""

    code: int
    out: str
    err: str
    seconds: float
    megabytes: float
    asked: bool
    stuck: bool
    left: int  # processes that outlived it


def import_everything() -> None:
    """Import all modules of the library, and what commands import on demand, before the first fork."""
    import rl_training

    os.environ.setdefault("MPLBACKEND", "agg")
    for module in pkgutil.walk_packages(rl_training.__path__, "rl_training."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in HEAVY_PACKAGES:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork keeps only one thread"
    gc.collect()
    gc.freeze()  # collections in children must not copy the pages of the parent


def call_the_cli(arguments: list[str]) -> int:
    """As the installed command does: the arguments are those of the process."""
    from rl_training.cli import main

    sys.argv = ["rl-training", *arguments]
    return main()


def run(
    call: Callable[[], int],
    root: Path,
    stdin: bytes = b"",
    stdout: str = "file",
    may_run_long: bool = False,
    idle_seconds: float = IDLE_SECONDS,
) -> Outcome:
    """Run a function that returns an exit code, with `root`/work as its working directory."""
    files = {name: tempfile.TemporaryFile() for name in ("in", "out", "err", "memory")}  # noqa: SIM115
    files["in"].write(stdin)
    files["in"].seek(0)
    child = os.fork()
    if child == 0:
        _become_the_command(call, root, {name: file.fileno() for name, file in files.items()}, stdout)
    status, usage, asked, stuck = _wait(child, may_run_long, idle_seconds)
    left = _end_session(child, idle_seconds)
    texts = {}
    for name, file in files.items():
        file.seek(0)
        texts[name] = file.read(2**22).decode("utf-8", "replace")
        file.close()
    return Outcome(
        code=os.waitstatus_to_exitcode(status),
        out=texts["out"],
        err=texts["err"],
        seconds=usage.ru_utime + usage.ru_stime,
        megabytes=_megabytes(texts["memory"], usage.ru_maxrss),
        asked=asked,
        stuck=stuck,
        left=left,
    )


def _megabytes(notes: str, peak: int) -> float:
    """Memory beyond that of the parent. Pages of libraries that the child touches again are not its own."""
    numbers = [int(word) for word in notes.split()]
    if len(numbers) == 4:
        at_start, _, peak, of_files = numbers
        return max(0, peak - of_files - at_start) / 1024
    return max(0, peak - numbers[1]) / 1024  # it was killed


def _memory(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1])


def _become_the_command(call: Callable[[], int], root: Path, files: dict[str, int], stdout: str) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ |= {"HOME": str(root / HOME), "TMPDIR": str(root / SCRATCH), "COLUMNS": "100"}
        tempfile.tempdir = None
        os.chdir(root / WORK)
        _connect(files, stdout)
        _set_limits()
        _drop_the_powers_of_root()
        os.write(files["memory"], f"{_memory('RssAnon')} {_memory('VmRSS')} ".encode())
        try:
            code = call()
        except BaseException:  # as the interpreter does
            traceback.print_exc()
            code = 1
        threading._shutdown()
        atexit._run_exitfuncs()
        code = _flush(code)
        os.write(files["memory"], f"{_memory('VmHWM')} {_memory('RssFile')}".encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _connect(files: dict[str, int], stdout: str) -> None:
    os.dup2(files["in"], 0)
    os.dup2(files["err"], 2)
    if stdout == "closed":
        os.close(1)
    elif stdout == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    elif stdout == "pipe nobody reads":
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(reader)
        os.close(writer)
    else:
        os.dup2(files["out"], 1)
    sys.stdin = sys.__stdin__ = _stream(0, "rb", "strict")
    sys.stdout = sys.__stdout__ = None if stdout == "closed" else _stream(1, "wb", "strict")
    sys.stderr = sys.__stderr__ = _stream(2, "wb", "backslashreplace")


def _stream(descriptor: int, mode: str, errors: str) -> Any:
    file: Any = os.fdopen(descriptor, mode, closefd=False)
    return io.TextIOWrapper(file, encoding="utf-8", errors=errors, line_buffering=descriptor == 2)


def _set_limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") * 1024 + MORE_MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(2 * KILL_LONG_AFTER_SECONDS),) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _drop_the_powers_of_root() -> None:
    """Permissions of files mean something to this process, even if root runs the tests."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    library = ctypes.CDLL(None, use_errno=True)
    assert library.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    for place in (0, 1):  # effective and permitted
        for number in CAPABILITIES_OF_ROOT:
            sets[place] &= ~(1 << number)
    assert library.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def _flush(code: int) -> int:
    """Flush the streams as the interpreter does when it ends."""
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError:
        os.write(2, b"Exception ignored in: <_io.TextIOWrapper name='<stdout>'>\n" + traceback.format_exc().encode())
        return 120
    return code


def _wait(child: int, may_run_long: bool, idle_seconds: float) -> tuple[int, Any, bool, bool]:
    """Wait for the child. Only its processor time counts, or the lack of it: the machine may be busy."""
    started = changed = time.monotonic()
    last, asked = 0.0, False
    end = os.pidfd_open(child)
    most = KILL_LONG_AFTER_SECONDS if may_run_long else KILL_AFTER_SECONDS
    while True:
        ended, _, _ = select.select([end], [], [], LOOK_SECONDS)
        if ended:
            os.close(end)
            _, status, usage = os.wait4(child, 0)
            return status, usage, asked, False
        now = time.monotonic()
        used = _seconds_of(child)
        if now - changed > 1.0:  # it may wait for processes that work, or for the disk
            used += sum(_session_members(child).values())
        if used > last or _is_busy(child):
            last, changed = used, now
        if may_run_long and not asked and used > ASK_AFTER_SECONDS:
            asked = True
            os.kill(child, signal.SIGINT)
        if used > most or now - changed > idle_seconds or now - started > DEADLINE_SECONDS:
            os.close(end)
            _kill_session(child)
            _, status, usage = os.wait4(child, 0)
            return status, usage, asked, True


def _seconds_of(process: int) -> float:
    """Processor time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    if fields[0] == "Z":
        return 0.0
    return (1 + int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_busy(process: int) -> bool:
    """Whether a process waits for a processor or for a disk, which may take long on a busy machine."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "RD"
    except OSError:
        return False


def _session_members(leader: int) -> dict[int, float]:
    """The living processes of a session, each with its processor time."""
    members = [process for process in map(int, filter(str.isdigit, os.listdir("/proc"))) if _session(process) == leader]
    return {process: used for process in members if (used := _seconds_of(process))}


def _session(process: int) -> int:
    try:
        return os.getsid(process)
    except ProcessLookupError:
        return 0


def _kill_session(leader: int) -> None:
    for process in _session_members(leader):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _end_session(leader: int, seconds: float) -> int:
    """How many processes the command left behind; they get a while to end by themselves, then they are killed."""
    deadline = time.monotonic() + seconds
    while (members := _session_members(leader)) and time.monotonic() < deadline:
        time.sleep(0.02)
    _kill_session(leader)
    return len(members)
