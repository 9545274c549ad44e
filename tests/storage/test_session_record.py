"""What run.json says about each session: command, code, machine, versions; and what it must not say."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, tiny_config, write_config
from rl_training.experiment.manager import ExperimentManager, RunRecord
from rl_training.storage import git_state as git_module
from rl_training.storage import session_record
from rl_training.storage.command_words import command_text, looks_secret, masked
from rl_training.storage.git_state import git_state
from rl_training.storage.run_file import read_run_info, valid_info
from rl_training.storage.session_record import MOST_SESSIONS, describe_session, versions, with_session


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    return ExperimentManager(tmp_path / "runs").run(tiny_config("ppo"), show=False)


def test_a_run_says_where_it_ran(run: RunRecord) -> None:
    (session,) = run.sessions
    assert session["from_step"] == 0 and session["command"]
    assert session["host"] and session["processor"] and session["cores"] >= 1
    import gymnasium
    import torch

    # The package metadata may leave out the build, as in 2.13.0+cpu.
    assert torch.__version__.startswith(session["versions"]["torch"])
    assert session["versions"]["gymnasium"] == gymnasium.__version__
    assert {"python", "rl-training", "numpy", "pydantic", "pyyaml", "safetensors"} <= set(session["versions"])


def test_a_resumed_run_appends_its_session(run: RunRecord) -> None:
    run.resume(total_timesteps=160, show=False)
    first, second = run.sessions
    assert (first["from_step"], second["from_step"]) == (0, 96)
    assert run.status == "finished"


def test_nothing_else_in_a_run_holds_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/bin/rl-training", "train", "words-of-this-test.yaml"])
    run = ExperimentManager(tmp_path).run(tiny_config("ppo"), show=False)
    host, command = run.sessions[0]["host"].encode(), b"words-of-this-test"
    assert command in (run.path / "run.json").read_bytes()
    others = [path for path in run.path.rglob("*") if path.is_file() and path.name != "run.json"]
    assert len(others) > 5
    for path in others:
        content = path.read_bytes()
        assert b"package_git" not in content and command not in content and (len(host) < 8 or host not in content), path


def test_environment_variables_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "canary-in-the-environment")
    monkeypatch.setenv("SOME_NAME", "canary-in-the-environment")
    run = ExperimentManager(tmp_path).run(tiny_config("ppo"), show=False)
    assert "canary" not in (run.path / "run.json").read_text()


def test_the_command_of_a_run_hides_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "x.yaml", "--set", "env_kwargs.token=canary1", "--set", "env_kwargs={level: 3, api_key: canary2}"]
    monkeypatch.setattr("sys.argv", ["/opt/bin/rl-training", *words])
    run = ExperimentManager(tmp_path).run(tiny_config("ppo"), show=False)
    command = run.sessions[0]["command"]
    assert command.startswith("rl-training train x.yaml --set env_kwargs.token=*** --set")
    assert "canary" not in (run.path / "run.json").read_text() and "level: 3" in command


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--set", "gamma=0.9"], ["--set", "gamma=0.9"]),
        (["--set", "env_kwargs.token=abc=def"], ["--set", "env_kwargs.token=***"]),
        (["--token", "abc", "--seed", "3"], ["--token", "***", "--seed", "3"]),
        (["--api-key=abc"], ["--api-key=***"]),
        (["--password", "-abc"], ["--password", "***"]),
        (["--set", 'env_kwargs={"userPassword": "a, b"}'], ["--set", 'env_kwargs={"userPassword": ***']),
        (["https://me:abc@host/x"], ["https://***@host/x"]),
        (["https://host/x?level=3&access_token=abc"], ["https://host/x?level=3&access_token=***"]),
        (["Authorization: Bearer abc"], ["Authorization: ***"]),
        (["--token", "--seed", "3"], ["--token", "--seed", "3"]),
        (["--set", "env_kwargs.monkey=1"], ["--set", "env_kwargs.monkey=1"]),
    ],
)
def test_values_of_secret_looking_keys_are_masked(words: list[str], shown: list[str]) -> None:
    assert masked(words) == shown


@pytest.mark.parametrize("name", ["keep_checkpoints", "keyboard", "learning_rate", "monkey", "tokenizer", "author"])
def test_ordinary_names_are_not_secrets(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["/x/bin/rl-training", "train", "a b"], "rl-training train 'a b'"),
        (["/x/pytest/__main__.py", "-q"], "python -m pytest -q"),
        (["train.py", "--lr", "3"], "python train.py --lr 3"),
        (["-c", "print('x')"], "python 'print('\"'\"'x'\"'\"')'"),
        ([""], "python"),
        (["t.py", "a\x1b[2J\nb"], "python t.py 'a[2Jb'"),
        ([str(Path(session_record.__file__).parents[1] / "cli.py"), "list"], "rl-training list"),
    ],
)
def test_the_command_reads_like_the_one_that_was_typed(arguments: list[str], text: str) -> None:
    assert command_text(arguments) == text


def test_sessions_are_bounded_and_keep_the_first() -> None:
    sessions: list[dict[str, Any]] = []
    for step in range(50):
        sessions = with_session(sessions, {"from_step": step})
    assert [each["from_step"] for each in sessions] == [0, *range(50 - MOST_SESSIONS + 1, 50)]


@pytest.mark.parametrize(
    "value",
    [None, 3, "x", {}, [], [3, None], [[]], [{"versions": 3, "git": [], "cores": True, "host": 7, "from_step": -1}]],
)
def test_damaged_sessions_are_ignored(value: Any) -> None:
    found = valid_info({"sessions": value}).get("sessions", [])
    assert found in ([], [{}])


def test_sessions_of_a_stranger_are_bounded_and_clean() -> None:
    hostile = {
        "command": "x\x1b[2J" * 10_000,
        "host": "a\nb",
        "git": {"commit": "c\x07" * 500, "dirty": "yes"},
        "versions": {f"p{number}": "1\x1b" for number in range(5000)} | {"q": 3},
        "unknown": "z" * 10_000,
    }
    found = valid_info({"sessions": [hostile] * 1000})["sessions"]
    assert len(found) == MOST_SESSIONS
    assert len(json.dumps(found[0])) < 12_000 and "\\u001b" not in json.dumps(found)
    assert found[0]["git"]["dirty"] is None and found[0]["host"] == "ab"


def test_a_run_with_damaged_sessions_resumes(run: RunRecord) -> None:
    info = json.loads((run.path / "run.json").read_text()) | {"sessions": [{"versions": "?"}, 7]}
    (run.path / "run.json").write_text(json.dumps(info))
    run.resume(total_timesteps=160, show=False)
    assert [each.get("from_step") for each in run.sessions] == [None, 96]


# --- git ---


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_commit_and_dirty_flag_of_a_checkout(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "folder").mkdir()
    assert git_state(checkout / "folder") == {"commit": commit, "dirty": False}
    (checkout / "untracked").write_text("x")
    assert git_state(checkout) == {"commit": commit, "dirty": False}
    os.utime(checkout / "file", (1, 1))  # touched, not changed
    assert git_state(checkout) == {"commit": commit, "dirty": False}
    (checkout / "file").write_text("two")
    assert git_state(checkout) == {"commit": commit, "dirty": True}
    git(checkout, "add", "file")
    assert git_state(checkout) == {"commit": commit, "dirty": True}


def test_nothing_is_written_to_the_checkout(checkout: Path) -> None:
    os.utime(checkout / "file", (1, 1))
    before = {path: path.stat().st_mtime_ns for path in (checkout / ".git").rglob("*")}
    assert git_state(checkout) is not None
    assert {path: path.stat().st_mtime_ns for path in (checkout / ".git").rglob("*")} == before


def test_no_checkout_no_commit_and_no_git_are_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(git_module.subprocess, "run", lambda *words, **options: started.append(words))
    assert git_state(tmp_path) is None and not started  # outside of a checkout not even a process is started
    monkeypatch.undo()
    (tmp_path / ".git").write_text("gitdir: nowhere")
    assert git_state(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_a_git_that_hangs_is_not_waited_for(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkout / "bin"
    folder.mkdir()
    (folder / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + os.environ["PATH"])
    monkeypatch.setattr(git_module, "DEADLINE_SECONDS", 0.2)
    assert git_state(checkout) is None, "the script of a thousand seconds was waited for"


@pytest.mark.parametrize("setting", ["core.fsmonitor", "filter.evil.clean", "diff.external"])
def test_commands_that_a_checkout_names_are_not_run(setting: str, checkout: Path) -> None:
    trap = checkout / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {checkout}/sprung\ncat\n")
    trap.chmod(0o755)
    git(checkout, "config", setting, str(trap))
    (checkout / ".git" / "info" / "attributes").write_text("file filter=evil\n")
    (checkout / "file").write_text("two")
    assert git_state(checkout) is not None
    assert not (checkout / "sprung").exists()


def test_git_variables_of_the_caller_do_not_mislead(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    assert git_state(checkout) == {"commit": commit, "dirty": False}


def test_runs_that_start_together_ask_git_once(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(session_record, "git_state", lambda folder: asked.append(folder))
    monkeypatch.setattr(session_record, "_answers", {})
    monkeypatch.chdir(checkout)
    describe_session(0)
    describe_session(0)
    assert asked.count(checkout) == 1 and len(asked) <= 2


def test_a_deleted_working_directory_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert describe_session(3)["git"] is None


def test_versions_name_packages_and_not_tools_of_developers() -> None:
    found = versions()
    assert found["torch"] and found["numpy"] and "ruff" not in found and "mypy" not in found


def test_the_command_line_records_itself(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    assert call("train", config, "--output-dir", tmp_path / "runs", "--quiet").code == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert len(read_run_info(run)["sessions"]) == 1
