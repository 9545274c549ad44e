"""Exact resume: run(2N) equals run(N) + resume(N), bit for bit, for every registered algorithm."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint_helpers import run_python
from rl_training.experiment.registry import algorithm_names, get_config_class, get_spec
from rl_training.runtime import session
from rl_training.runtime.evaluation import DEFAULT_SEED
from rl_training.runtime.workflows import TrainResult, resume, train
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints, load_checkpoint
from rl_training.storage.state_tree import state_hash
from run_cases import CASES, Case, assert_same_run, different_parts, final_hash, metric_lines, saved_state, stop_at

ON_POLICY = CASES["ppo, box, everything normalized and scheduled"]
REPLAY = CASES["dqn, native next-step envs, priorities and three steps"]
BOTH_LOOPS = pytest.mark.parametrize("case", [ON_POLICY, REPLAY], ids=["on-policy", "replay"])


def run(case: Case, folder: Path, **options: Any) -> TrainResult:
    return train(case.config(folder), env=case.env, show=False, **options)


def resumed(case: Case, target: Path, **options: Any) -> TrainResult:
    return resume(target, env=case.env, show=False, **options)


@pytest.mark.parametrize("algo", algorithm_names())
def test_every_registered_algorithm_has_a_resume_case_for_each_kind_of_action(algo: str) -> None:
    boxes = {case.env_id == "Pendulum-v1" for case in CASES.values() if case.algo == algo}
    takes = get_spec(algo).actions
    assert boxes >= {kind == "box" for kind in takes if kind in ("discrete", "box")}, f"{algo}: add to run_cases"
    mine = [case for case in CASES.values() if case.algo == algo]
    assert any(case.model.get("normalize_observations") for case in mine), f"{algo}: add one with normalization"
    for field in {"prioritized", "normalize_rewards"} & set(get_config_class(algo).model_fields):
        assert any(case.settings.get(field) for case in mine), f"{algo}: add a case with {field}"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_resumed_run_equals_an_uninterrupted_one(case: Case, tmp_path: Path) -> None:
    whole = run(case, tmp_path / "whole")
    # A run survives the SIGTERM of a time limit around the tests, but it is then a shorter one.
    assert not whole.interrupted, "a signal from outside stopped the run"
    half = run(case, tmp_path / "halves", callback=stop_at(case.steps // 2))
    assert half.interrupted
    assert case.steps / 2 <= half.env_steps < 0.8 * case.steps
    second = resumed(case, half.run_dir)
    assert not second.interrupted
    assert second.env_steps == whole.env_steps
    assert load_checkpoint(half.checkpoint).exact
    assert_same_run(whole.run_dir, second.run_dir)
    assert whole.evaluation is not None
    assert whole.evaluation == second.evaluation


@BOTH_LOOPS
def test_a_killed_run_goes_on_from_the_checkpoint_before(case: Case, tmp_path: Path) -> None:
    whole = run(case, tmp_path / "whole")
    killed = tmp_path / "killed"
    shutil.copytree(whole.run_dir, killed)
    for lost in list_checkpoints(killed, "resume")[:2]:
        shutil.rmtree(lost)
    with (killed / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"kind": "train", "env_st')  # the line that was being written
    assert final_hash(killed) != final_hash(whole.run_dir)
    resumed(case, killed)
    assert_same_run(whole.run_dir, killed)


@BOTH_LOOPS
def test_a_run_can_be_resumed_again_and_again(case: Case, tmp_path: Path) -> None:
    whole = run(case, tmp_path / "whole")
    pieces = run(case, tmp_path / "pieces", callback=stop_at(case.steps // 4))
    for quarter in (2, 3, 4):
        resumed(case, pieces.run_dir, callback=stop_at(quarter * case.steps // 4))
    assert_same_run(whole.run_dir, resumed(case, pieces.run_dir).run_dir)


@BOTH_LOOPS
def test_an_older_checkpoint_can_be_named_and_what_came_after_makes_way(case: Case, tmp_path: Path) -> None:
    whole = run(case, tmp_path / "whole")
    before, lines = final_hash(whole.run_dir), metric_lines(whole.run_dir)
    checkpoints = list_checkpoints(whole.run_dir, "resume")
    middle = checkpoints[len(checkpoints) // 2]
    stopped = resumed(case, middle, callback=lambda progress: False)
    assert list_checkpoints(whole.run_dir, "resume")[0] == stopped.checkpoint
    assert stopped.env_steps < load_checkpoint(stopped.checkpoint).config["total_timesteps"] / 2 + 40
    shutil.rmtree(stopped.checkpoint)
    resumed(case, middle)
    assert final_hash(whole.run_dir) == before
    assert metric_lines(whole.run_dir) == lines


def test_a_fresh_process_resumes_exactly(tmp_path: Path) -> None:
    case = CASES["dqn, one env, a buffer that overflows"]
    whole = run(case, tmp_path / "whole")
    half = run(case, tmp_path / "halves", callback=stop_at(case.steps // 2))
    code = "import sys; from rl_training.runtime.workflows import resume; resume(sys.argv[1], show=False)"
    done = run_python(code, half.run_dir, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert_same_run(whole.run_dir, half.run_dir)


def test_a_run_that_died_in_its_last_evaluation_is_not_evaluated_twice_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["dqn, one env, a buffer that overflows"]  # evaluated at each of its checkpoints, the last one too
    whole = run(case, tmp_path / "whole")
    real = session.evaluate

    def die(*arguments: Any, seed: int, **options: Any) -> Any:
        if seed == DEFAULT_SEED:
            raise KeyboardInterrupt
        return real(*arguments, seed=seed, **options)

    with monkeypatch.context() as patch:
        patch.setattr(session, "evaluate", die)
        with pytest.raises(KeyboardInterrupt):
            run(case, tmp_path / "died")
    again = resumed(case, tmp_path / "died" / "run")
    assert_same_run(whole.run_dir, again.run_dir)


@BOTH_LOOPS
def test_an_extended_run_keeps_its_counters_and_its_history(case: Case, tmp_path: Path) -> None:
    first = run(case, tmp_path)
    trained = [line for line in metric_lines(first.run_dir) if line["kind"] == "train"]
    longer = resumed(case, first.run_dir, total_timesteps=2 * case.steps)
    assert 1.8 * case.steps < longer.env_steps <= 2 * case.steps
    after = [line for line in metric_lines(first.run_dir) if line["kind"] == "train"]
    assert after[: len(trained)] == trained
    for name in ("env_steps", "updates"):
        assert after[-1][name] > trained[-1][name]
    assert after[-1]["episodes"] >= trained[-1]["episodes"] > 0
    assert all(line["env_steps"] > trained[-1]["env_steps"] for line in after[len(trained) :])
    config = load_checkpoint(longer.checkpoint).config
    assert config["total_timesteps"] == 2 * case.steps


def test_a_stop_between_two_checkpoints_is_saved_and_marked_as_not_exact(tmp_path: Path) -> None:
    stopped = run(ON_POLICY, tmp_path, callback=stop_at(60))
    checkpoint = latest_checkpoint(stopped.run_dir)
    assert (checkpoint.env_steps, checkpoint.exact) == (60, False)
    assert resumed(ON_POLICY, stopped.run_dir).env_steps == ON_POLICY.steps


def _nudge_weight(state: dict[str, Any]) -> None:
    weight = state["learner"]["parts"]["model"]["advantage.0.weight"]
    weight[0, 0] = np.nextafter(weight[0, 0].item(), np.float32(9.0), dtype=np.float32).item()


def _advance_stream(state: dict[str, Any]) -> None:
    state["learner"]["parts"]["streams"]["generators"]["replay"]["state"]["state"] += 1


def _change_row(state: dict[str, Any]) -> None:
    state["rows"]["truncated"][3, 0] ^= True


def _change_priority(state: dict[str, Any]) -> None:
    state["loop"]["buffer"]["priorities"][0] += 1e-9


def _forget_episode(state: dict[str, Any]) -> None:
    state["window"]["recent"].pop()


@pytest.mark.parametrize("change", [_nudge_weight, _advance_stream, _change_row, _change_priority, _forget_episode])
def test_the_comparison_notices_the_smallest_difference(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    checkpoint = run(REPLAY, tmp_path).checkpoint
    before, state = state_hash(saved_state(checkpoint)), saved_state(checkpoint)
    assert state_hash(state) == before
    change(state)
    assert state_hash(state) != before
    assert len(list(different_parts(saved_state(checkpoint), state))) == 1
