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

from rl_training.config.loading import load_config
from rl_training.envs.factory import backend_of
from rl_training.runtime.auto_settings import explain_auto
from rl_training.runtime.setup.resolved_defaults import resolve_defaults
from rl_training.runtime.setup.run_envs import spaces_of, training_envs

TRAIN = [sys.executable, "-m", "rl_training", "train"]
SHORT_PAIRS = 3  # runs of each kind
# Words of the command `train`, and env steps. The last ones are hardly longer than `auto` asks for.
SHORT_RUNS: tuple[tuple[str, int], ...] = (
    ("ppo/cartpole", 100_000),
    ("ppo/pendulum", 100_000),
    ("a2c/cartpole", 100_000),
    ("pqn/cartpole", 50_000),
    ("trpo/cartpole", 20_000),
    ("td3/pendulum", 5_000),
    ("dqn/cartpole", 60_000),
    ("c51/cartpole", 100_000),
    ("qr_dqn/cartpole", 50_000),
    ("naf/pendulum", 40_000),
    ("ppo --env HalfCheetah-v5", 200_000),
)


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
    pairs: int = SHORT_PAIRS,
    runs: tuple[tuple[str, int], ...] = SHORT_RUNS,
) -> list[str]:
    """Compare `compile: auto` with `off`, from the start of the process to its end, with an empty compilation cache."""
    lines = ["## Compilation in short runs", ""]
    lines += ["Processor seconds of a full run with one thread, the compiler's included, with one evaluation: median"]
    lines += [f"(worst .. best) of {pairs} pairs of runs, with an empty compilation cache. Where `auto` is off, it is"]
    lines += ["the same run, and is not measured. The forecast is `compile_choice` in run.json.", ""]
    lines += ["| run | env steps | auto is | forecast | auto | off | auto/off |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for words, steps in runs:
        lines.append(_short_run_row(words, steps, pairs))
        print(lines[-1], flush=True)
    return lines


def _short_run_row(words: str, steps: int, pairs: int) -> str:
    resolved, _, why = _choice(words, steps).partition(": ")
    if resolved == "off":
        return f"| {words} | {steps:,} | off | {why} | | | 1 |"
    seconds_by: dict[str, list[float]] = {"auto": [], "off": []}
    for pair in range(pairs):
        for setting in ("auto", "off") if pair % 2 == 0 else ("off", "auto"):
            seconds_by[setting].append(_whole_run(words, setting, steps))
    ratio = statistics.median(seconds_by["auto"]) / statistics.median(seconds_by["off"])
    spreads = f"{_spread(seconds_by['auto'])} | {_spread(seconds_by['off'])}"
    return f"| {words} | {steps:,} | on | {why} | {spreads} | {ratio:.2f} |"


def _choice(words: str, steps: int) -> str:
    """What `compile: auto` chooses for a command, and why."""
    name, _, env = words.partition(" --env ")
    config = load_config({"algo": name, "env_id": env, "defaults": "env"} if env else name, {"total_timesteps": steps})
    config = resolve_defaults(config)
    with training_envs(config, None) as envs:
        return explain_auto(config, spaces_of(envs, config), backend_of(envs))["compile_choice"]


def _whole_run(words: str, setting: str, steps: int) -> float:
    """The processor seconds of the command and of its compilers."""
    with tempfile.TemporaryDirectory() as folder:
        changes: dict[str, Any] = {"compile": setting, "total_timesteps": steps, "eval_every": 0, "output_dir": folder}
        settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = os.environ | _compiling_into(str(Path(folder) / "compiled")) | one_thread
        process = subprocess.Popen([*TRAIN, *words.split(), *settings], stdout=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{words} with compile={setting} failed; see its message above")
        return usage.ru_utime + usage.ru_stime


def _spread(measured: list[float]) -> str:
    return f"{statistics.median(measured):.1f} ({max(measured):.1f} .. {min(measured):.1f})"
