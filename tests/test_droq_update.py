"""DroQ: where dropout stands, which masks it gets, and a step against one written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from config_cases import refused
from replay_helpers import BOX, disturb, make_batch, make_learner
from rl_training.models.layers.blocks import Dropout


def test_dropout_stands_between_the_linear_layer_and_its_layer_norm() -> None:
    model = make_learner("droq", BOX).model
    kinds = [nn.Linear, Dropout, nn.LayerNorm, nn.Tanh] * 2 + [nn.Linear]
    assert all(isinstance(layer, kind) for layer, kind in zip(model.critics[0], kinds, strict=True))
    assert {Dropout, nn.LayerNorm}.isdisjoint(type(layer) for layer in model.policy_network)


def test_masks_drop_what_they_say_in_each_critic_and_layer() -> None:
    learner = make_learner("droq", BOX, dropout=0.25, model={"hidden_sizes": (5, 3)})
    model, batch = learner.model, make_batch(BOX, 7, 0)
    assert model.mask_sizes == (5, 3, 5, 3)
    masks = learner._masks(7)[0]
    found = model.q_values(batch.obs, batch.actions, masks)
    for number, critic in enumerate(model.critics):
        x, own = torch.cat([batch.obs, batch.actions], 1), list(masks[:, 8 * number : 8 * number + 8].split((5, 3), 1))
        for layer in critic:
            x = x * own.pop(0) / 0.75 if isinstance(layer, Dropout) else layer(x)
        torch.testing.assert_close(found[number], x.squeeze(1))
    assert not torch.allclose(model.q_values(batch.obs, batch.actions), found)


def test_targets_critics_and_actor_have_masks_of_their_own_from_a_stream() -> None:
    learner = make_learner("droq", BOX, dropout=0.3)
    masks = learner._masks(400)
    assert masks.shape == (3, 400, 32) and set(masks.unique().tolist()) == {0.0, 1.0}
    assert masks.mean().item() == pytest.approx(0.7, abs=0.02)
    assert not torch.equal(masks[0], masks[1]) and not torch.equal(masks[1], masks[2])
    assert len(masks[0].unique(dim=0)) > 350, "every row has a mask of its own"
    assert torch.equal(make_learner("droq", BOX, dropout=0.3)._masks(400), masks)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_pass_depends_on_its_own_mask(place: int) -> None:
    """Target, critics and actor's loss: dropping other units changes the numbers of that pass."""
    outcomes = []
    for changed in (False, True):
        learner = make_learner("droq", BOX, dropout=0.5)
        disturb(learner.target.module)
        batch = make_batch(BOX, 16, 0)
        next_noise, noise, chosen, masks, _ = learner.step_inputs(batch)
        if changed:
            masks = masks.clone()
            masks[place] = 1 - masks[place]
        outcomes.append(learner.gradient_step(batch, next_noise, noise, chosen, masks, True)[0])
    seen = ("target_q_mean", "q_mean", "actor_loss")[place]
    assert outcomes[0][seen].item() != outcomes[1][seen].item()
    earlier = {0: (), 1: ("target_q_mean",), 2: ("target_q_mean", "q_mean")}[place]
    assert all(outcomes[0][name].item() == outcomes[1][name].item() for name in earlier)


def test_a_step_equals_one_written_out_by_hand() -> None:
    """REDQ's step, which torchrl confirms, with layers written out here: dropout, then layer norm, then tanh."""
    learner = make_learner("droq", BOX, dropout=0.4, temperature=0.2, critic_learning_rate=0.0)
    disturb(learner.target.module)
    batch = make_batch(BOX, 16, 0)
    next_noise, noise, chosen, masks, _ = learner.step_inputs(batch)

    def by_hand(critic: nn.Sequential, rows: torch.Tensor, own: torch.Tensor) -> np.ndarray:
        x = rows.double().numpy()
        for number, place in enumerate((0, 4)):
            linear, norm = critic[place], critic[place + 2]
            x = x @ linear.weight.detach().double().numpy().T + linear.bias.detach().double().numpy()
            x = np.where(own[:, 8 * number : 8 * number + 8] > 0, x / 0.6, 0.0)
            x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + norm.eps)
            x = np.tanh(x * norm.weight.detach().double().numpy() + norm.bias.detach().double().numpy())
        return (x @ critic[8].weight.detach().double().numpy().T + critic[8].bias.detach().double().numpy())[:, 0]

    with torch.no_grad():
        next_actions, next_log_probs = learner.model.sample(batch.next_obs, next_noise)
    next_rows = torch.cat([batch.next_obs, next_actions], 1)
    parts = [masks[place].split(16, 1) for place in range(3)]
    next_q = [by_hand(learner.target.module.critics[i], next_rows, parts[0][i]) for i in range(2)]
    soft = np.minimum(*next_q) - 0.2 * next_log_probs.numpy()
    target = batch.rewards.numpy() + batch.discounts.numpy() * soft
    rows = torch.cat([batch.obs, batch.actions], 1)
    loss = sum(((by_hand(learner.model.critics[i], rows, parts[1][i]) - target) ** 2).mean() for i in range(2))
    metrics, _ = learner.gradient_step(batch, next_noise, noise, chosen, masks, True)
    assert metrics["target_q_mean"].item() == pytest.approx(target.mean(), rel=1e-4)
    assert metrics["critic_loss"].item() == pytest.approx(loss, rel=1e-4)


def test_dropout_in_residual_blocks_is_refused() -> None:
    message = refused({"algo": "droq", "env_id": "Env-v0", "model": {"critic": {"blocks": "simba"}}})
    assert message == (
        "model.critic.blocks: droq has no dropout in simba blocks; set model.critic.blocks=mlp, or "
        "algo_kwargs.dropout=0"
    )
