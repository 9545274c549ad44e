"""A tracker that a run from elsewhere names is not used until the user asks for it. Nothing is sent before that."""

from __future__ import annotations

import getpass
import json
import os
import socket
import stat
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call
from rl_training import load
from rl_training.runtime.workflows import resume, train
from rl_training.telemetry.tracker_consent import PROOF_FIELD, is_own, proof_for, secret_path
from run_cases import stop_at
from tiny_runs import managed, tiny_config

REFUSED = "nothing is sent there; pass --trackers (in Python: trackers=True)"


class FakeRun:
    id = "run-1"

    def define_metric(self, *arguments: Any, **options: Any) -> None: ...

    def log(self, metrics: dict[str, Any]) -> None: ...

    def finish(self, **options: Any) -> None: ...


@pytest.fixture
def projects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The projects that W&B was opened for."""
    opened: list[str] = []

    def init(*, project: str, **options: Any) -> FakeRun:
        opened.append(project)
        return FakeRun()

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    return opened


Become = Callable[[str], None]


def stopped_run(folder: Path) -> Path:
    config = tiny_config("ppo", folder, wandb_project="mine")
    return train(config, callback=stop_at(32), show=False).run_dir


def test_a_run_of_the_same_user_keeps_its_tracker(projects: list[str], become: Become, tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "runs")
    assert projects == ["mine"]
    resume(run, show=False)
    assert projects == ["mine", "mine"]


def test_a_run_from_elsewhere_is_asked_for(
    projects: list[str], become: Become, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stopped_run(tmp_path / "runs")
    projects.clear()
    become("stranger")
    capsys.readouterr()
    result = resume(run, show=False)
    assert projects == [] and result.env_steps == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert "that is not known to be yours names wandb ('mine')" in line and REFUSED in line
    assert not (tmp_path / "states" / "stranger").exists()
    # Whoever asks for it once is asked no more.
    resume(run, total_timesteps=96, trackers=True, show=False)
    resume(run, total_timesteps=128, show=False)
    assert projects == ["mine", "mine"]


def test_the_command_line_asks_too(projects: list[str], become: Become, tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "runs")
    projects.clear()
    become("stranger")
    refused = call("resume", run, "--quiet", "--json")
    assert refused.code == 0 and projects == [] and REFUSED in refused.err and len(refused.err.splitlines()) == 1
    allowed = call("resume", run, "--total-timesteps", 96, "--trackers", "--quiet", "--json")
    assert allowed.code == 0 and projects == ["mine"] and allowed.err == ""


def test_a_tracker_named_now_is_consent(projects: list[str], become: Become, tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "runs")
    projects.clear()
    become("stranger")
    resume(run, overrides={"wandb_project": "my-own"}, show=False)
    assert projects == ["my-own"]


@pytest.mark.parametrize("kind", ["run", "best", "saved agent"])
def test_what_load_finds_is_asked_for_when_it_learns(
    kind: str, projects: list[str], become: Become, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = managed("ppo", tmp_path / "runs", wandb_project="mine").learn(show=False)
    agent.learn(64, show=False)
    assert projects == ["mine", "mine"]
    projects.clear()
    path = agent.save(tmp_path / "agent") if kind == "saved agent" else agent.run_dir
    become("stranger")
    capsys.readouterr()
    target = f"{path}/best" if kind == "best" else path
    load(target).learn(64, show=False)
    assert projects == [] and REFUSED in capsys.readouterr().err
    load(target).learn(64, show=False, trackers=True)
    assert projects == ["mine"]


def test_the_best_agent_of_an_own_run_needs_no_question(projects: list[str], become: Become, tmp_path: Path) -> None:
    agent = managed("ppo", tmp_path / "runs", wandb_project="mine").learn(show=False)
    load(f"{agent.run_dir}/best").learn(64, show=False)
    assert projects == ["mine", "mine"]


def test_the_second_learn_of_one_object_needs_no_state_directory(
    projects: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    monkeypatch.setenv("LOCALAPPDATA", str(blocked))
    agent = managed("ppo", tmp_path / "runs", wandb_project="mine").learn(show=False).learn(64, show=False)
    assert projects == ["mine", "mine"]
    assert PROOF_FIELD not in json.loads((agent.run_dir / "run.json").read_text())


def test_trackers_can_be_refused(projects: list[str], become: Become, tmp_path: Path) -> None:
    managed("ppo", tmp_path / "runs", wandb_project="mine").learn(show=False, trackers=False)
    assert projects == []


def test_a_proof_holds_for_its_project_only_and_names_nobody(become: Become) -> None:
    proof = proof_for("mine")
    assert is_own(proof, "mine") and not is_own(proof, "yours")
    assert not is_own({}, "mine") and not is_own({PROOF_FIELD: 3}, "mine") and not is_own({PROOF_FIELD: ":"}, "mine")
    assert proof != proof_for("mine")  # salted: two runs do not show that they have one user
    for name in (getpass.getuser(), socket.gethostname(), "mine"):
        assert name not in proof[PROOF_FIELD]
    become("stranger")
    assert not is_own(proof, "mine")


def test_the_secret_is_readable_by_its_user_only_and_made_once(become: Become) -> None:
    proof = proof_for("mine")
    path = secret_path()
    assert path is not None
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() not in proof[PROOF_FIELD]
    assert [entry.name for entry in path.parent.iterdir()] == ["tracker_secret"]
    path.write_text("damaged")
    assert not is_own(proof, "mine") and is_own(proof_for("mine"), "mine")


def test_a_default_run_touches_no_state_directory(become: Become, tmp_path: Path) -> None:
    run = train(tiny_config("ppo", tmp_path / "runs"), show=False).run_dir
    assert not (tmp_path / "states").exists() and PROOF_FIELD not in json.loads((run / "run.json").read_text())


def test_without_a_home_there_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("LOCALAPPDATA", "relative")
    assert secret_path() is None and proof_for("mine") == {}


@pytest.mark.parametrize("proof", ["\ud800:\udfff", "\udfff", ":", "", "a" * 10_000, 3, None, ["a:b"]])
def test_a_proof_of_any_content_is_not_ones_own(become: Become, proof: Any) -> None:
    assert proof_for("mine")
    assert not is_own({PROOF_FIELD: proof}, "mine") and not is_own({PROOF_FIELD: proof}, "\ud800")


def test_a_project_of_half_a_character_is_signed(become: Become) -> None:
    assert is_own(proof_for("\ud800"), "\ud800") and not is_own(proof_for("\ud800"), "\ud801")
