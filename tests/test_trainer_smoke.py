"""`train_x` of every algorithm: it learns, logs, evaluates and saves, and leaves nothing else behind."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.config.base import RolloutConfig
from rl_training.config.loading import load_config
from rl_training.errors import NumericalError
from rl_training.experiment.registry import get_config_class
from rl_training.runtime.auto_settings import resolve_threads
from rl_training.storage.checkpoints import load_checkpoint, verify_checkpoint
from rl_training.telemetry.metric_lines import WALL_CLOCK_FIELDS, read_metrics
from tiny_runs import EVERY_ALGORITHM, STEPS, Blocks, env_of, tiny_config, train_function, train_tiny


@EVERY_ALGORITHM
def test_train_writes_a_checkpoint_and_final_evaluation(algorithm: str, tmp_path: Path) -> None:
    result = train_tiny(algorithm, tmp_path, checkpoint_every=32, eval_episodes=2)
    assert verify_checkpoint(result.checkpoint) == []
    checkpoint = load_checkpoint(result.checkpoint)
    assert checkpoint.algorithm == algorithm and checkpoint.env_steps == result.env_steps
    assert load_config(checkpoint.config) == load_config(result.run_dir / "config.yaml") == result.agent.config
    assert result.evaluation is not None and len(result.evaluation.returns) == 2
    assert json.loads((result.run_dir / "run.json").read_text())["status"] == "finished"
    summary = json.loads(json.dumps(result.summary()))
    assert summary.keys() - {"findings"} == {
        "run_dir",
        "checkpoint",
        "env_steps",
        "wall_seconds",
        "steps_per_second",
        "eval",
    }
    assert summary["eval"] == result.evaluation.summary()


@EVERY_ALGORITHM
def test_metric_lines_are_complete_finite_and_in_order(algorithm: str, tmp_path: Path) -> None:
    result = train_tiny(algorithm, tmp_path)
    lines = read_metrics(result.run_dir)
    assert {line["kind"] for line in lines} == {"train", "eval"} and lines[-1]["kind"] == "eval"
    training = [line for line in lines if line["kind"] == "train"]
    assert len(training) >= 3
    for line in training:
        of_actors = {"learner_waits", "actors_wait"}  # this run has none
        assert {"env_steps", "updates", "episodes", *WALL_CLOCK_FIELDS} - of_actors <= line.keys()
        assert all(name == name.lower() and name.isidentifier() for name in line)
        for name, value in line.items():
            if name not in ("kind", "explained_variance"):
                assert math.isfinite(value), name
        shares = [line[name] for name in ("time_env", "time_act", "time_learn", "time_other")]
        assert all(0 <= share <= 1 for share in shares) and sum(shares) == pytest.approx(1, abs=0.01)
    for name in ("env_steps", "updates", "episodes"):
        values = [line[name] for line in training]
        assert values == sorted(values)
    assert training[-1]["env_steps"] == result.env_steps <= STEPS
    assert training[-1]["updates"] == result.agent.learner.updates > 0
    has_policy = "entropy_coef" in get_config_class(algorithm).model_fields
    expected = {"policy_loss", "value_loss", "entropy"} if has_policy else {"target_q_mean"}
    assert expected <= training[-1].keys()


@EVERY_ALGORITHM
def test_learning_losses_are_absent_before_learning_starts(algorithm: str, tmp_path: Path) -> None:
    line = read_metrics(train_tiny(algorithm, tmp_path, log_every=8).run_dir)[0]
    on_policy = issubclass(get_config_class(algorithm), RolloutConfig)
    assert on_policy == any("loss" in name for name in line), "a metric that was not computed is absent"


@EVERY_ALGORITHM
def test_a_run_leaves_global_random_state_and_threads_alone(algorithm: str, tmp_path: Path) -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)

    def everything() -> tuple[object, ...]:
        numpy_state = np.random.get_state()
        return (
            random.getstate(), numpy_state[1].tobytes(), numpy_state[2], torch.random.get_rng_state().tolist(),
            torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype(),
        )  # fmt: skip

    before = everything()
    train_tiny(algorithm, tmp_path, eval_every=32, checkpoint_every=32)
    assert everything() == before


@EVERY_ALGORITHM
def test_same_seed_same_run_and_other_seed_another(algorithm: str, tmp_path: Path) -> None:
    def weights(seed: int, name: str) -> torch.Tensor:
        model = train_tiny(algorithm, tmp_path / name, seed=seed).agent.learner.model
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    first, again, other = weights(1, "a"), weights(1, "b"), weights(2, "c")
    assert torch.equal(first, again) and not torch.equal(first, other)


@EVERY_ALGORITHM
def test_several_envs_count_together(algorithm: str, tmp_path: Path) -> None:
    result = train_tiny(algorithm, tmp_path, num_envs=4)
    assert STEPS * 0.6 < result.env_steps <= STEPS
    assert load_checkpoint(result.checkpoint).config["num_envs"] == 4


@EVERY_ALGORITHM
def test_reward_that_is_not_a_number_ends_the_run_and_says_so(algorithm: str, tmp_path: Path) -> None:
    actions = gym.make(env_of(algorithm)).action_space

    def make() -> Blocks:
        return Blocks(gym.spaces.Box(-1, 1, (3,), np.float32), actions, reward=float("nan"))

    config = tiny_config(algorithm, tmp_path, env_id="callable:make")
    with pytest.raises(NumericalError, match="reward that is not finite"):
        train_function(algorithm)(config, env=make, show=False)
    assert json.loads(next(tmp_path.glob("*/run.json")).read_text())["status"] == "failed"


def test_threads_keep_to_what_the_user_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = tiny_config("ppo", tmp_path, hidden_sizes=(512,))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert resolve_threads(wide) == 1
    assert resolve_threads(load_config(wide, {"threads": 3})) == 3
