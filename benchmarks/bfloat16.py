"""What `precision: bfloat16` saves: processor time of an update in both precisions, by turns."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable

from parts import set_up
from works import WORKS, own_works

from rl_training.config.loading import load_config
from rl_training.models.layers.precision import has_bfloat16
from rl_training.zoo.results import processor

# Those with convolutions or wide layers. The others compute the same in both precisions.
WORTH = ("sac", "td3", "ddpg", "ppo-atari", "dqn-atari")
PRECISIONS = ("float32", "bfloat16")
PAIRS, WARM_UP = 7, 3


def bfloat16(names: list[str], seconds: float) -> list[str]:
    """One row per workload, with one thread, so that other load on the machine does not matter."""
    if not has_bfloat16():
        raise SystemExit("this processor has no instructions for bfloat16")
    lines = [
        "## bfloat16",
        "",
        f"Processor milliseconds of an update with one thread, on an {processor()}: medians of {PAIRS} pairs by turns,",
        "and median (worst .. best) of their ratios. An update of PPO is all epochs on one rollout.",
        "",
        "| workload | compiled | float32 | bfloat16 | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in own_works(names):
        for compiled in ("off", "on") if name in WORTH else ():
            measured = _measure(name, compiled, seconds / 10)
            ratios = [old / new for old, new in zip(*measured.values(), strict=True)]
            cells = [f"{1000 * statistics.median(each):.2f}" for each in measured.values()]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})"
            lines.append(f"| {WORKS[name].title} | {compiled} | {' | '.join(cells)} | {spread} |")
            print(lines[-1], flush=True)
    return lines


def _measure(name: str, compiled: str, seconds: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    with contextlib.ExitStack() as stack:
        updates = {}
        for precision in PRECISIONS:
            changes = {"precision": precision, "compile": compiled, "threads": 1}
            updates[precision] = _last_update(stack, name, changes)
        for _ in range(PAIRS):
            for precision, update in updates.items():
                count, started = 0, time.process_time()
                while count == 0 or time.process_time() - started < seconds:
                    update()
                    count += 1
                times[precision].append((time.process_time() - started) / count)
    return times


def _last_update(stack: contextlib.ExitStack, name: str, changes: dict[str, object]) -> Callable[[], object]:
    """The update that a short run ends with, to be repeated."""
    loop = stack.enter_context(set_up(load_config(WORKS[name].ours, changes)))
    learner = loop.learner
    update, batches = learner.update, []
    learner.update = lambda batch: (batches.append(batch), update(batch))[1]  # type: ignore[method-assign]
    for progress in loop:
        if progress.updates >= WARM_UP:
            break
    return lambda: update(batches[-1])
