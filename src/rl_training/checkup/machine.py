"""What this machine has: cores and their limits, memory, compiler, display, ffmpeg, ROMs, the key of a tracker.

Each function here reads one fact from the system. `machine_checks.py` judges the facts.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rl_training.data.replay_memory import available_bytes, control_groups
from rl_training.telemetry.wandb_sink import has_wandb_key
from rl_training.text import one_line

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
COMPILERS = ("g++", "c++", "clang++")  # as in algorithms/common/compile
COMPILER_SECONDS = 120.0
_SOURCE = "#include <Python.h>\n#include <cmath>\nint main() { return 0; }\n"


@dataclass(frozen=True)
class Machine:
    """The facts that `machine_checks.py` judges."""

    cores: int  # that this process may use
    quota: float | None = None  # cores that a container grants; None: no limit
    load: float | None = None  # mean number of processes that wanted a core in the last minute
    thread_variables: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None  # available bytes; None: the system does not say
    gpu_device: bool = False  # a graphics card of NVIDIA, whatever torch says
    compiler: str | None = None
    compiler_error: str | None = None
    roms: int | None = None  # number of Atari ROMs; None: ale-py is not installed
    display: bool = True
    ffmpeg: bool | None = None  # None: imageio-ffmpeg is not installed
    can_fork: bool = True
    wandb_installed: bool = False
    wandb_key: bool = False

    @property
    def usable_cores(self) -> int:
        return max(1, min(self.cores, math.floor(self.quota) if self.quota is not None else self.cores))


def look_at_machine() -> Machine:
    compiler = find_compiler()
    return Machine(
        cores=usable_cores(),
        quota=core_quota(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        thread_variables={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        memory=available_bytes(),
        gpu_device=os.path.exists("/dev/nvidia0"),
        compiler=compiler,
        compiler_error=None if compiler is None else compiler_error(compiler),
        roms=count_roms(),
        display=has_display(),
        ffmpeg=has_ffmpeg(),
        can_fork=hasattr(os, "fork"),
        wandb_installed=_is_there("wandb"),
        wandb_key=has_wandb_key(),
    )


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_quota() -> float | None:
    """The number of cores that a container or a job may use on average; None without a limit."""
    quotas = []
    for folder, unified in control_groups("cpu"):
        with contextlib.suppress(OSError, ValueError):
            if unified:
                quota, period = (folder / "cpu.max").read_text().split()  # "max 100000" is not a number
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if int(quota) > 0:  # version 1 says -1 for no limit
                quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def find_compiler() -> str | None:
    return next((name for name in COMPILERS if shutil.which(name)), None)


def compiler_error(compiler: str) -> str | None:
    """Why the compiler cannot build what `compile` writes, which includes Python's headers; None if it can."""
    include = sysconfig.get_paths()["include"]
    command = [compiler, "-x", "c++", f"-I{include}", "-c", "-", "-o", os.devnull]
    try:
        done = subprocess.run(command, input=_SOURCE, text=True, capture_output=True, timeout=COMPILER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return one_line(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    return one_line(lines[0] if lines else done.stderr) or f"exit code {done.returncode}"


def _is_there(module: str) -> bool:
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(module) is not None
    return False


def _folder_of(module: str) -> Path | None:
    """The folder of an installed package, which is not imported."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    return None


def count_roms() -> int | None:
    folder = _folder_of("ale_py")
    return None if folder is None else len(list((folder / "roms").glob("*.bin")))


def has_display() -> bool:
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def has_ffmpeg() -> bool | None:
    """Whether an MP4 can be written: imageio-ffmpeg brings a program, or uses the one of the system."""
    folder = _folder_of("imageio_ffmpeg")
    if folder is None:
        return None
    named = os.environ.get("IMAGEIO_FFMPEG_EXE")
    if named:
        return shutil.which(named) is not None
    bundled = glob.glob(str(folder / "binaries" / "ffmpeg*"))
    return bool(bundled) or shutil.which("ffmpeg") is not None
