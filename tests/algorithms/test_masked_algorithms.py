"""Every algorithm with discrete actions obeys masks, learns with them in its targets, and resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from masked_envs import Strict, masked_spaces, random_rows, strict_vector
from on_policy_helpers import make_learner, make_rollout
from rl_training.algorithms.dqn import DQN
from rl_training.api import algorithms as managed
from rl_training.api.managed import ManagedAlgorithm
from rl_training.config.algorithm_table import ALGORITHMS, get_config_class
from rl_training.data.transitions import Transitions
from rl_training.errors import ConfigError, EnvError
from rl_training.runtime.workflows import resume, train
from run_cases import MEMORY, NORMALIZED, PRIORITIES, REPLAY, ROLLOUT, WINDOWS, Case, assert_same_run, stop_at

DISCRETE = [name for name, row in ALGORITHMS.items() if "discrete" in row.actions]
SEVERAL = [name for name, row in ALGORITHMS.items() if "multi_discrete" in row.actions]
# r2d2 learns from windows, not from single transitions: tests/test_r2d2_update.py has its masks.
VALUES = [name for name in DISCRETE if ALGORITHMS[name].loop == "replay" and name != "r2d2"]


def settings_of(algo: str) -> dict[str, Any]:
    offered: dict[str, Any] = {**ROLLOUT, **MEMORY}
    if ALGORITHMS[algo].loop == "replay":
        offered = {**REPLAY, **PRIORITIES, "warm_up_repeat": 3, **WINDOWS}
    return {name: value for name, value in offered.items() if name in get_config_class(algo).model_fields}


def case_of(algo: str, env: Any, **options: Any) -> Case:
    name = f"callable:{getattr(env, '__name__', 'Strict')}"
    return Case(
        algo, name, steps=120, num_envs=3, model=NORMALIZED, settings=settings_of(algo), env=env, options=options
    )


def strict_info() -> Strict:
    return Strict(masks="info")


def strict_method() -> Strict:
    return Strict(masks="method")


def strict_multi() -> Strict:
    return Strict("multi_discrete")


def strict_binary() -> Strict:
    return Strict("multi_binary")


@pytest.mark.parametrize("algo", DISCRETE)
def test_a_masked_run_takes_only_allowed_actions_and_resumes_exactly(algo: str, tmp_path: Path) -> None:
    case = case_of(algo, Strict)
    whole = train(case.config(tmp_path / "whole"), env=case.env, show=False)
    half = train(case.config(tmp_path / "halves"), env=case.env, show=False, callback=stop_at(case.steps // 2))
    assert half.interrupted
    second = resume(half.run_dir, env=case.env, show=False)
    assert_same_run(whole.run_dir, second.run_dir)
    assert whole.evaluation == second.evaluation is not None


@pytest.mark.parametrize("algo", SEVERAL)
@pytest.mark.parametrize("env", [strict_multi, strict_binary])
def test_masks_of_several_choices_are_obeyed(algo: str, env: Any, tmp_path: Path) -> None:
    case = case_of(algo, env)
    assert train(case.config(tmp_path, total_timesteps=60), env=env, show=False).evaluation is not None


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
@pytest.mark.parametrize("env", [strict_info, strict_method])
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_masks_of_infos_and_methods_are_obeyed(algo: str, env: Any, backend: str, tmp_path: Path) -> None:
    options = {"env_kwargs": {"action_masks": "info"}} if env is strict_info else {}
    case = case_of(algo, env, vector_backend=backend, **options)
    assert train(case.config(tmp_path, total_timesteps=60), env=env, show=False).evaluation is not None


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo", "dqn"])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("masks", ["key", "info"])
def test_masks_of_a_given_vector_env_are_obeyed(algo: str, mode: Any, masks: str, tmp_path: Path) -> None:
    envs = strict_vector(3, mode, masks)
    case = case_of(algo, Strict)
    config = case.config(tmp_path, total_timesteps=150)
    result = train(config, env=envs, eval_env=Strict if masks == "key" else None, show=False)
    assert result.env_steps >= 140


def batch_of(rows: np.ndarray, next_rows: np.ndarray, actions: np.ndarray) -> Transitions:
    count = len(rows)
    return Transitions(
        obs=torch.from_numpy(rows),
        actions=torch.from_numpy(actions),
        rewards=torch.zeros(count),
        next_obs=torch.from_numpy(next_rows),
        discounts=torch.full((count,), 0.9),
        weights=None,
        indices=np.arange(count),
    )


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("algo", VALUES)
def test_the_mask_of_the_next_state_is_in_the_target(algo: str, double: bool) -> None:
    fields = get_config_class(algo).model_fields
    if double and "double" not in fields:
        pytest.skip(f"{algo} has no double Q-learning")
    settings: dict[str, Any] = {"batch_size": 64} | ({"double": double} if "double" in fields else {})
    if "noisy" in fields:
        settings["noisy"] = False  # under noise, another action may be the best one
    spaces = masked_spaces()
    rows, following = random_rows(64, seed=1), random_rows(64, seed=2)
    following[:, -5:] = 1.0
    actions = rows[:, -5:].argmax(1)
    learner = make_learner(algo, spaces, **settings)
    best = learner.model.greedy_actions(following)
    without_best = following.copy()
    without_best[np.arange(64), 3 + best] = 0.0
    targets = []
    for next_rows in (following, without_best):
        fresh = make_learner(algo, spaces, **settings)
        targets.append(float(fresh.update(batch_of(rows, next_rows, actions))["target_q_mean"]))
    assert targets[1] < targets[0] - 1e-6, "without its best action, a state must be worth less"
    assert np.isfinite(targets).all()


@pytest.mark.parametrize("algo", ["dqn", "iqn"])
def test_a_munchausen_reward_is_zero_where_only_one_action_is_allowed(algo: str) -> None:
    """There the policy is certain: T log 1."""
    rows = random_rows(64, seed=1)
    actions = np.arange(64) % 5
    targets = []
    for masks in (np.eye(5, dtype=np.float32)[actions], np.ones((64, 5), np.float32)):
        rows[:, -5:] = masks
        batch = batch_of(rows, rows, actions)
        batch.discounts[:] = 0.0
        learner = make_learner(algo, masked_spaces(), munchausen=True, munchausen_temperature=1.0, batch_size=64)
        targets.append(float(learner.update(batch)["target_q_mean"]))
    assert targets[0] == pytest.approx(0.0, abs=1e-6) and targets[1] < -0.1


def test_statistics_of_observations_are_those_of_what_the_network_sees() -> None:
    rows = random_rows(200, seed=3)
    learner = make_learner("ppo", masked_spaces(), model={"normalize_observations": True})
    learner.observe(rows)
    np.testing.assert_allclose(learner.model.normalizer.mean, rows[:, :3].mean(0), rtol=1e-4, atol=1e-5)


def test_the_target_of_dqn_is_the_best_allowed_value() -> None:
    learner: DQN = make_learner("dqn", masked_spaces())
    rows = random_rows(30)
    with torch.no_grad():
        q = learner.model.q_values(torch.from_numpy(np.concatenate([rows[:, :3], np.ones((30, 5), np.float32)], 1)))
    expected = np.where(rows[:, -5:] != 0, q.numpy(), -np.inf).max(1) * 0.9
    found = learner.update(batch_of(rows, rows, rows[:, -5:].argmax(1)))["target_q_mean"]
    np.testing.assert_allclose(found, expected.mean(), rtol=1e-5)


def test_the_share_of_entropy_is_among_allowed_actions() -> None:
    learner = make_learner("ppo", masked_spaces(), num_steps=16, minibatch_size=32, update_epochs=1)
    rollout = make_rollout(learner, 16, 0)
    rng = np.random.default_rng(0)
    rollout.obs[:] = random_rows(32, seed=4).reshape(rollout.obs.shape)
    acted = learner.model.act(rollout.obs.reshape(32, -1), rng)
    rollout.actions[:] = acted[0].reshape(rollout.actions.shape)
    rollout.extras["log_probs"][:] = acted[1]["log_probs"].reshape(16, -1)
    share = float(learner.update(rollout)["entropy_share"])
    assert 0.97 < share <= 1.0001, "a new policy is nearly uniform among what is allowed"


@pytest.fixture
def agent(tmp_path: Path) -> ManagedAlgorithm:
    return managed.PPO(strict_info, env_kwargs={"action_masks": "info"}, output_dir=str(tmp_path))


def test_predict_takes_the_mask(agent: ManagedAlgorithm) -> None:
    seen, mask = np.zeros(3, np.float32), np.array([0, 0, 0, 1, 0])
    for _ in range(5):
        assert agent.predict(seen, action_masks=mask, deterministic=False)[0] == 5  # categories start at 2
    actions, _ = agent.predict(np.zeros((2, 3), np.float32), action_masks=np.eye(5)[[1, 2]])
    assert actions.tolist() == [3, 4]
    assert agent.predict({"observation": seen, "action_mask": mask})[0] == 5
    with pytest.raises(ConfigError, match="action_masks: missing"):
        agent.predict(seen)
    with pytest.raises(EnvError, match="allows no action"):
        agent.predict(seen, action_masks=np.zeros(5))
    with pytest.raises(EnvError, match=r"action_mask.*has .*shape \(4,\)"):
        agent.predict(seen, action_masks=np.ones(4))
    with pytest.raises(ConfigError, match="trained without action masks"):
        managed.PPO("CartPole-v1").predict(np.zeros(4), action_masks=[1, 1])
