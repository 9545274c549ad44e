"""CrossQ: the joint pass, the mode of every batch norm, and gradients of a step against torchrl."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from config_cases import refused
from gradient_oracles import (
    SPACES,
    flat,
    gradients_of_step,
    recorded_batch,
    set_layers,
    set_norms,
    stacked_in_order,
    tensor,
)
from replay_helpers import BOX, make_batch, make_learner, oracle
from rl_training.algorithms.crossq import crossq_loss
from rl_training.models.layers.blocks import BatchNorm


def norms_of(network: Any) -> list[BatchNorm]:
    return [layer for layer in network.modules() if isinstance(layer, BatchNorm)]


def running(network: Any) -> Tensor:
    return torch.cat(
        [part for norm in norms_of(network) for part in (norm.running_mean, norm.running_variance)]
    ).clone()


def test_the_loss_sums_both_critics_to_the_same_target() -> None:
    loss, metrics = crossq_loss(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), torch.tensor([2.0, 0.0]))
    assert loss.item() == (1 + 9) / 2 + (0 + 4) / 2
    assert set(metrics) == {"critic_loss", "q_mean", "target_q_mean"}


@pytest.mark.parametrize("number", [0, 1])
def test_gradients_of_a_step_equal_those_of_another_library(number: int) -> None:
    case = oracle("crossq")["cases"][number]
    inputs, outputs = case["inputs"], case["outputs"]
    learner = make_learner("crossq", SPACES, model={"hidden_sizes": (4,)}, temperature=inputs["alpha"])
    model = learner.model
    set_layers(model.policy_network, inputs["actor"])
    set_layers(model.critics, [layer for critic in inputs["critics"] for layer in critic])
    set_norms(model.policy_network, inputs["actor_norms"])
    set_norms(model.critics, [norm for critic in inputs["critic_norms"] for norm in critic])
    batch = recorded_batch(inputs, inputs["gamma"])
    found = gradients_of_step(learner, batch, tensor(inputs["next_noise"]), tensor(inputs["noise"]), True)
    np.testing.assert_allclose(found["critic"], stacked_in_order(outputs["critic_gradients"], 2), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["actor"], flat(outputs["actor_gradients"].values()), rtol=1e-4, atol=1e-4)
    means = outputs["critic_means"].values()
    for critic in range(2):
        for norm, mean in zip(norms_of(model.critics[critic]), means, strict=True):
            np.testing.assert_allclose(norm.running_mean, mean[critic], atol=1e-5)


def test_the_joint_pass_equals_the_slow_formula() -> None:
    """Targets are the second half of one pass over [s; s'], normalized by the statistics of all its rows."""
    learner = make_learner("crossq", BOX, temperature=0.3, actor_learning_rate=0.0, critic_learning_rate=0.0)
    batch = make_batch(BOX, 16, 0)
    next_noise, *_ = make_learner("crossq", BOX, temperature=0.3).step_inputs(batch)
    with torch.no_grad():
        next_actions, next_log_probs = learner.model.sample(batch.next_obs, next_noise)
    rows = np.concatenate([
        np.concatenate([batch.obs, batch.actions], 1),
        np.concatenate([batch.next_obs, next_actions], 1),
    ]).astype(np.float64)  # fmt: skip
    values = []
    for critic in learner.model.critics:
        x = rows
        for layer in critic:
            if isinstance(layer, BatchNorm):
                x = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3)  # its weight is 1 and its bias 0 at the start
            elif isinstance(layer, torch.nn.Linear):
                x = x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
            else:
                x = np.tanh(x)
        values.append(x[:, 0])
    smaller = np.minimum(values[0][16:], values[1][16:])
    target = batch.rewards.numpy() + batch.discounts.numpy() * (smaller - 0.3 * next_log_probs.numpy())
    expected = sum(((values[i][:16] - target) ** 2).mean() for i in range(2))
    result = learner.update(batch)
    assert result["critic_loss"].item() == pytest.approx(expected, rel=1e-4)
    assert result["target_q_mean"].item() == pytest.approx(target.mean(), rel=1e-4)


def test_there_is_no_target_network() -> None:
    learner = make_learner("crossq", BOX)
    assert not hasattr(learner, "target")
    assert not any("target" in name for name in learner.state_dict()["parts"])


def test_targets_have_no_gradient() -> None:
    """The critics step down the loss with the target held constant: finite differences of that loss agree."""
    learner = make_learner("crossq", BOX, temperature=0.3, model={"hidden_sizes": (4,)})
    batch = make_batch(BOX, 8, 0)
    next_noise, noise, _ = learner.step_inputs(batch)
    with torch.no_grad():
        next_actions, next_log_probs = learner.model.sample(batch.next_obs, next_noise)
    both = torch.cat([batch.obs, batch.next_obs]), torch.cat([batch.actions, next_actions])
    with torch.no_grad():
        next_q = learner.model.q_values(*both, batch_statistics=True)[:, 8:]
    target = batch.rewards + batch.discounts * (next_q.amin(0) - 0.3 * next_log_probs)
    loss, _ = crossq_loss(learner.model.q_values(*both, batch_statistics=True)[:, :8], target)
    expected = flat(torch.autograd.grad(loss, learner.critic_optimizer.parameters))
    found = gradients_of_step(learner, batch, next_noise, noise, False)
    np.testing.assert_allclose(found["critic"], expected, rtol=1e-4, atol=1e-5)


def test_each_pass_has_the_statistics_that_the_paper_gives_it() -> None:
    learner = make_learner("crossq", BOX, policy_delay=2)
    model, batch = learner.model, make_batch(BOX, 16, 0)
    actor, critics = running(model.policy_network), running(model.critics)
    learner.act(batch.obs.numpy(), explore=True)
    learner.act(batch.obs.numpy(), explore=False)
    learner.probe_every = 1  # look at dead units too
    assert torch.equal(running(model.policy_network), actor) and torch.equal(running(model.critics), critics)
    learner.update(batch)  # the critic's pass only: the next actions use what the actor has learned
    assert torch.equal(running(model.policy_network), actor) and not torch.equal(running(model.critics), critics)
    passes = [norm.passes.item() for norm in norms_of(model)]
    assert passes == [0] * 3 + [1] * 6
    learner.update(batch)  # the actor's own pass too; the critics in its loss learn nothing
    assert not torch.equal(running(model.policy_network), actor)
    assert [norm.passes.item() for norm in norms_of(model)] == [1] * 3 + [2] * 6


def test_batch_norm_stands_before_every_linear_layer() -> None:
    learner = make_learner("crossq", BOX)
    for network in (learner.model.policy_network, *learner.model.critics):
        kinds = [type(layer) for layer in network]
        assert kinds[0] is BatchNorm
        assert all(kinds[place - 1] is BatchNorm for place, kind in enumerate(kinds) if kind is torch.nn.Linear)


def test_acting_follows_the_statistics_that_an_update_learned() -> None:
    learner = make_learner("crossq", BOX, policy_delay=1, actor_learning_rate=0.0)
    obs = make_batch(BOX, 4, 9).obs
    before = learner.act(obs.numpy(), explore=False).actions.copy()
    learner.update(make_batch(BOX, 16, 0))
    after = learner.act(obs.numpy(), explore=False).actions
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, learner.model.actor(obs)[0].detach().tanh(), atol=1e-5)


def test_statistics_are_saved_with_the_learner() -> None:
    one, two = make_learner("crossq", BOX, renorm_after=1), make_learner("crossq", BOX, renorm_after=1)
    for number in range(3):
        one.update(make_batch(BOX, 16, number))
    two.load_state_dict(one.state_dict())
    for left, right in zip(one.model.buffers(), two.model.buffers(), strict=True):
        assert torch.equal(left, right)
    assert torch.equal(
        one.update(make_batch(BOX, 16, 7))["critic_loss"], two.update(make_batch(BOX, 16, 7))["critic_loss"]
    )


def test_adam_has_the_momentum_of_the_paper() -> None:
    learner = make_learner("crossq", BOX)
    assert learner.critic_optimizer.betas == learner.actor_optimizer.betas == (0.5, 0.999)
    assert make_learner("crossq", BOX, adam_beta1=0.9).critic_optimizer.betas == (0.9, 0.999)
    assert make_learner("sac", BOX).critic_optimizer.betas == (0.9, 0.999)


def test_weights_decay_in_actor_and_critics_and_not_in_the_temperature() -> None:
    learner = make_learner("crossq", BOX, weight_decay=0.1)
    assert learner.critic_optimizer.weight_decay == learner.actor_optimizer.weight_decay == 0.1
    assert learner.temperature_optimizer.weight_decay == 0.0


def test_every_batch_norm_becomes_renormalization_when_the_settings_say() -> None:
    model = make_learner("crossq", BOX, renorm_after=7).model
    assert [norm.renorm_after for norm in norms_of(model)] == [7] * 9


def test_gradients_of_renormalization_take_its_scale_and_shift_as_constants() -> None:
    layer = BatchNorm(2, renorm_after=0)
    generator = torch.Generator().manual_seed(0)
    rows = (2 * torch.randn(16, 2, generator=generator) + 1).double().requires_grad_()
    layer = layer.double()
    layer.running_mean.fill_(0.5)
    layer.running_variance.fill_(2.0)
    variance, mean = rows.detach().var(0, correction=0), rows.detach().mean(0)
    scale = ((variance + 1e-3) / (2.0 + 1e-3)).sqrt()
    shift = (mean - 0.5) / (2.0 + 1e-3) ** 0.5
    found = torch.autograd.grad(layer(rows, batch_statistics=True).pow(3).sum(), rows)[0]
    normalized = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-3).sqrt()
    expected = torch.autograd.grad((normalized * scale + shift).pow(3).sum(), rows)[0]
    torch.testing.assert_close(found, expected)


def test_renormalization_equals_that_of_another_library() -> None:
    case = oracle("batch_renorm")["cases"][0]
    layer = BatchNorm(3, momentum=case["inputs"]["momentum"], renorm_after=2)
    for batch, outputs in zip(case["inputs"]["batches"], case["outputs"]["outputs"], strict=True):
        found = layer(tensor(batch), batch_statistics=True)
        np.testing.assert_allclose(found[:5].detach(), outputs, rtol=5e-3, atol=1e-2)
    np.testing.assert_allclose(layer.running_mean, case["outputs"]["running_mean"], rtol=1e-4)


def test_renormalization_begins_late_and_then_is_what_acting_sees() -> None:
    plain, renormed = BatchNorm(2), BatchNorm(2, renorm_after=1)
    rows = 2 * torch.randn(64, 2, generator=torch.Generator().manual_seed(0)) + 0.5
    for layer in (plain, renormed):
        layer(rows, batch_statistics=True)
    shifted = rows + 1.0
    acting = renormed(shifted, batch_statistics=False)
    assert torch.equal(plain(rows, batch_statistics=False), renormed(rows, batch_statistics=False))
    torch.testing.assert_close(renormed(shifted, batch_statistics=True), acting, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain(shifted, batch_statistics=True), acting, atol=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algo_kwargs": {"batch_size": 1}},
            "algo_kwargs.batch_size: batch norm needs at least 2 rows to normalize by, and this is 1; use a larger "
            "batch_size",
        ),
        (
            {"model": {"layer_norm": True}},
            "model.layer_norm: crossq has batch norm instead; set model.layer_norm=false",
        ),
        (
            {"model": {"critic": {"blocks": "simba"}}},
            "model.critic.blocks: crossq has no simba blocks; set model.critic.blocks=mlp",
        ),
    ],
)
def test_what_batch_norm_cannot_have_is_refused(changes: dict[str, Any], message: str) -> None:
    assert refused({"algo": "crossq", "env_id": "Env-v0", **changes}) == message
