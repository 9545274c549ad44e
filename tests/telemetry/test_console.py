from __future__ import annotations

import io
import math
import subprocess
import sys
import time
from typing import Any

import pytest
from rich.console import Console

from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.console_view import (
    Snapshot,
    format_duration,
    format_number,
    format_return,
    plain_line,
    render,
    sparkline,
)

LINE: dict[str, Any] = {
    "kind": "train",
    "env_steps": 20_480,
    "updates": 40,
    "episodes": 321,
    "mean_return": 143.2,
    "policy_loss": -0.0123,
    "value_loss": None,
    "entropy": 0.61,
    "steps_per_second": 1.0,
    "time_env": 0.5,
    "time_act": 0.2,
    "time_learn": 0.25,
    "time_other": 0.05,
}
EVALUATION = {"kind": "eval", "env_steps": 20_480, "eval_mean_return": 201.0, "eval_std_return": 12.5}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def full_snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "title": "ppo · CartPole-v1 · seed 0",
        "total_steps": 100_000,
        "env_steps": 42_000,
        "episodes": 1234,
        "elapsed": 12.0,
        "steps_per_second": 12_300.0,
        "mean_return": 143.2,
        "return_history": [float(value) for value in range(100)],
        "eval_mean": 201.0,
        "eval_std": 12.5,
        "eval_best": 250.0,
        "metrics": {"policy_loss": -0.0123, "value_loss": 23.4, "entropy": 0.61, "approx_kl": 8e-4},
        "shares": {"time_env": 0.5, "time_act": 0.2, "time_learn": 0.25, "time_other": 0.05},
    }
    return Snapshot(**{**values, **changes})


def drawn(snapshot: Snapshot, width: int, height: int = 40, ascii_only: bool = False) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(render(snapshot, width, height, ascii_only=ascii_only, color=False))
    return console.file.getvalue().splitlines()


def test_plain_output_is_throttled_and_has_no_escape_codes():
    clock, stream = Clock(), io.StringIO()
    display = ConsoleDisplay(100_000, "ppo", stream=stream, clock=clock)
    display.start()
    for step in range(0, 20_480 + 1, 1024):
        display.update(step, {**LINE, "env_steps": step})
        clock.now += 1.0
    display.note("checkpoint\x1b[2J saved")
    display.update(21_504)
    display.stop()
    display.stop()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4 + 1 + 1  # one line every five of twenty seconds, the note, the final state
    assert lines[0] == "step 5,120 / 100,000  return 143.2 (training, last 100 episodes)  1,024 steps/s  eta 1:33"
    assert lines[-2] == "checkpoint[2J saved"
    assert lines[-1] == "step 21,504 / 100,000  return 143.2 (training, last 100 episodes)  1,024 steps/s  took 0:21"
    assert all(text.isascii() and text.isprintable() for text in lines)


def test_the_last_plain_line_is_not_printed_twice():
    clock, stream = Clock(), io.StringIO()
    with ConsoleDisplay(100, "ppo", stream=stream, clock=clock) as display:
        clock.now += 10.0
        display.update(100, LINE)
    assert stream.getvalue().count("step 100 / 100") == 1


def test_speed_and_eta_of_a_resumed_run_count_only_its_own_steps():
    clock, stream = Clock(), io.StringIO()
    display = ConsoleDisplay(100_000, "ppo", start_step=50_000, stream=stream, clock=clock)
    display.start()
    clock.now += 10.0
    display.update(60_000)
    assert stream.getvalue() == "step 60,000 / 100,000  1,000 steps/s  eta 0:40\n"


def test_speed_follows_the_last_seconds():
    clock, stream = Clock(), io.StringIO()
    display = ConsoleDisplay(10_000_000, "ppo", stream=stream, clock=clock)
    display.start()
    step = 0
    for second in range(120):
        step += 10 if second < 60 else 1000
        clock.now += 1.0
        display.update(step)
    assert "  1,000 steps/s" in stream.getvalue().splitlines()[-1]


def test_quiet_prints_nothing():
    stream = Terminal()
    with ConsoleDisplay(100, "ppo", stream=stream, enabled=False) as display:
        display.update(50, LINE)
        display.note("evaluation done")
    assert stream.getvalue() == ""


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with ConsoleDisplay(100, "ppo", stream=stream) as display:
        display.update(50, LINE)
    assert stream.getvalue().startswith("step 50 / 100") and "\x1b" not in stream.getvalue()


def test_live_display_shows_everything_and_releases_the_terminal():
    clock, stream = Clock(), Terminal()
    display = ConsoleDisplay(100_000, "ppo · \x1b]0;evil\x07CartPole", stream=stream, clock=clock)
    display.start()
    clock.now += 1.0
    display.update(20_480, LINE)
    display.update(20_480, EVALUATION)
    display.update(20_480, {**EVALUATION, "eval_mean_return": 150.0})
    display.note("checkpoint saved")
    display.stop()
    text = stream.getvalue()
    for part in ("20,480 / 100,000 steps", "143.2", "150.0", "201.0", "policy loss", "env 50%", "nan"):
        assert part in text
    assert "checkpoint saved" in text
    assert "\x1b]0;" not in text and "\x07" not in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden, then shown again


def test_live_display_draws_ten_times_a_second_at_most():
    clock, stream = Clock(), Terminal()
    display = ConsoleDisplay(100_000, "ppo", stream=stream, clock=clock)
    display.start()
    writes = []
    for step in range(2000):  # two seconds
        before = stream.writes
        clock.now += 0.001
        display.update(step)
        writes.append(stream.writes > before)
    assert 15 <= sum(writes) <= 20
    display.stop()


def test_an_update_that_draws_nothing_costs_microseconds():
    display = ConsoleDisplay(100_000, "ppo", stream=io.StringIO())
    display.start()
    best = math.inf
    for _ in range(5):
        begin = time.process_time()
        for step in range(2000):
            display.update(step)
        best = min(best, (time.process_time() - begin) / 2000)
    assert best < 20e-6


def test_a_stream_that_fails_silences_the_display_and_not_the_run():
    class Broken(io.StringIO):
        broken = False

        def write(self, text: str) -> int:
            if self.broken:
                raise BrokenPipeError("reader is gone")
            return super().write(text)

    for enabled in (None, True):
        clock, stream = Clock(), Broken()
        display = ConsoleDisplay(100, "ppo", stream=stream, clock=clock, enabled=enabled)
        display.start()
        stream.broken = True
        clock.now += 60.0
        display.update(50, LINE)
        display.note("text")
        display.stop()
        stream.broken = False
        display.start()
        clock.now += 60.0
        display.update(60, LINE)
        assert "60 / 100" not in stream.getvalue()


def test_a_narrow_encoding_gets_question_marks():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    with ConsoleDisplay(100, "ppo", stream=stream) as display:
        display.note("größe")
    assert raw.getvalue().startswith(b"gr??e\n")


@pytest.mark.parametrize("width", [1, 2, 8, 20, 40, 49, 50, 60, 80, 99, 100, 120, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_width_wraps_or_crashes(width, ascii_only):
    huge = full_snapshot(
        title="dqn · " + "long" * 30,
        env_steps=10**12,
        total_steps=10**12,
        episodes=10**9,
        mean_return=-1.5e8,
        eval_mean=-1.5e8,
        eval_std=1e8,
        metrics={"a_metric_with_a_very_long_name_indeed": 1e-30, "other": math.nan, "third": None},
        finished=True,
    )
    for snapshot in (full_snapshot(), huge, Snapshot("sac", 1000)):
        lines = drawn(snapshot, width, ascii_only=ascii_only)
        assert all(len(line) <= width for line in lines)
        if width < 50:
            assert len(lines) == 3
        else:
            assert len({len(line) for line in lines}) == 1  # the right border is straight
            assert len(lines) in ((13, 14) if snapshot.shares else (11,))


def test_a_low_terminal_gets_the_three_line_form():
    assert len(drawn(full_snapshot(), 80, height=10)) == 3
    assert "return 143.2" in drawn(full_snapshot(), 30, height=40)[-1]


def test_ascii_form_has_no_other_characters():
    assert "".join(drawn(full_snapshot(title="ppo"), 80, ascii_only=True)).isascii()


def test_parts_of_the_time_bar_differ_without_colors():
    (bar,) = [line for line in drawn(full_snapshot(), 80) if " time " in line]
    counts = [bar.count(glyph) for glyph in "█▓▒░"]
    assert sum(counts) == 62
    assert counts[0] == 31 and abs(counts[1] - 12.4) < 1 and abs(counts[2] - 15.5) < 1 and counts[3] >= 2


def test_formats():
    assert [format_duration(value) for value in (None, math.inf, 7.2, 3723, 200_000)] == [
        "-:--", "-:--", "0:07", "1:02:03", "2d 07h",
    ]  # fmt: skip
    assert [format_number(value) for value in (None, 0.0, -0.01234, 1.5e-5, 23.456, 12345.6, 1e9)] == [
        "nan", "0.0000", "-0.0123", "1.50e-05", "23.46", "12,346", "1.00e+09",
    ]  # fmt: skip
    assert [format_return(value) for value in (None, 143.24, -200_000.4, 1e12)] == [
        "-", "143.2", "-200,000", "1.00e+12",
    ]  # fmt: skip


def test_sparkline_shows_the_curve_and_accepts_a_constant():
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 1, 1, 2, 2, 3, 3], 4) == "▁▃▆█"
    assert sparkline([5.0] * 10, 5) == "▁" * 5
    assert sparkline([1.0], 8) == "" and sparkline([1.0, 2.0], 3) == ""


def test_eta_is_unknown_without_a_speed():
    assert plain_line(Snapshot("ppo", 100, env_steps=10)) == "step 10 / 100  eta -:--"


def test_rich_is_imported_only_when_something_is_drawn():
    code = "import sys, rl_training.telemetry.console; sys.exit(bool({'rich', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_training_return_and_the_evaluation_say_what_they_are() -> None:
    display = ConsoleDisplay(1_000, "run", enabled=False)
    display.update(600, {"kind": "train", "env_steps": 600, "episodes": 37, "mean_return": 213.0})
    display.update(
        600, {"kind": "eval", "env_steps": 500, "eval_mean_return": 500.0, "eval_std_return": 1.0, "eval_episodes": 10}
    )
    lines = drawn(display._snapshot, 80)
    (training,) = [number for number, line in enumerate(lines) if "213.0" in line]
    (evaluation,) = [number for number, line in enumerate(lines) if line.lstrip("│ ").startswith("evaluation")]
    assert "training, last 37 episodes" in lines[training + 1]
    assert "500.0 ± 1.0" in lines[evaluation] and "10 episodes, step 500" in lines[evaluation + 1]
    assert plain_line(display._snapshot).startswith(
        "step 600 / 1,000  return 213.0 (training, last 37 episodes)  evaluation 500.0 (10 episodes, step 500)"
    )
    display.update(900, {"kind": "train", "env_steps": 900, "episodes": 4321, "mean_return": 213.0})
    assert display._snapshot.training_note == "training, last 100 episodes"


def test_numbers_of_the_env_come_first_among_the_metrics() -> None:
    display = ConsoleDisplay(1_000, "run", enabled=False)
    losses = {f"{name}_loss": 1.0 for name in "abcdefgh"}
    display.update(600, {"kind": "train", "env_steps": 600, "mean_return": 1.0, "info_is_success": 0.25, **losses})
    display.update(600, {"kind": "eval", "env_steps": 600, "eval_mean_return": 1.0, "eval_info_is_success": 1.0})
    text = "\n".join(drawn(display._snapshot, 80))
    assert "is success       0.25 (eval 1)" in text and "info" not in text
    assert "  is_success 0.25  evaluation 1.0" in plain_line(display._snapshot)
