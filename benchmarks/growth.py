"""How the cost of a step grows: with the number of envs, the width of the network and the size of the replay buffer."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from parts import Clock, run_for, set_up
from works import WORKS

from rl_training.config.loading import load_config
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_factory import make_replay
from rl_training.envs.spaces import Spaces
from rl_training.storage.replay_segments import write_segment

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "growth.png"
ENVS, WIDTHS = (1, 4, 16, 64, 256, 1024, 4096), (64, 128, 256, 512, 1024)
REPLAYS = (10_000, 100_000, 1_000_000, 10_000_000)
WRITERS = 100  # envs that fill a replay buffer, so that it is full soon
NEW_ROWS = 20_000  # between two checkpoints of a run with the default interval
BATCH, DRAWS = 256, 400


@dataclass(frozen=True)
class Size:
    """One size of a run: microseconds per env step of its two parts."""

    envs: int
    width: int
    collecting: float
    learning: float

    @property
    def total(self) -> float:
        return self.collecting + self.learning

    @property
    def largest(self) -> str:
        return "learning" if self.learning > self.collecting else "collecting"


@dataclass(frozen=True)
class Replay:
    """One size of a replay buffer: microseconds of a batch, and milliseconds of what a checkpoint writes of it."""

    rows: int
    megabytes: float
    uniform: float
    by_priority: float
    new_rows: float
    all_rows: float


def growth(
    names: list[str],
    seconds: float,
    envs: Sequence[int] = ENVS,
    widths: Sequence[int] = WIDTHS,
    replays: Sequence[int] = REPLAYS,
    picture: Path | None = PICTURE,
) -> list[str]:
    """PPO on CartPole with more envs (8 to a width of 64) and wider networks; a replay of HalfCheetah's transitions."""
    by_envs = [ppo_size(number, 64, seconds) for number in envs]
    by_width = [ppo_size(8, width, seconds) for width in widths]
    by_rows = [replay_size(rows) for rows in replays]
    if picture is not None:
        draw(by_envs, by_width, by_rows, picture)
    lines = [
        "## Scaling",
        "",
        "PPO on CartPole, compiled: microseconds per env step, and which part takes more of them. Collecting is acting",
        "and the environments, learning the whole update. Rollouts have 128 steps, 64 from 256 envs on, and four",
        "minibatches of at most 8192 rows.",
        "",
        "| envs | width | steps/s | us per step | collecting | learning | the larger part |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {size.envs} | {size.width} | {1e6 / size.total:,.0f} | {size.total:.1f} | {size.collecting:.1f} "
        f"| {size.learning:.1f} | {size.largest} |"
        for size in (*by_envs, *by_width)
    ]
    lines += ["", *changes("envs", by_envs), *changes("width", by_width)]
    lines += [
        "",
        "A replay buffer of HalfCheetah's transitions (17 numbers, 6 actions), full: processor microseconds to draw",
        f"{BATCH} rows, uniformly and by priority, and milliseconds to write what a checkpoint writes: the",
        f"{NEW_ROWS:,} rows since the last one, or, once per buffer, all of them.",
        "",
        "| rows | MB | uniform, us | by priority, us | new rows, ms | all rows, ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {size.rows:,} | {size.megabytes:,.0f} | {size.uniform:.0f} | {size.by_priority:.0f} | {size.new_rows:.0f} "
        f"| {size.all_rows:,.0f} |"
        for size in by_rows
    ]
    if picture is not None:
        lines += ["", f"![Cost of a step by envs, width and replay size]({picture.name})"]
    return lines


def changes(name: str, sizes: Sequence[Size]) -> list[str]:
    """Where the larger part changes, in a sentence each."""
    found = [
        f"From {getattr(after, name):,} ({name}) on, {after.largest} takes more time than {before.largest}."
        for before, after in pairwise(sizes)
        if before.largest != after.largest
    ]
    return found or [f"{sizes[0].largest.capitalize()} is the larger part at every number of {name}."]


def ppo_size(num_envs: int, width: int, seconds: float) -> Size:
    num_steps = 128 if num_envs <= 64 else 64
    settings = {
        "num_envs": num_envs,
        "hidden_sizes": [width, width],
        "num_steps": num_steps,
        "minibatch_size": min(8192, num_envs * num_steps // 4),
    }
    clock = Clock()
    with set_up(load_config(WORKS["ppo"].ours, settings)) as loop:
        clock.watch(loop.learner, "update", "learning")
        steps, elapsed = run_for(loop, seconds, clock=clock)
    learning = clock.seconds["learning"]
    return Size(num_envs, width, 1e6 * (elapsed - learning) / steps, 1e6 * learning / steps)


def replay_size(rows: int) -> Replay:
    replay = full_replay(rows, prioritized=False)
    first, newest, megabytes = replay.oldest_row, replay.rows_written, replay.nbytes / 1e6
    uniform = draw_seconds(replay, None)
    new_rows = saving_seconds(replay, max(first, newest - NEW_ROWS // WRITERS), newest)
    all_rows = saving_seconds(replay, first, newest)
    del replay  # two large ones may not fit into memory
    by_priority = draw_seconds(full_replay(rows, prioritized=True), 0.4)
    return Replay(rows, megabytes, 1e6 * uniform, 1e6 * by_priority, 1e3 * new_rows, 1e3 * all_rows)


def full_replay(rows: int, *, prioritized: bool) -> ReplayBuffer:
    spaces = Spaces(gym.spaces.Box(-1, 1, (17,), np.float32), gym.spaces.Box(-1, 1, (6,), np.float32))
    kwargs: dict[str, Any] = {"buffer_size": rows, "prioritized": prioritized}
    settings = load_config({"algo": "td3", "env_id": "Pendulum-v1", "algo_kwargs": kwargs}).algo_kwargs
    replay = make_replay(spaces, settings, WRITERS, {})  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    obs, action = rng.random((2, WRITERS, 17), np.float32), rng.random((WRITERS, 6), np.float32)
    reward, never = rng.random(WRITERS, np.float32), np.zeros(WRITERS, bool)
    for _ in range(rows // WRITERS):
        replay.add(obs[0], action, reward, obs[1], never, never)
    return replay


def draw_seconds(replay: ReplayBuffer, exponent: float | None) -> float:
    """Processor seconds of a batch, the median of batches one by one; with priorities, `exponent` is theirs."""
    rng = np.random.default_rng(1)
    return timed(lambda: replay.sample(BATCH, rng, exponent), DRAWS, time.process_time)


def saving_seconds(replay: ReplayBuffer, start: int, stop: int) -> float:
    """Wall seconds: a checkpoint waits for the disk."""
    with tempfile.TemporaryDirectory() as folder:
        return timed(lambda: write_segment(folder, start, stop, replay.export_rows(start, stop)), 3, time.perf_counter)


def timed(call: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    call()
    measured = []
    for _ in range(times):
        started = clock()
        call()
        measured.append(clock() - started)
    return statistics.median(measured)


def draw(by_envs: Sequence[Size], by_width: Sequence[Size], by_rows: Sequence[Replay], path: Path) -> None:
    """Four panels with logarithmic axes: a straight line upward grows as fast as its work."""
    from rl_training.analysis.chart import COLORS, chart_style, new_figure, save_png

    with chart_style("install it to draw the picture"):
        figure = new_figure((15.0, 4.0))
        panels = figure.subplots(1, 4)
        for axes, name, sizes in ((panels[0], "envs", by_envs), (panels[1], "width", by_width)):
            at = [getattr(size, name) for size in sizes]
            for color, part in zip(COLORS, ("collecting", "learning"), strict=False):
                axes.plot(at, [getattr(size, part) for size in sizes], color=color, marker="o", label=part)
            for before, after in pairwise(sizes):
                if before.largest != after.largest:
                    axes.axvline(getattr(after, name), color="#556272", linewidth=0.9, linestyle="dotted")
            axes.set_xlabel("environments, width 64" if name == "envs" else "units per layer, 8 environments")
            axes.set_title("PPO: μs per env step")
        rows = [size.rows for size in by_rows]
        panels[2].plot(rows, [size.uniform for size in by_rows], color=COLORS[0], marker="o", label="uniform")
        panels[2].plot(rows, [size.by_priority for size in by_rows], color=COLORS[1], marker="o", label="by priority")
        panels[2].set_title(f"Replay: μs for {BATCH} rows")
        panels[3].plot(
            rows, [size.new_rows for size in by_rows], color=COLORS[0], marker="o", label=f"{NEW_ROWS:,} new rows"
        )
        panels[3].plot(rows, [size.all_rows for size in by_rows], color=COLORS[1], marker="o", label="all rows, once")
        panels[3].set_title("Checkpoint of a replay: ms")
        for axes in panels:
            axes.set_xscale("log")
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(lambda value, _: f"{value / 1e6:g}M" if value >= 1e6 else f"{value:,.6g}")
                axis.set_minor_formatter(lambda value, _: "")
            axes.legend()
        for axes in panels[2:]:
            axes.set_xlabel("rows in the replay buffer")
        save_png(figure, path)
