"""The workers of other libraries: programs of a checkout, each with a virtual environment of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_training.text import clean_text, one_line
from rl_training.zoo.clock.board import Side, WorkerText
from rl_training.zoo.clock.worker_process import clean_environment

PROBE = "--probe"
PROBE_SECONDS = 300.0
OWN_CHECKOUT = Path(__file__).resolve().parents[4]  # if the package is run from one
SCRIPTS = "benchmarks"


@dataclass(frozen=True)
class Peers:
    """Which libraries can be run here, with their versions, and one line about each that cannot."""

    checkout: Path | None
    versions: Mapping[str, str]
    missing: Mapping[str, str]

    def command(self, side: Side) -> list[str]:
        assert self.checkout is not None and side.worker is not None
        return [str(python_of(side.worker, self.checkout)), str(self.checkout / SCRIPTS / side.worker.script)]

    def environment(self, side: Side) -> dict[str, str]:
        threads = (
            {}
            if side.text.threads is None
            else dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(side.text.threads))
        )
        return {**import_path(self.checkout), **threads}


def import_path(checkout: Path | None) -> dict[str, str]:
    """The checkout alone: a worker needs its stopwatch, and nothing of the packages that are installed here."""
    return {} if checkout is None else {"PYTHONPATH": str(checkout / "src")}


def python_of(worker: WorkerText, checkout: Path) -> Path:
    return checkout / worker.python / "bin" / "python"


def find_checkout(given: Path | None) -> Path | None:
    """The directory with the workers: the given one, or that of this package if it is run from a checkout."""
    place = OWN_CHECKOUT if given is None else given.absolute()
    return place if (place / SCRIPTS).is_dir() else None


def probe(sides: Iterable[Side], checkout: Path | None, *, start: bool = True) -> Peers:
    """Start each worker once. That also brings its files into memory, so that no first run reads them from the disk.

    Without `start` only the files are looked for.
    """
    workers = {side.library: side.worker for side in sides if side.worker is not None}
    versions, missing = {}, {}
    for name, worker in workers.items():
        if checkout is None:
            way = f"name it with --checkout DIR, after `{worker.setup}` there"
            missing[name] = f"{worker.title} is left out: it needs a checkout of rl_training; {way}"
            continue
        found, problem = _answer(worker, checkout, start)
        if problem:
            missing[name] = f"{worker.title} is left out: {problem}; `{worker.setup}` in {checkout} installs it"
        else:
            versions[name] = found
    return Peers(checkout, versions, missing)


def _answer(worker: WorkerText, checkout: Path, start: bool) -> tuple[str, str | None]:
    """The versions of a worker, and why it cannot run."""
    python, script = python_of(worker, checkout), checkout / SCRIPTS / worker.script
    for path in (script, python):
        if not path.is_file():
            return "", f"{path} is missing"
    if not start:
        return "", None
    try:
        done = subprocess.run(
            [str(python), str(script), PROBE], env=clean_environment(import_path(checkout)), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PROBE_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", one_line(error)
    lines = [line for line in (done.stdout if done.returncode == 0 else done.stderr).splitlines() if line.strip()]
    if done.returncode != 0:
        return "", one_line(lines[-1]) if lines else f"exit code {done.returncode}"
    try:
        answer = json.loads(lines[-1])
        return clean_text(", ".join(f"{name} {version}" for name, version in answer.items())), None
    except (IndexError, ValueError, AttributeError):
        return "", "it did not print its versions"
