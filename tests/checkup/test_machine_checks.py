"""The machine: each fault has its line and its fix, and a sound machine has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rl_training.checkup import machine as facts
from rl_training.checkup.finding import Finding, summary
from rl_training.checkup.import_trial import Trial
from rl_training.checkup.machine import Machine, core_quota, count_roms, has_ffmpeg, has_wandb_key
from rl_training.checkup.machine_checks import check_machine, check_torch
from rl_training.data import replay_memory

HEALTHY = Machine(
    cores=4,
    load=0.5,
    thread_variables={"OMP_NUM_THREADS": "2"},
    memory=16_000_000_000,
    compiler="g++",
    roms=108,
    ffmpeg=True,
    wandb_installed=True,
    wandb_key=True,
)
TORCH = Trial(None, {"version": "2.13.0+cpu", "cuda_build": None, "cuda": [], "mps": False, "threads": 2})


def faults(machine: Machine, torch: Trial = TORCH) -> list[Finding]:
    return [finding for finding in check_machine(machine, torch) if finding.status != "ok"]


def test_a_sound_machine_has_neither_warnings_nor_failures() -> None:
    findings = list(check_machine(HEALTHY, TORCH))
    assert faults(HEALTHY) == []
    assert summary(findings) == f"{len(findings)} checks, 0 warnings, 0 failures"
    assert all(finding.detail for finding in findings)


def test_a_server_without_display_and_key_is_sound_too() -> None:
    assert faults(replace(HEALTHY, display=False, wandb_key=False, ffmpeg=None, roms=None, thread_variables={})) == []


CASES: dict[str, tuple[dict[str, object], str, str, str, str]] = {
    "container": (
        {"quota": 2.0, "thread_variables": {}},
        "warn",
        "cores",
        "4 cores are visible, but the container grants 2: threads would wait for each other",
        "OMP_NUM_THREADS=2",
    ),
    "part of a core": (
        {"quota": 0.5, "thread_variables": {}},
        "warn",
        "cores",
        "4 cores are visible, but the container grants 0.5: threads would wait for each other",
        "OMP_NUM_THREADS=1",
    ),
    "too many threads": (
        {"thread_variables": {"MKL_NUM_THREADS": "64"}},
        "warn",
        "threads",
        "MKL_NUM_THREADS=64 is more than the 4 cores here, so threads wait for each other",
        "MKL_NUM_THREADS=4",
    ),
    "not a number of threads": (
        {"thread_variables": {"OMP_NUM_THREADS": "all"}},
        "warn",
        "threads",
        "OMP_NUM_THREADS=all is not a number of threads",
        "unset OMP_NUM_THREADS",
    ),
    "busy": (
        {"load": 12.3},
        "warn",
        "load",
        "12.3 processes compete for 4 cores, so runs and speed tests are slow",
        "end other programs, or wait; with several threads OMP_NUM_THREADS=1 is often faster",
    ),
    "little memory": (
        {"memory": 900_000_000},
        "warn",
        "memory",
        "0.9 GB available, enough for small runs only",
        "end other programs, or use small buffers",
    ),
    "no memory": (
        {"memory": 200_000_000},
        "fail",
        "memory",
        "0.2 GB available, but even a small run needs 0.5 GB",
        "end other programs",
    ),
    "no compiler": (
        {"compiler": None},
        "warn",
        "compiler",
        "no C++ compiler, so long runs train uncompiled, which is slower",
        "install g++ (Debian: apt install g++; macOS: xcode-select --install)",
    ),
    "broken compiler": (
        {"compiler_error": "fatal error: Python.h: No such file"},
        "fail",
        "compiler",
        "g++ is here but fails (fatal error: Python.h: No such file), and so would compile=auto",
        "install the headers of C++ and Python (Debian: g++ python3-dev) or compile=off",
    ),
    "no fork": (
        {"can_fork": False},
        "warn",
        "fork",
        "this system cannot fork, so vector_backend async does not work",
        "use vector_backend=sync",
    ),
    "no ROMs": (
        {"roms": 0},
        "warn",
        "atari",
        "ale-py is installed without its ROMs",
        "pip install --force-reinstall ale-py",
    ),
    "no ffmpeg": (
        {"ffmpeg": False},
        "warn",
        "ffmpeg",
        "imageio-ffmpeg has no ffmpeg program, so MP4s cannot be written",
        "install ffmpeg, or pip install --force-reinstall imageio-ffmpeg; GIFs work without it",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_has_exactly_its_line(case: str) -> None:
    change, *expected = CASES[case]
    (finding,) = faults(replace(HEALTHY, **change))  # type: ignore[arg-type]
    assert [finding.status, finding.what, finding.detail, finding.fix] == expected


def test_a_container_with_a_limit_of_threads_is_sound() -> None:
    assert faults(replace(HEALTHY, quota=2.0)) == []


def test_torch_that_cannot_be_imported() -> None:
    finding = check_torch(Trial("importing it kills the process (SIGILL)"), gpu_device=False)
    assert finding.status == "fail"
    assert finding.detail == "cannot be imported (importing it kills the process (SIGILL))"


def test_a_card_that_torch_cannot_use() -> None:
    finding = check_torch(TORCH, gpu_device=True)
    assert finding.status == "warn" and "there is an NVIDIA card, but torch cannot use it" in finding.detail
    usable = Trial(None, TORCH.facts | {"cuda_build": "12.8", "cuda": ["RTX 4090"]})
    finding = check_torch(usable, gpu_device=True)
    assert (finding.status, finding.detail) == ("ok", "2.13.0+cpu, CUDA 12.8 build, devices: cpu, RTX 4090")


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/job\n", {"job/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/job\n", {"job/cpu.max": "max 100000\n", "cpu.max": "400000 100000\n"}, 4.0),
        ("3:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 2.0),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("3:memory:/\n", {}, None),
    ],
)
def test_the_limit_of_a_container(
    groups: str, files: dict[str, str], quota: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(replay_memory, "CGROUP", tmp_path / "cgroup")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert core_quota() == quota


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_compilers_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.find_compiler() is None
    program(tmp_path, "clang++", "echo 'x.cpp:1:10: fatal error: Python.h: No such file' >&2; exit 1")
    assert facts.find_compiler() == "clang++"
    assert facts.compiler_error("clang++") == "x.cpp:1:10: fatal error: Python.h: No such file"
    program(tmp_path, "g++", "exit 0")
    assert facts.find_compiler() == "g++"
    assert facts.compiler_error("g++") is None


def test_the_key_of_a_tracker_is_found_but_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert not has_wandb_key()
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password 0123456789secret\n")
    (tmp_path / "netrc").chmod(0o600)
    assert has_wandb_key() is True
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org/")
    assert not has_wandb_key()
    monkeypatch.setenv("WANDB_API_KEY", "0123456789secret")
    assert has_wandb_key() is True
    assert "secret" not in repr(facts.look_at_machine())


def test_packages_without_their_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("IMAGEIO_FFMPEG_EXE", raising=False)
    monkeypatch.setattr(facts, "_folder_of", lambda module: tmp_path)
    assert count_roms() == 0 and has_ffmpeg() is False
    (tmp_path / "roms").mkdir()
    (tmp_path / "roms" / "pong.bin").touch()
    program(tmp_path, "ffmpeg", "exit 0")
    assert count_roms() == 1 and has_ffmpeg() is True
    monkeypatch.setattr(facts, "_folder_of", lambda module: None)
    assert count_roms() is None and has_ffmpeg() is None
