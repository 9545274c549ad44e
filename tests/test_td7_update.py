"""TD7: embeddings, LAP's loss, clipped targets, copies and trials, against hand-made numbers and the authors' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradient_oracles import SPACES, assert_layers, recorded_batch, set_layers, tensor
from replay_helpers import BOX, disturb, make_batch, make_learner, oracle, snapshot
from rl_training.algorithms.td7 import embedding_loss, td7_actor_loss, td7_loss, td7_target
from rl_training.models.layers.blocks import AvgL1Norm
from rl_training.models.mlp_td7 import copy_weights

SMALL = {"embedding_size": 4, "copy_every": 2}


def learner_of(**settings: Any) -> Any:
    return make_learner("td7", BOX, **{**SMALL, **settings})


@dataclass(frozen=True)
class Ended:
    total_reward: float
    length: int = 1


# --- losses -------------------------------------------------------------------------------------------------------


def test_embeddings_are_divided_by_the_mean_of_their_sizes() -> None:
    assert AvgL1Norm()(torch.tensor([[1.0, -3.0, 2.0]])).tolist() == [[0.5, -1.5, 1.0]]
    learner = learner_of()
    _, zs = learner.embedding(make_batch(BOX, 9, 0).obs)
    torch.testing.assert_close(zs.abs().mean(1), torch.ones(9))


def test_the_loss_of_lap_has_no_half_taken_off_above_one() -> None:
    loss, metrics = td7_loss(torch.tensor([[0.5], [2.0]]), torch.zeros(1))
    assert loss.item() == 2.125  # smooth L1 would have 1.625
    assert set(metrics) == {"critic_loss", "q_mean", "target_q_mean"}


def test_losses_and_targets_equal_the_slow_formula() -> None:
    rng = np.random.default_rng(0)
    q, next_q, weights = 3 * rng.normal(size=(2, 8)), 5 * rng.normal(size=(2, 8)), rng.uniform(size=8)
    batch = make_batch(BOX, 8, 0)
    low, high = -2.0, 3.0
    targets, loss = [], 0.0
    for b in range(8):
        clipped = min(max(min(next_q[0, b], next_q[1, b]), low), high)
        targets.append(batch.rewards[b].item() + batch.discounts[b].item() * clipped)
        for i in range(2):
            error = abs(q[i, b] - targets[b])
            loss += weights[b] * (0.5 * error**2 if error < 1 else error) / 8
    found = td7_target(batch, torch.from_numpy(next_q), torch.tensor(low), torch.tensor(high))
    np.testing.assert_allclose(found, targets, rtol=1e-6)
    assert td7_loss(torch.from_numpy(q), torch.tensor(targets), torch.from_numpy(weights))[0].item() == pytest.approx(
        loss, rel=1e-6
    )
    assert td7_actor_loss(torch.from_numpy(q)).item() == pytest.approx(-q.mean())


def test_the_next_embedding_is_a_target_without_gradient() -> None:
    predicted, following = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    loss = embedding_loss(predicted, following)
    assert loss.item() == pytest.approx(((predicted - following) ** 2).mean().item())
    assert torch.autograd.grad(loss, following, allow_unused=True) == (None,)


# --- updates ------------------------------------------------------------------------------------------------------


def test_five_updates_equal_those_of_the_authors_code() -> None:
    case = oracle("td7")["cases"][0]
    inputs, outputs = case["inputs"], case["outputs"]
    rates = {f"{part}_learning_rate": inputs["learning_rate"] for part in ("actor", "critic", "embedding")}
    model = {"hidden_sizes": (4, 4), "activation": "relu", "critic": {"activation": "elu"}}
    learner = make_learner("td7", SPACES, model=model, embedding_size=4, copy_every=inputs["copy_every"], **rates)
    for network in (learner.model, learner.target.module):
        set_layers(network.policy_network, inputs["actor"])
        set_layers(network.critics, inputs["critic"])
        set_layers(network.embedding, inputs["encoder"])
    set_layers(learner.embedding, inputs["encoder"])
    for rows, priorities in zip(inputs["batches"], outputs["priorities"], strict=True):
        noise = (0.2 * tensor(rows["noise"])).clamp(-0.5, 0.5)
        learner.step_inputs = lambda batch, noise=noise: (noise, (learner.updates + 1) % 2 == 0)
        result = learner.update(recorded_batch(rows, inputs["gamma"]))
        assert result.priorities is not None
        np.testing.assert_allclose(np.maximum(result.priorities, 1.0) ** 0.4, priorities, rtol=1e-4)
    target = learner.target.module
    for network, name in (
        (learner.model.policy_network, "actor"),
        (learner.model.critics, "critic"),
        (learner.embedding, "encoder"),
        (learner.model.embedding, "fixed_encoder"),
        (target.policy_network, "actor_target"),
        (target.critics, "critic_target"),
        (target.embedding, "fixed_encoder_target"),
    ):
        assert_layers(network, outputs[name])
    names = {"least": "min", "greatest": "max", "lower": "min_target", "upper": "max_target"}
    for ours, theirs in names.items():
        assert getattr(learner.value_range, ours).item() == pytest.approx(outputs[theirs], rel=1e-4)


def test_copies_are_made_in_order_and_whole() -> None:
    learner = learner_of(copy_every=3)
    for number in range(3):
        fixed = snapshot(learner.model.embedding)
        old_target = snapshot(learner.target.module)
        learner.update(make_batch(BOX, 8, number))
        if number < 2:
            assert torch.equal(snapshot(learner.model.embedding), fixed)
            assert torch.equal(snapshot(learner.target.module), old_target)
    assert torch.equal(snapshot(learner.model.embedding), snapshot(learner.embedding))
    assert torch.equal(snapshot(learner.target.module.embedding), fixed)  # that of before, not the new one
    assert not torch.equal(fixed, snapshot(learner.embedding))
    for part in ("policy_network", "critics"):
        assert torch.equal(snapshot(getattr(learner.target.module, part)), snapshot(getattr(learner.model, part)))


def test_targets_are_rewards_until_the_first_copy_and_clipped_after_it() -> None:
    learner = learner_of(copy_every=2)
    disturb(learner.target.module)
    first = make_batch(BOX, 8, 0)
    assert learner.update(first)["target_q_mean"].item() == pytest.approx(first.rewards.mean().item(), abs=1e-6)
    second = make_batch(BOX, 8, 1)
    learner.update(second)
    both = torch.cat([first.rewards, second.rewards])
    assert learner.value_range.lower.item() == both.min().item()
    assert learner.value_range.upper.item() == both.max().item()
    with torch.no_grad():
        for critic in learner.target.module.critics:
            critic.body[-1].bias += 1000.0
    third = make_batch(BOX, 8, 2)
    expected = third.rewards + third.discounts * both.max()
    assert learner.update(third)["target_q_mean"].item() == pytest.approx(expected.mean().item(), rel=1e-5)


@pytest.mark.parametrize("reward", [7.0, -7.0])
def test_the_bounds_are_those_of_targets_and_do_not_include_zero(reward: float) -> None:
    learner = learner_of(copy_every=1)
    batch = make_batch(BOX, 8, 0)
    batch.rewards = torch.full((8,), reward)
    learner.update(batch)
    assert learner.value_range.lower.item() == learner.value_range.upper.item() == reward


def unbounded(learner: Any) -> Any:
    """With targets that no range clips."""
    learner.value_range.lower.fill_(-1e8)
    learner.value_range.upper.fill_(1e8)
    return learner


@pytest.mark.parametrize("part", ["policy_network", "critics", "embedding"])
def test_actions_values_and_embeddings_of_targets_are_those_of_the_target_network(part: str) -> None:
    targets = []
    for moved in (None, "online", "target"):
        learner = unbounded(learner_of())
        if moved is not None:
            disturb(getattr(learner.model if moved == "online" else learner.target.module, part))
        targets.append(learner.update(make_batch(BOX, 32, 0))["target_q_mean"].item())
    assert targets[0] == targets[1] != targets[2]


def test_noisy_target_actions_stay_within_the_range_of_actions() -> None:
    """Where the target actor is at its limit, noise that leads beyond it changes nothing."""
    targets = []
    for size in (0.0, 0.5, -0.5):
        learner = unbounded(learner_of())
        disturb(learner.target.module)
        with torch.no_grad():
            learner.target.module.policy_network.body[-2].bias.fill_(50.0)
        batch = make_batch(BOX, 8, 0)
        learner.step_inputs = lambda batch, size=size: (torch.full_like(batch.actions, size), False)
        targets.append(learner.update(batch)["target_q_mean"].item())
    assert targets[0] == targets[1] != targets[2]


def test_the_embedding_learns_from_its_own_loss_only() -> None:
    def embedding_after(rewards: float, rate: float) -> Tensor:
        learner = learner_of(critic_learning_rate=rate, actor_learning_rate=rate, copy_every=100)
        batch = make_batch(BOX, 16, 0)
        batch.rewards = torch.full((16,), rewards)
        for _ in range(4):
            learner.update(batch)
        return snapshot(learner.embedding)

    plain = embedding_after(0.0, 0.0)
    assert torch.equal(embedding_after(50.0, 0.1), plain)
    assert not torch.equal(plain, snapshot(learner_of().embedding))
    learner = learner_of()
    trained = {id(p) for name in ("actor", "critic") for p in getattr(learner, f"{name}_optimizer").parameters}
    assert trained and trained.isdisjoint(id(p) for p in learner.embedding.parameters())


def test_the_actor_learns_in_every_second_update_from_both_critics() -> None:
    learner = learner_of()
    actor = snapshot(learner.model.policy_network)
    assert "actor_loss" not in learner.update(make_batch(BOX, 8, 0))
    assert torch.equal(snapshot(learner.model.policy_network), actor)
    batch = make_batch(BOX, 8, 1)
    result = learner.update(batch)
    assert not torch.equal(snapshot(learner.model.policy_network), actor)
    learner = learner_of(policy_delay=1, critic_learning_rate=0.0)
    expected = -learner.model.q_values(batch.obs, learner.model.actor(batch.obs)).mean()
    assert learner.update(batch)["actor_loss"].item() == pytest.approx(expected.item(), abs=1e-5)
    assert set(result) > {"embedding_loss", "critic_loss", "actor_loss", "critic_grad_norm"}


def test_target_noise_is_scaled_and_clipped() -> None:
    batch = make_batch(BOX, 2000, 0)
    noise, _ = learner_of(target_noise=0.2, target_noise_clip=0.3).step_inputs(batch)
    assert noise.abs().max().item() == pytest.approx(0.3) and noise.std().item() == pytest.approx(0.18, abs=0.02)


def test_priorities_are_the_larger_error_of_both_critics() -> None:
    learner = learner_of(critic_learning_rate=0.0)
    batch = make_batch(BOX, 8, 0, weights=True)
    errors = (learner.model.q_values(batch.obs, batch.actions) - batch.rewards).abs()
    np.testing.assert_allclose(learner.update(batch).priorities, errors.amax(0).detach(), rtol=1e-5)


# --- trials -------------------------------------------------------------------------------------------------------


def at(learner: Any, env_steps: int, *episodes: Ended) -> None:
    learner.clock.env_steps = env_steps
    learner.episodes(list(episodes))


def moved(learner: Any, seed: int) -> Tensor:
    """The policy that learns changes; returns it."""
    disturb(learner.model.policy_network, seed)
    return snapshot(learner.model.policy_network)


def test_the_policy_that_acts_is_frozen_for_an_episode_and_kept_if_no_worse_than_the_best() -> None:
    learner = learner_of(learning_starts=10)
    start = snapshot(learner.model.policy_network)
    first = moved(learner, 0)
    assert torch.equal(snapshot(learner.acting.policy_network), start)
    at(learner, 20, Ended(5.0, length=10))  # of the policy of the start
    assert torch.equal(snapshot(learner.kept.policy_network), start) and learner.trials.best == 5.0
    assert torch.equal(snapshot(learner.acting.policy_network), first)
    second = moved(learner, 1)
    at(learner, 30, Ended(4.0, length=10))  # worse: not kept, but replaced
    assert torch.equal(snapshot(learner.kept.policy_network), start) and learner.trials.best == 5.0
    assert torch.equal(snapshot(learner.acting.policy_network), second)
    moved(learner, 2)
    at(learner, 40, Ended(5.0, length=10))  # as good: kept
    assert torch.equal(snapshot(learner.kept.policy_network), second)


def test_warm_up_and_episodes_of_an_older_policy_do_not_count() -> None:
    learner = learner_of(learning_starts=10)
    at(learner, 12, Ended(9.0, length=5))  # began before the warm-up was over
    assert learner.trials.best is None and learner.trials.episodes == 0
    at(learner, 15, Ended(1.0, length=5))
    assert learner.trials.best == 1.0
    two = learner_of(learning_starts=0, num_envs=2)
    at(two, 20, Ended(1.0, length=10), Ended(7.0, length=10))  # the second one belongs to the policy before
    assert two.trials.best == 1.0 and two.trials.started_at == 20
    at(two, 26, Ended(8.0, length=4))  # 3 steps of each env since then
    assert two.trials.best == 1.0
    at(two, 28, Ended(8.0, length=4))
    assert two.trials.best == 8.0


def test_late_trials_take_many_episodes_and_the_worst_decides() -> None:
    learner = learner_of(learning_starts=0, late_trials_after=3, late_trial_episodes=3)
    at(learner, 1, Ended(-10.0))
    for number in range(3):
        learner.update(make_batch(BOX, 8, number))
    at(learner, 2, Ended(-4.0))
    assert learner.trials.best == -11.0  # a tenth lower
    assert learner.trials.episodes == 1
    at(learner, 3, Ended(-6.0))
    at(learner, 4, Ended(-5.0))
    assert learner.trials.best == -6.0 and learner.trials.episodes == 0
    at(learner, 5, Ended(-7.0))  # worse than the worst of the best: over at once
    assert learner.trials.best == -6.0 and learner.trials.episodes == 0


def test_evaluation_plays_the_kept_policy_and_exploration_the_frozen_one() -> None:
    obs = make_batch(BOX, 5, 0).obs.numpy()
    learner, last = learner_of(learning_starts=0), learner_of(learning_starts=0, evaluated_policy="last")
    for one in (learner, last):
        at(one, 1, Ended(3.0))
        disturb(one.kept.policy_network, 1)
        disturb(one.model.policy_network, 2)
    np.testing.assert_array_equal(learner.act(obs, explore=False).actions, learner.kept.act(obs))
    np.testing.assert_array_equal(last.act(obs, explore=False).actions, last.model.act(obs))
    explored = learner.act(obs, explore=True).actions
    assert np.abs(explored - learner.acting.act(obs)).max() < 0.6
    assert not np.allclose(learner.acting.act(obs), learner.kept.act(obs))
    fresh = learner_of()
    np.testing.assert_array_equal(fresh.act(obs, explore=False).actions, fresh.model.act(obs))


def test_a_kept_policy_has_its_own_statistics_of_observations() -> None:
    learner = make_learner("td7", BOX, model={"normalize_observations": True}, embedding_size=4, learning_starts=0)
    obs = make_batch(BOX, 50, 0).obs.numpy()
    learner.observe(obs)
    at(learner, 1, Ended(1.0))  # the trial ends: the next one acts with the statistics of now
    at(learner, 2, Ended(2.0))
    before = learner.act(obs, explore=False).actions
    learner.observe(obs * 10 + 5)
    np.testing.assert_array_equal(learner.act(obs, explore=False).actions, before)
    assert not np.allclose(learner.model.act(obs), before)


def test_all_copies_and_trials_are_state() -> None:
    one, two = learner_of(learning_starts=0), learner_of(learning_starts=0)
    for number in range(4):
        one.update(make_batch(BOX, 8, number))
        at(one, number + 1, Ended(float(number % 3)))
    two.load_state_dict(one.state_dict())
    assert vars(two.trials) == vars(one.trials) and two.trials.best is not None
    for part in ("model", "embedding", "acting", "kept", "value_range"):
        for left, right in zip(
            getattr(one, part).state_dict().values(), getattr(two, part).state_dict().values(), strict=True
        ):
            assert torch.equal(left, right)


def test_an_actor_elsewhere_acts_by_the_frozen_policy() -> None:
    learner, elsewhere = learner_of(), learner_of(seed=1)
    disturb(learner.acting.policy_network)
    elsewhere.adopt(learner.acting_state())
    obs = make_batch(BOX, 5, 0).obs.numpy()
    np.testing.assert_array_equal(elsewhere.acting.act(obs), learner.acting.act(obs))


def test_copying_fills_tensors_and_replaces_none() -> None:
    one, two = learner_of().model, learner_of(seed=1).model
    places = [p.data_ptr() for p in two.parameters()]
    copy_weights(two, one)
    assert [p.data_ptr() for p in two.parameters()] == places
    assert torch.equal(snapshot(one), snapshot(two))
