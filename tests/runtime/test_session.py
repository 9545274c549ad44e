"""A session: its cadences, the one validation of its config, and what a stop during an evaluation leaves behind."""

from __future__ import annotations

import os
import signal
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training import cli
from rl_training.algorithms.common.compile.compiled_loop import COMPILING_STEPS
from rl_training.config.algorithms.ppo import PPOConfig
from rl_training.errors import EnvError
from rl_training.experiment.manager import ExperimentManager
from rl_training.playback import crash_replay
from rl_training.runtime import session
from rl_training.runtime.agent import Agent
from rl_training.runtime.evaluation import EvalResult
from rl_training.runtime.run_clock import Cadence
from rl_training.runtime.session import Session
from rl_training.runtime.setup.run_envs import require_env, with_env
from rl_training.runtime.workflows import evaluate_checkpoint, resume, train
from rl_training.storage.checkpoints import latest_checkpoint
from run_cases import CASES, TwoKnobs, stop_at
from tiny_runs import tiny_config

A2C = CASES["a2c, one env"]
SHORT = ["num_steps=16", "minibatch_size=16", "num_envs=2", "eval_episodes=1", "eval_every=0", "checkpoint_every=0"]


# Cadences


def passed(every: int, steps: list[int], start: int = 0) -> list[int]:
    cadence = Cadence(every, start)
    return [step for step in steps if cadence.due(step)]


def test_a_cadence_is_due_once_for_each_multiple_that_is_reached_or_passed() -> None:
    assert passed(10, [3, 9, 10, 11, 19, 27, 28, 30]) == [10, 27, 30]
    assert passed(10, [35, 36, 40]) == [35, 40], "several multiples at once are due once"
    assert passed(10, [25, 29, 30], start=20) == [30], "a resumed run continues the multiples"
    assert passed(1, [1, 1, 2]) == [1, 2]
    assert passed(0, [1, 10**9]) == [], "0 is never"


@pytest.mark.parametrize("every", [1, 3, 7, 50])
@pytest.mark.parametrize("stride", [1, 2, 5, 64])
def test_a_cadence_agrees_with_the_division_of_steps(every: int, stride: int) -> None:
    steps = list(range(stride, 400, stride))
    assert passed(every, steps) == [step for step in steps if step // every > (step - stride) // every]


def test_the_next_due_step_is_known(tmp_path: Path) -> None:
    cadence = Cadence(10, 25)
    assert cadence.next == 30
    assert cadence.due(47) and cadence.next == 50
    assert Cadence(0).next == float("inf")


# One validation


@pytest.fixture
def validations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each validation of a whole config: `check` is its last step."""
    calls: list[int] = []
    real = PPOConfig.check

    def check(self: PPOConfig, train: Any) -> None:
        calls.append(train.total_timesteps)
        real(self, train)

    monkeypatch.setattr(PPOConfig, "check", check)
    return calls


def test_the_train_command_validates_its_config_once(
    validations: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [word for text in SHORT for word in ("--set", text)]
    options = ["--seed", "3", "--total-timesteps", "64", "--output-dir", str(tmp_path), "--quiet", "--json"]
    assert cli.main(["train", "ppo/cartpole", *settings, *options]) == 0, capsys.readouterr().err
    assert validations == [64]


def test_the_train_command_validates_once_per_seed(validations: list[int], tmp_path: Path) -> None:
    settings = [word for text in SHORT for word in ("--set", text)]
    options = ["--seeds", "3,4", "--total-timesteps", "64", "--output-dir", str(tmp_path), "--quiet", "--json"]
    assert cli.main(["train", "ppo/cartpole", *settings, *options]) == 0
    assert validations == [64, 64]


def test_the_experiment_manager_and_resume_validate_once(validations: list[int], tmp_path: Path) -> None:
    manager = ExperimentManager(tmp_path)
    record = manager.run("ppo/cartpole", [*SHORT, "total_timesteps=64"], callback=stop_at(32), show=False)
    assert validations == [64]
    validations.clear()
    resume(record.path, show=False)
    assert validations == [64]


# Stops


@pytest.mark.parametrize("ends", [True, False], ids=["evaluation ends", "evaluation is cut short"])
def test_only_a_stop_that_cuts_an_evaluation_short_makes_the_save_inexact(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(*arguments: Any, **options: Any) -> EvalResult | None:
        os.kill(os.getpid(), signal.SIGTERM)
        return EvalResult((1.0,), (1,)) if ends else None

    monkeypatch.setattr(session, "evaluate", evaluate)
    result = train(A2C.config(tmp_path, eval_every=40, checkpoint_every=40), show=False)
    newest = latest_checkpoint(result.run_dir)
    assert (result.interrupted, result.evaluation, newest.env_steps, newest.exact) == (True, None, 40, ends)


def test_no_attribute_appears_after_the_constructor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Session] = []
    real = Session._finish

    def finish(self: Session, stopped: bool) -> Any:
        sessions.append(self)
        return real(self, stopped)

    monkeypatch.setattr(Session, "_finish", finish)
    train(tiny_config("dqn", tmp_path), show=False)
    assert set(vars(sessions[0])) == set(Session.__dataclass_fields__)
    with pytest.raises(FrozenInstanceError):
        sessions[0].saver = None  # type: ignore


# Environments that are Python objects


def test_a_python_object_is_asked_for_with_one_wording(tmp_path: Path) -> None:
    case = CASES["ppo, several knobs"]
    half = train(case.config(tmp_path), env=case.env, callback=stop_at(80), show=False)
    crash = tmp_path / "crash.json"
    crash.write_text(
        '{"kind": "env failure", "env_id": "callable:TwoKnobs", "env_kwargs": {}, "seed": 0, "actions": [], '
        '"random_state": null, "reason": ""}'
    )
    messages = set()
    for again in (
        lambda: resume(half.run_dir, show=False),
        lambda: evaluate_checkpoint(half.run_dir),
        lambda: crash_replay.reproduce(crash),
        lambda: require_env("callable:TwoKnobs"),
    ):
        with pytest.raises(EnvError) as caught:
            again()
        messages.add(str(caught.value))
    assert len(messages) == 1 and "pass env=" in messages.pop()


def test_another_env_takes_neither_the_keywords_nor_the_vector_class_of_the_first(tmp_path: Path) -> None:
    stack = {"image": {"stack": 2}}
    config = tiny_config(
        "ppo", tmp_path, env_kwargs={"limit": 3, **stack}, eval_env_kwargs={"limit": 4}, vector_backend="native"
    )
    assert with_env(config, None) is config and with_env(config, "CartPole-v1") is config
    other = with_env(config, "Acrobot-v1")
    assert (other.env_id, other.env_kwargs, other.eval_env_kwargs) == ("Acrobot-v1", stack, {})
    assert other.vector_backend == "auto"
    mine = with_env(config, TwoKnobs)
    assert (mine.env_id, mine.env_kwargs) == ("callable:TwoKnobs", config.env_kwargs), "a callable is made with them"
    assert mine.vector_backend == "auto"


def test_a_resumed_run_names_the_env_that_it_was_given(tmp_path: Path) -> None:
    case = CASES["ppo, several knobs"]
    half = train(case.config(tmp_path), env=case.env, callback=stop_at(80), show=False)

    def two_more_knobs() -> TwoKnobs:
        return TwoKnobs()

    moved = resume(half.run_dir, env=two_more_knobs, show=False)
    assert moved.agent.config.env_id == "callable:two_more_knobs"
    assert Agent.load(latest_checkpoint(half.run_dir)).config.env_id == "callable:two_more_knobs"


def test_a_run_says_why_it_stands_still_while_its_step_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The line comes before the compiler starts, also where the display is plain lines."""
    shown: list[str] = []

    def compiler(graph: Any, *_: Any) -> Any:
        shown.append(capfd.readouterr().err)
        return torch.no_grad()(lambda tensors: graph(*tensors))

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("rl_training.algorithms.common.compile.compiler._compile_quickly", compiler)
    monkeypatch.setattr("rl_training.runtime.auto_settings.can_compile", lambda: True)
    config = tiny_config("ppo", output_dir=str(tmp_path), compile="on")
    train(config, show=None)
    assert len(shown) == 1 and shown[0].endswith(f"{COMPILING_STEPS}\n")
    capfd.readouterr()
    train(config, show=False)
    assert shown[1:] == [""], "a quiet run says nothing"
