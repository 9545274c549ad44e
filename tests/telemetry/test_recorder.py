from __future__ import annotations

import csv
import errno
import json
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.telemetry import recorder as recorder_module
from rl_training.telemetry import tensorboard_sink
from rl_training.telemetry.recorder import WALL_CLOCK_FIELDS, Recorder, read_metrics, without_wall_clock
from rl_training.telemetry.sinks import Sink, SinkRun
from rl_training.telemetry.tensorboard_sink import TensorBoardSink
from rl_training.telemetry.wandb_sink import WandbSink


def train_line(step: int, **metrics: Any) -> dict[str, Any]:
    return {"kind": "train", "env_steps": step, "updates": step // 10, "episodes": step // 100, **metrics}


def eval_line(step: int, value: float) -> dict[str, Any]:
    return {"kind": "eval", "env_steps": step, "eval_mean_return": value, "eval_episodes": 10}


def script(start: int, stop: int) -> list[dict[str, Any]]:
    """Metric lines of a run with evaluations and a metric that starts late."""
    lines = []
    for step in range(start, stop, 100):
        late = {"late_metric": step / 3} if step >= 500 else {}
        lines.append(train_line(step, mean_return=step / 7, **late))
        if step % 300 == 0:
            lines.append(eval_line(step, step / 9))
    return lines


def rows(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class ListSink:
    name = "list"

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.closed = 0

    def write(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class FailingSink(ListSink):
    name = "failing"

    def write(self, line: dict[str, Any]) -> None:
        if self.lines:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(line)


def test_lines_are_read_back_as_they_were_recorded(tmp_path):
    lines = script(0, 700)
    with Recorder(tmp_path) as recorder:
        for line in lines:
            recorder.record(line)
        assert recorder.offset() == (tmp_path / "metrics.jsonl").stat().st_size
    assert read_metrics(tmp_path) == lines


def test_resume_cuts_the_replayed_interval_and_equals_an_uninterrupted_run(tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    with Recorder(whole) as recorder:
        for line in script(0, 1200):
            recorder.record(line)
    with Recorder(resumed) as recorder:
        for line in script(0, 400):
            recorder.record(line)
        recorder.flush()
        offset = recorder.offset()
        for line in script(400, 900):  # written after the checkpoint, then the process dies
            recorder.record(line)
    with Recorder(resumed, resume_offset=offset) as recorder:
        assert recorder.offset() == offset
        for line in script(400, 1200):
            recorder.record(line)
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes()


def test_csv_forgets_a_column_that_only_the_replayed_interval_had(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100))
        offset = recorder.offset()
        recorder.record(train_line(200, gone=1.0))
    with Recorder(tmp_path, resume_offset=offset):
        pass
    assert (tmp_path / "metrics.csv").read_text() == "kind,env_steps,updates,episodes\ntrain,100,10,1\n"


def test_resume_from_the_very_start_empties_the_stream(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100))
    with Recorder(tmp_path, resume_offset=0):
        pass
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("shift", [-5, +1000])
def test_resume_with_an_offset_inside_a_line_keeps_whole_lines_and_warns(tmp_path, capsys, shift):
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100))
        first = recorder.offset()
        recorder.record(train_line(200))
        second = recorder.offset()
    with Recorder(tmp_path, resume_offset=second + shift) as recorder:
        assert recorder.offset() == (first if shift < 0 else second)
        recorder.record(train_line(300))
    assert [line["env_steps"] for line in read_metrics(tmp_path)][-1] == 300
    assert capsys.readouterr().err.count("\n") == 1


def test_resume_without_the_metric_file_warns_and_starts_a_new_one(tmp_path, capsys):
    with Recorder(tmp_path, resume_offset=123) as recorder:
        recorder.record(train_line(100))
    assert len(read_metrics(tmp_path)) == 1
    assert "metrics.jsonl is missing" in capsys.readouterr().err


def test_a_fresh_recorder_refuses_the_stream_of_an_earlier_run(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100))
    with pytest.raises(ConfigError, match=r"metrics\.jsonl contains the metrics of an earlier run"):
        Recorder(tmp_path)
    assert len(read_metrics(tmp_path)) == 1


def test_csv_gets_late_columns_in_every_row_under_one_header(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.record({"env_steps": 100, "loss": 0.5})
        recorder.record(eval_line(100, 20.0))
        recorder.record({"env_steps": 200, "loss": 0.25, "updates": 7})
    table = rows(tmp_path)
    assert list(table[0]) == [
        "kind", "env_steps", "updates", "loss", "eval_mean_return", "eval_episodes",
    ]  # fmt: skip
    assert [row["loss"] for row in table] == ["0.5", "", "0.25"]
    assert [row["updates"] for row in table] == ["", "", "7"]
    assert [row["eval_mean_return"] for row in table] == ["", "20.0", ""]
    assert (tmp_path / "metrics.csv").read_text().count("env_steps") == 1
    assert not list(tmp_path.glob("*.tmp"))


def test_a_partial_last_line_is_skipped_and_a_broken_middle_line_is_named(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100))
    path = tmp_path / "metrics.jsonl"
    with path.open("ab") as file:
        file.write(b'{"kind": "train", "env_st')
    assert [line["env_steps"] for line in read_metrics(tmp_path)] == [100]
    with path.open("ab") as file:
        file.write(b'\n{"env_steps": 300}\n')
    with pytest.raises(CheckpointError, match="line 2"):
        read_metrics(tmp_path)


def test_a_broken_middle_line_costs_the_table_but_not_the_resumed_run(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"env_steps": 1}\nbroken\n{"env_steps": 3}\n')
    with Recorder(tmp_path, resume_offset=41) as recorder:
        recorder.record(train_line(100))
    assert "csv logging is off" in capsys.readouterr().err
    assert (tmp_path / "metrics.jsonl").read_bytes().endswith(b'"episodes": 1}\n')


def test_no_file_means_no_lines(tmp_path):
    assert read_metrics(tmp_path) == []


def test_values_that_are_not_finite_keep_their_key_as_null(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.record(train_line(100, loss=math.nan, low=-math.inf, high=np.float32(np.inf), good=0.1))
    raw = (tmp_path / "metrics.jsonl").read_text()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    line = json.loads(raw, parse_constant=refuse)
    assert (line["loss"], line["low"], line["high"], line["good"]) == (None, None, None, 0.1)
    assert rows(tmp_path)[0]["loss"] == ""


def test_numbers_of_numpy_and_torch_are_written_exactly(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.record(
            {
                "env_steps": np.int64(5),
                "third": 1 / 3,
                "single": torch.tensor(0.1),
                "flag": np.bool_(True),
                "returns": np.array([1.5, np.nan]),
            }
        )
    (line,) = read_metrics(tmp_path)
    assert line["env_steps"] == 5 and line["third"] == 1 / 3 and line["flag"] is True
    assert line["single"] == float(np.float32(0.1))
    assert line["returns"] == [1.5, None]


def test_a_value_without_json_form_is_named_and_nothing_is_written(tmp_path):
    with Recorder(tmp_path) as recorder:
        with pytest.raises(TypeError, match="'strange' has type object"):
            recorder.record(train_line(1, strange=object()))
        with pytest.raises(ValueError, match="env_steps"):
            recorder.record({"loss": 1.0})
    assert read_metrics(tmp_path) == []


def test_control_characters_are_stripped_from_keys_and_strings(tmp_path):
    sink = ListSink()
    with Recorder(tmp_path, sinks=[sink]) as recorder:
        recorder.record(
            {
                "env_steps": 1,
                "note\x1b": "a\x1b[31mred\n\x00\x9b\u202e\u2028\udc80 end",
                "long": "x" * 9999,
                "ok": "größe",
            }
        )
    (line,) = read_metrics(tmp_path)
    assert line["note"] == "a[31mred end"
    assert line["ok"] == "größe"
    assert len(line["long"]) == 500
    assert sink.lines == [line]
    assert len((tmp_path / "metrics.jsonl").read_bytes().splitlines()) == 1
    assert rows(tmp_path)[0]["note"] == "a[31mred end"


def test_wall_clock_fields_are_removed_and_nothing_else():
    wall = dict.fromkeys(WALL_CLOCK_FIELDS, 1.0)
    assert without_wall_clock({**wall, "env_steps": 3, "loss": 0.5}) == {"env_steps": 3, "loss": 0.5}
    assert {"wall_seconds", "steps_per_second", "time_env", "time_other"} <= WALL_CLOCK_FIELDS


def test_tensorboard_events_are_readable_and_a_resumed_run_replaces_the_lost_interval(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer import event_file_writer

    # The counter in the names of event files: as text, 10 comes before 9, so the second must tell the files apart.
    counter = iter([9, 10])
    monkeypatch.setattr(event_file_writer, "_global_uid", types.SimpleNamespace(get=lambda: next(counter)))
    with Recorder(tmp_path) as recorder:
        recorder.open_sinks([TensorBoardSink()], SinkRun(tmp_path))
        recorder.record(train_line(100, loss=1.0, steps_per_second=50.0, note="text", missing=math.nan))
        recorder.record(eval_line(100, 21.0))
        offset = recorder.offset()
        recorder.record(train_line(200, loss=-9.0))
        recorder.record(train_line(300, loss=-9.0))
    with Recorder(tmp_path, resume_offset=offset) as recorder:
        recorder.open_sinks([TensorBoardSink()], SinkRun(tmp_path))
        recorder.record(train_line(200, loss=0.5))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(100, 1.0), (200, 0.5)]
    assert [(event.step, event.value) for event in events.Scalars("eval/mean_return")] == [(100, 21.0)]
    assert events.Scalars("time/steps_per_second")[0].value == 50.0
    assert not {"train/env_steps", "train/note", "train/missing"} & set(events.Tags()["scalars"])


def test_tensorboard_lines_of_two_seconds_become_events_together_with_the_time_of_each(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def written() -> list[tuple[int, float]]:
        sink._writer.flush()
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        known = "train/loss" in events.Tags()["scalars"]
        return [(event.step, event.wall_time) for event in events.Scalars("train/loss")] if known else []

    now = [0.0]
    clock = types.SimpleNamespace(time=lambda: 1000.0 + now[0], monotonic=lambda: 50.0 + now[0])
    monkeypatch.setattr(tensorboard_sink, "time", clock)
    sink = TensorBoardSink()
    sink.open(SinkRun(tmp_path))
    seen = []
    for now[0], step in ((0.0, 10), (0.5, 20), (1.5, 30), (2.0, 40), (2.5, 50)):
        sink.write(train_line(step, loss=0.5))
        seen.append([step for step, _ in written()])
    assert seen == [[10], [10], [10], [10, 20, 30, 40], [10, 20, 30, 40]]
    sink.flush()
    assert written() == [(10, 1000.0), (20, 1000.5), (30, 1001.5), (40, 1002.0), (50, 1002.5)]
    sink.write(train_line(60, loss=0.5))
    sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Scalars("train/loss")[-1].step == 60


def test_wandb_falls_back_to_offline_and_keeps_its_run_over_a_resume(tmp_path, monkeypatch, capsys):
    calls: list[dict[str, Any]] = []
    logged: list[dict[str, Any]] = []

    def init(**options: Any) -> Any:
        calls.append(options)
        if options.get("mode") != "offline":
            raise RuntimeError("no network\nmore text")
        return types.SimpleNamespace(
            id="abc", log=logged.append, finish=lambda **options: None, define_metric=lambda *names, **options: None
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for resume_offset in (None, 0):
        with Recorder(tmp_path, resume_offset=resume_offset) as recorder:
            recorder.open_sinks([WandbSink(project="project")], SinkRun(tmp_path))
            recorder.record(train_line(100, loss=0.5, broken=math.nan))
            recorder.record(eval_line(100, 7.0))
    assert [call["id"] for call in calls] == [None, None, "abc", "abc"]
    assert logged[0] == {"env_steps": 100, "train/updates": 10, "train/episodes": 1, "train/loss": 0.5}
    assert logged[1]["eval/mean_return"] == 7.0
    assert capsys.readouterr().err.count("no network") == 2


def test_a_failing_sink_is_turned_off_with_one_line_and_the_others_continue(tmp_path, capsys):
    failing, healthy = FailingSink(), ListSink()
    with Recorder(tmp_path, sinks=[failing, healthy]) as recorder:
        for step in (100, 200, 300):
            recorder.record(train_line(step))
            recorder.flush()
    assert len(failing.lines) == 1 and failing.closed == 1
    assert len(healthy.lines) == 3 and healthy.closed == 1
    assert len(read_metrics(tmp_path)) == 3
    message = capsys.readouterr().err
    assert re.fullmatch(
        r"warning: failing logging is off from now on \(test_recorder\.py, line \d+\): "
        r"OSError: \[Errno 28\] No space left on device\n",
        message,
    )


def test_a_sink_of_the_user_that_fails_is_named_with_its_place_and_the_error(tmp_path, capsys):
    class Plain(Sink):
        def open(self, run):
            run.config["no_such_setting"]

    class Hasty(Sink):
        def write(self, line):
            line["eval_mean_return"]

    with Recorder(tmp_path) as recorder:
        recorder.open_sinks([Plain(), Hasty()], SinkRun(tmp_path))
        recorder.record(train_line(100))
    place = r"\(test_recorder\.py, line \d+\)"
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"warning: Plain logging is off {place}: KeyError: 'no_such_setting'", first)
    assert re.fullmatch(rf"warning: Hasty logging is off from now on {place}: KeyError: 'eval_mean_return'", second)


class NearlyFullDisk:
    """Accepts the first half of each write while there is `room`, then nothing."""

    def __init__(self, recorder: Recorder, room: int) -> None:
        self.file, self.room = recorder._file, room

    def write(self, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = min(self.room, max(1, len(data) // 2))
        self.room -= taken
        return self.file.write(data[:taken])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_lines_wait_in_memory_while_the_disk_is_full(tmp_path, capsys):
    with Recorder(tmp_path, table=False) as recorder:
        recorder.record(train_line(100))
        recorder._file = disk = NearlyFullDisk(recorder, room=10)
        for step in (200, 300, 400):
            recorder.record(train_line(step))
        assert [line["env_steps"] for line in read_metrics(tmp_path)] == [100], "a partial line does not count"
        message = capsys.readouterr().err
        assert message.count("\n") == 1 and "wait in memory: [Errno 28] No space left on device" in message
        with pytest.raises(CheckpointError, match=r"cannot write .*No space left.*resume") as caught:
            recorder.flush()
        assert "\n" not in str(caught.value)
        disk.room = 10**6
        recorder.record(train_line(500))
        recorder.flush()
        assert recorder.offset() == (tmp_path / "metrics.jsonl").stat().st_size
    assert [line["env_steps"] for line in read_metrics(tmp_path)] == [100, 200, 300, 400, 500]


def test_lines_that_cannot_be_written_are_reported_and_do_not_wait_forever(tmp_path, capsys, monkeypatch):
    recorder = Recorder(tmp_path, table=False)
    recorder._file = NearlyFullDisk(recorder, room=0)
    recorder.record(train_line(100))
    recorder.close()
    recorder.close()
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and "the last lines of" in warnings[1] and "are lost" in warnings[1]

    monkeypatch.setattr(recorder_module, "MOST_WAITING", 200)
    recorder = Recorder(tmp_path, table=False)
    recorder._file = NearlyFullDisk(recorder, room=0)
    with pytest.raises(CheckpointError, match="cannot write"), recorder:
        for step in range(100):
            recorder.record(train_line(step))
    assert step < 10


def test_an_output_directory_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RLTrainingError, match="cannot write"):
        Recorder(tmp_path / "file" / "run")


def test_close_is_idempotent_and_stops_the_display(tmp_path):
    class Display:
        stopped = 0
        steps: list[int] = []

        def update(self, env_steps: int, line: dict[str, Any] | None = None) -> None:
            self.steps.append(env_steps)

        def stop(self) -> None:
            self.stopped += 1

    display = Display()
    recorder = Recorder(tmp_path, display=display)
    recorder.record(train_line(100))
    recorder.close()
    recorder.close()
    recorder.flush()
    assert display.stopped == 1 and display.steps == [100]
    with pytest.raises(ValueError, match="closed"):
        recorder.record(train_line(200))
