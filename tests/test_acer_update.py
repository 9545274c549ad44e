"""ACER: its policy gradient, trust region and whole update against slow formulas, its loop, and what it refuses."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from config_cases import refused
from loop_batches import build
from masked_envs import masked_spaces
from replay_helpers import DISCRETE, make_learner, snapshot
from rl_training.algorithms.acer import acer_loss, policy_gradient, trust_region
from rl_training.data import replay_memory
from rl_training.data.trajectory_replay import Windows
from rl_training.errors import ConfigError
from tiny_runs import tiny_config
from trajectory_helpers import make_windows

GENERATOR = torch.Generator().manual_seed(3)


def simplex(rows: int, actions: int = 3) -> Tensor:
    return torch.rand(rows, actions, generator=GENERATOR).add(0.05).log().softmax(1)


def slow_gradient(probs: Any, behavior: Any, action: int, ret: float, q: Any, cap: float, entropy_coef: float) -> list:
    """Eq. 7 and 9 in the logits: sums of grad log pi(b) = one_hot(b) - pi, one action at a time."""
    value = sum(float(p) * float(x) for p, x in zip(probs, q, strict=True))
    size = len(probs)
    total = np.zeros(size)
    for b in range(size):
        score = np.eye(size)[b] - np.array([float(p) for p in probs])
        rho = float(probs[b]) / float(behavior[b])
        if b == action:
            total += min(cap, rho) * (ret - value) * score
        total += float(probs[b]) * max(0.0, 1.0 - cap / rho) * (float(q[b]) - value) * score
        total += entropy_coef * -float(probs[b]) * (np.log(float(probs[b])) + 1.0) * score
    return total.tolist()


def in_logits(gradient: Tensor, probs: Tensor) -> Tensor:
    """What a gradient in the probabilities is in the logits of a softmax."""
    return probs * (gradient - (probs * gradient).sum(1, keepdim=True))


@pytest.mark.parametrize("cap", [0.5, 1.0, 10.0])
def test_the_policy_gradient_is_that_of_the_slow_formula(cap: float) -> None:
    probs, behavior, q = simplex(6), simplex(6), torch.randn(6, 3, generator=GENERATOR)
    actions, returns = torch.tensor([0, 1, 2, 0, 1, 2]), torch.randn(6, generator=GENERATOR)
    values = (probs * q).sum(1)
    found = policy_gradient(probs, behavior, actions, returns, q, values, cap=cap, entropy_coef=0.1)
    for i in range(6):
        expected = slow_gradient(probs[i], behavior[i], int(actions[i]), float(returns[i]), q[i], cap, 0.1)
        np.testing.assert_allclose(in_logits(found, probs)[i], expected, atol=1e-5)


def test_on_policy_there_is_no_correction() -> None:
    """rho = 1 and c >= 1: what is left is (G - V) grad log pi(a)."""
    probs, q, returns = simplex(4), torch.randn(4, 3, generator=GENERATOR), torch.randn(4, generator=GENERATOR)
    actions, values = torch.tensor([0, 1, 2, 1]), (probs * q).sum(1)
    found = policy_gradient(probs, probs, actions, returns, q, values, cap=1.0, entropy_coef=0.0)
    scores = torch.nn.functional.one_hot(actions, 3) - probs
    np.testing.assert_allclose(in_logits(found, probs), (returns - values)[:, None] * scores, atol=1e-5)


def test_truncation_and_correction_together_are_unbiased() -> None:
    """Over actions of mu, with G = Q, any cap gives the exact policy gradient sum_a pi(a) grad log pi(a) Q(a)."""
    probs, behavior, q = simplex(1), simplex(1), torch.randn(1, 3, generator=GENERATOR)
    values = (probs * q).sum(1)
    exact = in_logits(q - values[:, None], probs)
    for cap in (0.3, 1.0, 5.0):
        mean = torch.zeros(1, 3)
        for action in range(3):
            chosen = torch.tensor([action])
            found = policy_gradient(probs, behavior, chosen, q[:, action], q, values, cap=cap, entropy_coef=0.0)
            mean += behavior[0, action] * in_logits(found, probs)
        np.testing.assert_allclose(mean, exact, atol=1e-5)


def test_the_projection_keeps_kl_to_the_average_policy_from_rising_faster_than_delta() -> None:
    probs, average = simplex(200), simplex(200)
    gradient = 5 * torch.randn(200, 3, generator=GENERATOR)
    slope = -average / probs
    projected = trust_region(gradient, probs, average, 1.0)
    rising = (slope * gradient).sum(1) > 1.0
    assert rising.any() and not rising.all()
    np.testing.assert_allclose((slope * projected).sum(1)[rising], 1.0, atol=1e-3)
    assert torch.equal(projected[~rising], gradient[~rising])
    # The slope is the gradient of KL(average || pi): average first, and not the other way round.
    variable = probs.clone().requires_grad_()
    (average * (average.log() - variable.log())).sum().backward()
    assert variable.grad is not None
    np.testing.assert_allclose(slope, variable.grad, rtol=1e-4)
    # It is the closest one: what is taken away is a multiple of the slope.
    removed = (gradient - projected)[rising]
    scale = (removed * slope[rising]).sum(1) / slope[rising].square().sum(1)
    np.testing.assert_allclose(removed, scale[:, None] * slope[rising], atol=1e-3)


def test_the_gradient_of_the_loss_is_the_projected_one_and_that_of_q() -> None:
    logits = torch.randn(4, 3, generator=GENERATOR).requires_grad_()
    q_taken, returns = torch.randn(4, generator=GENERATOR).requires_grad_(), torch.randn(4, generator=GENERATOR)
    gradient = torch.randn(4, 3, generator=GENERATOR)
    loss, metrics = acer_loss(logits.softmax(1), gradient, q_taken, returns, 0.5)
    loss.backward()
    assert logits.grad is not None and q_taken.grad is not None
    np.testing.assert_allclose(logits.grad, -in_logits(gradient, logits.detach().softmax(1)) / 4, atol=1e-6)
    np.testing.assert_allclose(q_taken.grad, 0.5 * (q_taken.detach() - returns) / 4, atol=1e-6)
    assert set(metrics) == {"loss", "policy_loss", "value_loss"}


def learner_of(**settings: Any) -> Any:
    learner = make_learner("acer", DISCRETE, **{"optimizer": "adam", "learning_rate": 0.01, **settings})
    with torch.no_grad():
        for parameter in learner.average.module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return learner


def keep_gradients(learner: Any) -> None:
    def step(loss: Tensor) -> Tensor:
        loss.backward()
        return loss.detach()

    learner.optimizer.step = step


def test_an_update_is_that_of_the_formulas_step_by_step() -> None:
    learner = learner_of(max_kl=0.1, importance_cap=1.5, entropy_coef=0.05, retrace_lambda=0.9)
    batch = make_windows(DISCRETE, [4, 1, 3])
    twin = copy.deepcopy(learner.model)
    logit_total, count = torch.zeros(()), int(batch.mask.sum())
    for s in range(3):
        length = int(batch.lengths[s])
        obs = batch.obs[: length + 1, s]
        probs, q = twin.policy_and_q(obs)
        fixed_probs, fixed_q = probs.detach(), q.detach()
        value = [float((fixed_probs[t] * fixed_q[t]).sum()) for t in range(length + 1)]
        target, following = [0.0] * length, 0.0
        for t in reversed(range(length)):
            action = int(batch.actions[t, s])
            target[t] = float(batch.rewards[t, s]) + float(batch.discounts[t, s]) * (value[t + 1] + following)
            ratio = float(fixed_probs[t, action] / batch.extras["probs"][t, s, action])
            following = 0.9 * min(1.0, ratio) * (target[t] - float(fixed_q[t, action]))
        average = learner.average.module.policy_and_q(obs[:-1])[0].detach()
        for t in range(length):
            action, behavior = int(batch.actions[t, s]), batch.extras["probs"][t, s]
            gradient = np.zeros(4)
            for b in range(4):
                rho = float(fixed_probs[t, b] / behavior[b])
                if b == action:
                    gradient[b] += min(1.5, rho) * (target[t] - value[t]) / float(fixed_probs[t, b])
                gradient[b] += max(0.0, 1 - 1.5 / rho) * (float(fixed_q[t, b]) - value[t])
                gradient[b] -= 0.05 * (np.log(float(fixed_probs[t, b])) + 1)
            slope = -(average[t] / fixed_probs[t]).numpy()
            gradient = gradient - max(0.0, (slope @ gradient - 0.1) / (slope @ slope)) * slope
            policy_part = -(probs[t] * torch.from_numpy(gradient).float()).sum()
            logit_total = logit_total + policy_part + 0.5 * 0.5 * (target[t] - q[t, action]) ** 2
    (logit_total / count).backward()
    keep_gradients(learner)
    result = learner.update(batch)
    assert float(result["projected"]) > 0
    for mine, theirs in zip(learner.model.parameters(), twin.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        np.testing.assert_allclose(mine.grad, theirs.grad, atol=2e-4, rtol=1e-3)


def test_padding_changes_nothing_and_targets_get_no_gradient() -> None:
    learner, results = learner_of(), []
    for padding in (0, 5):
        twin = copy.deepcopy(learner)
        keep_gradients(twin)
        batch = make_windows(DISCRETE, [4, 2, 1], padding=padding)
        obs = batch.obs.clone().requires_grad_()
        result = twin.update(replace(batch, obs=obs))
        assert obs.grad is not None
        assert not obs.grad[4:].any(), "behind the last step there is only a target"
        results.append((result, obs.grad[:4]))
    for name in ("loss", "policy_loss", "value_loss", "entropy", "kl_average", "ratio_mean"):
        assert float(results[0][0][name]) == pytest.approx(float(results[1][0][name]), rel=1e-5), name
    np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-6)


def test_the_bound_is_against_the_average_policy_which_follows_slowly() -> None:
    batch = make_windows(DISCRETE, [4, 2, 1])
    learner = learner_of(max_kl=0.01, average_decay=0.75)
    before = [parameter.clone() for parameter in learner.average.module.parameters()]
    result = learner.update(batch)
    assert float(result["kl_average"]) > 0
    pairs = zip(before, learner.average.module.parameters(), learner.model.parameters(), strict=True)
    for old, new, online in pairs:
        np.testing.assert_allclose(new, 0.75 * old + 0.25 * online.detach(), atol=1e-6)
    other = learner_of(max_kl=0.01)
    with torch.no_grad():
        for parameter in other.average.module.parameters():
            parameter.mul_(-2.0)
    assert float(other.update(batch)["policy_loss"]) != float(learner_of(max_kl=0.01).update(batch)["policy_loss"])
    free = learner_of(max_kl=None)
    assert float(free.update(batch)["projected"]) == 0.0
    assert "average_decay" in free.config.without_effect() and not learner.config.without_effect()


def test_schedules_reach_the_step() -> None:
    """Halfway through the run both have half their value; a learner with that value throughout does the same."""
    batch, results = make_windows(DISCRETE, [4, 2, 1]), []
    falling: Any = {"learning_rate": {"start": 0.02, "end": 0.0}, "entropy_coef": {"start": 0.4, "end": 0.0}}
    for settings in (falling, {"learning_rate": 0.01, "entropy_coef": 0.2}):
        learner = learner_of(**settings)
        learner.clock.env_steps = learner.total_timesteps // 2
        result = learner.update(batch)
        results.append((float(result["policy_loss"]), snapshot(learner.model)))
        assert float(result["learning_rate"]) == pytest.approx(0.01)
    assert results[0][0] == results[1][0] and torch.equal(results[0][1], results[1][1])


def test_forbidden_actions_have_no_part_in_it() -> None:
    learner = make_learner("acer", masked_spaces())
    actions = learner.spaces.action_sizes[0]
    batch = make_windows(learner.spaces, [4, 2])
    rng = np.random.default_rng(0)
    masks = (rng.random((*batch.obs.shape[:2], actions)) < 0.5).astype(np.float32)
    masks[..., 1] = 1.0
    obs = batch.obs.clone()
    obs[..., -actions:] = torch.from_numpy(masks)
    behavior = batch.extras["probs"] * obs[:-1, :, -actions:]
    behavior = behavior / behavior.sum(-1, keepdim=True)
    masked = replace(batch, obs=obs, actions=torch.ones_like(batch.actions), extras={"probs": behavior})
    for _ in range(5):
        result = learner.update(masked)
    assert all(torch.isfinite(value) for value in result.values())
    assert all(torch.isfinite(parameter).all() for parameter in learner.model.parameters())
    with torch.no_grad():
        probs, _ = learner.model.policy_and_q(obs.flatten(0, 1))
    assert not probs[obs.flatten(0, 1)[:, -actions:] == 0].any(), "V and the trust region leave them out too"
    rows = obs[0].numpy()
    for _ in range(20):
        action = learner.act(rows, explore=True)
        assert all(rows[i, -actions:][a] == 1 for i, a in enumerate(action.actions))
        assert not action.extras["probs"][rows[:, -actions:] == 0].any()


def test_acting_says_the_probabilities_of_all_actions() -> None:
    learner = learner_of()
    rows = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    extras = learner.act(rows, explore=True).extras
    with torch.no_grad():
        expected = learner.model.policy_and_q(torch.from_numpy(rows))[0]
    np.testing.assert_allclose(extras["probs"], expected, atol=1e-6)


def loop_of(tmp_path: Any, **settings: Any) -> tuple[Any, list[Windows]]:
    """A loop on two envs whose learner keeps the batches."""
    loop, learner = build(tiny_config("acer", tmp_path, num_envs=2, total_timesteps=4000, **settings))
    batches: list[Windows] = []
    update = learner.update

    def watched(batch: Windows) -> Any:
        batches.append(copy.deepcopy(batch))
        return update(batch)

    learner.update = watched  # type: ignore[method-assign]
    return loop, batches


def test_a_rollout_is_learned_from_once_and_then_older_windows_are_replayed(tmp_path: Any) -> None:
    loop, batches = loop_of(tmp_path, num_steps=10, replay_ratio=3.0, replay_starts=200, learning_rate=0.0)
    counts = []
    for _ in range(100):
        before = len(batches)
        stored = loop.buffer.rows_written
        loop.round()
        counts.append(len(batches) - before)
        fresh = batches[before]
        assert int(fresh.mask.sum()) == 20 and loop.buffer.rows_written == stored + 10
        assert all(len(batch) == 2 for batch in batches[before + 1 :])
    # Steps are counted before an update: the first replay comes after the rollout that starts at step 200.
    assert counts[:10] == [1] * 10 and max(counts[10:]) > 4
    assert np.mean(counts[10:]) == pytest.approx(1 + 3.0, abs=0.6) and np.var(counts[10:]) == pytest.approx(
        3.0, abs=1.5
    )


def test_without_replay_it_learns_from_fresh_rollouts_only(tmp_path: Any) -> None:
    loop, batches = loop_of(tmp_path, num_steps=10, replay_ratio=0.0, replay_starts=0)
    for _ in range(20):
        loop.round()
    assert len(batches) == 20


def test_replayed_windows_keep_the_probabilities_of_the_policy_that_acted(tmp_path: Any) -> None:
    loop, batches = loop_of(tmp_path, num_steps=10, replay_ratio=4.0, replay_starts=0, learning_rate=0.05)
    for _ in range(30):
        loop.round()
    sums = [batch.extras["probs"].sum(-1)[batch.mask] for batch in batches]
    assert all(torch.allclose(total, torch.ones_like(total), atol=1e-5) for total in sums)
    old = loop.buffer.windows(np.flatnonzero(loop.buffer._flat["complete"])[:2])
    with torch.no_grad():
        now, _ = loop.learner.model.policy_and_q(old.obs[:-1][old.mask])
    assert (now - old.extras["probs"][old.mask]).abs().max() > 0.01, "the policy has changed, what was stored has not"


def test_stored_probabilities_belong_to_their_step(tmp_path: Any) -> None:
    """A policy that does not learn has the same probabilities when its steps are replayed."""
    loop, batches = loop_of(tmp_path, num_steps=10, replay_ratio=4.0, replay_starts=0, learning_rate=0.0)
    with torch.no_grad():  # the policy of the start is almost the same everywhere
        loop.learner.model.actor[-1].weight.mul_(100.0)
    for _ in range(10):
        loop.round()
    for batch in batches:
        with torch.no_grad():
            expected, _ = loop.learner.model.policy_and_q(batch.obs[:-1][batch.mask])
        np.testing.assert_allclose(batch.extras["probs"][batch.mask], expected, atol=1e-6)
    assert any(float(batch.extras["probs"][batch.mask].std(0).max()) > 0.02 for batch in batches)


def test_a_replay_that_does_not_fit_is_refused_before_it_is_allocated(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 10**8)
    with pytest.raises(ConfigError, match=r"algo_kwargs\.buffer_size: .* set buffer_size=\d+ or less"):
        loop_of(tmp_path, buffer_size=10**9)


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"replay_ratio": -1}, "replay_ratio", ">= 0"),
        ({"buffer_size": 10}, "buffer_size", "num_steps * num_envs (20)"),
        ({"importance_cap": 0}, "importance_cap", "> 0"),
        ({"average_decay": 1}, "average_decay", "< 1"),
        ({"max_kl": 0}, "max_kl", "> 0"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings: dict[str, Any], key: str, words: str) -> None:
    message = refused({"algo": "acer", "env_id": "Env-v0", "algo_kwargs": settings})
    assert message.startswith(f"algo_kwargs.{key}: ") and words in message and "\n" not in message
