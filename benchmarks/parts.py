"""Our own loop by itself: which part of a step costs what, and how the cost grows."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from works import WORKS

from rl_training.envs.spaces import Spaces
from rl_training.experiment.config import load_config
from rl_training.runtime.loops import Loop, Progress, ReplayLoop
from rl_training.runtime.metrics import MetricWindow
from rl_training.runtime.preparing import build_loop, resolve_auto, training_envs
from rl_training.runtime.recorder import Recorder
from rl_training.runtime.threads import limited_threads

PARTS = ("env", "acting", "storing", "sampling", "learning", "logging", "rest")


class Clock:
    """Seconds per part. Only what a call does itself counts for it, so that the parts add up."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def watch(self, owner: Any, method: str, part: str) -> None:
        plain: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return plain(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - started

        setattr(owner, method, timed)


def run_for(loop: Loop, seconds: float, after: Callable[[Progress], None] = lambda progress: None) -> tuple[int, float]:
    """Env steps and seconds of rounds, after a warm-up that ends with the compiling."""
    rounds = iter(loop)
    for progress in rounds:
        if progress.updates >= 3:
            break
    first, started = loop.env_steps, time.perf_counter()
    for progress in rounds:
        after(progress)
        if time.perf_counter() - started >= seconds:
            break
    return loop.env_steps - first, time.perf_counter() - started


def breakdown(names: list[str], seconds: float) -> list[str]:
    lines = ["## Where our time goes", "", "Share of each part in the wall time of the loop, in percent.", ""]
    lines += [f"| work | steps/s | {' | '.join(PARTS)} |", "| --- |" + " --- |" * (len(PARTS) + 1)]
    for name in names:
        config = load_config(WORKS[name].ours)
        config = resolve_auto(load_config(config, {"compile": "on" if config.algo_kwargs.compilable else "off"}))
        with (
            training_envs(config, None) as envs,
            limited_threads(int(config.threads)),
            tempfile.TemporaryDirectory() as folder,
        ):
            loop = build_loop(config, envs, Spaces(envs.single_observation_space, envs.single_action_space))
            recorder, window = Recorder(Path(folder)), MetricWindow()
            clock = Clock()
            clock.watch(envs, "step", "env")
            clock.watch(loop.learner, "act", "acting")
            clock.watch(loop.learner, "update", "learning")
            if isinstance(loop, ReplayLoop):
                clock.watch(loop.buffer, "add", "storing")
                clock.watch(loop.buffer, "sample", "sampling")
            last_line = 0

            def log(progress: Progress, window: MetricWindow = window, recorder: Recorder = recorder) -> None:
                nonlocal last_line
                window.add(progress)
                if progress.env_steps - last_line >= 10_000:
                    recorder.record(window.line())
                    last_line = progress.env_steps

            holder = _Holder(log)
            clock.watch(holder, "call", "logging")
            clock.seconds = dict.fromkeys(PARTS, 0.0)
            steps, elapsed = run_for(loop, seconds, lambda progress, holder=holder: holder.call(progress))
            recorder.close()
        clock.seconds["rest"] = elapsed - sum(clock.seconds.values())
        shares = " | ".join(f"{100 * clock.seconds[part] / elapsed:.0f}" for part in PARTS)
        lines.append(f"| {WORKS[name].title} | {steps / elapsed:,.0f} | {shares} |")
    return lines


class _Holder:
    def __init__(self, call: Callable[[Progress], None]):
        self.call = call


def growth(names: list[str], seconds: float) -> list[str]:
    """PPO on CartPole: more envs at the same number of rollout steps, and wider networks at 8 envs."""
    lines = ["## How cost grows", "", "PPO on CartPole; steps per second and microseconds per env step.", ""]
    lines += ["| envs | width | steps/s | us per step |", "| --- | --- | --- | --- |"]
    cases = [(envs, 64) for envs in (1, 4, 16, 64, 256, 1024, 4096)]
    cases += [(8, width) for width in (16, 64, 256, 1024)]
    for envs_count, width in cases:
        rollout = 128 if envs_count <= 64 else 64
        rows = min(8192, max(64, envs_count * rollout // 4))
        config = resolve_auto(
            load_config(
                WORKS["ppo"].ours,
                {
                    "num_envs": envs_count,
                    "hidden_sizes": [width, width],
                    "num_steps": rollout,
                    "minibatch_size": rows,
                    "compile": "on",
                },
            )
        )
        with training_envs(config, None) as envs, limited_threads(int(config.threads)):
            loop = build_loop(config, envs, Spaces(envs.single_observation_space, envs.single_action_space))
            steps, elapsed = run_for(loop, seconds)
        lines.append(f"| {envs_count} | {width} | {steps / elapsed:,.0f} | {1e6 * elapsed / steps:.1f} |")
    return lines


def cold_start(names: list[str], seconds: float) -> list[str]:
    """From the command to the first sign of life, median of five."""

    def median_of(action: Callable[[], float]) -> float:
        return sorted(action() for _ in range(5))[2]

    def help_text() -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "rl_training", "--help"], check=True, capture_output=True)
        return time.perf_counter() - started

    def first_update() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "rl_training", "train", "ppo/cartpole", "--set", f"output_dir={folder}"]
            started = time.perf_counter()
            process = subprocess.Popen([*command, "--set", "log_every=1"], stdout=subprocess.DEVNULL)
            try:
                while not any(Path(folder).glob("*/metrics.jsonl")) or not _has_text(folder):
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
        f"| `rl-training train ppo/cartpole`, to the metrics of its first update | {median_of(first_update):.2f} | 5 |",
    ]


def _has_text(folder: str) -> bool:
    return any(path.stat().st_size > 0 for path in Path(folder).glob("*/metrics.jsonl"))
