"""Does a change keep the numbers? Run every packaged preset for a short budget at two commits and compare the results.

    python scripts/same_numbers.py OLD                the commit OLD against the working tree
    python scripts/same_numbers.py OLD NEW            two commits
    python scripts/same_numbers.py OLD --only ppo/    only the presets of PPO (may be repeated; see below)
    python scripts/same_numbers.py OLD --jobs 2       two presets at a time
    python scripts/same_numbers.py OLD --compile on   with compiled gradient steps, where the algorithm has them

It compares the metric streams without wall-clock values, every tensor and value of the checkpoints, and the replay
segments, bit for bit. The order of keys does not count. A preset that differs gets one line with its first difference.
The last line says how many are equal. The exit code is 0 only if all of them are.

Runs are kept in the cache folder, by commit and options, so a commit is trained once: 2 to 4 minutes on one core,
200 MB. A commit against itself is trained a second time, which shows whether the numbers repeat at all. The budget of a
run is in same_numbers_runs.py, the comparison in same_numbers_compare.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from same_numbers_compare import first_difference
from same_numbers_runs import RUN

# Names in the state of a checkpoint that NEW has changed: old name -> new name, such as
# "learner/parts/return_normalizer": "loop/return_normalizer". An entry holds for everything below the name, too.
RENAMED: dict[str, str] = {}
# Metrics and names in the state of a checkpoint that NEW has and OLD does not. All others must be equal.
ADDED = frozenset(
    {"dead_units", "entropy_share", "longest_episode", "reward_clipped", "reward_max", "target_std"}
    | {"loop/longest_episode", "loop/reward_max"}
)

ROOT = Path(__file__).resolve().parent.parent
CHILD = Path(__file__).resolve().parent / "same_numbers_runs.py"
CACHE = Path(tempfile.gettempdir()) / "rl_training_same_numbers"
PRESETS = Path("src") / "rl_training" / "assets" / "configs"
ERROR = "error.txt"
ONLY = "presets that begin with TEXT, such as ppo/, or have it behind the slash, such as atari; may be repeated"


@dataclass(frozen=True)
class Side:
    """One of the two versions: a checkout of its `src`, and the folder that keeps its runs."""

    title: str
    checkout: Path
    results: Path

    def presets(self) -> list[str]:
        root = self.checkout / PRESETS
        return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def main() -> int:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="same_numbers_") as folder:
        old = prepare(arguments.old, Path(folder) / "old", arguments)
        new = prepare(arguments.new, Path(folder) / "new", arguments)
        if new.results == old.results:
            new = replace(new, results=old.results.with_name(f"{old.results.name}-again"))
            shutil.rmtree(new.results, ignore_errors=True)
        chosen = [name for name in sorted({*old.presets(), *new.presets()}) if is_chosen(name, arguments.only)]
        if not chosen:
            raise SystemExit(f"--only {' '.join(arguments.only)}: no preset has such a name")
        for side in (old, new):
            train_missing(side, [name for name in side.presets() if name in chosen], arguments)
    return report(chosen, old, new)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", help="commit, branch or tag before the change")
    parser.add_argument("new", metavar="NEW", nargs="?", help="commit after the change; default: the working tree")
    parser.add_argument("--only", metavar="TEXT", action="append", default=[], help=ONLY)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    parser.add_argument("--compile", choices=("on", "off"), default="off", help="compile gradient steps (default: off)")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"folder that keeps the runs (default: {CACHE})")
    parser.add_argument("--fresh", action="store_true", help="train again, even where the cache has the runs")
    return parser.parse_args()


def is_chosen(preset: str, only: list[str]) -> bool:
    return not only or any(preset.startswith(text) or text in preset.partition("/")[2] for text in only)


def prepare(commit: str | None, checkout: Path, arguments: argparse.Namespace) -> Side:
    """Check out `src` of a commit, or copy that of the working tree, which may change while the presets run."""
    if commit is None and not git("status", "--porcelain", "--", "src"):
        commit = "HEAD"
    checkout.mkdir()
    if commit is None:
        shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        title, key = "the working tree", f"tree-{content_digest(checkout / 'src')}"
    else:
        sha = git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
        if not sha:
            raise SystemExit(f"{commit}: no such commit in {ROOT}")
        archive = subprocess.run(["git", "archive", sha, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=checkout, input=archive, check=True)
        title, key = sha[:12], sha
    return Side(title, checkout, arguments.cache.resolve() / f"{key}-{options_digest(arguments.compile)}")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def content_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:40]


def options_digest(compiled: str) -> str:
    """All that decides the numbers besides the commit: the options, the budgets, and the versions of the packages."""
    packages = [f"{name} {version(name)}" for name in ("torch", "numpy", "gymnasium")]
    facts = [compiled, CHILD.read_text(encoding="utf-8"), platform.machine(), platform.python_version(), *packages]
    return f"compile-{compiled}-{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:12]}"


def train_missing(side: Side, presets: list[str], arguments: argparse.Namespace) -> None:
    """Train the presets that the cache lacks, with `--jobs` child processes that take them one by one."""
    for name in presets if arguments.fresh else ():
        shutil.rmtree(side.results / name, ignore_errors=True)
    missing = [name for name in presets if not (side.results / name / RUN).is_dir()]
    say(f"{side.title}: {len(presets) - len(missing)} presets in the cache, {len(missing)} to train")
    if not missing:
        return
    started = time.perf_counter()
    side.results.mkdir(parents=True, exist_ok=True)
    waiting: queue.Queue[str] = queue.Queue()
    for name in missing:
        waiting.put(name)
    workers = [Worker(side, waiting, arguments.compile) for _ in range(arguments.jobs)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    except BaseException:
        for worker in workers:
            worker.give_up()
        raise
    say(f"{side.title}: trained {len(missing)} presets in {time.perf_counter() - started:.0f} s, in {side.results}")


class Worker(threading.Thread):
    """Feeds one child process until no preset waits. A child that dies is replaced."""

    def __init__(self, side: Side, waiting: queue.Queue[str], compiled: str):
        super().__init__()
        self.side, self.waiting, self.compiled = side, waiting, compiled
        self.process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix=".training-", dir=self.side.results) as folder:
            while (preset := self._next_preset()) is not None:
                place = Path(folder) / preset
                place.mkdir(parents=True)
                error = self._train(preset, place, Path(folder) / "child.log")
                if error is not None:
                    say(f"{self.side.title}: {preset} failed: {last_line(error)}")
                    (place / ERROR).write_text(error, encoding="utf-8")
                move(place, self.side.results / preset)
            if self.process is not None:
                self.process.communicate(timeout=120)

    def give_up(self) -> None:
        while self._next_preset() is not None:
            pass
        if self.process is not None:
            self.process.kill()
        self.join()

    def _next_preset(self) -> str | None:
        try:
            return self.waiting.get_nowait()
        except queue.Empty:
            return None

    def _train(self, preset: str, folder: Path, log: Path) -> str | None:
        """Let the child train; its error, or None."""
        if self.process is None:
            self.process = self._start(log)
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{preset}\t{folder}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            error: str | None = json.loads(line)["error"]
            return error
        code, self.process = self.process.wait(), None
        return f"{log.read_text(errors='replace')[-2000:]}\nthe child process ended with exit code {code}"

    def _start(self, log: Path) -> subprocess.Popen[str]:
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        path = {"PYTHONPATH": str(self.side.checkout / "src"), "PYTHONHASHSEED": "0"}
        with log.open("w") as file:
            return subprocess.Popen(
                [sys.executable, str(CHILD), str(self.side.checkout), self.compiled],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, **single, **path},
                cwd=self.side.checkout,
            )


def move(source: Path, target: Path) -> None:
    """Put a finished run into the cache whole. A failed run makes way for a new attempt."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not (target / RUN).is_dir():
        shutil.rmtree(target)
    if (source / ERROR).exists():
        shutil.rmtree(source / RUN, ignore_errors=True)
    if not target.exists():
        os.rename(source, target)


def report(presets: list[str], old: Side, new: Side) -> int:
    equal = 0
    for preset in presets:
        difference = compare(preset, old, new)
        equal += difference is None
        if difference is not None:
            print(f"{preset}: {difference}", flush=True)
    print(f"{equal} of {len(presets)} presets are equal")
    return 0 if equal == len(presets) else 1


def compare(preset: str, old: Side, new: Side) -> str | None:
    folders = [side.results / preset for side in (old, new)]
    for name, folder in zip(("OLD", "NEW"), folders, strict=True):
        if (folder / ERROR).exists():
            return f"{name} cannot run it: {last_line((folder / ERROR).read_text(encoding='utf-8'))}"
        if not (folder / RUN).is_dir():
            return f"{name} does not have it"
    difference: str | None = first_difference(folders[0] / RUN, folders[1] / RUN, RENAMED, ADDED)
    return difference


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
