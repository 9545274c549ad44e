"""The curves of a run as they grow: byte cursors, cut streams, damaged lines, findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_training.analysis.curves import read_series
from rl_training.analysis.run_group import StoredRun
from rl_training.dashboard import run_stream
from rl_training.dashboard.run_stream import RunStream
from stored_runs import store


def append(run: Path, *lines: Any) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        for line in lines:
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")


def train(step: int, **numbers: Any) -> dict[str, Any]:
    return {"kind": "train", "env_steps": step, **numbers}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return store(tmp_path, {100: 1.0, 200: 2.5}, losses={50: 0.5, 150: 0.25})


def test_the_whole_stream_then_only_what_is_new(run: Path) -> None:
    stream = RunStream(StoredRun(run))
    assert stream.follow()
    first = stream.since("")
    assert first["restart"] is True
    assert first["series"]["eval_mean_return"] == {"x": [100, 200], "y": [1, 2.5]}
    assert first["series"]["loss"] == {"x": [50, 150], "y": [0.5, 0.25]}
    assert first["cursor"].partition("-")[0] == str((run / "metrics.jsonl").stat().st_size)

    assert stream.follow()
    assert stream.since(first["cursor"]) == {"cursor": first["cursor"], "restart": False, "series": {}}

    append(run, train(300, loss=0.125))
    stream.follow()
    second = stream.since(first["cursor"])
    assert (second["restart"], second["series"]) == (False, {"loss": {"x": [300], "y": [0.125]}})
    assert second["cursor"].partition("-")[0] == str((run / "metrics.jsonl").stat().st_size)
    # Another page that is further behind gets what it lacks, too.
    append(run, train(400, loss=0.0625))
    stream.follow()
    assert stream.since(first["cursor"])["series"]["loss"] == {"x": [300, 400], "y": [0.125, 0.0625]}
    assert stream.since(second["cursor"])["series"]["loss"] == {"x": [400], "y": [0.0625]}


@pytest.mark.parametrize("cursor", ["0", "99-", "-1-x", "1e9", "9" * 40, "x", "12-deadbeef", "0-"])
def test_an_unknown_cursor_starts_again(run: Path, cursor: str) -> None:
    stream = RunStream(StoredRun(run))
    stream.follow()
    assert stream.since(cursor)["restart"] is True
    assert len(stream.since(cursor)["series"]["loss"]["x"]) == 2


def test_a_stream_that_a_resume_has_cut_starts_again(run: Path) -> None:
    stream = RunStream(StoredRun(run))
    stream.follow()
    cursor = stream.since("")["cursor"]
    path = run / "metrics.jsonl"
    kept = path.read_text().splitlines(keepends=True)[:2]
    path.write_text("".join(kept))
    append(run, *(train(step, loss=9.0) for step in range(160, 600, 20)))  # cut, and longer than before
    stream.follow()
    answer = stream.since(cursor)
    assert answer["restart"] is True
    assert answer["series"]["loss"]["y"] == [0.5, *[9] * 22]


def test_damaged_lines_are_passed_over_and_a_partial_line_waits(run: Path) -> None:
    append(run, "not json", "[1]", '{"env_steps": -1, "loss": 3}', '{"env_steps": "x"}', "\x00\x01", "{" * 5000)
    append(run, {"kind": "train", "env_steps": 300, "loss": float("nan"), "big": 1e300, "text": "<b>", "list": [1]})
    stream = RunStream(StoredRun(run))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "env_steps": 400, "los')
    stream.follow()
    series = stream.since("")["series"]
    # NaN is not JSON; Python reads it, and a number that is not finite is no point.
    assert series["loss"]["x"][:2] == [50, 150] and 3 not in series["loss"]["y"]
    assert not {"big", "text", "list"} & set(series)
    assert 400 not in series["loss"]["x"]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('s": 7}\n')
    stream.follow()
    assert stream.since("")["series"]["loss"]["x"][-1] == 400


def test_a_number_that_was_not_finite_is_a_gap(run: Path) -> None:
    append(run, train(300, loss=None), train(400, loss=1.0))
    stream = RunStream(StoredRun(run))
    stream.follow()
    assert stream.since("")["series"]["loss"]["y"] == [0.5, 0.25, None, 1]
    assert json.loads(json.dumps(stream.since(""), allow_nan=False))


def test_curves_are_those_of_the_plots(run: Path) -> None:
    append(run, {"kind": "eval", "env_steps": 200, "eval_mean_return": 99.0})  # the result, on other seeds
    stream = RunStream(StoredRun(run))
    stream.follow()
    curves, _ = read_series(run, ["eval_mean_return", "loss"])
    for metric, curve in curves.items():
        assert stream.curve(metric).steps.tolist() == curve.steps.tolist()
        assert stream.curve(metric).returns.tolist() == curve.returns.tolist()


def test_a_long_stream_is_thinned_but_ends_as_the_file_does(run: Path) -> None:
    append(run, *(train(1000 + i, mean_return=float((i * 37) % 1001), loss=float(i)) for i in range(5000)))
    stream = RunStream(StoredRun(run))
    stream.follow(budget=1e9)
    series = stream.since("")["series"]
    returns = series["mean_return"]
    assert 1000 < len(returns["x"]) <= run_stream.MAIN_POINTS and len(series["loss"]["x"]) <= run_stream.OTHER_POINTS
    assert (returns["x"][-1], returns["y"][-1]) == (5999, (4999 * 37) % 1001)
    assert (min(returns["y"]), max(returns["y"])) == (0, 1000)


def test_memory_is_bounded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_stream, "MOST_KEPT", 100)
    monkeypatch.setattr(run_stream, "MOST_METRICS", 5)
    monkeypatch.setattr(run_stream, "MOST_CURSORS", 3)
    stream = RunStream(StoredRun(run))
    for i in range(20):
        append(run, *(train(1000 + 50 * i + j, loss=float(j), **{f"m{i}": 1.0}) for j in range(50)))
        stream.follow()
    assert stream.curve("loss").steps.size <= 100 and stream.curve("loss").steps[-1] == 1999
    assert len(stream.metrics) <= 5
    assert stream.since(stream.cursor)["restart"] is False


def test_reading_stops_when_its_time_is_over(run: Path) -> None:
    ticks = iter(range(1000))
    stream = RunStream(StoredRun(run), clock=lambda: float(next(ticks)))
    assert stream.follow(budget=0.5) is False
    assert stream.follow(budget=0.5) is True


def test_findings_come_from_the_rules_line_by_line(tmp_path: Path) -> None:
    run = store(tmp_path, {})
    stream = RunStream(StoredRun(run))
    stream.follow()
    assert stream.findings() == []
    append(run, *(train(step, approx_kl=30.0, updates=step, learning_rate=0.5) for step in range(512, 5120, 512)))
    stream.follow()
    (finding,) = stream.findings()
    assert finding["rule"] == "steps_too_large" and finding["title"] == "steps too large"
    assert "learning_rate" in finding["text"] and finding["env_steps"] > 0


def test_a_run_without_a_valid_config_still_has_curves(run: Path) -> None:
    (run / "config.yaml").write_text("algo: [")
    stream = RunStream(StoredRun(run))
    stream.follow()
    assert stream.findings() == [] and stream.since("")["series"]["loss"]["x"] == [50, 150]
