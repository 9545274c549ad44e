"""Text from files and directory names reaches the terminal without control characters, in every command."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.text import Text
from safetensors.numpy import load_file, save_file

from checkpoint_helpers import edit_manifest, sign_again
from cli_helpers import Outcome, Trainer, call, make_trainer, start_process
from house import MODULES, tree
from rl_training import terminal
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.metric_lines import warn
from waiting import DEADLINE_SECONDS

# Clear the screen, set the title, C1's form of the same, backspaces, a bidirectional override, and a forged line.
EVIL = "good\x1b[2J\x1b]0;owned\x07\x9b31m\x08\x08\u202elive\u2066\r\nerror: forged"
HARMLESS = "good"
FORBIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def assert_clean(outcome: Outcome) -> None:
    for text in (outcome.out, outcome.err):
        found = FORBIDDEN.search(text)
        assert found is None, f"{found!r} in {text!r}"
        assert not any(line.lstrip(" |\u2502").startswith("error: forged") for line in text.splitlines())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return make_trainer(tmp_path_factory)


@pytest.fixture
def run(trained: Trainer, tmp_path: Path) -> Path:
    """A copy of a run, in a directory with a name that rewrites the terminal."""
    _, outcome = trained("ppo")
    return Path(shutil.copytree(outcome.json["run_dir"], tmp_path / EVIL.replace("\r", "")))


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def edit_json(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("words", [["list", "runs"], ["list", "runs", "--json"]], ids=" ".join)
@pytest.mark.parametrize("field", ["algorithm", "env", "status", "created", "env_steps", "wall_seconds", "seed"])
def test_run_file(words: list[str], field: str, run: Path) -> None:
    edit_json(run / "run.json", **{field: EVIL})
    outcome = call(*words, "--output-dir", run.parent)
    assert outcome.code == 0 and HARMLESS in outcome.out
    assert_clean(outcome)
    if "--json" in words:
        (row,) = outcome.json
        assert row["name"] == run.name, "programs get the true name"
        assert isinstance(row["wall_seconds"], float) == (field != "wall_seconds")
        assert isinstance(row["env_steps"], int) == (field != "env_steps")


@pytest.mark.parametrize("field", ["algorithm", "library_version", "created"])
def test_manifest(field: str, run: Path) -> None:
    edit_manifest(newest(run), **{field: EVIL})
    for options in ([], ["--json"]):
        assert_clean(call("inspect", run, *options))
    assert_clean(call("eval", run, "--episodes", 1))


def test_fingerprint_config_and_tensor_names(run: Path) -> None:
    checkpoint = newest(run)
    edit_json(checkpoint / "config.json", env_id=EVIL, run_name=EVIL, algo_kwargs={EVIL: EVIL}, **{EVIL: EVIL})
    tensors = checkpoint / "tensors.safetensors"
    save_file({**load_file(tensors), EVIL: np.zeros(3, np.float32)}, tensors)
    sign_again(checkpoint)
    edit_manifest(checkpoint, fingerprint={"python": EVIL, "threads": 1, EVIL: "1"})
    for command in ("inspect", "eval", "resume", "play"):
        outcome = call(command, run)
        assert_clean(outcome)
        assert len(outcome.err.splitlines()) <= 3


def test_damaged_files_named_by_an_evil_path(run: Path) -> None:
    (newest(run) / "tensors.safetensors").write_bytes(b"")
    for command in ("inspect", "eval", "resume", "play"):
        outcome = call(command, newest(run))
        assert outcome.code == 5
        assert_clean(outcome)


def test_crash_file(tmp_path: Path) -> None:
    crash = {"kind": "env failure", "env_id": "CartPole-v1", "env_kwargs": {}, "seed": 0, "actions": [0, 1]}
    file = tmp_path / "crash.json"
    file.write_text(json.dumps({**crash, "random_state": None, "reason": EVIL}))
    outcome = call("reproduce", file)
    assert outcome.code == 0 and "recorded: good" in outcome.err and len(outcome.err.splitlines()) == 1
    assert_clean(outcome)
    file.write_text(json.dumps({**crash, "random_state": None, "reason": "", "env_id": EVIL}))
    outcome = call("reproduce", file)
    assert outcome.code == 3
    assert_clean(outcome)


EVIL_ENV = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Evil(CartPoleEnv):
    def step(self, action):
        raise RuntimeError({text!r})

gym.register("Evil-v0", Evil)
"""


def test_traceback_of_an_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_env.py").write_text(EVIL_ENV.format(text=EVIL))
    monkeypatch.syspath_prepend(tmp_path)
    crash = {"kind": "env failure", "env_id": "evil_env:Evil-v0", "env_kwargs": {}, "seed": 0, "actions": [0]}
    (tmp_path / "crash.json").write_text(json.dumps({**crash, "random_state": None, "reason": "x"}))
    outcome = call("reproduce", tmp_path / "crash.json")
    assert outcome.code == 3 and "raise RuntimeError" in outcome.err, "the traceback of the env is shown"
    found = FORBIDDEN.search(outcome.err)
    assert found is None, repr(found)


def test_zoo_manifest(tmp_path: Path) -> None:
    row = {
        "config": "configs/dqn/cartpole.yaml",
        "budget": 50_000,
        "floor": 1,
        "bar": 2,
        "reference": 3,
        "source": EVIL,
    }
    document = {"title": EVIL, "about": EVIL, "protocols": {"ours": EVIL}, "rows": [row | {"protocol": "ours"}]}
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(document))
    for words in (["list", file], ["list", file, "--json"], ["table", file, "--output-dir", tmp_path]):
        outcome = call("zoo", *words)
        assert_clean(outcome)
        assert outcome.code == 0 and HARMLESS in outcome.out, outcome.err


@pytest.mark.parametrize("words", [["eval"], ["train"], ["list", "settings"], ["zoo", "list"], ["reproduce"], []])
def test_arguments_that_come_back_in_an_error(words: list[str]) -> None:
    outcome = call(*words, EVIL)
    assert outcome.code in (2, 5) and HARMLESS in outcome.err and len(outcome.err.splitlines()) <= 3
    assert_clean(outcome)


def test_options_that_come_back_in_an_error() -> None:
    for words in (["eval", "latest", f"--{EVIL}"], ["eval", "latest", "--episodes", EVIL], ["eval", "x", EVIL]):
        outcome = call(*words)
        assert outcome.code == 2 and HARMLESS in outcome.err and len(outcome.err.splitlines()) <= 3
        assert_clean(outcome)


@pytest.mark.parametrize("enabled", [True, None], ids=["live", "plain"])
def test_display_of_a_run(enabled: bool | None) -> None:
    stream = io.StringIO()
    display = ConsoleDisplay(100, EVIL, stream=stream, enabled=enabled)
    with display:
        display.note(EVIL)
        display.update(10, {"kind": "train", EVIL: 1.0, "mean_return": 3.0})
    shown = stream.getvalue()
    assert HARMLESS in shown
    for sequence in ("\x1b[2J", "\x1b]0;", "\x07", "\x9b", "\x08", "\u202e", "\nerror: forged"):
        assert sequence not in shown


def test_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    warn(EVIL)
    err = capsys.readouterr().err
    assert err.startswith("warning: good") and err.count("\n") == 1 and not FORBIDDEN.search(err)


def test_a_console_keeps_its_own_colors_and_cleans_everything_else() -> None:
    stream = io.StringIO()
    console = terminal.make_console(stream, force_terminal=True, color_system="standard", width=300)
    console.print(Text(f"[red]{EVIL}", "bold"))
    shown = stream.getvalue()
    assert "\x1b[1m" in shown and "[red]good[2J]0;owned" in shown
    assert not FORBIDDEN.search(shown.replace("\x1b[1m", "").replace("\x1b[0m", ""))


def test_only_the_terminal_module_writes_to_the_streams() -> None:
    """So that a new message cannot forget to be cleaned."""
    allowed = {
        "rl_training.terminal",
        "rl_training.runtime.stop_signals",  # fixed texts, from a signal handler
        "rl_training.experiment.launcher",  # the traceback of a worker, in a file
    }
    wrong = []
    for module in MODULES.keys() - allowed:
        for node in ast.walk(tree(module)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            to_descriptor = name == "os.write" and ast.unparse(node.args[0]) in ("1", "2")
            to_stream = re.search(r"\b(stdout|stderr|_?stream)(\.buffer)?\.write(lines)?$", name)
            by_name = name in ("print", "Console") or name.endswith(("echo", "print_exception", "print_exc"))
            if to_descriptor or to_stream or by_name:
                wrong.append(f"{module}:{node.lineno}: {name}")
    assert wrong == []


def test_the_warning_of_a_library_is_one_line_without_its_colors(tmp_path: Path) -> None:
    """In a process: a program that calls `main` keeps its own way to show warnings."""
    (tmp_path / "warning_env.py").write_text(
        "import warnings, gymnasium as gym\n"
        "warnings.warn('\\x1b[33mWARN: two\\nlines\\x1b[0m')\n"
        "gym.register('Quiet-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=20)\n"
    )
    words = ["train", "ppo/cartpole", "--set", "env_id=warning_env:Quiet-v0", "--total-timesteps", "256", "--quiet"]
    process = start_process(*words, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0 and "warning: WARN: two lines\n" in err and "\x1b" not in err, err


class FullStream(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_text_that_others_printed_and_that_cannot_be_flushed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", FullStream())
    terminal.start()
    print("printed by a library, still in the buffer")
    assert terminal.finish() == "No space left on device"
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    terminal.start()
    assert terminal.finish() is None
