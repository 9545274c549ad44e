"""The time until a run reaches full speed, and whether compilation pays off in a short run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers import Worker, peer_is_here, start_ours, start_peer
from works import WORKS, own_works

from rl_training.runtime.auto_settings import PAYS_FROM_STEPS

TRAIN = [sys.executable, "-m", "rl_training", "train"]
SHORT_RUN, SHORT_PAIRS = 100_000, 5  # env steps; runs of each kind
SHORT_PRESETS = ("ppo/cartpole", "a2c/cartpole", "dqn/cartpole")


def cold_start(names: list[str], seconds: float) -> list[str]:
    """Seconds from the command to its first output, median of five."""

    def median_of(action: Callable[[], float]) -> float:
        return sorted(action() for _ in range(5))[2]

    def help_text() -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "rl_training", "--help"], check=True, capture_output=True)
        return time.perf_counter() - started

    def first_update() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [*TRAIN, "ppo/cartpole", "--set", f"output_dir={folder}", "--set", "log_every=1"]
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                while not _has_text(folder):
                    if process.poll() is not None:
                        raise SystemExit(f"{' '.join(command)} stopped before its first update; see its message above")
                    time.sleep(0.02)
                return time.perf_counter() - started
            finally:
                process.kill()
                process.wait()

    return [
        "## Cold start",
        "",
        "| | seconds | bar |",
        "| --- | --- | --- |",
        f"| `rl-training --help` | {median_of(help_text):.2f} | 0.5 |",
        f"| `rl-training train ppo/cartpole`, until its first update is logged | {median_of(first_update):.2f} | 5 |",
    ]


def _has_text(folder: str) -> bool:
    return any(path.stat().st_size > 0 for path in Path(folder).glob("*/metrics.jsonl"))


def warm_up(names: list[str], seconds: float) -> list[str]:
    """Time that the comparison excludes: imports, envs, the first random steps, compilation."""
    lines = [
        "## Warm-up",
        "",
        "Seconds from the start of the process to its first updates, one run each. Ours compiles in the first run",
    ]
    lines += ["and finds the compiled code on disk in the second.", ""]
    lines += ["| workload | ours, first run | ours, second run | peer |", "| --- | --- | --- | --- |"]
    for name in own_works(names):
        work = WORKS[name]
        with tempfile.TemporaryDirectory() as cache:
            ours = [_seconds_to_start(lambda c=cache, w=work: start_ours(w, 0.0, _compiling_into(c))) for _ in "12"]
        peer = ""
        if peer_is_here(work):
            peer = f"{_seconds_to_start(lambda w=work: start_peer(w, w.threads[-1], 0.0)):.1f}"
        lines.append(f"| {work.title} | {ours[0]:.1f} | {ours[1]:.1f} | {peer} |")
    return lines


def _seconds_to_start(start: Callable[[], Worker]) -> float:
    started = time.perf_counter()
    worker = start()
    elapsed = time.perf_counter() - started
    worker.stop()
    return elapsed


def _compiling_into(folder: str) -> dict[str, str]:
    return {"TORCHINDUCTOR_CACHE_DIR": folder}


def short_runs(
    names: list[str],
    seconds: float,
    steps: int = SHORT_RUN,
    pairs: int = SHORT_PAIRS,
    presets: tuple[str, ...] = SHORT_PRESETS,
) -> list[str]:
    """Compare `compile: auto` with `off`, from the start of the process to its end, with an empty compilation cache."""
    lines = ["## Compilation in short runs", ""]
    lines += [
        f"Seconds of a full run of {steps:,} env steps on CartPole, with one evaluation: median (worst .. best) of"
    ]
    lines += [f"{pairs} alternating runs, with an empty compilation cache. `auto` compiles if a run has"]
    lines += [f"{PAYS_FROM_STEPS:,} gradient steps or more; otherwise both columns measure the same work.", ""]
    lines += ["| preset | auto is | auto | off | auto/off |", "| --- | --- | --- | --- | --- |"]
    for preset in presets:
        seconds_by: dict[str, list[float]] = {"auto": [], "off": []}
        for pair in range(pairs):
            for setting in ("auto", "off") if pair % 2 == 0 else ("off", "auto"):
                resolved, elapsed = _whole_run(preset, setting, steps)
                seconds_by[setting].append(elapsed)
                if setting == "auto":
                    chosen = resolved
        ratio = statistics.median(seconds_by["auto"]) / statistics.median(seconds_by["off"])
        spreads = f"{_spread(seconds_by['auto'])} | {_spread(seconds_by['off'])}"
        lines.append(f"| {preset} | {chosen} | {spreads} | {ratio:.2f} |")
    return lines


def _whole_run(preset: str, setting: str, steps: int) -> tuple[str, float]:
    """The resolved value of `compile`, and the seconds of the command."""
    with tempfile.TemporaryDirectory() as folder:
        changes: dict[str, Any] = {"compile": setting, "total_timesteps": steps, "eval_every": 0, "output_dir": folder}
        settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        environment = os.environ | _compiling_into(str(Path(folder) / "compiled"))
        started = time.perf_counter()
        subprocess.run([*TRAIN, preset, *settings], check=True, capture_output=True, env=environment)
        elapsed = time.perf_counter() - started
        (config,) = Path(folder).glob("*/config.yaml")
        (resolved,) = [line.split()[1] for line in config.read_text().splitlines() if line.startswith("compile:")]
        return resolved.strip("'\""), elapsed


def _spread(measured: list[float]) -> str:
    return f"{statistics.median(measured):.1f} ({max(measured):.1f} .. {min(measured):.1f})"
