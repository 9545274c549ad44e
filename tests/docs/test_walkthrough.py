"""docs/walkthrough.md, followed from its first line to its last, with smaller budgets."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

from cli_helpers import Outcome, call
from rl_training import load_config
from rl_training.diagnosis.findings_file import FINDINGS_FILE
from rl_training.telemetry.recorder import read_metrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "walkthrough.md"
TEXT = PAGE.read_text(encoding="utf-8")
# What makes the page take minutes. The run of 50,000 steps stops by itself after 2,560.
SMALLER = {"6000": "1024", "8000": "1024", "6_000": "1_024", "8_000": "1_024", "=100": "=10", " 100": " 10"}
COMMANDS = ["check-env", "train", "eval", "tensorboard", "train", "diagnose", "train", "train", "plot", "compare"]


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    return str(text)


def smaller(text: str) -> str:
    for given, less in SMALLER.items():
        text = text.replace(given, less)
    return text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a new user with the environment of the page in it."""
    (tmp_path / "ferry.py").write_text(block("python"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    forget_ferry()
    yield tmp_path
    forget_ferry()


def forget_ferry() -> None:
    sys.modules.pop("ferry", None)
    gym.registry.pop("Ferry-v0", None)


def test_the_commands_of_the_page_do_what_it_says(folder: Path) -> None:
    lines = re.findall(r"^ {4}rl-training (.*)$", TEXT, re.MULTILINE)
    assert [line.split()[0] for line in lines] == COMMANDS
    outcomes: list[Outcome] = []
    for line in lines:
        outcomes.append(call(*shlex.split(smaller(line).replace(" --jobs 2", ""))))
        assert outcomes[-1].code == 0, (line, outcomes[-1].err)
    check, solved, evaluated, _, sick, diagnosed, *_, plotted, compared = outcomes

    assert "0 failures" in check.out and "ppo" in check.out and "dqn" in check.out
    assert "stop_at_return is 0.99" in solved.out and "is_success   1 on average" in solved.out
    run = folder / "runs" / "ppo-ferry-Ferry-v0-seed0"
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    lines_of = {kind: [line for line in read_metrics(run) if line["kind"] == kind] for kind in ("train", "eval")}
    assert {"info_is_success", "info_drift"} <= set(lines_of["train"][-1])
    assert lines_of["eval"][-1]["eval_info_is_success"] == 1.0
    assert "info_is_success" in (run / "metrics.csv").read_text().splitlines()[0].split(",")
    assert "is_success   1 on average" in evaluated.out
    assert success_events(folder / "events"), "TensorBoard shows the success rate of a run without that sink"
    assert call("watch", run).out.count("is_success") >= 1

    (finding,) = [json.loads(line) for line in (folder / "runs/too-fast" / FINDINGS_FILE).read_text().splitlines()]
    assert finding["rule"] == "steps_too_large" and "learning_rate" in finding["text"]
    assert finding["text"] in " ".join(sick.err.split()) and finding["text"] in diagnosed.out

    assert plotted.out.splitlines() == ["learning_rate 3e-05: 3 seeds", "learning_rate 0.0003: 3 seeds",
                                        "wrote success.png"]  # fmt: skip
    assert (folder / "success.png").read_bytes().startswith(b"\x89PNG")
    assert "info_is_success, one per seed" in compared.out
    assert compared.out.splitlines()[-1].startswith(("learning_rate=0.0", "no winner: "))


def success_events(logdir: Path) -> list[float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (run,) = logdir.iterdir()
    events = EventAccumulator(str(run))
    events.Reload()
    (tag,) = [tag for tag in events.Tags()["scalars"] if tag.endswith("info_is_success") and "eval" not in tag]
    return [event.value for event in events.Scalars(tag)]


def test_the_program_of_the_page_does_the_same(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    exec(compile(smaller(block("py")), "walkthrough", "exec"), {})
    out = capfd.readouterr().out
    assert "stop_at_return is 0.99" in out and "'info_is_success': 1.0" in out and "learning_rate" in out
    assert (folder / "success.png").exists()
    assert len(list((folder / "rates-in-python").iterdir())) == 6


def test_the_file_of_the_page_trains_the_same_run(folder: Path) -> None:
    (folder / "ferry.yaml").write_text(block("yaml"), encoding="utf-8")
    given = load_config(folder / "ferry.yaml")
    assert (given.stop_at_return, given.defaults, tuple(given.log_info)) == (0.99, "env", ("drift",))
    outcome = call("train", folder / "ferry.yaml", "--total-timesteps", "1024", "--quiet", "--set", "run_name=file")
    assert outcome.code == 0 and load_config(folder / "runs/file/config.yaml").num_envs == 8
