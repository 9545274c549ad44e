"""Item 3: the disk is full, read-only or over quota at every single write of a run, simulated and real."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkpoint_helpers import run_python
from disk_layer import DiskLayer, Faults
from figures import record_figure
from rl_training.errors import RLTrainingError
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints, verify_checkpoint
from run_cases import CASES, assert_same_run, metric_lines

RUNS = {"on-policy": CASES["a2c, one env"], "replay": CASES["dqn, one env, a buffer that overflows"]}
LENGTH = {"total_timesteps": 80, "checkpoint_every": 40, "log_every": 20}
CODES = {errno.ENOSPC: 1, errno.EDQUOT: 5, errno.EROFS: 5}  # error: 1 is every write, 5 is every fifth


class Drill:
    """Runs of one case, each on a disk that fails at different writes."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.case, self.folder = name, RUNS[name], folder
        self.whole = train(self.case.config(folder / "whole", **LENGTH), show=False).run_dir
        counter = Faults(lambda number, operation: False)
        self.first_save: int | None = None

        def remember(progress: Any) -> None:
            self.first_save = self.first_save or counter.count

        with DiskLayer(folder / "counted", counter):
            train(self.case.config(folder / "counted", **LENGTH), callback=remember, show=False)
        self.writes = counter.count

    def run(self, faults: Faults) -> tuple[Path, RLTrainingError | None, int]:
        """Train on a faulty disk; return the run directory, the error if there is one, and the trained env steps."""
        folder, steps = self.folder / "faulty", [0]
        shutil.rmtree(folder, ignore_errors=True)
        with DiskLayer(folder, faults):
            try:
                config = self.case.config(folder, **LENGTH)
                train(config, callback=lambda progress: steps.append(progress.env_steps), show=False)
            except RLTrainingError as error:
                assert "\n" not in str(error)
                return folder / "run", error, steps[-1]
        return folder / "run", None, steps[-1]


@pytest.mark.parametrize("name", RUNS)
def test_a_write_that_fails_costs_nothing_but_itself(name: str, tmp_path: Path) -> None:
    drill = Drill(name, tmp_path)
    assert drill.first_save is not None
    done = 0
    for code, every in CODES.items():
        for index in range(0, drill.writes, every):
            faults = Faults(lambda number, operation, index=index: number == index, code)
            run, error, steps = drill.run(faults)
            assert faults.failed == 1, index
            if error is not None:
                assert index < drill.first_save and steps == 0, (index, error)
            else:
                assert metric_lines(run) == metric_lines(drill.whole), index
                assert latest_checkpoint(run).env_steps == 80
            assert [problem for path in list_checkpoints(run) for problem in verify_checkpoint(path)] == []
            assert [path for path in run.rglob(".tmp-*") if path.is_dir()] == []
            done += 1
    record_figure(3, f"{name}: writes of a run, each of which failed once with ENOSPC", drill.writes, ">= 100")
    record_figure(3, f"{name}: runs with one failing write (ENOSPC, EDQUOT or EROFS)", done, ">= 100")
    record_figure(3, f"{name}: of them, stopped after the first save, or with another curve", 0, "= 0")


@pytest.mark.parametrize("name", RUNS)
def test_a_disk_that_stays_broken_keeps_the_last_checkpoint(name: str, tmp_path: Path) -> None:
    drill = Drill(name, tmp_path)
    assert drill.first_save is not None
    done = 0
    for code in CODES:
        for index in range(drill.first_save, drill.writes, 9):
            run, error, _ = drill.run(Faults(lambda number, operation, index=index: number >= index, code))
            newest = latest_checkpoint(run)
            assert newest.skipped == []
            # Only a run whose last save succeeded may finish without an error.
            assert (error is None) == (newest.env_steps == 80), (index, error)
            assert error is None or error.exit_code == 5
            if done % 4 == 0:
                resume(run, show=False)
                assert_same_run(run, drill.whole)
            done += 1
    record_figure(3, f"{name}: runs on a disk that never recovers, previous checkpoint intact", done, ">= 20")


REAL_TROUBLE = """
import json, os, resource, sys
from pathlib import Path
from rl_training.config.loading import load_config
from rl_training.storage.checkpoints import list_checkpoints
from rl_training.storage.checkpoints import verify_checkpoint
from rl_training.telemetry.recorder import read_metrics
from rl_training.runtime.workflows import train

folder, kind = Path(sys.argv[1]), sys.argv[2]
settings = {"algo": "ppo", "env_id": "CartPole-v1", "seed": 1, "output_dir": str(folder), "run_name": "run"}
settings |= {"total_timesteps": 1280, "checkpoint_every": 256, "log_every": 64, "keep_checkpoints": 9}
settings |= {"eval_episodes": 1, "model": {"hidden_sizes": [128]}}
settings |= {"algo_kwargs": {"num_steps": 64, "minibatch_size": 64, "update_epochs": 1}}
filler = folder / "filler"

def fill():
    with open(filler, "wb", buffering=0) as file:
        size = 2**16
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2

def callback(progress):
    on = 400 <= progress.env_steps < 900
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000 if on else resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    elif on and not filler.exists():
        fill()
    elif not on and filler.exists():
        filler.unlink()

result = train(load_config(settings), callback=callback, show=False)
run = folder / "run"
steps = [line["env_steps"] for line in read_metrics(run) if line["kind"] == "train"]
print(json.dumps({
    "failed_saves": result.failed_saves,
    "steps": steps,
    "saved": sorted(int(path.name.split("-")[1]) for path in list_checkpoints(run, "resume")),
    "problems": [problem for path in list_checkpoints(run) for problem in verify_checkpoint(path)],
}))
"""


def check_real(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout.splitlines()[-1])
    assert report["problems"] == []
    assert report["steps"] == list(range(64, 1281, 64)), "a line of metrics is missing"
    assert report["failed_saves"] == 2 and report["saved"] == [0, 256, 1024, 1280]


def test_a_limit_on_the_size_of_files_is_a_failed_save(tmp_path: Path) -> None:
    check_real(run_python(REAL_TROUBLE, tmp_path, "limit"))
    record_figure(3, "RLIMIT_FSIZE for a while: saves that failed in a run that ended well", 2, "= 2")


def test_a_file_system_that_is_really_full(tmp_path: Path) -> None:
    """Uses a small tmpfs in a separate mount namespace, which not every machine allows."""
    mount = f"mount -t tmpfs -o size=2m tmpfs {tmp_path}"
    enter = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*enter, mount], capture_output=True).returncode:
        pytest.skip("this machine does not allow a private mount; the simulated disk and RLIMIT_FSIZE cover the case")
    command = f'{mount} && exec "$0" -c "$1" {tmp_path} tmpfs'
    finished = subprocess.run(
        [*enter, command, sys.executable, REAL_TROUBLE], capture_output=True, text=True, timeout=300
    )
    check_real(finished)
    record_figure(3, "a tmpfs that is full for a while: saves that failed in a run that ended well", 2, "= 2")
