"""Our training loop on its own: the cost of its parts."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from works import WORKS, own_works

from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.runtime.auto_settings import limited_threads, resolve_auto
from rl_training.runtime.collection.collector import Collector
from rl_training.runtime.loops import Loop, Progress, ReplayLoop
from rl_training.runtime.output.metric_window import MetricWindow
from rl_training.runtime.setup.loop_setup import build_loop
from rl_training.runtime.setup.run_envs import training_envs
from rl_training.telemetry.recorder import Recorder

PARTS = ("env", "acting", "rollouts", "storing", "sampling", "learning", "logging", "rest")


class Clock:
    """Seconds per part. Watched calls are not nested, so the parts add up."""

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


@contextlib.contextmanager
def set_up(config: TrainConfig) -> Iterator[Loop]:
    """A loop before its first step, with all `auto` settings resolved."""
    with training_envs(config, None) as envs:
        spaces = Spaces(envs.single_observation_space, envs.single_action_space)
        resolved = resolve_auto(config, spaces)
        with limited_threads(int(resolved.threads)):
            yield build_loop(resolved, envs, spaces)


def run_for(
    loop: Loop, seconds: float, after: Callable[[Progress], None] | None = None, clock: Clock | None = None
) -> tuple[int, float]:
    """Env steps and seconds of the measured rounds. The warm-up before them includes compilation and is not counted."""
    rounds = iter(loop)
    for progress in rounds:
        if progress.updates >= 3:
            break
    if clock is not None:
        clock.seconds = dict.fromkeys(PARTS, 0.0)
    first, started = loop.env_steps, time.perf_counter()
    for progress in rounds:
        if after is not None:
            after(progress)
        if time.perf_counter() - started >= seconds:
            break
    return loop.env_steps - first, time.perf_counter() - started


def breakdown(names: list[str], seconds: float) -> list[str]:
    lines = [
        "## Time per part of our loop",
        "",
        "Percentage of the wall-clock time of the loop. A rollout that is one compiled function contains environment",
        "and acting. In other on-policy loops, writing rollouts counts as rest. Drawing minibatches is part of",
        "learning.",
        "",
    ]
    lines += [f"| workload | steps/s | {' | '.join(PARTS)} |", "| --- |" + " --- |" * (len(PARTS) + 1)]
    for name in own_works(names):
        config = load_config(WORKS[name].ours)
        config = load_config(config, {"compile": "on" if config.algo_kwargs.compilable else "off"})
        with set_up(config) as loop, tempfile.TemporaryDirectory() as folder:
            clock, log = Clock(), Log(Path(folder))
            clock.watch(loop.collector.envs, "step", "env")
            clock.watch(loop.learner, "act", "acting")
            clock.watch(loop.learner, "update", "learning")
            clock.watch(log, "after", "logging")
            if isinstance(loop.collector, Collector) and loop.collector._compiled is not None:
                clock.watch(loop.collector._compiled, "collect", "rollouts")
            if isinstance(loop, ReplayLoop):
                clock.watch(loop.buffer, "add", "storing")
                clock.watch(loop.buffer, "sample", "sampling")
            steps, elapsed = run_for(loop, seconds, lambda progress, log=log: log.after(progress), clock)
            log.recorder.close()
        clock.seconds["rest"] = elapsed - sum(clock.seconds.values())
        shares = " | ".join(f"{100 * spent / elapsed:.0f}" if spent else "-" for spent in clock.seconds.values())
        lines.append(f"| {WORKS[name].title} | {steps / elapsed:,.0f} | {shares} |")
    return lines


class Log:
    """The logging of a run, as often as in the comparison with the peers."""

    def __init__(self, folder: Path):
        self.recorder, self.window, self.last_line = Recorder(folder), MetricWindow(), 0

    def after(self, progress: Progress) -> None:
        self.window.add(progress)
        if progress.env_steps - self.last_line >= 10_000:
            self.recorder.record(self.window.line())
            self.last_line = progress.env_steps
