"""evaluate_checkpoint, resume and predict on every algorithm's checkpoints, from nothing but the files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from checkpoint_helpers import sign_again
from rl_training.errors import CheckpointError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.workflows import agent_of, evaluate_checkpoint, predict, resume, train
from rl_training.storage.checkpoints import best_checkpoint, load_checkpoint
from rl_training.storage.state_tree import state_hash
from rl_training.storage.tensor_files import read_arrays, write_arrays
from rl_training.telemetry.metric_lines import read_metrics, without_wall_clock
from tiny_runs import EVERY_ALGORITHM, STEPS, Blocks, some_observations, tiny_config, train_tiny


@EVERY_ALGORITHM
def test_agent_is_rebuilt_from_the_config_in_the_checkpoint(algorithm: str, tmp_path: Path) -> None:
    # Not the default model: nothing but the stored config can tell its shape.
    result = train_tiny(
        algorithm, tmp_path / "runs", hidden_sizes=(12, 6), activation="relu", normalize_observations=True
    )
    moved = tmp_path / "elsewhere"
    shutil.copytree(result.checkpoint, moved)
    shutil.rmtree(tmp_path / "runs")
    agent = agent_of(moved)
    assert agent.config.model.hidden_sizes == (12, 6) and agent.config == result.agent.config
    assert state_hash(agent.learner.state_dict()) == state_hash(result.agent.learner.state_dict())


@EVERY_ALGORITHM
def test_predict_answers_like_the_trained_agent(algorithm: str, tmp_path: Path) -> None:
    result = train_tiny(algorithm, tmp_path)
    observations = some_observations(algorithm)
    expected, _ = get_spec(algorithm).predict(result.agent, observations)
    for target in (result.checkpoint, result.run_dir):
        np.testing.assert_array_equal(predict(target, observations), expected)
    np.testing.assert_array_equal(predict("latest", observations, output_dir=tmp_path), expected)
    np.testing.assert_allclose(predict(result.run_dir, observations[0]), expected[0], atol=1e-6)


@EVERY_ALGORITHM
def test_evaluate_checkpoint_repeats_the_final_evaluation(algorithm: str, tmp_path: Path) -> None:
    result = train_tiny(algorithm, tmp_path, eval_episodes=2)
    assert evaluate_checkpoint(result.checkpoint, episodes=2) == result.evaluation
    shifted = evaluate_checkpoint(result.run_dir, episodes=2, seed=10_001)
    assert shifted.returns[0] == pytest.approx(result.evaluation.returns[1], rel=1e-3), "episode i has seed + i"
    line = read_metrics(result.run_dir)[-1]
    assert line["kind"] == "eval" and line["eval_mean_return"] == result.evaluation.mean_return
    assert line["eval_std_return"] == result.evaluation.std_return and line["eval_episodes"] == 2


@EVERY_ALGORITHM
def test_resume_extends_a_finished_run_in_place(algorithm: str, tmp_path: Path) -> None:
    first = train_tiny(algorithm, tmp_path)
    lines = read_metrics(first.run_dir)
    longer = resume(first.run_dir, total_timesteps=STEPS * 2, show=False)
    assert longer.run_dir == first.run_dir and longer.env_steps > STEPS
    assert longer.agent.learner.updates > first.agent.learner.updates
    assert load_checkpoint(longer.checkpoint).config["total_timesteps"] == STEPS * 2
    trained = [line for line in lines if line["kind"] == "train"]
    assert read_metrics(first.run_dir)[: len(trained)] == trained, "what was logged stays as it was"


@EVERY_ALGORITHM
def test_evaluation_does_not_disturb_training(algorithm: str, tmp_path: Path) -> None:
    quiet = train_tiny(algorithm, tmp_path / "off")
    watched = train_tiny(algorithm, tmp_path / "on", eval_every=16, eval_episodes=2)
    assert len([line for line in read_metrics(watched.run_dir) if line["kind"] == "eval"]) >= 3
    assert state_hash(watched.agent.learner.state_dict()) == state_hash(quiet.agent.learner.state_dict())
    lines = [
        [without_wall_clock(line) for line in read_metrics(result.run_dir) if line["kind"] == "train"]
        for result in (quiet, watched)
    ]
    assert lines[0] == lines[1]


@EVERY_ALGORITHM
def test_best_agent_is_kept_whole_and_is_not_resumable(algorithm: str, tmp_path: Path) -> None:
    result = train_tiny(algorithm, tmp_path, eval_every=16)
    best = best_checkpoint(result.run_dir)
    assert best.kind == "agent" and best.algorithm == algorithm
    evaluations = [line for line in read_metrics(result.run_dir) if line["kind"] == "eval"]
    # The last one, at the end of the run, has seeds of its own and does not compete.
    returns = {line["env_steps"]: line["eval_mean_return"] for line in evaluations[:-1]}
    assert returns[best.env_steps] == max(returns.values())
    assert best.state.keys() == {"spaces", "learner", "best_return"}  # no loop, no replay
    evaluate_checkpoint(best.path, episodes=1)
    with pytest.raises(CheckpointError, match="agent only"):
        resume(best.path)


@EVERY_ALGORITHM
def test_checkpoint_without_its_model_is_refused(algorithm: str, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(train_tiny(algorithm, tmp_path).checkpoint)
    del checkpoint.state["learner"]["parts"]["model"]
    with pytest.raises(CheckpointError, match=r"does not fit .*model"):
        get_spec(algorithm).load(checkpoint)


def test_weights_of_another_type_are_not_converted_without_a_word(tmp_path: Path) -> None:
    path = train_tiny("ppo", tmp_path).checkpoint
    file = path / "tensors.safetensors"
    arrays = read_arrays(file)
    name = next(name for name in sorted(arrays) if arrays[name].dtype == np.float32)
    arrays[name] = arrays[name].astype(np.float64)
    file.unlink()
    write_arrays(file, arrays)
    sign_again(path)
    with pytest.raises(CheckpointError, match=r"float64, it should be torch.float32"):
        predict(path, np.zeros(4))


def test_predict_takes_structured_observations(tmp_path: Path) -> None:
    observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,), np.float32)})
    action_space = spaces.MultiDiscrete([2, 3])

    def make() -> Any:
        return Blocks(observation_space, action_space)

    config = tiny_config("ppo", tmp_path, env_id="callable:make")
    result = train(config, env=make, show=False)
    observation_space.seed(0)
    observation = observation_space.sample()
    action = predict(result.checkpoint, observation)
    assert action_space.contains(action)
    batch = {name: np.stack([value, value]) for name, value in observation.items()}
    np.testing.assert_array_equal(predict(result.checkpoint, batch), [action, action])
    assert evaluate_checkpoint(result.checkpoint, episodes=1, env=make).returns == (5.0,)
