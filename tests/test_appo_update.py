"""APPO: its loss against formulas and rlax, its first gradient against PPO's, its target policy against IMPACT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from config_cases import refused
from on_policy_helpers import SPACES, batch_from, learn_from, make_learner, make_rollout, oracle_cases, parameters_of
from rl_training.algorithms import ppo as ppo_module
from rl_training.algorithms.appo import appo_loss, impact_log_probs
from rl_training.config.algorithms.appo import APPOConfig
from vtrace_helpers import by_the_paper, log_probs_of, problem_of, watch_loss

GAMMA = 0.9
CARTPOLE = {"algo": "appo", "env_id": "CartPole-v1"}
FAST = {"gamma": GAMMA, "learning_rate": 0.05, "max_grad_norm": None, "update_epochs": 1}


def stale_learner(spaces: str = "discrete", *, next_step_resets: bool = False, **settings: Any) -> tuple[Any, Any]:
    """A learner, and a rollout that it collected three updates ago. A target policy is one update old."""
    learner = make_learner("appo", spaces, **(FAST | settings))
    old = make_rollout(learner, 9, seed=4, next_step_resets=next_step_resets)
    for seed in range(3):
        learner.clock.env_steps += 12
        learner.update(make_rollout(learner, 6, seed=10 + seed))
    return learner, old


def test_loss_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    log_probs, entropy, values, kl = torch.from_numpy(rng.normal(size=(4, 6)) * 0.5).requires_grad_().unbind()
    batch = batch_from(log_probs=rng.normal(size=6) * 0.5, advantages=rng.normal(size=6), returns=rng.normal(size=6))
    config = APPOConfig(value_coef=0.7, kl_coef=0.4, normalize_advantages=False)
    loss, metrics = appo_loss(log_probs, entropy, values, batch, config, clip_range=0.2, entropy_coef=0.3, kl=kl)
    ratios = [float(np.exp(p - m)) for p, m in zip(log_probs.tolist(), batch.log_probs.tolist(), strict=True)]
    pairs = list(zip(ratios, batch.advantages.tolist(), strict=True))
    policy = -np.mean([min(r * a, min(max(r, 0.8), 1.2) * a) for r, a in pairs])
    value = np.mean([0.5 * (v - r) ** 2 for v, r in zip(values.tolist(), batch.returns.tolist(), strict=True)])
    entropy_mean, kl_mean = np.mean(entropy.tolist()), np.mean(kl.tolist())
    expected = {
        "loss": policy + 0.7 * value - 0.3 * entropy_mean + 0.4 * kl_mean,
        "policy_loss": policy,
        "value_loss": value,
        "entropy": entropy_mean,
        "kl_to_target": kl_mean,
        "approx_kl": np.mean([r - 1 - np.log(r) for r in ratios]),
        "clip_fraction": np.mean([abs(r - 1) > 0.2 for r in ratios]),
    }
    assert float(loss.detach()) == pytest.approx(expected["loss"])
    for name, number in expected.items():
        assert float(metrics[name]) == pytest.approx(number), name
        assert not metrics[name].requires_grad


def test_clipped_surrogate_and_its_gradient_equal_rlax() -> None:
    for inputs, outputs in oracle_cases("ppo_clip"):
        ratios = torch.from_numpy(inputs["ratios"]).requires_grad_()
        batch = batch_from(advantages=inputs["advantages"])
        config = APPOConfig(value_coef=0.0, normalize_advantages=False)
        zeros = torch.zeros(len(ratios))
        loss, _ = appo_loss(
            ratios.log(), zeros, zeros, batch, config, clip_range=inputs["clip_range"], entropy_coef=0.0
        )
        assert float(loss.detach()) == pytest.approx(outputs["loss"], abs=1e-10)
        (gradient,) = torch.autograd.grad(loss, ratios)
        np.testing.assert_allclose(gradient.numpy(), outputs["gradient_of_ratios"], atol=1e-10)


def test_the_clipped_surrogate_is_ppos_own() -> None:
    from rl_training.algorithms import appo

    assert appo.ppo_policy_loss is ppo_module.ppo_policy_loss


@pytest.mark.parametrize("target", [{}, {"target_update_every": 1, "kl_coef": 3.0}], ids=["plain", "impact"])
@pytest.mark.parametrize("spaces", SPACES)
def test_with_pi_equal_mu_the_gradient_is_ppos(spaces: str, target: dict[str, float]) -> None:
    """Both with advantages normalized, an entropy bonus and every kind of row; a target policy equals pi here."""
    settings: dict[str, Any] = {"gamma": GAMMA, "gae_lambda": 0.8, "entropy_coef": 0.05, "learning_rate": 0.02}
    settings |= {"num_steps": 8, "update_epochs": 1}
    appo = make_learner("appo", spaces, **settings, **target)
    ppo = make_learner("ppo", spaces, minibatch_size=16, **settings)
    rollout = make_rollout(appo, 8, seed=3, next_step_resets=True)
    gradients: dict[str, torch.Tensor] = {}
    for name, learner in (("appo", appo), ("ppo", ppo)):
        apply = learner.optimizer.apply

        def watched(gradient: torch.Tensor, name: str = name, apply: Any = apply) -> torch.Tensor:
            gradients[name] = gradient.clone()
            return apply(gradient)

        learner.optimizer.apply = watched
    found, expected = appo.update(rollout), ppo.update(rollout)
    assert float(gradients["ppo"].norm()) > 1e-3
    torch.testing.assert_close(gradients["appo"], gradients["ppo"], rtol=1e-3, atol=2e-5)
    for name in ("policy_loss", "value_loss", "entropy", "clip_fraction"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("next_step_resets", [False, True])
@pytest.mark.parametrize("spaces", ["discrete", "multi_discrete", "box"])
def test_on_stale_data_the_ratio_is_against_the_policy_that_acted(
    spaces: str, next_step_resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps = {"rho_bar": 1.1, "c_bar": 0.8}
    learner, old = stale_learner(spaces, next_step_resets=next_step_resets, gae_lambda=0.9, **caps)
    assert old.terminated.any() and old.truncated.any() and old.valid.all() != next_step_resets
    mu, pi = old.extras["log_probs"].copy(), log_probs_of(learner.model, old)
    assert np.abs(pi - mu).max() > 0.1, "the policy has not moved: this test would prove nothing"
    problem = problem_of(old, learner.model, pi, GAMMA)
    calls = watch_loss("appo", monkeypatch)
    metrics = learner.update(old)
    batch = calls[0]["batch"]
    np.testing.assert_array_equal(batch.log_probs.numpy(), mu[old.valid])
    np.testing.assert_allclose(calls[0]["log_probs"].detach().numpy(), pi[old.valid], atol=1e-5)
    targets, _ = by_the_paper(problem, trace_lambda=0.9, **caps)
    np.testing.assert_allclose(batch.returns.numpy(), targets[old.valid], atol=1e-4)
    # The ratio weighs the advantage already: a second weight would square it. Weight 1 leaves it as it is.
    _, weighted = by_the_paper(problem, trace_lambda=0.9, **caps, pg_rho_bar=1e9)
    unweighted = weighted / np.exp(problem["log_probs"] - problem["behavior_log_probs"])
    np.testing.assert_allclose(batch.advantages.numpy(), unweighted[old.valid], atol=1e-4)
    weights = np.exp(pi.astype(np.float64) - mu)[old.valid]
    assert float(metrics["rho_mean"]) == pytest.approx(np.minimum(weights, 1.1).mean(), abs=1e-5)


def test_impact_ratio_is_the_clipped_one_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    pi, target, mu = torch.from_numpy(rng.normal(size=(3, 200)))
    paper = (mu - target).exp().clamp(0, 2) * (pi - mu).exp()
    torch.testing.assert_close((pi - impact_log_probs(target, mu)).exp(), paper)
    limited = (mu - target).exp() > 2
    assert 0 < int(limited.sum()) < 200
    torch.testing.assert_close(paper[~limited], (pi - target).exp()[~limited])


@pytest.mark.parametrize("spaces", ["discrete", "box"])
def test_with_a_target_policy_vtrace_goes_towards_it(spaces: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caps = {"rho_bar": 1.1, "c_bar": 0.8, "pg_rho_bar": 1.2}
    learner, old = stale_learner(spaces, gae_lambda=0.9, target_update_every=12, kl_coef=0.5, **caps)
    mu, pi = old.extras["log_probs"], log_probs_of(learner.model, old)
    pi_target = log_probs_of(learner.target.module, old)
    assert np.abs(pi - pi_target).max() > 0.05 and np.abs(mu - pi_target).max() > 0.05
    problem = problem_of(old, learner.model, pi_target, GAMMA)
    with torch.no_grad():
        obs = torch.from_numpy(old.obs.reshape(-1, 3))
        model, target = learner.model, learner.target.module
        kl = model.distribution.kl(target.policy(obs), model.policy(obs)).mean()
    calls = watch_loss("appo", monkeypatch)
    metrics = learner.update(old)
    batch = calls[0]["batch"]
    targets, gradients = by_the_paper(problem, trace_lambda=0.9, **caps)
    np.testing.assert_allclose(batch.returns.numpy(), targets.reshape(-1), atol=1e-4)
    np.testing.assert_allclose(batch.advantages.numpy(), gradients.reshape(-1), atol=1e-4)
    ratio = np.minimum(np.exp(mu - pi_target), 2) * np.exp(pi - mu)
    found = (calls[0]["log_probs"] - batch.log_probs).exp().detach().numpy()
    np.testing.assert_allclose(found, ratio.reshape(-1), rtol=1e-4)
    assert float(metrics["kl_to_target"]) == pytest.approx(float(kl), rel=1e-4)
    assert calls[0]["kl"].requires_grad


def test_a_strong_divergence_penalty_holds_the_policy_at_the_target() -> None:
    def distance(kl_coef: float) -> float:
        learner = make_learner(
            "appo",
            **(FAST | {"update_epochs": 20, "learning_rate": 0.01}),
            target_update_every=1,
            kl_coef=kl_coef,
            clip_range=10.0,
        )
        rollout = make_rollout(learner, 16, seed=0)
        before = log_probs_of(learner.model, rollout)
        learner.update(rollout)
        return float(np.abs(log_probs_of(learner.model, rollout) - before).mean())

    assert distance(100.0) < 0.2 * distance(0.0)


def test_without_a_penalty_no_divergence_is_computed() -> None:
    plain = make_learner("appo", **FAST)
    assert plain.target is None
    assert "kl_to_target" not in plain.update(make_rollout(plain, 4, seed=0))
    learner = make_learner("appo", **FAST, target_update_every=100)
    assert "kl_to_target" not in learner.update(make_rollout(learner, 4, seed=0))


def test_the_target_is_copied_when_its_env_steps_have_passed() -> None:
    learner = make_learner("appo", **FAST, target_update_every=20)
    first = parameters_of(learner.model)
    copied = []
    for _ in range(5):
        before = parameters_of(learner.model)
        learner.update(make_rollout(learner, 4, seed=0))
        target = parameters_of(learner.target.module)
        copied.append("first" if torch.equal(target, first) else "now" if torch.equal(target, before) else "older")
        learner.clock.env_steps += 8
    # Updates at 0, 8, 16, 24, 32 env steps: only the fourth has passed 20.
    assert copied == ["first", "first", "first", "now", "older"]


def test_every_epoch_goes_once_over_all_envs_in_whole_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("appo", num_envs=6, **(FAST | {"update_epochs": 3, "num_minibatches": 2}))
    rollout = make_rollout(learner, 5, seed=0)
    calls = watch_loss("appo", monkeypatch)
    learner.update(rollout)
    assert len(calls) == 6
    columns = {rollout.obs[:, env].tobytes(): env for env in range(6)}
    seen = []
    for call in calls:
        obs = call["batch"].obs.numpy().reshape(5, 3, -1)
        seen.append([columns[obs[:, i].tobytes()] for i in range(3)])
    for epoch in range(3):
        assert sorted(seen[2 * epoch] + seen[2 * epoch + 1]) == list(range(6))
    assert len({tuple(order) for order in seen}) > 2
    assert float(learner.optimizer.steps) == 6


def test_clip_range_and_learning_rate_follow_their_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    schedules = {"clip_range": {"start": 0.4, "end": 0.0}, "learning_rate": {"start": 0.1, "end": 0.0}}
    schedules["entropy_coef"] = {"start": 1.0, "end": 0.0}
    learner = make_learner("appo", total_timesteps=100, update_epochs=1, **schedules)
    learner.clock.env_steps = 75
    calls = watch_loss("appo", monkeypatch)
    metrics = learner.update(make_rollout(learner, 4, seed=0))
    assert calls[0]["clip_range"] == pytest.approx(0.1)
    assert calls[0]["entropy_coef"] == pytest.approx(0.25)
    assert float(metrics["learning_rate"]) == pytest.approx(0.025)


@pytest.mark.parametrize("target", [{}, {"target_update_every": 30, "kl_coef": 0.2}], ids=["plain", "impact"])
def test_state_holds_everything_an_update_needs(target: dict[str, float]) -> None:
    settings = {"num_envs": 4, "num_minibatches": 2, "normalize_rewards": True, "update_epochs": 2, **target}
    one, two = (make_learner("appo", model={"normalize_observations": True}, **settings) for _ in range(2))
    for seed in range(3):
        learn_from(one, make_rollout(one, 6, seed=seed))
        one.clock.env_steps += 24
    two.load_state_dict(one.state_dict())
    two.clock.env_steps = one.env_steps
    for seed in (9, 10):
        rollout = make_rollout(one, 6, seed=seed)
        assert dict(learn_from(one, rollout)) == dict(learn_from(two, rollout))
        one.clock.env_steps = two.clock.env_steps = one.env_steps + 24
    assert torch.equal(parameters_of(one.model), parameters_of(two.model))


def test_advantages_and_targets_carry_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, old = stale_learner(target_update_every=12, kl_coef=0.1)
    calls = watch_loss("appo", monkeypatch)
    learner.update(old)
    batch = calls[0]["batch"]
    assert not any(getattr(batch, name).requires_grad for name in ("log_probs", "values", "advantages", "returns"))
    assert not any(parameter.requires_grad for parameter in learner.target.module.parameters())


def test_a_rollout_without_behavior_log_probabilities_is_refused() -> None:
    learner = make_learner("appo")
    with pytest.raises(ValueError, match=r"log_probs.*policy that acted"):
        learner.update(replace(make_rollout(learner, 4, seed=0), extras={}))


def test_impossible_settings_are_refused_before_anything_runs() -> None:
    message = refused(CARTPOLE | {"num_envs": 4}, {"num_minibatches": 8})
    assert "algo_kwargs.num_minibatches: 8 does not divide num_envs (4)" in message
    message = refused(CARTPOLE, {"kl_coef": 0.1})
    assert "algo_kwargs.kl_coef" in message and "target_update_every" in message
    for name in ("rho_bar", "c_bar", "pg_rho_bar"):
        assert name in refused(CARTPOLE, {name: -1.0})


def test_the_target_is_copied_in_the_first_update_of_each_period_and_not_a_step_early() -> None:
    learner = make_learner("appo", **(FAST | {"target_update_every": 50}))
    rollout = make_rollout(learner, 8, seed=1)
    copied = []
    for env_steps in (1, 49, 50, 99, 100):
        learner.clock.env_steps = env_steps
        before = parameters_of(learner.model).clone()
        learner.update(rollout)
        assert not torch.equal(parameters_of(learner.model), before)
        copied.append(torch.equal(parameters_of(learner.target.module), before))
    # The target is made as a copy, so it equals the network before the first update.
    assert copied == [True, False, True, False, True]
