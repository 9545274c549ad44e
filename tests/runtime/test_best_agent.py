"""Which agent of a run is kept as its best: the first with the highest return, over resumes too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_helpers import sign_again
from rl_training.runtime import session
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult
from rl_training.runtime.workflows import TrainResult, agent_of, resume, train
from rl_training.storage.checkpoints import best_checkpoint, list_checkpoints
from rl_training.storage.state_tree import state_hash
from rl_training.telemetry.console import ConsoleDisplay
from run_cases import CASES, saved_state, stop_at

A2C = CASES["a2c, one env"]


def run(folder: Path, **changes: Any) -> TrainResult:
    return train(A2C.config(folder, **changes), show=False)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the display was asked to tell."""
    told: list[str] = []
    monkeypatch.setattr(ConsoleDisplay, "note", lambda self, text: told.append(text))
    return told


@pytest.fixture
def scripted_evaluations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Evaluations give these returns one after the other."""
    returns: list[float] = []

    def evaluate(*arguments: Any, **options: Any) -> EvalResult:
        return EvalResult((returns.pop(0),), (1,))

    monkeypatch.setattr(session, "evaluate", evaluate)
    yield returns


def test_the_best_agent_is_the_first_with_the_highest_return(
    tmp_path: Path, scripted_evaluations: list[float], notes: list[str]
) -> None:
    scripted_evaluations[:] = [5.0, 9.0, 9.0, 1.0, 50.0]
    result = run(tmp_path, eval_every=40)
    # The result is on other seeds: its 50 is reported, and competes with nobody.
    assert result.evaluation == EvalResult((50.0,), (1,))
    assert best_checkpoint(result.run_dir).env_steps == 80
    assert [note.split(" at step ")[1] for note in notes if "best" in note] == ["40", "80"]
    assert saved_state(result.checkpoint)["best_return"] == 9.0
    assert [path.name for path in list_checkpoints(result.run_dir, "agent")] == ["best-000000000080"]


def test_a_resumed_run_remembers_the_best_return(tmp_path: Path, scripted_evaluations: list[float]) -> None:
    scripted_evaluations[:] = [9.0, 2.0]
    half = train(A2C.config(tmp_path, eval_every=40), callback=stop_at(80), show=False)
    scripted_evaluations[:] = [8.0, 8.5, 0.0]
    resume(half.run_dir, show=False)
    assert best_checkpoint(half.run_dir).env_steps == 40


def test_without_other_evaluations_the_last_agent_is_the_best(
    tmp_path: Path, scripted_evaluations: list[float]
) -> None:
    scripted_evaluations[:] = [-3.0]
    result = run(tmp_path)
    best = best_checkpoint(result.run_dir)
    assert best.env_steps == 160
    assert "loop" not in best.state
    same = agent_of(best.path).learner.state_dict()
    assert state_hash(same) == state_hash(result.agent.learner.state_dict())


def test_an_agent_that_was_not_evaluated_at_its_last_step_still_competes(
    tmp_path: Path, scripted_evaluations: list[float]
) -> None:
    scripted_evaluations[:] = [5.0, 7.0, 50.0]
    result = run(tmp_path, eval_every=100)
    assert best_checkpoint(result.run_dir).env_steps == 160
    assert best_checkpoint(result.run_dir).state["best_return"] == 7.0


def test_an_extended_run_keeps_the_better_of_its_last_agents(tmp_path: Path, scripted_evaluations: list[float]) -> None:
    scripted_evaluations[:] = [3.0]
    first = run(tmp_path)
    scripted_evaluations[:] = [2.0]
    resume(first.run_dir, total_timesteps=320, show=False)
    assert best_checkpoint(first.run_dir).env_steps == 160
    scripted_evaluations[:] = [4.0]
    resume(first.run_dir, total_timesteps=480, show=False)
    assert best_checkpoint(first.run_dir).env_steps == 480


def test_evaluations_during_a_run_have_seeds_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def evaluate(*arguments: Any, seed: int, **options: Any) -> EvalResult:
        seeds.append(seed)
        return EvalResult((0.0,), (1,))

    monkeypatch.setattr(session, "evaluate", evaluate)
    run(tmp_path, eval_every=40)
    assert len(set(seeds)) == 5
    assert seeds[-1] == DEFAULT_SEED


class Killed(BaseException):
    pass


def test_a_kill_in_the_last_evaluation_does_not_save_the_best_agent_twice(
    tmp_path: Path, scripted_evaluations: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"eval_every": 100, "keep_checkpoints": 2}
    scripted_evaluations[:] = [5.0, 7.0, 50.0]
    whole = run(tmp_path / "whole", **settings)

    def no_result(self: session.Session) -> None:
        self._evaluate(self._eval_seed())
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(session.Session, "_final_evaluation", no_result)
        scripted_evaluations[:] = [5.0, 7.0]
        run(tmp_path / "killed", **settings)
    scripted_evaluations[:] = [7.0, 50.0]
    resumed = resume(tmp_path / "killed" / "run", show=False)
    names = [path.name for path in list_checkpoints(resumed.run_dir)]
    assert names == [path.name for path in list_checkpoints(whole.run_dir)]
    assert best_checkpoint(resumed.run_dir).path.name == "best-000000000160"


def test_a_damaged_best_agent_does_not_prevent_resuming(tmp_path: Path, scripted_evaluations: list[float]) -> None:
    scripted_evaluations[:] = [5.0]
    half = train(A2C.config(tmp_path, eval_every=40), callback=stop_at(60), show=False)
    (best_checkpoint(half.run_dir).path / "state.json").write_text("{}")
    scripted_evaluations[:] = [6.0, 1.0, 1.0, 1.0]
    resume(half.run_dir, show=False)
    assert best_checkpoint(half.run_dir).env_steps == 80


def test_a_forged_return_of_the_best_agent_does_not_outrank_every_other(
    tmp_path: Path, scripted_evaluations: list[float]
) -> None:
    scripted_evaluations[:] = [5.0]
    half = train(A2C.config(tmp_path, eval_every=40), callback=stop_at(60), show=False)
    best = best_checkpoint(half.run_dir).path
    state = json.loads((best / "state.json").read_text())
    (best / "state.json").write_text(json.dumps(state | {"best_return": {"$float": "inf"}}))
    sign_again(best)
    assert best_checkpoint(half.run_dir).state["best_return"] == math.inf
    scripted_evaluations[:] = [6.0, 1.0, 1.0, 1.0]
    resume(half.run_dir, show=False)
    assert best_checkpoint(half.run_dir).env_steps == 80


def test_a_finished_run_that_is_resumed_again_keeps_one_best_agent(tmp_path: Path) -> None:
    run_dir = run(tmp_path).run_dir
    before = best_checkpoint(run_dir).path
    resume(run_dir, show=False)
    assert list_checkpoints(run_dir, "agent") == [before]
