"""Munchausen targets: the published fixture and its wrong variants, slow sums, masked actions, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from config_cases import refused
from replay_helpers import DISCRETE, disturb, make_batch, make_learner
from rl_training.algorithms import dqn as dqn_module
from rl_training.algorithms.common.munchausen import munchausen_reward, scaled_log_policy, soft_expectation
from rl_training.algorithms.dqn import munchausen_target
from rl_training.algorithms.iqn import munchausen_iqn_target
from rl_training.config.algorithms.dqn import DQNConfig
from rl_training.config.algorithms.iqn import IQNConfig
from rows import float64, one_row

UNIT = {"munchausen": True, "munchausen_temperature": 1.0}
PLAIN = DQNConfig(munchausen=True)


def slow_target(
    q: list[float], next_q: list[float], action: int, reward: float, discount: float, temperature: float
) -> float:
    """Eq. 1 of the paper with alpha 0.9 and l0 -1, action by action."""

    def log_policy(values: list[float]) -> list[float]:
        most = max(values)
        total = most / temperature + math.log(sum(math.exp((v - most) / temperature) for v in values))
        return [v / temperature - total for v in values]

    bonus = max(min(temperature * log_policy(q)[action], 0.0), -1.0)
    after = sum(
        math.exp(log_p) * (value - temperature * log_p) for value, log_p in zip(next_q, log_policy(next_q), strict=True)
    )
    return reward + 0.9 * bonus + discount * after


@pytest.mark.parametrize(("action", "expected"), [(2, 1.815090), (0, 1.281936)])
def test_the_published_fixture(action: int, expected: float) -> None:
    # Action 0 has log pi = -2.41 and is clipped at -1: without the clip it would be 0.01.
    q, next_q = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 1.0]])
    found = munchausen_target(one_row(1.0, 0.9, action), q, next_q, DQNConfig(**UNIT))
    assert found.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.03, 1.0])
def test_targets_equal_the_slow_sums(temperature: float) -> None:
    rng = np.random.default_rng(0)
    q, next_q = rng.normal(size=(2, 12, 4))
    batch = make_batch(DISCRETE, 12, 0)
    config = DQNConfig(munchausen=True, munchausen_temperature=temperature)
    found = munchausen_target(batch, float64(q), float64(next_q), config)
    for b in range(12):
        row = (int(batch.actions[b]), float(batch.rewards[b]), float(batch.discounts[b]))
        assert found[b].item() == pytest.approx(slow_target(list(q[b]), list(next_q[b]), *row, temperature), rel=1e-9)


def test_the_soft_value_is_the_log_sum_of_exponentials() -> None:
    next_q = float64([[0.3, -1.0, 2.0]])
    found = soft_expectation(next_q, next_q, 0.5)
    assert found.item() == pytest.approx(0.5 * torch.logsumexp(next_q / 0.5, 1).item())


def test_large_values_do_not_overflow() -> None:
    q = torch.tensor([[1000.0, 0.0, -1000.0]])
    assert torch.isfinite(scaled_log_policy(q, 0.03)).all()
    assert soft_expectation(q, q, 0.03).item() == pytest.approx(1000.0)


def test_the_bonus_is_never_positive_and_never_below_its_floor() -> None:
    q = 3 * torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    bonus = munchausen_reward(q, torch.arange(200) % 4, PLAIN)
    assert bonus.max() <= 0 and bonus.min() == pytest.approx(-0.9)
    assert (bonus > -1e-6).any() and (bonus == bonus.min()).any()


def test_an_action_that_is_not_allowed_adds_nothing() -> None:
    allowed = float64([[0.3, 2.0]])
    masked = float64([[0.3, -math.inf, 2.0]])
    torch.testing.assert_close(soft_expectation(masked, masked, 0.5), soft_expectation(allowed, allowed, 0.5))


def test_quantiles_of_the_target_are_those_of_its_mean_moved() -> None:
    """With the same quantile everywhere, the target of IQN is that of DQN."""
    rng = np.random.default_rng(1)
    q, next_q = float64(rng.normal(size=(6, 4))), float64(rng.normal(size=(6, 4)))
    batch = make_batch(DISCRETE, 6, 1)
    same = munchausen_iqn_target(batch, next_q[..., None].expand(-1, -1, 3), next_q, q, IQNConfig(munchausen=True))
    expected = munchausen_target(batch, q, next_q, PLAIN)
    torch.testing.assert_close(same, expected[:, None].expand(-1, 3))
    moved = next_q[..., None] + float64([-1.0, 0.0, 1.0])
    found = munchausen_iqn_target(batch, moved, next_q, q, IQNConfig(munchausen=True))
    torch.testing.assert_close(found - same, batch.discounts[:, None] * float64([[-1.0, 0.0, 1.0]]))


@pytest.mark.parametrize("algo", ["dqn", "iqn"])
def test_an_update_asks_the_target_network_in_both_states(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(algo, DISCRETE, munchausen=True, munchausen_temperature=0.5)
    disturb(learner.target.module)
    batch = make_batch(DISCRETE, 8, 0)
    module: Any = dqn_module if algo == "dqn" else __import__("rl_training.algorithms.iqn", fromlist=["iqn"])
    name = "munchausen_target" if algo == "dqn" else "munchausen_iqn_target"
    function, seen = getattr(module, name), []
    monkeypatch.setattr(module, name, lambda *arguments: seen.append((arguments, function(*arguments))) or seen[-1][1])
    learner.update(batch)
    ((arguments, target),) = seen
    network = learner.target.module
    if algo == "dqn":
        _, q, next_q, _ = arguments
        torch.testing.assert_close(q, network.q_values(batch.obs))
        torch.testing.assert_close(next_q, network.q_values(batch.next_obs))
    else:
        _, next_quantiles, next_q, q, _ = arguments
        assert next_quantiles.shape == (8, 4, 64) and q.shape == next_q.shape == (8, 4)
        # 32 random fractions against the fixed ones: about the same means, and those of the online network are not.
        for found, obs in ((q, batch.obs), (next_q, batch.next_obs)):
            near, far = (found - network.q_values(obs)).abs().max(), (found - learner.model.q_values(obs)).abs().max()
            assert near < 0.5 * far
    assert not target.requires_grad


@pytest.mark.parametrize("algo", ["dqn", "iqn"])
@pytest.mark.parametrize(("options", "key"), [({"double": True}, "double"), ({"n_step": 3}, "n_step")])
def test_options_without_meaning_are_refused(algo: str, options: dict[str, Any], key: str) -> None:
    message = refused({"algo": algo, "env_id": "Env-v0", "algo_kwargs": {"munchausen": True, **options}})
    assert message.startswith(f"algo_kwargs.{key}: munchausen") and "\n" not in message
