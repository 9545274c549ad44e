"""`rl-training watch`: the tail of a metric stream, across resumes, without a trace in the run."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, start_process, tiny_config, wait_for, write_config
from rl_training.analysis.run_watch import PATIENCE, watch_run
from rl_training.storage.run_directory import create_run_directory, open_run_directory
from rl_training.telemetry.metric_lines import METRICS_FILE
from rl_training.telemetry.metric_tail import MetricTail
from stored_runs import store


def line(step: int, **fields: Any) -> str:
    return json.dumps({"kind": "train", "env_steps": step, "wall_seconds": step / 100.0, **fields}) + "\n"


def evaluation(step: int, score: float) -> str:
    return json.dumps({"kind": "eval", "env_steps": step, "eval_mean_return": score, "eval_std_return": 1.0}) + "\n"


def playing(*events: Callable[[], object]) -> Callable[[float], None]:
    """A sleep that lets one thing happen at a time."""
    left: Iterator[Callable[[], object]] = iter(events)

    def sleep(seconds: float) -> None:
        next(left, lambda: pytest.fail("watched for longer than there is something to see"))()

    return sleep


# --- the tail ---


def steps(tail: MetricTail) -> tuple[bool, list[int]]:
    is_new, lines = tail.read()
    return is_new, [each["env_steps"] for each in lines]


def test_the_tail_reads_whole_lines_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    tail = MetricTail(path)
    assert steps(tail) == (False, [])
    path.write_text(line(1) + line(2) + line(3)[:10])
    assert steps(tail) == (False, [1, 2])
    path.write_text(line(1) + line(2) + line(3))
    assert steps(tail) == (False, [3])
    assert steps(tail) == (False, [])


def test_a_cut_stream_is_read_again_even_if_it_has_grown_since(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    tail = MetricTail(path)
    path.write_text(line(1) + line(2) + line(3))
    tail.read()
    path.write_text(line(1))
    assert steps(tail) == (True, [1])
    path.write_text(line(1) + line(2))
    assert steps(tail) == (False, [2])
    path.write_text("".join(line(step, other=step) for step in (1, 2, 3, 4, 5)))  # longer, but not the same
    assert steps(tail) == (True, [1, 2, 3, 4, 5])


def test_lines_of_a_stranger_are_numbers_with_clean_names(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    hostile = [
        '{"env_steps": 1, "kind": "\\u001b[2Jtrain", "a": [1], "b": {"c": 1}, "d": 1e308, "\\u001b": 2, "e": null}',
        '{"env_steps": "x"}',
        '{"env_steps": true}',
        '{"env_steps": -1}',
        '{"env_steps": 99999999999999999999999}',
        '{"env_steps": 3, "env_steps\\u0007": null, "kind": 7}',
        "[1]",
        "{" * 5000,
        "not json",
        '{"env_steps": 2, "loss": NaN}',
    ]
    path.write_bytes(b"\xff\xfe\n" + "\n".join(hostile).encode() + b"\n")
    first, third, second = MetricTail(path).read()[1]
    assert first == {"kind": "train", "env_steps": 1, "": 2, "e": None}
    assert second == {"kind": "train", "env_steps": 2} and third == {"kind": "train", "env_steps": 3}


def test_a_pipe_and_an_endless_line_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    assert MetricTail(tmp_path / "pipe").read() == (False, [])
    monkeypatch.setattr("rl_training.telemetry.metric_tail.MOST_BYTES", 1000)
    monkeypatch.setattr("rl_training.telemetry.metric_tail.LONGEST_LINE", 100)
    path = tmp_path / METRICS_FILE
    path.write_text("x" * 5000 + "\n" + line(7))
    tail = MetricTail(path)
    found = [step for _ in range(10) for step in steps(tail)[1]]
    assert found == [7]


# --- watching ---


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = store(tmp_path, {})
    (path / METRICS_FILE).write_text(line(100, mean_return=5.0))
    return path


def append(path: Path, text: str) -> None:
    with (path / METRICS_FILE).open("a") as file:
        file.write(text)


def test_a_running_run_is_followed_to_its_end(tmp_path: Path) -> None:
    run = open_run_directory(store(tmp_path, {}, status="running"))
    append(run.path, line(100, mean_return=5.0))
    out = io.StringIO()
    with run.lock():
        status = watch_run(
            run.path,
            stream=out,
            sleep=playing(
                lambda: append(run.path, line(800, mean_return=7.0) + evaluation(800, 21.0)),
                lambda: append(run.path, line(1000, mean_return=9.0)),
                lambda: run.update(status="finished"),
            ),
        )
    assert status == "finished"
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("step 800 / 1,000  return 7.0")  # five seconds of the run after its start
    # In the time of the run: 1,000 steps in 10 seconds, whenever it is watched.
    assert lines[-1] == "step 1,000 / 1,000  return 9.0 (training)  evaluation 21.0 (step 800)  100 steps/s  took 0:10"


def test_a_finished_run_shows_its_end_at_once(run: Path) -> None:
    out = io.StringIO()
    assert watch_run(run, stream=out, sleep=playing()) == "finished"
    assert out.getvalue() == "step 100 / 1,000  return 5.0 (training)  100 steps/s  took 0:01\n"


def test_a_resume_that_cuts_the_stream_is_followed(tmp_path: Path) -> None:
    run = open_run_directory(store(tmp_path, {}, status="running"))
    append(run.path, line(100, mean_return=5.0) + line(200, mean_return=6.0) + evaluation(200, 99.0))
    out = io.StringIO()

    def cut() -> None:
        (run.path / METRICS_FILE).write_text(line(100, mean_return=5.0))
        run.update(total_timesteps=2000)

    with run.lock():
        watch_run(
            run.path,
            stream=out,
            sleep=playing(
                cut,
                lambda: append(run.path, line(300, mean_return=8.0)),
                lambda: run.update(status="finished"),
            ),
        )
    lines = out.getvalue().splitlines()
    assert "the run was resumed, to 2,000 steps" in lines
    assert lines[-1].startswith("step 300 / 2,000  return 8.0 (training)  100 steps/s")
    assert "99" not in lines[-1]  # an evaluation that the resumed run does not have


def test_a_run_whose_process_died_ends_the_watch_after_a_while(tmp_path: Path) -> None:
    path = store(tmp_path, {}, status="running")  # but not locked
    waits: list[float] = []
    assert watch_run(path, stream=io.StringIO(), sleep=waits.append) == "interrupted"
    assert len(waits) == PATIENCE - 1


def test_nothing_in_the_run_changes(run: Path) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (run, *run.rglob("*"))}

    before = state()
    watch_run(run, stream=io.StringIO(), sleep=playing())
    assert call("watch", run).code == 0
    assert state() == before


def test_the_live_panel_is_drawn_on_a_terminal(run: Path) -> None:
    out = io.StringIO()
    watch_run(run, stream=out, show=True, sleep=playing())
    text = out.getvalue()
    assert "ppo on CartPole-v1" in text and "100 / 1,000 steps" in text and "10%" in text


def test_many_lines_are_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(tmp_path, {})
    append(path, "".join(line(step, mean_return=1.0) for step in range(1, 3000)))
    drawn = []
    monkeypatch.setattr("rl_training.telemetry.console.plain_line", lambda snapshot: drawn.append(snapshot) or "x")
    watch_run(path, stream=io.StringIO(), sleep=playing())
    assert len(drawn) <= 2


def test_hostile_metrics_do_not_break_the_display(tmp_path: Path) -> None:
    path = store(tmp_path, {})
    append(path, '{"kind": "train", "env_steps": 5, "mean_return": "\\u001b[2J", "episodes": "x", "time_env": "y"}\n')
    append(path, '{"kind": "eval", "env_steps": 6, "eval_mean_return": "z"}\n' + evaluation(7, 3.0))
    for show in (None, True):
        out = io.StringIO()
        assert watch_run(path, stream=out, show=show, sleep=playing()) == "finished"
        assert "\x1b[2Jx" not in out.getvalue() and "7 / 1,000" in out.getvalue()


def test_json_prints_the_lines(run: Path) -> None:
    outcome = call("watch", run, "--json")
    assert outcome.code == 0 and json.loads(outcome.out)["env_steps"] == 100


def test_the_command_says_how_to_continue(tmp_path: Path) -> None:
    store(tmp_path, {}, status="interrupted")
    outcome = call("watch", "latest", "--output-dir", tmp_path)
    assert outcome.code == 0 and "the run is interrupted" in outcome.out and "rl-training resume" in outcome.out


def test_an_unknown_run_is_one_line(tmp_path: Path) -> None:
    create_run_directory(tmp_path, "one")
    outcome = call("watch", "two", "--output-dir", tmp_path)
    assert outcome.code == 5 and outcome.err.count("\n") == 1
    store(tmp_path, {})
    assert "names 2 runs" in call("watch", "*", "--output-dir", tmp_path).err


def test_ctrl_c_ends_the_watch_and_not_the_run(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", total_timesteps=10**7))
    trained = start_process("train", config, "--output-dir", tmp_path / "runs", "--quiet")
    watched = None
    try:
        runs = tmp_path / "runs"
        wait_for(lambda: any(path.stat().st_size for path in runs.glob(f"*/{METRICS_FILE}")), trained, 120)
        watched = start_process("watch", "--output-dir", runs, "--json")
        assert watched.stdout is not None
        assert json.loads(watched.stdout.readline())["env_steps"] > 0
        watched.send_signal(signal.SIGINT)
        _, err = watched.communicate(timeout=120)
        assert watched.returncode == 130 and "Traceback" not in err
        assert trained.poll() is None
    finally:
        for process in (trained, watched):
            if process is not None:
                process.kill()
                process.communicate()
