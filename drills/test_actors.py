"""Item 6: actors. If one is killed or frozen, the run continues with an exact account; nothing outlives the learner."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import wait_for
from figures import record_figure
from own_clock import OwnClock, left_after
from rl_training.envs.processes.process_tree import descendants
from spawning_env import is_running

MINUTES = 300.0
KILLING_SECONDS, KILL_EVERY = 60.0, 2.0  # without --actor-minutes
KILL_EVERY_OF_LONG_DRILL = 5.0
SETTLED_SECONDS = 60.0  # memory counts from here on: by then every buffer exists
ACTOR_TIMEOUT = 5.0
# The limits of replacements are for runs, not for a drill that kills more than they allow.
PROGRAM = """
import sys
from rl_training.cli import main
from rl_training.runtime.fleet import actor_collector
if sys.argv[1] == "unlimited":
    actor_collector.RESTARTS_PER_ACTOR = actor_collector.RESTARTS_PER_RUN = 10**6
sys.exit(main(["train", *sys.argv[2:]]))
"""


@contextlib.contextmanager
def endless_run(
    folder: Path, mode: str, limits: str = "limited", backend: str = "process", **more: Any
) -> Iterator[subprocess.Popen[str]]:
    """A run with four actors that has written metric lines. If it has not ended by itself, it is killed."""
    settings = {"mode": mode, "actors": 4, "backend": backend, "actor_timeout": ACTOR_TIMEOUT, **more}
    words = [f"--set=runtime.{name}={value}" for name, value in settings.items()]
    words += ["--total-timesteps=1000000000", "--set=eval_every=0", "--set=checkpoint_every=20000", "--quiet"]
    command = [sys.executable, "-c", PROGRAM, limits, "impala/cartpole", *words, "--output-dir", str(folder / "runs")]
    with subprocess.Popen(command, text=True, start_new_session=True) as run:
        try:
            wait_for(lambda: len(train_lines(folder)) > 1, run, MINUTES)
            yield run
        finally:
            run.kill()


def train_lines(folder: Path) -> list[dict[str, Any]]:
    lines = []
    for path in folder.glob("runs/*/metrics.jsonl"):
        for text in path.read_text().splitlines():
            line = json.loads(text) if text.endswith("}") else {}
            if line.get("kind") == "train":
                lines.append(line)
    return lines


def metric_bytes(folder: Path) -> int:
    """The size of the metric stream. To read all of it again and again takes longer than what is measured."""
    return sum(path.stat().st_size for path in folder.glob("runs/*/metrics.jsonl"))


def actors_of(run: subprocess.Popen[str]) -> list[int]:
    """The processes without children of their own: the keeper and the nursery have some."""
    return [process for process in descendants(run.pid) if not descendants(process)]


def wrong_lines(lines: list[dict[str, Any]]) -> int:
    """Metric lines whose account does not add up."""
    parts = ("learned", "stale", "lost", "in_flight")
    return sum(
        line["env_steps_granted"] != sum(line[f"env_steps_{name}"] for name in parts)
        or line["env_steps"] != line["env_steps_learned"] + line["env_steps_stale"]
        for line in lines
    )


def megabytes(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_actors_that_are_killed_again_and_again_cost_nothing_but_their_steps(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """With --actor-minutes also that memory does not grow: a minute is too short to tell."""
    rng, kills, longest = random.Random(0), 0, 0.0
    long_seconds = 60 * float(pytestconfig.getoption("--actor-minutes"))
    killing, every = (long_seconds, KILL_EVERY_OF_LONG_DRILL) if long_seconds else (KILLING_SECONDS, KILL_EVERY)
    with endless_run(tmp_path, "async", "unlimited") as run:
        with OwnClock(run.pid) as clock:
            settled, next_kill, seen, seen_at = 0.0, 0.0, 0, 0.0
            while (now := clock.seconds) < killing:
                if not settled and now > SETTLED_SECONDS:
                    settled = megabytes(run.pid)
                assert run.poll() is None, "the run ended"
                if now >= next_kill and (actors := actors_of(run)):
                    with contextlib.suppress(ProcessLookupError):  # it ended since the list was made
                        os.kill(rng.choice(actors), signal.SIGKILL)
                    kills, next_kill = kills + 1, next_kill + every
                longest = max(longest, now - seen_at)
                if (size := metric_bytes(tmp_path)) != seen:
                    seen, seen_at = size, now
                time.sleep(0.05)
        growth = (megabytes(run.pid) - settled) / max((killing - SETTLED_SECONDS) / 60, 1.0)
        below = descendants(run.pid)
        run.send_signal(signal.SIGTERM)
        assert run.wait(MINUTES) == 75
        lines = train_lines(tmp_path)
        assert lines[-1]["actor_restarts"] > 0.5 * kills  # one that is still starting may be killed twice
        during = f" in {killing / 60:.0f} min" if long_seconds else ""
        record_figure(6, f"actors killed in {killing:.0f} s, async, 4 actors", kills, ">= 20")
        record_figure(6, f"longest time without a metric line meanwhile{during}", longest, f"<= {ACTOR_TIMEOUT:g} s")
        record_figure(6, f"metric lines whose account of env steps does not add up{during}", wrong_lines(lines), "= 0")
        record_figure(
            6, f"processes left 2 s after the end of a run with 4 actors{during}", left_after(2.0, below), "= 0"
        )
        if long_seconds:
            record_figure(6, f"growth of the learner's memory{during}", growth, "< 1 MB/min")


def test_a_frozen_actor_is_replaced_after_its_deadline(tmp_path: Path) -> None:
    with endless_run(tmp_path, "pipelined") as run:
        frozen = actors_of(run)[0]
        os.kill(frozen, signal.SIGSTOP)
        with OwnClock(run.pid) as clock:
            wait_for(lambda: train_lines(tmp_path)[-1]["actor_restarts"] == 1, run, MINUTES)
            replaced_after = clock.seconds
        record_figure(
            6, f"a frozen actor with a deadline of {ACTOR_TIMEOUT:.0f} s is replaced and the run goes on after",
            replaced_after, f"<= {ACTOR_TIMEOUT + 2:g} s",
        )  # fmt: skip
        assert not is_running(frozen)
        below = descendants(run.pid)
        with OwnClock(run.pid) as clock:
            run.send_signal(signal.SIGINT)
            assert run.wait(MINUTES) == 75
            exited_after = clock.seconds
        record_figure(5, "Ctrl-C in a run with 4 actors: time to exit", exited_after, "<= 10 s")
        assert left_after(2.0, below) == 0


def test_kill_9_of_the_learner_leaves_no_actor(tmp_path: Path) -> None:
    with endless_run(tmp_path, "pipelined") as run:
        below = descendants(run.pid)
        assert len(below) == 6  # keeper, nursery, four actors
        os.kill(actors_of(run)[0], signal.SIGSTOP)  # one that cannot end by itself
        run.kill()
        run.wait()
        record_figure(6, "processes left 2 s after kill -9 of a learner with 4 actors", left_after(2.0, below), "= 0")
