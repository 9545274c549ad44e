"""Metric files that something removes, replaces or blows up: new lines are recorded, and nothing foreign is read."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from rl_training.telemetry.recorder import Recorder, read_metrics
from rl_training.telemetry.tracker_identity import stored_id


def train_line(step: int) -> dict[str, Any]:
    return {"kind": "train", "env_steps": step, "updates": step // 10}


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_lines_after_the_file_is_removed_or_replaced_are_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    path = tmp_path / "metrics.jsonl"
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100))
        path.unlink()
        if change == "replaced":
            path.write_text('{"kind": "train", "env_steps": 1}\n')
        for step in (200, 300):
            recorder.record(train_line(step))
        recorder.flush()
        assert recorder.offset() == path.stat().st_size
    steps = [line["env_steps"] for line in read_metrics(tmp_path)]
    assert steps == [1] * (change == "replaced") + [200, 300]
    assert capsys.readouterr().err.count("new ones are recorded") == 1
    with Recorder(tmp_path, resume_offset=recorder.offset()):
        assert "does not match" not in capsys.readouterr().err


def test_a_pipe_in_place_of_the_file_is_told_once_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Recorder(tmp_path, table=False) as recorder:
        (tmp_path / "metrics.jsonl").unlink()
        os.mkfifo(tmp_path / "metrics.jsonl")
        for step in (100, 200):
            recorder.record(train_line(step))
    assert capsys.readouterr().err.count("lines are lost") == 1


def test_a_table_that_was_removed_is_written_again_with_its_head(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100))
        (tmp_path / "metrics.csv").unlink()
        recorder.record(train_line(200))
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [row["env_steps"] for row in csv.DictReader(file)] == ["100", "200"]


def test_a_huge_file_is_cut_without_reading_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "train", "env_steps": 1}\n')
    os.truncate(path, 2**40)  # a file of zeros that takes no space
    with path.open("r+b") as file:
        file.seek(2**40 - 100)
        file.write(b"\nhalf a line")
    with Recorder(tmp_path, table=False, resume_offset=2**40) as recorder:
        assert recorder.offset() == 2**40 - 99 == path.stat().st_size


@pytest.mark.parametrize("lengths", [(50, 2**20 + 7), (2**20 - 1, 3), (2 * 2**20, 2**20)])
def test_the_last_whole_line_is_found_however_long_the_lines_are(tmp_path: Path, lengths: tuple[int, int]) -> None:
    first, rest = lengths
    (tmp_path / "metrics.jsonl").write_bytes(b"x" * (first - 1) + b"\n" + b"y" * rest)
    with Recorder(tmp_path, table=False, resume_offset=first + rest) as recorder:
        assert recorder.offset() == first
    (tmp_path / "metrics.jsonl").write_bytes(b"y" * (first + rest))
    with Recorder(tmp_path, table=False, resume_offset=first + rest) as recorder:
        assert recorder.offset() == 0


@pytest.mark.parametrize("content", ["a link", "../secret", "x" * 65, ""])
def test_only_a_plain_id_in_the_run_is_sent_to_wandb(tmp_path: Path, content: str) -> None:
    path = tmp_path / "wandb_run_id"
    path.write_text("abc-123_Z\n")
    assert stored_id(tmp_path, "wandb") == "abc-123_Z"
    path.unlink()
    if content == "a link":
        (tmp_path / "secret").write_text("secret")
        path.symlink_to(tmp_path / "secret")
    else:
        path.write_text(content)
    assert stored_id(tmp_path, "wandb") is None
