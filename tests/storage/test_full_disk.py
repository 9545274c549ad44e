"""On a full or read-only disk, saves fail but the run continues, and existing files stay intact."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from disk_layer import DiskLayer, Faults, Operation
from rl_training.errors import CheckpointError
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints, verify_checkpoint
from rl_training.telemetry.recorder import read_metrics, without_wall_clock
from run_cases import CASES, metric_lines

ON_POLICY = CASES["a2c, one env"]
REPLAY = CASES["dqn, one env, a buffer that overflows"]
BOTH_LOOPS = pytest.mark.parametrize("case", [ON_POLICY, REPLAY], ids=["on-policy", "replay"])


class Trouble:
    """A disk that fails while `on` is true; the callback of the run sets it by the number of steps."""

    def __init__(self, first: int, last: int, code: int = errno.ENOSPC) -> None:
        self.first, self.last = first, last
        self.faults = Faults(lambda number, operation: self.on, code)
        self.on = False

    def callback(self, progress: Any) -> None:
        self.on = self.first <= progress.env_steps < self.last


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT], ids=errno.errorcode.get)
@BOTH_LOOPS
def test_a_temporarily_full_disk_costs_checkpoints_but_no_metrics(
    case: Any, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = train(case.config(tmp_path / "whole"), env=case.env, show=False)
    # From shortly before the save of the second quarter to shortly after that of the third.
    trouble = Trouble(case.steps // 2 - 10, 3 * case.steps // 4 + 5, code)
    with DiskLayer(tmp_path / "shaken", trouble.faults):
        shaken = train(case.config(tmp_path / "shaken"), env=case.env, callback=trouble.callback)
    assert trouble.faults.failed > 5
    assert shaken.failed_saves >= 2 and shaken.summary()["failed_saves"] == shaken.failed_saves
    assert "training continues (failed saves: 1)" in capfd.readouterr().err
    lines = [line for line in read_metrics(shaken.run_dir) if line["kind"] == "train"]
    assert "failed_saves" not in lines[0] and lines[-1]["failed_saves"] == shaken.failed_saves
    assert metric_lines(shaken.run_dir) == metric_lines(whole.run_dir)
    for path in list_checkpoints(shaken.run_dir):
        assert verify_checkpoint(path) == []
    assert list(shaken.run_dir.rglob(".tmp-*")) == []


@BOTH_LOOPS
def test_a_disk_that_stays_full_fails_the_last_save_and_the_run_can_be_resumed_exactly(
    case: Any, tmp_path: Path
) -> None:
    whole = train(case.config(tmp_path / "whole"), env=case.env, show=False)
    trouble = Trouble(case.steps // 2 + 5, 10**9)
    with (
        DiskLayer(tmp_path / "full", trouble.faults),
        pytest.raises(CheckpointError, match="No space left on device") as caught,
    ):
        train(case.config(tmp_path / "full"), env=case.env, callback=trouble.callback, show=False)
    assert "\n" not in str(caught.value)
    run = tmp_path / "full" / "run"
    assert latest_checkpoint(run).env_steps == case.steps // 2
    again = resume(run, env=case.env, show=False)
    assert metric_lines(again.run_dir) == metric_lines(whole.run_dir)


def test_nothing_is_trained_when_the_first_save_fails(tmp_path: Path) -> None:
    def on_the_way_to_the_first_checkpoint(number: int, operation: Operation) -> bool:
        return "checkpoints" in operation.path.parts

    seen: list[int] = []
    with (
        DiskLayer(tmp_path, Faults(on_the_way_to_the_first_checkpoint)),
        pytest.raises(CheckpointError, match="checkpoints: cannot be written to"),
    ):
        train(
            ON_POLICY.config(tmp_path),
            env=ON_POLICY.env,
            callback=lambda progress: seen.append(progress.env_steps),
            show=False,
        )
    assert seen == []


def test_failed_saves_are_not_part_of_the_curve() -> None:
    assert without_wall_clock({"env_steps": 1, "failed_saves": 2, "wall_seconds": 3.0}) == {"env_steps": 1}
