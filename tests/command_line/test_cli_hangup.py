"""Signals and ends of real processes: a closed terminal, nohup, a killed and a stopped nursery, left programs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import start_process, tiny_config, wait_for, write_config
from rl_training.envs.processes.process_tree import descendants
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints
from spawning_env import end_programs, is_running, started_programs, wait_until_gone
from waiting import DEADLINE_SECONDS, wait_until

ENDLESS = 10**9
SUPPORT = Path(__file__).resolve().parents[1] / "support"
SPAWNING = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import gymnasium
from spawning_env import SpawningEnv
gymnasium.register("Spawning-v0", entry_point=SpawningEnv)
"""


def config_of(folder: Path, **changes: Any) -> list[object]:
    """The words of a `train` command, for a run that does not end by itself unless the changes say so."""
    settings = tiny_config("ppo", **{"total_timesteps": ENDLESS, "checkpoint_every": 128, "compile": "off", **changes})
    return ["train", write_config(folder / "run.yaml", settings), "--output-dir", folder / "runs"]


def has_saved(folder: Path) -> bool:
    runs = (folder / "runs").glob("*")
    return any(not path.name.endswith("0" * 12) for run in runs for path in list_checkpoints(run, "resume"))


def assert_interrupted(folder: Path) -> None:
    (run,) = (folder / "runs").iterdir()
    information = json.loads((run / "run.json").read_text())
    assert information["status"] == "interrupted"
    assert latest_checkpoint(run).env_steps == information["env_steps"] > 0


def test_a_closed_terminal_stops_the_run_and_it_is_saved(tmp_path: Path) -> None:
    """The kernel sends SIGHUP, and from then on every write to the terminal fails."""
    terminal, inside = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    words = [sys.executable, "-m", "rl_training", *map(str, config_of(tmp_path))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    options: dict[str, Any] = {"stdin": inside, "stdout": inside, "stderr": inside, "env": environment}
    with subprocess.Popen(words, preexec_fn=take_terminal, **options) as process:
        os.close(inside)
        os.set_blocking(terminal, False)

        def saved() -> bool:
            with contextlib.suppress(BlockingIOError):
                os.read(terminal, 65536)  # otherwise the terminal fills up and the process waits
            return has_saved(tmp_path)

        try:
            wait_for(saved, process, DEADLINE_SECONDS)
            os.close(terminal)
            assert process.wait(DEADLINE_SECONDS) == 75
        finally:
            process.kill()
    assert_interrupted(tmp_path)


def test_under_nohup_a_closed_terminal_does_not_stop_the_run(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = start_process(*config_of(tmp_path), "--quiet", preexec_fn=ignore)
    with process:
        try:
            wait_for(lambda: has_saved(tmp_path), process, DEADLINE_SECONDS)
            (run,) = (tmp_path / "runs").iterdir()
            process.send_signal(signal.SIGHUP)
            steps = latest_checkpoint(run).env_steps
            wait_for(lambda: latest_checkpoint(run).env_steps > steps + 128, process, DEADLINE_SECONDS)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 75 and "Traceback" not in err
    assert_interrupted(tmp_path)


def test_a_run_survives_a_killed_nursery_and_a_stopped_one_does_not_delay_its_end(tmp_path: Path) -> None:
    """Waiting half a minute for each of the processes would take longer than the deadline of this test."""
    process = start_process(*config_of(tmp_path, vector_backend="async", num_envs=4, log_every=64))
    with process:
        try:
            wait_for(lambda: has_saved(tmp_path), process, DEADLINE_SECONDS)
            os.kill(keeper_and_nursery(process.pid)[1], signal.SIGKILL)
            (metrics,) = tmp_path.glob("runs/*/metrics.jsonl")
            wait_for(lambda: "nursery_restarts" in metrics.read_text(), process, DEADLINE_SECONDS)
            below = descendants(process.pid)
            assert len(below) == 6  # the keeper, the nursery, four envs
            for each in keeper_and_nursery(process.pid):
                os.kill(each, signal.SIGSTOP)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 75
    assert_interrupted(tmp_path)
    wait_until_gone(below)
    said = [line for line in err.splitlines() if "replaced" in line]
    assert said == ["replaced the process that starts the env processes: it was killed by SIGKILL; new episodes start"]
    assert '"nursery_restarts": 1' in metrics.read_text()
    assert "env_restarts" not in metrics.read_text() and not list(tmp_path.glob("runs/*/crash/*"))


def keeper_and_nursery(supervisor: int) -> tuple[int, int]:
    below = descendants(supervisor)
    (keeper,) = [each for each in below if os.getsid(each) == each]
    (nursery,) = [each for each in below if os.getpgid(each) == keeper != each]
    return keeper, nursery


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_finished_run_leaves_no_program_of_an_env(backend: str, tmp_path: Path) -> None:
    """Envs for evaluation, and those of `sync`, run in the process that trains."""
    (tmp_path / "spawning.py").write_text(SPAWNING)
    ways = ["child", "session"]
    changes = {"env_id": "spawning:Spawning-v0", "env_kwargs": {"folder": str(tmp_path), "ways": ways}}
    words = config_of(tmp_path, **changes, vector_backend=backend, num_envs=2, total_timesteps=96)
    process = start_process(*words, "--quiet", cwd=tmp_path)
    try:
        assert process.wait(2 * DEADLINE_SECONDS) == 0
        programs = started_programs(tmp_path)
        assert len(programs) == 2 * (2 + 2)  # two envs to train on and two to evaluate on, two programs each
        wait_until(lambda: not any(map(is_running, programs)))
    finally:
        process.kill()
        end_programs(tmp_path)
        process.communicate()
