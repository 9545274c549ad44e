"""IMPALA: its loss against formulas and rlax, its update against A2C on fresh data and the paper on stale data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from config_cases import refused
from on_policy_helpers import SPACES, batch_from, learn_from, make_learner, make_rollout, oracle_cases, parameters_of
from rl_training.algorithms.common.trajectories import Trajectories, column_groups, env_columns
from rl_training.algorithms.impala import impala_loss
from rl_training.config.algorithms.impala import IMPALAConfig
from vtrace_helpers import by_the_paper, log_probs_of, problem_of, watch_loss

CARTPOLE = {"algo": "impala", "env_id": "CartPole-v1"}
GAMMA = 0.9


def stale_learner(spaces: str = "discrete", versions: int = 3, **settings: Any) -> tuple[Any, Any]:
    """A learner, and a rollout that it collected `versions` updates ago."""
    fast = {"learning_rate": 0.05, "optimizer": "adam", "max_grad_norm": None}
    learner = make_learner("impala", spaces, gamma=GAMMA, **fast, **settings)
    old = make_rollout(learner, 6, seed=1)
    for seed in range(versions):
        learner.update(make_rollout(learner, 6, seed=10 + seed))
    return learner, old


def test_loss_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    log_probs, entropy, values = torch.from_numpy(rng.normal(size=(3, 5))).requires_grad_().unbind()
    batch = batch_from(log_probs=rng.normal(size=5), advantages=rng.normal(size=5), returns=rng.normal(size=5))
    config = IMPALAConfig(value_coef=0.7, rho_bar=1.2)
    loss, metrics = impala_loss(log_probs, entropy, values, batch, config, entropy_coef=0.3)
    policy = -np.mean([p * a for p, a in zip(log_probs.tolist(), batch.advantages.tolist(), strict=True)])
    value = np.mean([0.5 * (v - r) ** 2 for v, r in zip(values.tolist(), batch.returns.tolist(), strict=True)])
    weights = [float(np.exp(p - m)) for p, m in zip(log_probs.tolist(), batch.log_probs.tolist(), strict=True)]
    expected = {
        "loss": policy + 0.7 * value - 0.3 * float(entropy.detach().mean()),
        "policy_loss": policy,
        "value_loss": value,
        "entropy": float(entropy.detach().mean()),
        "rho_mean": np.mean([min(1.2, w) for w in weights]),
        "rho_clip_fraction": np.mean([w > 1.2 for w in weights]),
        "approx_kl": np.mean([w - 1 - np.log(w) for w in weights]),
    }
    assert float(loss.detach()) == pytest.approx(expected["loss"])
    for name, number in expected.items():
        assert float(metrics[name]) == pytest.approx(number), name
        assert not metrics[name].requires_grad


def test_policy_and_entropy_gradients_equal_rlax() -> None:
    (inputs, outputs), *_ = oracle_cases("policy_gradient")
    logits = torch.from_numpy(inputs["logits"]).requires_grad_()
    every = logits.log_softmax(-1)
    log_probs = every.gather(1, torch.from_numpy(inputs["actions"])[:, None]).squeeze(1)
    entropy = -(every.exp() * every).sum(-1)
    batch = batch_from(advantages=inputs["advantages"])
    config = IMPALAConfig(value_coef=0.0)
    loss, metrics = impala_loss(log_probs, entropy, torch.zeros(7), batch, config, entropy_coef=0.25)
    assert float(metrics["policy_loss"]) == pytest.approx(outputs["policy_loss"], abs=1e-10)
    assert float(metrics["entropy"]) == pytest.approx(outputs["mean_entropy"], abs=1e-10)
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = outputs["policy_gradient"] - 0.25 * outputs["entropy_gradient"]
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
@pytest.mark.parametrize("spaces", SPACES)
def test_on_a_fresh_rollout_it_is_a2c(spaces: str, optimizer: str) -> None:
    settings: dict[str, Any] = {"gamma": GAMMA, "gae_lambda": 0.8, "entropy_coef": 0.05, "optimizer": optimizer}
    settings |= {"learning_rate": 0.02, "rmsprop_decay": 0.9, "optimizer_epsilon": 1e-4, "reward_clip": 1.5}
    impala, a2c = (make_learner(algo, spaces, **settings) for algo in ("impala", "a2c"))
    rollout = make_rollout(impala, 8, seed=3, next_step_resets=True)
    before = parameters_of(impala.model)
    found, expected = learn_from(impala, rollout), learn_from(a2c, rollout)
    assert float((parameters_of(impala.model) - before).abs().max()) > 1e-3
    torch.testing.assert_close(parameters_of(impala.model), parameters_of(a2c.model), rtol=0, atol=1e-4)
    for name in ("loss", "policy_loss", "value_loss", "entropy", "grad_norm", "explained_variance"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)
    assert float(found["rho_mean"]) == pytest.approx(1, abs=1e-5)
    assert float(found["rho_clip_fraction"]) == 0


@pytest.mark.parametrize("spaces", SPACES)
def test_a_stale_rollout_is_weighed_by_pi_over_mu(spaces: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, old = stale_learner(spaces)
    mu = old.extras["log_probs"].copy()
    pi = log_probs_of(learner.model, old)
    assert np.abs(pi - mu).max() > 0.1, "the policy has not moved: this test would prove nothing"
    calls = watch_loss("impala", monkeypatch)
    metrics = learner.update(old)
    (call,) = calls
    # mu is what was stored when the actions were taken, to the bit: never recomputed with the learner's weights.
    np.testing.assert_array_equal(call["batch"].log_probs.numpy(), mu.reshape(-1))
    np.testing.assert_allclose(call["log_probs"].detach().numpy(), pi.reshape(-1), atol=1e-5)
    weights = np.exp(pi.astype(np.float64) - mu)
    assert float(metrics["rho_mean"]) == pytest.approx(np.minimum(weights, 1).mean(), abs=1e-5)
    assert float(metrics["rho_clip_fraction"]) == pytest.approx((weights > 1.0001).mean(), abs=1e-6)
    assert 0 < float(metrics["rho_clip_fraction"]) < 1


@pytest.mark.parametrize("next_step_resets", [False, True])
def test_advantages_and_targets_of_a_stale_rollout_are_those_of_the_paper(
    next_step_resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps = {"rho_bar": 1.1, "c_bar": 0.8, "pg_rho_bar": 1.3}
    learner, _ = stale_learner(versions=0, gae_lambda=0.9, **caps)
    old = make_rollout(learner, 9, seed=4, next_step_resets=next_step_resets)
    assert old.terminated.any() and old.truncated.any() and old.valid.all() != next_step_resets
    for seed in range(3):
        learner.update(make_rollout(learner, 6, seed=10 + seed))
    problem = problem_of(old, learner.model, log_probs_of(learner.model, old), GAMMA)
    targets, gradients = by_the_paper(problem, trace_lambda=0.9, **caps)
    calls = watch_loss("impala", monkeypatch)
    learner.update(old)
    batch = calls[0]["batch"]
    np.testing.assert_allclose(batch.returns.numpy(), targets[old.valid], atol=1e-4)
    np.testing.assert_allclose(batch.advantages.numpy(), gradients[old.valid], atol=1e-4)
    np.testing.assert_allclose(batch.values.numpy(), problem["values"][old.valid], atol=1e-5)


def test_rows_that_are_no_transitions_change_nothing() -> None:
    first, second = (make_learner("impala", learning_rate=0.05) for _ in range(2))
    rollout = make_rollout(first, 12, seed=2, next_step_resets=True)
    assert not rollout.valid.all()
    rng = np.random.default_rng(0)

    def with_noise(array: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal(array.shape).astype(array.dtype)
        return np.where(rollout.valid.reshape(*rollout.valid.shape, *[1] * (array.ndim - 2)), array, noise)

    extras = {"log_probs": with_noise(rollout.extras["log_probs"])}
    noisy = replace(rollout, obs=with_noise(rollout.obs), rewards=with_noise(rollout.rewards), extras=extras)
    first.update(rollout)
    second.update(noisy)
    torch.testing.assert_close(parameters_of(first.model), parameters_of(second.model), rtol=1e-6, atol=1e-6)


def test_advantages_and_targets_carry_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, old = stale_learner()
    calls = watch_loss("impala", monkeypatch)
    learner.update(old)
    batch = calls[0]["batch"]
    assert not any(getattr(batch, name).requires_grad for name in ("log_probs", "values", "advantages", "returns"))
    assert calls[0]["values"].requires_grad and calls[0]["log_probs"].requires_grad


@pytest.mark.parametrize(
    ("settings", "moved", "kept"),
    [
        ({"value_coef": 0.0}, "actor", "critic"),
        ({"pg_rho_bar": 1e-12}, "critic", "actor"),  # the policy gradient is weighed down to nothing
    ],
)
def test_each_loss_moves_its_own_network_only(settings: dict[str, float], moved: str, kept: str) -> None:
    learner, rollout = stale_learner(versions=0, **settings)
    before = {name: parameters_of(getattr(learner.model, name)) for name in (moved, kept)}
    learner.update(rollout)
    change = {name: float((parameters_of(getattr(learner.model, name)) - old).norm()) for name, old in before.items()}
    assert change[moved] > 1e-3
    assert change[kept] < 1e-6


def test_rewards_are_scaled_and_clipped_for_learning_only(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("impala", num_envs=1, reward_scale=10.0, reward_clip=2.0)
    rollout = make_rollout(learner, 4, seed=0)
    rollout.terminated[:], rollout.truncated[:] = True, False
    none = np.zeros(0, np.int64)
    rollout = replace(rollout, final_steps=none, final_envs=none, final_obs=np.zeros((0, 3), np.float32))
    raw = rollout.rewards.copy()
    calls = watch_loss("impala", monkeypatch)
    learn_from(learner, rollout)
    expected = np.clip(raw * 10, -2, 2)[:, 0]
    np.testing.assert_allclose(calls[0]["batch"].returns.numpy(), expected, atol=1e-5)
    np.testing.assert_array_equal(rollout.rewards, raw)


def test_minibatches_are_whole_envs_and_each_is_used_once() -> None:
    learner = make_learner("impala", num_envs=6)
    rollout = make_rollout(learner, 7, seed=0)
    groups = list(column_groups(rollout, 3, np.random.default_rng(0)))
    assert [group.rewards.shape for group in groups] == [(7, 2)] * 3
    found = np.concatenate([group.rewards for group in groups], 1)
    assert sorted(found[0].tolist()) == sorted(rollout.rewards[0].tolist())
    assert found[0].tolist() != rollout.rewards[0].tolist()
    order = [rollout.rewards[0].tolist().index(number) for number in found[0].tolist()]
    np.testing.assert_array_equal(found, rollout.rewards[:, order])
    assert sum(len(group.final_obs) for group in groups) == len(rollout.final_obs)


# The position of an environment must be looked up. By its number modulo 2, [4, 2] and [1, 4] would be misplaced.
@pytest.mark.parametrize("envs", [[4, 2], [1, 4], [4, 1]])
def test_columns_keep_their_own_final_observations_and_extras(envs: list[int]) -> None:
    learner = make_learner("impala", num_envs=5)
    rollout = make_rollout(learner, 9, seed=3)
    chosen = np.array(envs)
    part = env_columns(rollout, chosen)
    numbers = np.random.default_rng(0).random((9, 5))
    final = np.random.default_rng(1).random(len(rollout.final_obs))
    last = np.arange(5.0)
    kept = [k for k, env in enumerate(rollout.final_envs) if env in chosen]
    assert kept and len(kept) < len(final)
    expected = rollout.next_values(numbers, last, final)[:, chosen]
    np.testing.assert_array_equal(part.next_values(numbers[:, chosen], last[chosen], final[kept]), expected)
    np.testing.assert_array_equal(part.final_obs, rollout.final_obs[kept])
    np.testing.assert_array_equal(part.extras["log_probs"], rollout.extras["log_probs"][:, chosen])
    np.testing.assert_array_equal(part.obs, rollout.obs[:, chosen])
    np.testing.assert_array_equal(part.last_obs, rollout.last_obs[chosen])


def test_weights_are_taken_anew_before_each_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("impala", num_envs=4, num_minibatches=2, learning_rate=0.05, max_grad_norm=None)
    calls = watch_loss("impala", monkeypatch)
    learner.update(make_rollout(learner, 8, seed=0))
    moved = [float((call["log_probs"].detach() - call["batch"].log_probs).abs().max()) for call in calls]
    assert len(moved) == 2
    assert moved[0] < 1e-5 < 1e-2 < moved[1]


def test_a_group_of_resets_alone_is_passed_over() -> None:
    learner = make_learner("impala", num_envs=2, num_minibatches=2)
    rollout = make_rollout(learner, 1, seed=0)
    rollout.valid[0, 0] = False
    assert [group.valid.tolist() for group in column_groups(rollout, 2, np.random.default_rng(0))] == [[[True]]]
    result = learner.update(rollout)
    assert torch.isfinite(result["loss"]) and torch.isfinite(parameters_of(learner.model)).all()


def test_state_holds_everything_an_update_needs() -> None:
    settings = {"num_envs": 4, "num_minibatches": 2, "normalize_rewards": True, "learning_rate": 0.02}
    one, two = (make_learner("impala", model={"normalize_observations": True}, **settings) for _ in range(2))
    for seed in range(3):
        learn_from(one, make_rollout(one, 6, seed=seed))
    two.load_state_dict(one.state_dict())
    rollout = make_rollout(one, 6, seed=9)
    first, second = learn_from(one, rollout), learn_from(two, rollout)
    assert dict(first) == dict(second)
    assert torch.equal(parameters_of(one.model), parameters_of(two.model))
    assert one.updates == two.updates == 4


def test_a_rollout_without_behavior_log_probabilities_is_refused() -> None:
    learner = make_learner("impala")
    rollout = replace(make_rollout(learner, 4, seed=0), extras={})
    before = parameters_of(learner.model)
    with pytest.raises(ValueError, match=r"log_probs.*policy that acted"):
        learner.update(rollout)
    assert torch.equal(parameters_of(learner.model), before)
    with pytest.raises(ValueError, match="log_probs"):
        Trajectories(rollout, learner.model)


def test_impossible_settings_are_refused_before_anything_runs() -> None:
    message = refused(CARTPOLE | {"num_envs": 8}, {"num_minibatches": 3})
    assert "algo_kwargs.num_minibatches: 3 does not divide num_envs (8)" in message
    for name in ("rho_bar", "c_bar", "pg_rho_bar"):
        assert name in refused(CARTPOLE, {name: 0.0})
