"""Standard streams that are closed, full, without a reader or in another encoding: no traceback, and no lost result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli_helpers import Trainer, call, make_trainer, tiny_config, write_config
from rl_training.command_line.common import observations
from stored_runs import store

COMMAND = f"{sys.executable} -m rl_training"
FULL = [">/dev/full"] if Path("/dev/full").exists() else []


NOISY_ENV = """
import os
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Noisy(CartPoleEnv):
    def step(self, action):
        print("to stdout")
        os.write(1, b"like a library in C")
        os.write(2, b"and its errors")
        return super().step(action)

gym.register("Noisy-v0", Noisy, max_episode_steps=20)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return make_trainer(tmp_path_factory)


def shell(line: str, cwd: Path, unbuffered: str = "", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash that contains COMMAND; the exit code is that of the command, not of its reader."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": unbuffered, **variables}
    line = f"set -o pipefail; {line}"
    return subprocess.run(["bash", "-c", line], cwd=cwd, env=environment, capture_output=True, timeout=300)


def error_lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    text = done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in text and "Exception ignored" not in text, text
    return text.splitlines()


@pytest.mark.parametrize("redirection", [">&-", *FULL])
@pytest.mark.parametrize(
    ("words", "unbuffered"), [("list algorithms", ""), ("list algorithms --json", "1"), ("--help", "")]
)
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(
    words: str, redirection: str, unbuffered: str, tmp_path: Path
) -> None:
    done = shell(f"{COMMAND} {words} {redirection}", tmp_path, unbuffered)
    (line,) = error_lines(done)
    assert line.startswith("error: stdout: cannot be written (") and done.returncode == 1


@pytest.mark.parametrize("words", ["list algorithms", "--help"])
def test_a_reader_that_leaves_early_is_not_an_error(words: str, tmp_path: Path) -> None:
    done = shell(f"{COMMAND} {words} | true", tmp_path)
    assert error_lines(done) == [] and done.returncode == 0
    done = shell(f"{COMMAND} {words} | head -1", tmp_path)
    assert error_lines(done) == [] and done.returncode == 0 and done.stdout.count(b"\n") == 1


@pytest.mark.parametrize("redirection", ["2>&-", *(f"2{full}" for full in FULL), "2> >(true)"])
def test_the_exit_code_of_an_error_does_not_depend_on_stderr(redirection: str, tmp_path: Path) -> None:
    assert shell(f"{COMMAND} eval nothing {redirection}", tmp_path).returncode == 5
    assert shell(f"{COMMAND} list algorithms --json {redirection}", tmp_path).returncode == 0


@pytest.mark.parametrize("redirection", [*(FULL or [">&-"]), "| true"])
def test_the_result_of_a_run_goes_to_stderr_if_stdout_is_lost(redirection: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    done = shell(f"{COMMAND} train {config} --json --quiet {redirection}", tmp_path)
    (line,) = error_lines(done)
    summary = json.loads(line)
    assert done.returncode == 0 and summary["eval"]["episodes"] == 2
    assert Path(tmp_path, summary["checkpoint"]).is_dir()


def test_a_run_survives_without_any_stream(tmp_path: Path) -> None:
    """Closed descriptors are taken by /dev/null; otherwise a file of the run would get what libraries print."""
    (tmp_path / "noisy_env.py").write_text(NOISY_ENV)
    config = write_config(tmp_path / "tiny.yaml", tiny_config("dqn", env_id="noisy_env:Noisy-v0"))
    done = shell(f"{COMMAND} train {config} <&- >&- 2>&-", tmp_path)
    assert done.returncode == 0
    outcome = call("inspect", "latest", "--output-dir", tmp_path / "runs", "--json")
    assert outcome.code == 0 and outcome.json["verified"]
    lines = next(tmp_path.glob("runs/*/metrics.jsonl")).read_text().splitlines()
    assert all(json.loads(line) for line in lines)


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=str,
)
def test_other_encodings(variables: dict[str, str], trained: Trainer) -> None:
    runs, _ = trained("ppo")
    words = f"list runs --output-dir {runs}; {COMMAND} eval caf\u00e9-\u65e5 --output-dir {runs}"
    done = shell(f"{COMMAND} {words}", runs, **variables)
    (line,) = error_lines(done)
    assert done.returncode == 5 and line.startswith("error: caf") and b"finished" in done.stdout


def test_arguments_that_are_not_utf8(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} eval $'\\xff\\xfe'", tmp_path)
    (line,) = error_lines(done)
    assert done.returncode == 5 and "no such checkpoint or run" in line


def test_stdin_that_is_not_an_observation(trained: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _ = trained("ppo")
    predict = f"{COMMAND} predict latest --output-dir {runs}"
    for line, text in [
        (f"printf '\\xff\\xfe[0,0,0,0]' | {predict}", "stdin: not UTF-8"),
        (f"{predict} <&-", "--obs: missing"),
        (f"{predict} < /dev/null", "stdin: not JSON"),
    ]:
        done = shell(line, runs)
        assert done.returncode == 2 and text in error_lines(done)[0]
    monkeypatch.setattr(observations, "LONGEST_INPUT", 2**20)
    outcome = call("predict", "latest", "--output-dir", runs, stdin="1" * (2**20 + 1))
    assert outcome.code == 2 and outcome.err == "error: stdin: more than 1 MB, pass fewer observations at once\n"


@pytest.mark.parametrize("redirection", [">&-", *FULL])
def test_a_difference_that_cannot_be_shown_is_told(redirection: str, tmp_path: Path) -> None:
    first, second = store(tmp_path, {1: 1.0}, name="first"), store(tmp_path, {1: 1.0}, name="second", seed=1)
    done = shell(f"{COMMAND} diff {first} {second} {redirection}", tmp_path)
    (line,) = error_lines(done)
    assert line.startswith("error: stdout: cannot be written (") and done.returncode == 1
