"""Judging a machine. Pure functions: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rl_training.checkup.finding import Finding, fail, ok, warn
from rl_training.checkup.import_trial import Trial
from rl_training.checkup.machine import Machine
from rl_training.program import pip

LEAST_MEMORY = 500_000_000  # torch and a small run
SCARCE_MEMORY = 2_000_000_000
BUSY = 1.5  # load per core


def check_machine(machine: Machine, torch: Trial) -> Iterator[Finding]:
    yield check_torch(torch, machine.gpu_device)
    yield check_cores(machine)
    if machine.load is not None:
        yield check_load(machine.load, machine.cores)
    yield from check_thread_variables(machine)
    yield check_memory(machine.memory)
    yield check_compiler(machine)
    yield check_fork(machine.can_fork)
    if machine.roms is not None:
        yield check_roms(machine.roms)
    yield check_display(machine.display)
    if machine.ffmpeg is not None:
        yield check_ffmpeg(machine.ffmpeg)
    if machine.wandb_installed:
        yield check_wandb(machine.wandb_key)


def check_torch(trial: Trial, gpu_device: bool) -> Finding:
    if trial.error is not None:
        return fail("torch", f"cannot be imported ({trial.error})", f"{pip()} install --force-reinstall torch")
    facts: dict[str, Any] = trial.facts
    build = "CPU build" if facts.get("cuda_build") is None else f"CUDA {facts['cuda_build']} build"
    devices = [*facts.get("cuda", []), *(["mps (not used by rl_training)"] if facts.get("mps") else [])]
    detail = f"{facts.get('version')}, {build}, devices: {', '.join(['cpu', *devices])}"
    if gpu_device and not facts.get("cuda"):
        fix = "install a CUDA build (https://pytorch.org/get-started/locally) and a driver that fits, or use device=cpu"
        return warn("torch", f"{detail}; there is an NVIDIA card, but torch cannot use it", fix)
    return ok("torch", detail)


def check_cores(machine: Machine) -> Finding:
    plural = "s" * (machine.cores != 1)
    if machine.quota is None or machine.quota >= machine.cores:
        return ok("cores", f"{machine.cores} core{plural} for this process")
    detail = f"{machine.cores} core{plural} are visible, but the container grants {machine.quota:g}"
    limit = machine.thread_variables.get("OMP_NUM_THREADS", "")
    if limit.isdigit() and 1 <= int(limit) <= machine.usable_cores:
        return ok("cores", detail)
    return warn("cores", f"{detail}: threads would wait for each other", f"OMP_NUM_THREADS={machine.usable_cores}")


def check_load(load: float, cores: int) -> Finding:
    if load > BUSY * cores:
        detail = f"{load:.1f} processes compete for {cores} core{'s' * (cores != 1)}, so runs and speed tests are slow"
        return warn(
            "load", detail, "end other programs, or wait; with several threads OMP_NUM_THREADS=1 is often faster"
        )
    return ok("load", f"{load:.1f} in the last minute")


def check_thread_variables(machine: Machine) -> Iterator[Finding]:
    for name, value in machine.thread_variables.items():
        first = value.split(",")[0].strip()  # OpenMP takes one number per nesting level
        if not first.isdigit() or int(first) < 1:
            yield warn("threads", f"{name}={value} is not a number of threads", f"unset {name}")
        elif int(first) > machine.usable_cores:
            detail = (
                f"{name}={value} is more than the {machine.usable_cores} cores here, so threads wait for each other"
            )
            yield warn("threads", detail, f"{name}={machine.usable_cores}")
        else:
            yield ok("threads", f"{name}={value}")


def check_memory(available: int | None) -> Finding:
    if available is None:
        return ok("memory", "the system does not say how much is available")
    detail = f"{available / 1e9:.1f} GB available"
    if available < LEAST_MEMORY:
        return fail("memory", f"{detail}, but even a small run needs {LEAST_MEMORY / 1e9:.1f} GB", "end other programs")
    if available < SCARCE_MEMORY:
        return warn("memory", f"{detail}, enough for small runs only", "end other programs, or use small buffers")
    return ok("memory", detail)


def check_compiler(machine: Machine) -> Finding:
    if machine.compiler is None:
        detail = "no C++ compiler, so long runs train uncompiled, which is slower"
        return warn("compiler", detail, "install g++ (Debian: apt install g++; macOS: xcode-select --install)")
    if machine.compiler_error is not None:
        detail = f"{machine.compiler} is here but fails ({machine.compiler_error}), and so would compile=auto"
        return fail(
            "compiler", detail, "install the headers of C++ and Python (Debian: g++ python3-dev) or compile=off"
        )
    return ok("compiler", f"{machine.compiler} builds C++ for the setting `compile`")


def check_fork(can_fork: bool) -> Finding:
    if not can_fork:
        return warn("fork", "this system cannot fork, so vector_backend async does not work", "use vector_backend=sync")
    return ok("fork", "vector_backend async works here; environments are never pickled")


def check_roms(count: int) -> Finding:
    if count == 0:
        return warn("atari", "ale-py is installed without its ROMs", f"{pip()} install --force-reinstall ale-py")
    return ok("atari", f"ale-py with {count} ROMs")


def check_display(display: bool) -> Finding:
    if display:
        return ok("display", "`play` can open a window")
    return ok("display", "none: `play` writes a GIF instead of opening a window")


def check_ffmpeg(works: bool) -> Finding:
    if not works:
        fix = f"install ffmpeg, or {pip()} install --force-reinstall imageio-ffmpeg; GIFs work without it"
        return warn("ffmpeg", "imageio-ffmpeg has no ffmpeg program, so MP4s cannot be written", fix)
    return ok("ffmpeg", "MP4s can be written")


def check_wandb(key: bool) -> Finding:
    if not key:
        return ok("wandb", "no API key: runs with a W&B project are logged offline", "wandb login")
    return ok("wandb", "an API key is present (not tried)")
