"""PQN: Q(lambda) returns that stop at ends, the loss, and whole updates against formulas written out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from config_cases import refused
from loop_batches import batches_of
from masked_envs import masked_spaces, random_rows
from on_policy_helpers import make_rollout
from replay_helpers import DISCRETE, assert_same_parameters, make_learner, oracle
from rl_training.algorithms.common.returns import lambda_returns
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.algorithms.pqn import ReturnBatch, pqn_loss
from rl_training.data.rollout import Rollout
from tiny_runs import tiny_config

LAYER_NORM: dict[str, Any] = {"layer_norm": True, "hidden_sizes": (8, 8)}


def column(values: Any, dtype: Any = np.float64) -> np.ndarray:
    return np.array(values, dtype)[:, None]


# --- returns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("discounts", "expected"),
    [([0.9, 0.0, 0.9], [5.95, 1.0, 28.0]), ([0.9, 0.9, 0.9], [14.05, 19.0, 28.0])],
    ids=["terminated", "truncated"],
)
def test_returns_stop_at_the_end_of_an_episode(discounts: list[float], expected: list[float]) -> None:
    """The fixture of a published bug: a trace that leaks into the next episode gives 11.62 first."""
    ends = column([False, True, False], bool)
    found = lambda_returns(column([1, 1, 1]), column([10, 20, 30]), column(discounts), ends, 0.5)
    np.testing.assert_allclose(found[:, 0], expected)


@pytest.mark.parametrize("case", oracle("q_lambda_returns")["cases"], ids=lambda case: case["source"])
def test_returns_equal_independent_implementations(case: dict[str, Any]) -> None:
    names = ("rewards", "next_values", "discounts", "ends")
    arrays = [np.array(case["inputs"][name]) for name in names]
    arrays = [array if array.ndim == 2 else array[:, None] for array in arrays]
    found = lambda_returns(*arrays, case["inputs"]["q_lambda"])
    np.testing.assert_allclose(
        found.reshape(np.shape(case["outputs"]["returns"])), case["outputs"]["returns"], rtol=1e-6
    )


def test_lambda_0_is_one_step_and_lambda_1_the_whole_rollout() -> None:
    rng = np.random.default_rng(0)
    rewards, next_values = rng.normal(size=(2, 4, 3))
    discounts, ends = np.full((4, 3), 0.9), np.zeros((4, 3), bool)
    np.testing.assert_allclose(lambda_returns(rewards, next_values, discounts, ends, 0.0), rewards + 0.9 * next_values)
    whole = rewards[0] + 0.9 * (rewards[1] + 0.9 * (rewards[2] + 0.9 * (rewards[3] + 0.9 * next_values[3])))
    np.testing.assert_allclose(lambda_returns(rewards, next_values, discounts, ends, 1.0)[0], whole)


def test_returns_bootstrap_from_the_best_allowed_action() -> None:
    """Behind the rollout, and where an episode was truncated."""
    learner = make_learner("pqn", masked_spaces(), num_envs=3, q_lambda=0.0, gamma=0.9)
    rollout = make_rollout(learner, 6, seed=2)
    rollout.last_obs[:] = random_rows(3, seed=3)
    rollout.final_obs[:] = random_rows(len(rollout.final_obs), seed=4)

    def best(rows: np.ndarray) -> np.ndarray:
        everything = np.concatenate([rows[:, :3], np.ones((len(rows), 5), np.float32)], 1)
        with torch.no_grad():
            q = learner.model.q_values(torch.from_numpy(everything)).numpy()
        allowed = np.where(rows[:, 3:] != 0, q, -np.inf).max(1)
        assert (allowed < q.max(1)).any(), "the masks must matter here"
        return allowed

    found = learner.returns_of(rollout).returns.numpy().reshape(6, 3)
    going_on = ~rollout.ends[-1]
    assert going_on.any() and len(rollout.final_obs) > 1
    expected = rollout.rewards[-1] + 0.9 * best(rollout.last_obs)
    np.testing.assert_allclose(found[-1][going_on], expected[going_on], rtol=1e-5)
    cut = (rollout.final_steps, rollout.final_envs)
    np.testing.assert_allclose(found[cut], rollout.rewards[cut] + 0.9 * best(rollout.final_obs), rtol=1e-5)


# --- loss --------------------------------------------------------------------------------------------------------


def test_the_loss_is_half_the_mean_square_and_the_returns_are_constants() -> None:
    q = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    returns = torch.tensor([3.0, 1.0], dtype=torch.float64)
    batch = ReturnBatch(torch.zeros(2, 3), torch.zeros(2), returns)
    loss, metrics = pqn_loss(q, batch)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (4 + 9) / 2)
    assert q.grad is not None and q.grad.tolist() == [-1.0, -1.5]
    assert set(metrics) == {"loss", "q_mean", "target_q_mean"} and metrics["target_q_mean"].item() == 2.0


# --- acting ------------------------------------------------------------------------------------------------------


def test_acting_reports_the_largest_value_whatever_action_is_taken() -> None:
    learner = make_learner("pqn", DISCRETE, exploration=0.5, model=LAYER_NORM)
    obs = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    action = learner.act(obs, explore=True)
    q = learner.model.q_values(torch.from_numpy(obs)).detach()
    np.testing.assert_allclose(action.extras["values"], q.amax(1), atol=1e-5)
    random = (action.actions != q.argmax(1).numpy()).mean()
    assert 0.25 < random < 0.5, "half of the actions are random, and a quarter of those are greedy by chance"
    assert np.array_equal(learner.act(obs, explore=False).actions, q.argmax(1).numpy())


# --- the whole update against one written out by hand -----------------------------------------------------------


def rollout_of(num_steps: int, rng: np.random.Generator, learner: Any) -> Rollout:
    """Two envs; one episode terminates, another is truncated, and the row after an end is a reset."""
    shape = (num_steps, 2)
    obs = rng.standard_normal((*shape, 3)).astype(np.float32)
    terminated, truncated, valid = (np.zeros(shape, bool) for _ in range(3))
    valid[:] = True
    terminated[2, 0], truncated[1, 1] = True, True
    valid[3, 0] = valid[2, 1] = False
    return Rollout(
        obs=obs,
        actions=rng.integers(4, size=shape),
        rewards=rng.standard_normal(shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        episode_starts=np.zeros(shape, bool),
        last_obs=rng.standard_normal((2, 3)).astype(np.float32),
        final_steps=np.array([1]),
        final_envs=np.array([1]),
        final_obs=rng.standard_normal((1, 3)).astype(np.float32),
        extras={"values": learner.q_values(obs.reshape(-1, 3)).max(1).reshape(shape)},
    )


def copy_of(network: nn.Sequential) -> nn.Sequential:
    layers: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, nn.Linear):
            layers.append(nn.Linear(layer.in_features, layer.out_features))
        else:
            layers.append(nn.LayerNorm(8) if isinstance(layer, nn.LayerNorm) else type(layer)())
        layers[-1].load_state_dict({name: value.clone() for name, value in layer.state_dict().items()})
    return nn.Sequential(*layers)


@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_two_updates_equal_a_reference_written_by_hand(max_grad_norm: float | None) -> None:
    settings: dict[str, Any] = {"q_lambda": 0.7, "gamma": 0.9, "learning_rate": 3e-3, "max_grad_norm": max_grad_norm}
    learner = make_learner(
        "pqn", DISCRETE, num_steps=5, minibatch_size=8, update_epochs=2, num_envs=2, model=LAYER_NORM, **settings
    )
    reference = copy_of(learner.model.advantage)
    assert sum(isinstance(layer, nn.LayerNorm) for layer in reference) == 2
    optimizer = torch.optim.RAdam(reference.parameters(), lr=3e-3)
    rng = np.random.default_rng(0)
    for _ in range(2):
        rollout = rollout_of(5, rng, learner)

        def most(obs: np.ndarray) -> float:
            return reference(torch.from_numpy(obs)).max().item()

        rows = []
        for env in range(2):
            following = 0.0
            for t in range(4, -1, -1):
                if rollout.terminated[t, env]:
                    value = rollout.rewards[t, env]
                elif rollout.truncated[t, env]:
                    value = rollout.rewards[t, env] + 0.9 * most(rollout.final_obs[0])
                elif t == 4:
                    value = rollout.rewards[t, env] + 0.9 * most(rollout.last_obs[env])
                else:
                    value = rollout.rewards[t, env] + 0.9 * (0.3 * most(rollout.obs[t + 1, env]) + 0.7 * following)
                following = float(value)
                if rollout.valid[t, env]:
                    rows.append((t, env, following))
        rows.sort()
        result = learner.update(rollout)
        obs = torch.stack([torch.from_numpy(rollout.obs[t, env].copy()) for t, env, _ in rows])
        actions = torch.tensor([int(rollout.actions[t, env]) for t, env, _ in rows])
        returns = torch.tensor([value for *_, value in rows])
        assert len(rows) == 8
        for _ in range(2):  # epochs of one minibatch, so its order does not matter
            q = reference(obs)[torch.arange(8), actions]
            optimizer.zero_grad()
            (0.5 * (q - returns).square().mean()).backward()
            if max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(reference.parameters(), max_grad_norm)
            optimizer.step()
        assert_same_parameters(learner.model.advantage, reference, tolerance=2e-5)
        assert result["target_q_mean"].item() == pytest.approx(returns.mean().item(), abs=1e-5)
        assert result["target_std"].item() == pytest.approx(returns.std(correction=0).item(), abs=1e-5)
    assert learner.updates == 2


def test_metrics_of_an_update_are_named(tmp_path: Path) -> None:
    batches, learner = batches_of(tiny_config("pqn", tmp_path), 1)
    result = learner.update(batches[0])
    names = {"loss", "q_mean", "target_q_mean", "target_std", "grad_norm", "exploration", "learning_rate"}
    assert set(result) == names


def test_there_is_neither_a_target_network_nor_a_replay_buffer(tmp_path: Path) -> None:
    _, learner = batches_of(tiny_config("pqn", tmp_path), 1)
    assert not any(isinstance(part, TargetNetwork) for part in vars(learner).values())
    assert "buffer_size" not in type(learner.config).model_fields


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_lambda_outside_of_0_and_1_is_refused(value: float) -> None:
    message = refused({"algo": "pqn", "env_id": "Env-v0", "algo_kwargs": {"q_lambda": value}})
    assert message.startswith("algo_kwargs.q_lambda: ") and "\n" not in message
