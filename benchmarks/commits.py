"""Does a change keep the speed? Measure our own training at two commits by turns, for every row of works.py.

    python benchmarks/commits.py OLD                    the commit OLD against the working tree
    python benchmarks/commits.py OLD NEW                two commits
    python benchmarks/commits.py OLD --only DQN         rows whose name or title contains the text
    python benchmarks/commits.py OLD --pairs 9          more pairs of windows, for a machine that is not quiet
    python benchmarks/commits.py OLD --preset ppo/cartpole --preset sac/pendulum
                                                        these presets uncompiled, by processor time of one thread

Each commit has a worker process that trains without an end. The workers are measured in turn, old, new, old, new, each
time for one window of a few seconds; the one that is not measured waits. Imports, compiling and warm-up are left out.
The ratio of a row is the median over its pairs of the new speed divided by the old one. A row is SLOWER if its ratio is
below 0.97, a preset below 0.98. The exit code is 1 if any is. Rows that differ only in the peer are the same work here
and are measured once. Run it on a machine that does nothing else. Presets may be measured on a busy one: other programs
do not use up processor time, though they make it worth a little less.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers import WARM_UP, Worker, cores, start_config
from works import ENDLESS, WORKS, own_works

from rl_training.config.loading import load_config

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAIRS, WINDOW = 5, 4.0
LIMIT, PRESET_LIMIT = 0.97, 0.98


@dataclass(frozen=True)
class Row:
    """The environment steps per second of one work at both commits, window by window."""

    title: str
    old: Sequence[float]
    new: Sequence[float]
    limit: float = LIMIT

    @property
    def ratios(self) -> list[float]:
        return [new / old for old, new in zip(self.old, self.new, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def is_slower(self) -> bool:
        return self.ratio < self.limit

    def __str__(self) -> str:
        speeds = [f"{statistics.median(speeds):,.0f}" for speeds in (self.old, self.new)]
        ratio = f"{self.ratio:.3f} ({min(self.ratios):.3f} .. {max(self.ratios):.3f})"
        verdict = "SLOWER" if self.is_slower else f"within {100 * (1 - self.limit):.0f} %"
        return " | ".join(["", self.title, *speeds, ratio, verdict, ""]).strip()


HEADER = "| work | old | new | new/old | |\n| --- | --- | --- | --- | --- |"


def chosen_works(only: str) -> list[str]:
    text = only.lower()
    return own_works([name for name, work in WORKS.items() if text in name.lower() or text in work.title.lower()])


@dataclass(frozen=True)
class Task:
    """What a row trains, and by which clock its windows are measured."""

    title: str
    config: dict[str, Any]
    threads: int
    clock: str
    limit: float


def task_of_work(name: str) -> Task:
    return Task(WORKS[name].title, WORKS[name].ours, cores(), "wall", LIMIT)


def task_of_preset(preset: str) -> Task:
    """The preset without an end and without evaluations, exploring as in most of its run."""
    config: dict[str, Any] = {"preset": preset, "total_timesteps": ENDLESS, "eval_every": 0, "compile": "off"}
    if hasattr(load_config(preset).algo_kwargs, "exploration"):
        config["algo_kwargs.exploration"] = 0.05
    return Task(preset, config, 1, "processor", PRESET_LIMIT)


def measure(task: Task, checkouts: Sequence[Path], pairs: int, window: float) -> Row:
    workers: list[Worker] = []
    try:
        for checkout in checkouts:
            path = {"PYTHONPATH": os.pathsep.join([str(HERE), str(checkout / "src")])}
            workers.append(start_config(task.config, min(WARM_UP, window), path, task.threads, task.clock))
        rates: list[list[float]] = [[], []]
        for pair in range(pairs):
            for index in (0, 1) if pair % 2 == 0 else (1, 0):  # neither commit is always the first of a pair
                rates[index].append(workers[index].rate(window))
    finally:
        for worker in workers:
            worker.stop()
    return Row(task.title, *rates, task.limit)


def check_out(commit: str | None, folder: Path) -> Path:
    """`src` of a commit, or a copy of that of the working tree, which may change during the measurement."""
    folder.mkdir()
    if commit is None:
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        return folder
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        raise SystemExit(f"{commit}: no such commit in {ROOT}")
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", help="commit, branch or tag before the change")
    parser.add_argument("new", metavar="NEW", nargs="?", help="commit after the change; default: the working tree")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"windows of each commit (default: {PAIRS})")
    parser.add_argument("--window", type=float, default=WINDOW, help=f"seconds of one window (default: {WINDOW:g})")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", metavar="TEXT", default="", help="rows whose name or title contains TEXT")
    chosen.add_argument("--preset", metavar="NAME", action="append", help="a preset instead of rows; may be repeated")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.preset:
        tasks = [task_of_preset(preset) for preset in arguments.preset]
    else:
        tasks = [task_of_work(name) for name in chosen_works(arguments.only)]
    if not tasks:
        raise SystemExit(f"--only {arguments.only}: no row has such a name; there are {', '.join(WORKS)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        commits = {"old": arguments.old, "new": arguments.new}
        checkouts = [check_out(commit, Path(folder) / name) for name, commit in commits.items()]
        print(HEADER, flush=True)
        for task in tasks:
            rows.append(measure(task, checkouts, arguments.pairs, arguments.window))
            print(rows[-1], flush=True)
    worst = min(rows, key=lambda row: row.ratio)
    print(f"\nworst ratio: {worst.ratio:.3f} ({worst.title})")
    return 1 if worst.is_slower else 0


if __name__ == "__main__":
    sys.exit(main())
