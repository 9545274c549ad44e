"""A sitting: the runs of a board that are missing, one at a time, the sides by turns."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import rl_training
from rl_training.storage.durable_files import make_directory
from rl_training.storage.run_lock import hold_lock
from rl_training.storage.session_record import describe_session
from rl_training.zoo.clock.board import OURS, Side, Task
from rl_training.zoo.clock.clock_results import Origin, find_result, result_path, save_result
from rl_training.zoo.clock.foreign_load import MOST_LOAD
from rl_training.zoo.clock.peers import Peers
from rl_training.zoo.clock.worker_process import Measured, RunFailed, SittingStopped, measure
from rl_training.zoo.results import this_machine

SHOWN_PACKAGES = ("torch", "numpy", "gymnasium")
LOCK = ".sitting.lock"
# Our evaluations are those of the clock; the run's own would come on top.
OWN_SETTINGS: dict[str, Any] = {
    "eval_every": 0,
    "eval_episodes": 1,
    "eval_max_steps": 1,
    "callbacks": ["rl_training.zoo.clock.own_side:ClockCallback"],
}


@dataclass(frozen=True)
class Turn:
    task: Task
    side: Side
    seed: int

    @property
    def title(self) -> str:
        return f"{self.task.name} seed {self.seed} {self.side.name}"


@dataclass
class Sitting:
    """`warm` also runs each seed a second time, with the compiled code that the first run left."""

    folder: Path
    peers: Peers
    warm: bool = False
    repeats: int = 1
    tell: Callable[[str], None] = lambda text: None
    stopped: Callable[[], bool] = lambda: False
    failures: dict[str, str] = field(default_factory=dict)  # by the title of the turn

    def run(self, turns: Sequence[Turn]) -> bool:
        """Do the turns; False if a signal stopped them. A run that fails does not end the others."""
        sitting = datetime.now(timezone.utc).isoformat(timespec="seconds")
        make_directory(self.folder)
        with hold_lock(self.folder / LOCK, f"{self.folder}, where another sitting", patience=1.0):
            for number, turn in enumerate(turns, start=1):
                try:
                    self._run(turn, sitting, f"({number} of {len(turns)})")
                except SittingStopped:
                    return False
                except RunFailed as error:
                    self.failures[turn.title] = str(error)
                    self.tell(f"{turn.title}: failed: {error}")
        return True

    def _run(self, turn: Turn, sitting: str, place: str) -> None:
        origin = Origin(sitting, this_machine(), self._versions(turn.side))
        with tempfile.TemporaryDirectory(prefix="clock-", ignore_cleanup_errors=True) as scratch:
            cache = Path(scratch) / "cache"
            for warm in (False, True) if self.warm else (False,):
                if warm and not _has_files(cache):
                    return  # nothing was compiled, so a second run is like the first
                measured = self._measure(turn, Path(scratch), cache, warm)
                path = result_path(self.folder, turn.task, turn.side, turn.seed, warm)
                save_result(path, turn.task, turn.side, measured, origin, _has_files(cache))
                self.tell(f"{turn.title}{' again' if warm else ''}: {told(measured)} {place}")

    def _measure(self, turn: Turn, scratch: Path, cache: Path, warm: bool) -> Measured:
        """The run with the least foreign load of those that it takes to have one with little."""
        tries: list[Measured] = []
        for number in range(self.repeats + 1):
            if self.stopped():
                raise SittingStopped
            if not warm:
                shutil.rmtree(cache, ignore_errors=True)
            folder = scratch / f"{'warm' if warm else 'cold'}-{number}"
            folder.mkdir()
            tries.append(measure(*self._command(turn, folder, cache), self._request(turn), folder, self.stopped))
            shutil.rmtree(folder, ignore_errors=True)
            load = tries[-1].foreign_load
            if load is None or load <= MOST_LOAD:
                break
            if number < self.repeats:
                self.tell(f"{turn.title}: other programs took {load:.2f} cores, once more")
        return min(tries, key=lambda each: each.foreign_load or 0.0)

    def _command(self, turn: Turn, folder: Path, cache: Path) -> tuple[list[str], dict[str, str]]:
        side = turn.side
        compiled = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
        if side.source is None:
            return self.peers.command(side), {**self.peers.environment(side), **compiled}
        words = [sys.executable, "-m", "rl_training", "train", side.source, "--quiet", "--seed", str(turn.seed)]
        words += ["--output-dir", str(folder / "runs")]
        for key, value in {**side.text.set, **OWN_SETTINGS}.items():
            words += ["--set", f"{key}={json.dumps(value)}"]
        return words, {"PYTHONPATH": own_import_path(), "XDG_CACHE_HOME": str(cache), **compiled}

    def _request(self, turn: Turn) -> dict[str, Any]:
        side = turn.side
        facts = {"side": side.name, "library": side.library, "seed": turn.seed, "threads": side.text.threads}
        return {**turn.task.rule, **facts, "settings": side.text.settings}

    def _versions(self, side: Side) -> str:
        return own_versions() if side.library == OURS else self.peers.versions[side.library]


def own_import_path() -> str:
    """This package and the user's own modules: a run has another working directory."""
    package = str(Path(str(rl_training.__file__)).resolve().parents[1])
    given = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    return os.pathsep.join([package, *given, os.getcwd()])


def own_versions() -> str:
    session = describe_session(0)
    versions, commit = session["versions"], (session["package_git"] or {}).get("commit")
    own = versions["rl-training"] + (f" at {str(commit)[:9]}" if commit else "")
    return ", ".join([f"rl_training {own}", *(f"{name} {versions.get(name, '?')}" for name in SHOWN_PACKAGES)])


def told(measured: Measured) -> str:
    """How a run ended, in a few words."""
    last = f"{measured.points[-1]['mean']:,.1f}" if measured.points else "no evaluation"
    at = f"after {measured.env_steps:,} steps"
    busy = measured.foreign_load
    load = f", other programs took {busy:.2f} cores" if busy is not None and busy > MOST_LOAD else ""
    if measured.end == "solved":
        return f"{last} {at}, solved in {measured.seconds:.1f} s{load}"
    if measured.end == "minutes":
        return f"{last} {at} in {measured.seconds / 60:.1f} min{load}"
    return f"{last} {at}, not solved in {measured.seconds:.0f} s{load}"


def all_turns(tasks: Sequence[Task], seeds: Sequence[int]) -> Iterator[Turn]:
    """Task by task and seed by seed. The sides take turns, and each seed begins with another one."""
    for task in tasks:
        for place, seed in enumerate(seeds):
            first = place % len(task.sides)
            for side in (*task.sides[first:], *task.sides[:first]):
                yield Turn(task, side, seed)


def is_done(turn: Turn, folder: Path, warm: bool) -> bool:
    cold = find_result([folder], turn.task, turn.side, turn.seed)
    if cold is None or not (warm and cold.compiled):
        return cold is not None
    return find_result([folder], turn.task, turn.side, turn.seed, warm=True) is not None


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_file() for path in folder.rglob("*"))
