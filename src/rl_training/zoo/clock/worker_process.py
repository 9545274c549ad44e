"""One run of a board: a fresh process that is followed, measured and ended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.envs.processes.process_tree import end_family
from rl_training.storage.real_files import open_own_file
from rl_training.text import one_line
from rl_training.zoo.clock.foreign_load import ForeignLoad
from rl_training.zoo.clock.stopwatch import REQUEST

TICK_SECONDS = 0.05
GRACE_SECONDS = 60.0  # after the budget, for a worker that is in the middle of a round
LONGEST_EVALUATION = 1800.0
EVENTS, LOG = "events.jsonl", "output.log"
# A side starts without what the user's shell says about threads: each library, or the manifest, decides.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class RunFailed(Exception):
    """A worker died, hung or said that it cannot work; the text is one line."""


class SittingStopped(Exception):
    """A signal asked to stop."""


@dataclass
class Measured:
    """What a run reported, and how busy others kept the machine meanwhile, in cores."""

    end: str
    env_steps: int
    seconds: float
    wall_seconds: float
    processor_seconds: float
    foreign_load: float | None
    points: list[dict[str, float]] = field(default_factory=list)


def clean_environment(added: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name not in THREAD_VARIABLES} | dict(added)


def measure(
    command: Sequence[str],
    added: Mapping[str, str],
    request: Mapping[str, Any],
    folder: Path,
    stopped: Callable[[], bool] = lambda: False,
) -> Measured:
    """Run the command in `folder` until it has reported its end; RunFailed with one line if it never does."""
    events, log = folder / EVENTS, folder / LOG
    events.touch()
    load = ForeignLoad()
    request = {**request, "events": str(events), "started": time.monotonic()}
    (folder / "request.json").unlink(missing_ok=True)
    with open_own_file(folder / "request.json", "x", encoding="utf-8") as file:
        file.write(json.dumps(request))
    environment = clean_environment({**added, REQUEST: str(folder / "request.json")})
    limit = request["budget"] if request["budget"] is not None else 60.0 * max(request["minutes"])
    log.unlink(missing_ok=True)
    with open_own_file(log, "xb") as output:
        process = subprocess.Popen(
            list(command), env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        story = _follow(process, events, limit, float(request["started"]), stopped)
        if story[-1]["event"] == "overdue" and request["minutes"]:
            raise RunFailed(f"it went on for {GRACE_SECONDS:g} s after its {limit:g} s and was ended")
        foreign = load.cores(process.pid if process.returncode is None else None)
    finally:
        end_family(process.pid)
        process.wait()
    end = story[-1]
    if end["event"] == "failed":
        raise RunFailed(one_line(end["reason"]))
    if end["event"] not in ("end", "overdue"):
        raise RunFailed(f"its process exited with code {process.returncode} before its end: {last_line(log)}")
    names = ("env_steps", "seconds", "mean", "episodes")
    points = [{name: line[name] for name in names} for line in story if line["event"] == "evaluated"]
    return Measured(end["reason"], end["env_steps"], end["seconds"], end["wall"], end["processor"], foreign, points)


def _follow(
    process: subprocess.Popen[bytes], path: Path, limit: float, started: float, stopped: Callable[[], bool]
) -> list[dict[str, Any]]:
    """The events up to the last one, or until the process is over."""
    story: list[dict[str, Any]] = [{"event": "start"}]
    rest, paused, pause_began = "", 0.0, None
    with open(path, encoding="utf-8") as file:
        while True:
            is_over = process.poll() is not None  # asked first: what it wrote before is still read
            *lines, rest = (rest + file.read()).split("\n")
            for line in lines:
                story.append(json.loads(line))
                if story[-1]["event"] in ("end", "failed"):
                    return story
                now = time.monotonic()
                if story[-1]["event"] == "evaluates":
                    pause_began = now
                elif pause_began is not None:
                    paused, pause_began = paused + now - pause_began, None
            if is_over:
                return story
            if stopped():
                raise SittingStopped
            now = time.monotonic()
            if pause_began is not None and now - pause_began > LONGEST_EVALUATION:
                raise RunFailed(f"an evaluation did not end within {LONGEST_EVALUATION:g} s")
            if pause_began is None and now - started - paused > limit + GRACE_SECONDS:
                return [*story, _overdue(story, limit, now - started)]
            time.sleep(TICK_SECONDS)


def _overdue(story: list[dict[str, Any]], limit: float, wall: float) -> dict[str, Any]:
    """The end of a worker that trains on after its time: it has not solved its task, whatever it does now."""
    last = story[-1] if story[-1]["event"] == "evaluated" else {"env_steps": 0, "processor": 0.0}
    facts = {"env_steps": last["env_steps"], "processor": last["processor"]}
    return {"event": "overdue", "reason": "budget", "seconds": limit, "wall": wall, **facts}


def last_line(log: Path) -> str:
    """The last line with text that a process has printed."""
    with contextlib.suppress(OSError):
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        if lines:
            return one_line(lines[-1])
    return "it printed nothing"
