"""REDQ: random pairs, the mean for the actor, and gradients of a step against torchrl."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from config_cases import refused
from gradient_oracles import SPACES, flat, gradients_of_step, recorded_batch, set_layers, stacked_in_order, tensor
from replay_helpers import BOX, make_batch, make_learner, oracle, snapshot
from rl_training.algorithms.redq import redq_actor_loss, redq_loss


def test_losses_equal_the_slow_formula() -> None:
    rng = np.random.default_rng(0)
    q, target, weights, log_probs = rng.normal(size=(4, 6)), rng.normal(size=6), rng.uniform(size=6), rng.normal(size=6)
    expected = sum(weights[b] * (q[i, b] - target[b]) ** 2 / 6 for i in range(4) for b in range(6))
    loss, _ = redq_loss(torch.from_numpy(q), torch.from_numpy(target), torch.from_numpy(weights))
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    expected = sum(0.3 * log_probs[b] - sum(q[i, b] for i in range(4)) / 4 for b in range(6)) / 6
    found = redq_actor_loss(torch.from_numpy(q), torch.from_numpy(log_probs), torch.tensor(0.3, dtype=torch.float64))
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("number", [0, 1])
def test_gradients_of_a_step_equal_those_of_another_library(number: int) -> None:
    case = oracle("redq")["cases"][number]
    inputs, outputs = case["inputs"], case["outputs"]
    settings = {"temperature": inputs["alpha"], "num_critics": 4}
    learner = make_learner("redq", SPACES, model={"hidden_sizes": (4,)}, **settings)
    set_layers(learner.model.policy_network, inputs["actor"])
    set_layers(learner.model.critics, [layer for critic in inputs["critics"] for layer in critic])
    first, first_bias, second, second_bias = inputs["target_critics"].values()
    layers = [pair for i in range(4) for pair in ((first[i], first_bias[i]), (second[i], second_bias[i]))]
    set_layers(learner.target.module.critics, layers)
    batch = recorded_batch(inputs, inputs["gamma"])
    noise, next_noise = tensor(inputs["noise"]), tensor(inputs["next_noise"])
    chosen = torch.tensor(inputs["chosen"])
    found = gradients_of_step(learner, batch, next_noise, noise, chosen, learner._masks(6), True)
    # Its loss is the mean over the critics, and ours is the sum.
    np.testing.assert_allclose(found["critic"], 4 * stacked_in_order(outputs["critic_gradients"], 4), atol=1e-4)
    np.testing.assert_allclose(found["actor"], flat(outputs["actor_gradients"].values()), atol=1e-4)


def test_the_target_is_the_minimum_of_the_chosen_critics_only() -> None:
    learner = make_learner("redq", BOX, num_critics=4, temperature=1e-6, critic_learning_rate=0.0)
    with torch.no_grad():
        for number, critic in enumerate(learner.target.module.critics):
            critic[-1].weight.zero_()
            critic[-1].bias.fill_(float(number))
    batch = make_batch(BOX, 16, 0)
    batch.rewards, batch.discounts = torch.zeros(16), torch.ones(16)
    next_noise, noise, _, masks, _ = learner.step_inputs(batch)
    for chosen, expected in (([2, 3], 2.0), ([3, 1], 1.0), ([0, 3], 0.0)):
        metrics, _ = learner.gradient_step(batch, next_noise, noise, torch.tensor(chosen), masks, False)
        assert metrics["target_q_mean"].item() == pytest.approx(expected, abs=1e-2)


def test_a_new_pair_is_drawn_for_every_update_and_each_pair_comes() -> None:
    learner = make_learner("redq", BOX, num_critics=4)
    batch = make_batch(BOX, 2, 0)
    pairs = [tuple(sorted(learner.step_inputs(batch)[2].tolist())) for _ in range(200)]
    assert set(pairs) == {(a, b) for a in range(4) for b in range(a + 1, 4)}
    assert len({*pairs[:5]}) > 1


@pytest.mark.parametrize("count", [1, 3, 4])
def test_the_target_has_as_many_different_critics_as_the_settings_say(count: int) -> None:
    learner = make_learner("redq", BOX, num_critics=4, target_critics=count)
    for _ in range(20):
        chosen = learner.step_inputs(make_batch(BOX, 2, 0))[2].tolist()
        assert len(chosen) == len(set(chosen)) == count and set(chosen) <= set(range(4))


def test_the_draw_of_critics_leaves_the_noise_of_actions_as_it_is() -> None:
    """It has a random stream of its own: another number of critics does not change what actions are tried."""
    batch = make_batch(BOX, 4, 0)
    learners = [make_learner("redq", BOX, num_critics=4, target_critics=count) for count in (1, 4)]
    for _ in range(3):
        one, other = (learner.step_inputs(batch) for learner in learners)
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def test_actor_and_temperature_learn_in_the_last_of_twenty_updates() -> None:
    learner = make_learner("redq", BOX, num_critics=2)
    actor, temperature = snapshot(learner.model.policy_network), learner.temperature.value().clone()
    for number in range(1, 21):
        critics = snapshot(learner.model.critics)
        result = learner.update(make_batch(BOX, 8, number))
        assert not torch.equal(snapshot(learner.model.critics), critics)
        moved = not torch.equal(snapshot(learner.model.policy_network), actor)
        assert moved == (number == 20) == ("actor_loss" in result)
    assert not torch.equal(learner.temperature.value(), temperature)


def test_defaults_are_those_of_the_papers() -> None:
    redq, droq = make_learner("redq", BOX).config, make_learner("droq", BOX).config
    assert (redq.num_critics, redq.target_critics, redq.gradient_steps, redq.policy_delay) == (10, 2, 20, 20)
    assert (droq.num_critics, droq.target_critics, droq.gradient_steps, droq.dropout) == (2, 2, 20, 0.01)


def test_more_critics_in_the_target_than_there_are_is_refused() -> None:
    message = refused({"algo": "redq", "env_id": "Env-v0", "algo_kwargs": {"target_critics": 11}})
    assert message == "algo_kwargs.target_critics: 11 must be at most num_critics (10)"
