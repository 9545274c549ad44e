"""What `train` and `resume` say about a run that was stopped, is finished, skips a checkpoint or changes machines."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from checkpoint_helpers import sign_again
from cli_helpers import Outcome, Trainer, call, make_trainer, tiny_config, write_config
from rl_training.config.loading import load_config
from rl_training.storage.checkpoints import list_checkpoints, read_manifest

STOPPING_ENV = """
import os, signal
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Stopping(CartPoleEnv):
    steps = 0

    def step(self, action):
        Stopping.steps += 1
        if Stopping.steps == int(os.environ["STOP_AT"]):
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)

gym.register("Stopping-v0", Stopping, max_episode_steps=20)
"""


def test_the_help_of_resume_offers_only_what_can_be_resumed() -> None:
    of_resume, of_eval = (call(name, "--help").out for name in ("resume", "eval"))
    assert "latest" in of_resume and "best" not in of_resume
    assert "latest" in of_eval and "best" in of_eval


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return make_trainer(tmp_path_factory)


@pytest.fixture
def run(trained: Trainer, tmp_path: Path) -> Path:
    """A copy of a finished run with two checkpoints to resume from."""
    _, outcome = trained("ppo")
    return Path(shutil.copytree(outcome.json["run_dir"], tmp_path / "runs" / "mine"))


def damage_newest(run: Path) -> tuple[Path, Path]:
    """The newest checkpoint, which is damaged here, and the one before it."""
    newest, older = list_checkpoints(run, "resume")[:2]
    (newest / "tensors.safetensors").write_bytes(b"")
    return newest, older


def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, *options: str) -> Outcome:
    """A run of rollouts of 32 steps, with a checkpoint every 64, that gets SIGINT in env step `step`."""
    (tmp_path / "stopping_env.py").write_text(STOPPING_ENV)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "stopping_env", raising=False)
    monkeypatch.setenv("STOP_AT", str(step))
    settings = tiny_config("ppo", env_id="stopping_env:Stopping-v0", num_envs=1, total_timesteps=9600)
    settings |= {"checkpoint_every": 64, "vector_backend": "sync"}
    config = write_config(tmp_path / "tiny.yaml", settings)
    return call("train", config, "--output-dir", tmp_path / "runs", "--quiet", *options)


@pytest.mark.parametrize(("step", "exact"), [(40, True), (70, False)])
def test_a_stopped_run_says_once_how_to_continue_and_whether_that_is_exact(
    step: int, exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = stopped(tmp_path, monkeypatch, step)
    assert outcome.code == 75
    assert (outcome.out + outcome.err).count("rl-training resume") == 1, "the command to continue, once"
    first, *more = outcome.err.splitlines()
    assert first.startswith("stopped after ") and "saved; continue with: rl-training resume " in first
    (run,) = (tmp_path / "runs").iterdir()
    assert read_manifest(list_checkpoints(run, "resume")[0]).exact is exact
    assert len(more) == (0 if exact else 1)
    if not exact:
        assert "off schedule (checkpoint_every)" in more[0] and "not bit for bit" in more[0]


def test_programs_read_the_result_of_a_stopped_run_alone_on_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = stopped(tmp_path, monkeypatch, 70, "--json")
    assert outcome.code == 75 and outcome.json["env_steps"] == 96
    assert len(outcome.err.splitlines()) == 2


def test_a_finished_run_says_how_to_extend_it_instead_of_a_result(run: Path) -> None:
    outcome = call("resume", run, "--quiet")
    assert outcome.code == 0 and outcome.out == "", "no box with 0 steps per second"
    (line,) = outcome.err.splitlines()
    assert line.startswith("the run is already finished after 96 steps, so nothing was trained; extend it with: ")
    words = line.partition("rl-training ")[2].split()
    outcome = call(*words, "--quiet", "--json")
    assert outcome.code == 0 and outcome.json["env_steps"] == 192


def test_inspect_of_a_complete_run_does_not_read_like_a_fault(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = list_checkpoints(run, "resume")[0]
    shown = call("inspect", run)
    assert "the run is complete after 96 steps" in shown.out and "off schedule" not in shown.out
    assert call("inspect", run, "--json").json["complete"] is True
    # A run that ended by itself before its budget is complete too; one that was stopped is not.
    stopped(tmp_path, monkeypatch, 70)
    (early,) = (path for path in (tmp_path / "runs").iterdir() if path != run)
    assert "saved off schedule, so a resumed run is not bit-exact" in call("inspect", early).out
    info = json.loads((early / "run.json").read_text()) | {"status": "finished"}
    (early / "run.json").write_text(json.dumps(info))
    assert "the run is complete after 96 steps" in call("inspect", early).out
    # A copy of the checkpoint alone knows of no run.
    alone = Path(shutil.copytree(newest, tmp_path / "alone"))
    assert call("inspect", alone, "--json").json["complete"] is False


@pytest.mark.parametrize("command", ["eval", "inspect", "play", "predict", "resume --quiet"])
def test_a_damaged_newest_checkpoint_is_mentioned(command: str, run: Path, tmp_path: Path) -> None:
    newest, older = damage_newest(run)
    extra = {"predict": ["--obs", "[0,0,0,0]"], "play": ["--gif", tmp_path / "a.gif"]}.get(command, [])
    outcome = call(*command.split(), run, *extra, "--json")
    assert outcome.code == 0, outcome.err
    line = outcome.err.splitlines()[0]
    assert line.startswith(f"skipped a damaged checkpoint: {newest}") and "tensors.safetensors" in line
    if command in ("eval", "inspect"):
        assert outcome.json["path" if command == "inspect" else "checkpoint"] == str(older)
        (problem,) = outcome.json["skipped"]
        assert str(newest) in problem


def test_a_checkpoint_that_verifies_but_cannot_be_loaded_is_mentioned(run: Path) -> None:
    newest, older = list_checkpoints(run, "resume")[:2]
    (newest / "state.json").write_text("[]")
    sign_again(newest)
    outcome = call("eval", run, "--episodes", 1, "--json")
    assert outcome.code == 0 and outcome.json["checkpoint"] == str(older)
    assert len(outcome.json["skipped"]) == len(outcome.err.splitlines()) == 1


def test_a_checkpoint_that_was_asked_for_skips_nothing(run: Path) -> None:
    _, older = damage_newest(run)
    outcome = call("eval", older, "--episodes", 1, "--json")
    assert outcome.code == 0 and outcome.err == "" and outcome.json["skipped"] == []


def test_wall_seconds_of_another_type_do_not_matter(run: Path) -> None:
    info = json.loads((run / "run.json").read_text())
    for value in ("long", None, [1], True, -3, 1e999):
        (run / "run.json").write_text(json.dumps(info | {"wall_seconds": value}))
        outcome = call("list", "runs", "--output-dir", run.parent, "--json")
        assert outcome.code == 0
    (run / "run.json").write_text(json.dumps(info | {"wall_seconds": "long"}))
    outcome = call("resume", run, "--total-timesteps", 128, "--quiet", "--json")
    assert outcome.code == 0 and 0 <= outcome.json["wall_seconds"] < 600


def test_resume_without_a_compiler_has_a_way_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for checkpoint in list_checkpoints(run, "resume"):  # as if it had been trained on a machine with a compiler
        config = json.loads((checkpoint / "config.json").read_text())
        (checkpoint / "config.json").write_text(json.dumps(config | {"compile": "on"}))
        sign_again(checkpoint)
    monkeypatch.setattr("rl_training.runtime.auto_settings.can_compile", lambda: False)
    extend = ["resume", run, "--total-timesteps", 128, "--quiet", "--json"]
    refused = call(*extend)
    assert refused.code == 2 and len(refused.err.splitlines()) == 1
    assert "resume with --set compile=off" in refused.err and "not bit for bit" in refused.err

    extend.remove("--quiet")
    outcome = call(*extend, "--set", "compile=off", "--set", "threads=2")
    assert outcome.code == 0 and outcome.json["env_steps"] == 128
    assert "not bit for bit" in outcome.err
    stored = load_config(run / "config.yaml")
    assert (stored.compile, stored.threads) == ("off", 2)
    # From now on the run is an ordinary one: its own config says so.
    outcome = call("resume", run, "--total-timesteps", 160, "--quiet", "--json")
    assert outcome.code == 0 and outcome.err == ""


@pytest.mark.parametrize("change", ["gamma=0.5", "seed=4", "env_id=Pendulum-v1", "model.hidden_sizes=[9]"])
def test_resume_changes_nothing_but_the_machine_settings(change: str, run: Path) -> None:
    before = (run / "config.yaml").read_text()
    outcome = call("resume", run, "--set", change)
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1
    assert "cannot change when a run is resumed, only compile, precision, threads" in outcome.err
    assert (run / "config.yaml").read_text() == before
