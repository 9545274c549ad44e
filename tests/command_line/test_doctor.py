"""`rl-training doctor` and `rl-training check-env`: output, exit codes and JSON."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, tiny_config, write_config
from rl_training.checkup import examination
from rl_training.checkup.finding import Finding, Report
from rl_training.checkup.import_trial import Trial
from rl_training.checkup.machine import Machine
from rl_training.command_line.common import findings_view
from waiting import DEADLINE_SECONDS

HEALTHY = Machine(cores=2, memory=16_000_000_000, compiler="g++")
PLAN_KEYS = [
    "parameters",
    "replay_bytes",
    "checkpoint_bytes",
    "disk_bytes",
    "steps_per_second",
    "shares",
    "limit",
    "run_seconds",
]


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is wrong, whatever machine this is; returns a directory for the runs."""
    facts = {"version": "2.13.0", "cuda_build": None, "cuda": [], "mps": False}
    monkeypatch.setattr(examination, "try_imports", lambda modules: {name: Trial(None, facts) for name in modules})
    monkeypatch.setattr(examination, "package_requirements", list)
    monkeypatch.setattr(examination, "check_python", lambda *_: Finding("ok", "python", "3.12.1"))
    monkeypatch.setattr(examination, "look_at_machine", lambda: HEALTHY)
    look = examination.look_at_disk
    monkeypatch.setattr(examination, "look_at_disk", lambda path: look(path, lambda: 0.0))
    return tmp_path


def config_in(folder: Path, algorithm: str = "ppo", **changes: Any) -> Path:
    return write_config(folder / "tiny.yaml", tiny_config(algorithm, **changes))


def test_a_healthy_machine_exits_with_0(healthy: Path) -> None:
    outcome = call("doctor", "--output-dir", healthy)
    assert outcome.code == 0, outcome.out
    *lines, last = outcome.out.splitlines()
    assert {line[:4] for line in lines} == {"ok  "}
    assert last == f"{len(lines)} checks, 0 warnings, 0 failures"
    assert list(healthy.iterdir()) == []


def test_a_failure_exits_with_1(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "look_at_machine", lambda: Machine(cores=2, memory=1000, compiler=None))
    outcome = call("doctor", "--output-dir", healthy)
    assert outcome.code == 1
    assert "FAIL  memory        0.0 GB available" in outcome.out
    assert "warn  compiler      no C++ compiler" in outcome.out
    assert outcome.out.splitlines()[-1].endswith("1 warning, 1 failure")
    assert outcome.err == (
        "error: memory: 0.0 GB available, but even a small run needs 0.5 GB; fix: end other programs\n"
    )


def test_json_has_stable_keys(healthy: Path) -> None:
    document = call("doctor", "--output-dir", healthy, "--json").json
    assert list(document) == ["status", "findings", "plan"]
    assert (document["status"], document["plan"]) == ("ok", None)
    assert [list(finding) for finding in document["findings"]] == [["status", "what", "detail", "fix"]] * len(
        document["findings"]
    )
    names = [finding["what"] for finding in document["findings"]]
    assert names == [
        "python",
        "dependencies",
        "torch",
        "cores",
        "memory",
        "compiler",
        "fork",
        "display",
        "disk",
        "sync",
        "lock",
    ]


def test_a_config_is_examined(healthy: Path) -> None:
    config = config_in(healthy)
    outcome = call("doctor", config, "--output-dir", healthy, "--seconds", "0.01", "--json")
    assert outcome.code == 0
    plan = outcome.json["plan"]
    assert list(plan) == PLAN_KEYS
    assert sorted(plan["shares"]) == ["act", "env", "learn", "other"]
    assert [path.name for path in healthy.iterdir()] == ["tiny.yaml"]


def test_an_algorithm_and_an_env_are_examined_as_train_would_run_them(
    healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Any] = []
    examined = examination.Examination

    def seen(folder: str, config: Any, seconds: float) -> examination.Examination:
        planned.append(config)
        return examined(folder, config, seconds)

    monkeypatch.setattr(examination, "Examination", seen)
    outcome = call("doctor", "ppo", "--env", "CartPole-v1", "--set", "num_envs=2", "--seconds", "0.01", "--json")
    assert outcome.json["plan"]["parameters"] and planned[0].defaults == "env" and planned[0].num_envs == 2


def test_settings_can_be_overridden(healthy: Path) -> None:
    config = config_in(healthy)
    outcome = call("doctor", config, "--set", "env_id=NoSuchEnv-v0", "--output-dir", healthy)
    assert outcome.code == 1
    assert "FAIL  env           env 'NoSuchEnv-v0' is not registered" in outcome.out


def test_the_output_dir_of_the_config_is_examined(healthy: Path) -> None:
    (healthy / "file").write_text("not a directory")
    outcome = call("doctor", config_in(healthy, output_dir=str(healthy / "file")), "--seconds", "0.01")
    assert outcome.code == 1
    assert "cannot be written (it is not a directory)" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no/such"], "no/such"),
        (["ppo/cartpole", "--set", "gama=1"], "gama: unknown key"),
        (["ppo/cartpole", "--seconds", "0"], "--seconds: 0 is not valid, must be above 0 and at most 600"),
        (["ppo/cartpole", "--seconds", "nan"], "--seconds: nan is not valid"),
        (["--set", "gamma=1"], "--set: needs a CONFIG"),
        (["--env", "X-v0"], "CONFIG: missing, pass an algorithm such as ppo"),
        (["ppo/cartpole", "--env", "X-v0"], "use `rl-training doctor ALGORITHM --env X-v0`"),
        (["pppo", "--env", "X-v0"], "CONFIG: 'pppo' is not an algorithm"),
    ],
)
def test_wrong_usage_is_one_line_with_exit_code_2(arguments: list[str], text: str) -> None:
    outcome = call("doctor", *arguments)
    assert outcome.code == 2 and outcome.out == ""
    assert len(outcome.err.splitlines()) == 1 and text in outcome.err


def test_without_a_config_torch_stays_outside_of_the_process(tmp_path: Path) -> None:
    """The real machine, whatever it is: the command ends with 0 or 1, and prints one line per check."""
    program = (
        "import sys\n"
        "from rl_training.cli import main\n"
        "code = main(['doctor', '--json', '--output-dir', sys.argv[1]])\n"
        "assert not {'torch', 'gymnasium'} & set(sys.modules), 'imported here'\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert done.returncode == (document["status"] == "fail")
    details = {finding["what"]: finding["detail"] for finding in document["findings"]}
    assert "devices: cpu" in details["torch"] and "numpy" in details["dependencies"]


def test_check_env_of_a_sound_env_exits_with_0() -> None:
    outcome = call("check-env", "sick_envs:Sick-v0")
    assert outcome.code == 0, outcome.out
    assert {line[:4] for line in outcome.out.splitlines()[:-1]} == {"ok  "}
    assert outcome.out.splitlines()[-1] == "9 checks, 0 warnings, 0 failures"


def test_check_env_of_an_env_that_cannot_be_used_exits_with_3() -> None:
    outcome = call("check-env", "sick_envs:Sick-v0", "--set", "fault=NaN reward")
    assert outcome.code == 3
    assert "FAIL  steps         the reward is nan (step 7); fix: correct the env: training stops at NaN" in outcome.out
    document = call("check-env", "sick_envs:Sick-v0", "--set", "fault=NaN reward", "--json")
    assert document.code == 3 and document.json["status"] == "fail"
    assert list(document.json) == ["status", "findings"]
    assert document.err == "error: steps: the reward is nan (step 7); fix: correct the env: training stops at NaN\n"


def test_check_env_of_a_warning_exits_with_0() -> None:
    outcome = call("check-env", "sick_envs:Sick-v0", "--set", "fault=ignored seed")
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1] == "9 checks, 2 warnings, 0 failures"


def test_check_env_of_an_unknown_env_and_of_bad_keywords() -> None:
    outcome = call("check-env", "NoSuchEnv-v0")
    assert outcome.code == 3
    assert outcome.out.splitlines()[0].startswith("FAIL  env           env 'NoSuchEnv-v0' is not registered")
    outcome = call("check-env", "CartPole-v1", "--set", "speed=3")
    assert outcome.code == 3 and "unexpected keyword argument 'speed'" in outcome.out
    outcome = call("check-env", "CartPole-v1", "--set", "atari=true")
    assert outcome.code == 3 and "is not an Atari id" in outcome.out
    outcome = call("check-env", "CartPole-v1", "--set", "image={size: -1}")
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_terminal_of_80_columns_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    screen = Terminal()
    long = Finding("warn", "compiler", "a long sentence " * 12 + "\x1b[2J", "another sentence " * 8)
    with redirect_stdout(screen):
        findings_view.show_finding(long)
    lines = screen.getvalue().splitlines()
    assert len(lines) > 4 and max(map(len, lines)) <= 80
    assert lines[0].split()[:5] == ["warn", "compiler", "a", "long", "sentence"]
    assert all(line.startswith(" " * lines[0].index("a long")) for line in lines[1:])
    assert any(line.strip().startswith("fix: another") for line in lines)
    assert "\x1b[2J" not in screen.getvalue()


def test_a_report_is_a_line_per_finding() -> None:
    report = Report((Finding("ok", "a", "fine"), Finding("fail", "b", "bad\nworse", "do it")))
    assert str(report).splitlines() == ["ok    a             fine", "FAIL  b             badworse; fix: do it"]
    assert report.status == "fail" and not report.usable
