"""The cost of checkpoints: how long training waits for them, at the cadence of the presets."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from rl_training.config.loading import load_config
from rl_training.runtime import session, workflows

# Env steps, for two or three checkpoints. These are the fastest presets, where a checkpoint matters most.
CADENCES = {"ppo/cartpole": 60_000, "a2c/cartpole": 200_000, "dqn/cartpole": 20_000, "sac/pendulum": 10_000}
# The same at the default interval, `checkpoint_every: auto`.
DEFAULT_CADENCES = {"ppo/cartpole": 110_000, "a2c/cartpole": 220_000, "dqn/cartpole": 41_000}


@dataclass(frozen=True)
class Cost:
    every: int  # env steps between checkpoints
    seconds: list[float]  # per checkpoint
    share: float  # of the wall-clock time between the first and the last step
    processor_seconds: list[float]  # per checkpoint: unlike `seconds`, they do not depend on other programs

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def saving_cost(preset: str, steps: int | None = None, *, auto: bool = False) -> Cost:
    """Train `steps` env steps of a preset without evaluations, and time its saves. `auto`: at the default interval."""
    waited: list[float] = []
    worked: list[float] = []
    plain: Callable[..., None] = session.Session._save
    started = 0.0

    def timed(self: Any, **options: Any) -> None:
        nonlocal started
        before, before_of_processor = time.perf_counter(), time.process_time()
        plain(self, **options)
        if started:
            waited.append(time.perf_counter() - before)
            worked.append(time.process_time() - before_of_processor)
        else:
            started = time.perf_counter()  # the first save is at step 0, before training

    ended = 0.0

    def keep_time(progress: Any) -> None:
        nonlocal ended
        ended = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(session.Session, "_save", timed):
        changes = {
            "output_dir": folder,
            "total_timesteps": steps or (DEFAULT_CADENCES if auto else CADENCES)[preset],
            "eval_every": 0,
            "eval_episodes": 1,
            **({"checkpoint_every": "auto"} if auto else {}),
        }
        result = workflows.train(load_config(preset, changes), callback=keep_time, show=False)
    assert waited, f"{preset}: no checkpoint within {changes['total_timesteps']} steps"
    return Cost(int(result.agent.config.checkpoint_every), waited, sum(waited) / (ended - started), worked)


def saving(names: list[str], seconds: float) -> list[str]:
    lines = [
        "## Cost of checkpoints",
        "",
        "Time that training waits for checkpoints, at the cadence of each preset and at the default one (`auto`).",
        "",
    ]
    lines += ["| preset | checkpoint every | milliseconds each | share of time | bar |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for preset, auto in [*((name, False) for name in CADENCES), *((name, True) for name in DEFAULT_CADENCES)]:
        cost = saving_cost(preset, auto=auto)
        every = f"{cost.every:,} steps{', auto' if auto else ''}"
        lines.append(f"| {preset} | {every} | {1000 * cost.median:.0f} | {100 * cost.share:.2f} % | 2 % |")
    return lines
