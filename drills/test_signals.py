"""Item 5: SIGTERM and SIGINT in every phase of a run: it saves, exits in time with code 75, and can be resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_helpers import Outcome, call, tiny_config, wait_for, write_config
from figures import record_figure
from own_clock import OwnClock
from rl_training.storage.checkpoints import latest_checkpoint

SLOW_SECONDS = 1.0  # how long a phase lasts; the signal arrives in the middle
PHASES = ("rollout", "update", "eval", "save", "env reset")
ENDLESS = 10**9

# The command line, with one function that creates a file when it starts and then takes `seconds` longer.
SLOW_PHASE = """
import pathlib, sys, time
from rl_training.cli import main
from rl_training.experiment.registry import get_learner
from rl_training.runtime import session
from rl_training.runtime.collection import collector
from rl_training.storage import checkpoint_format

phase, seconds, algorithm = sys.argv[1], float(sys.argv[2]), sys.argv[3]

def slow(owner, name, after=0, every=False):
    real, calls = getattr(owner, name), []
    def wrapped(*arguments, **options):
        calls.append(None)
        if len(calls) > after and (every or not pathlib.Path("sent").exists()):
            pathlib.Path("reached").touch()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(0.01)
        return real(*arguments, **options)
    setattr(owner, name, wrapped)

if phase == "rollout":
    slow(collector.Collector, "step", after=40)
elif phase == "every step":
    slow(collector.Collector, "step", after=40, every=True)
elif phase == "update":
    slow(get_learner(algorithm), "update", after=2)
elif phase == "eval":
    slow(session, "evaluate")
elif phase == "save":
    slow(checkpoint_format, "write_arrays", after=1)
elif phase == "env reset":
    slow(collector.Collector, "reset", after=1)

sys.exit(main(sys.argv[4:]))
"""


def signal_in_phase(tmp_path: Path, algorithm: str, phase: str, number: int, seconds: float) -> tuple[Outcome, float]:
    """Run until `phase` starts, then send the signal; return the outcome and the seconds until the exit."""
    settings = tiny_config(algorithm, total_timesteps=ENDLESS, checkpoint_every=128, eval_every=192, compile="off")
    config = write_config(tmp_path / "endless.yaml", settings)
    script = tmp_path / "slow_phase.py"
    script.write_text(SLOW_PHASE)
    words = [phase, seconds, algorithm, "train", config, "--output-dir", tmp_path / "runs", "--json", "--quiet"]
    command = [sys.executable, str(script), *map(str, words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as process:
        try:
            wait_for((tmp_path / "reached").exists, process)
            with OwnClock(process.pid) as clock:
                process.send_signal(number)
                (tmp_path / "sent").touch()
                out, err = process.communicate(timeout=600)
                seconds_to_exit = clock.seconds
        finally:
            process.kill()
    return Outcome(process.returncode, out, err), seconds_to_exit


@pytest.mark.parametrize(("algorithm", "number"), [("ppo", signal.SIGTERM), ("dqn", signal.SIGINT)])
def test_a_signal_in_any_phase_saves_and_leaves_in_time(algorithm: str, number: int, tmp_path: Path) -> None:
    slowest, failures = 0.0, []
    for phase in PHASES:
        folder = tmp_path / phase.replace(" ", "-")
        folder.mkdir()
        outcome, seconds = signal_in_phase(folder, algorithm, phase, number, SLOW_SECONDS)
        slowest = max(slowest, seconds)
        if outcome.code != 75 or "Traceback" in outcome.err:
            failures.append((phase, outcome))
            continue
        summary = outcome.json
        newest = latest_checkpoint(next((folder / "runs").iterdir()))
        assert summary["env_steps"] == newest.env_steps, f"{phase}: not all steps are saved"
        goal = newest.env_steps + 64
        words = ["resume", "latest", "--total-timesteps", goal, "--output-dir", folder / "runs", "--json", "--quiet"]
        resumed = call(*words)
        assert resumed.code == 0, resumed.err
        assert newest.env_steps < resumed.json["env_steps"] <= goal
    assert failures == []
    name = f"{signal.Signals(number).name}, {algorithm}"
    record_figure(5, f"{name}: phases left with exit code 75 and resumed, of {len(PHASES)}", len(PHASES), "= 5")
    record_figure(5, f"{name}: slowest exit, in a phase held for {SLOW_SECONDS:.0f} s", slowest, "<= 10 s")


def test_a_rollout_that_takes_too_long_is_dropped_and_the_run_saved(tmp_path: Path) -> None:
    """Every env step takes a second, so that the rollout would need half a minute."""
    outcome, seconds = signal_in_phase(tmp_path, "ppo", "every step", signal.SIGTERM, 1.0)
    assert outcome.code == 75, outcome.err
    newest = latest_checkpoint(next((tmp_path / "runs").iterdir()))
    assert outcome.json["env_steps"] == newest.env_steps > 0
    record_figure(5, "exit from a rollout of half a minute, saved as it was before it", seconds, "<= 10 s")


def test_an_update_that_does_not_end_cannot_be_waited_for(tmp_path: Path) -> None:
    outcome, seconds = signal_in_phase(tmp_path, "ppo", "update", signal.SIGTERM, 600.0)
    assert outcome.code == 75 and "exited without saving" in outcome.err
    latest_checkpoint(next((tmp_path / "runs").iterdir()))
    record_figure(5, "exit from an update that never ends, resumable from the last checkpoint", seconds, "<= 10 s")
