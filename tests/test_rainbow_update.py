"""Rainbow: noisy layers, their independent noise, and whole updates against formulas written out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from config_cases import refused
from replay_helpers import DISCRETE, disturb, make_batch, make_learner, oracle, snapshot
from rl_training.algorithms import rainbow as rainbow_module
from rl_training.algorithms.rainbow import rainbow_loss
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.noisy import NoisyLinear
from slow_formulas import slow_projection

SUPPORT = {"num_atoms": 5, "support_low": -6.0, "support_high": 9.0}


def f(noise: np.ndarray) -> np.ndarray:
    return np.sign(noise) * np.sqrt(np.abs(noise))


# --- noisy layers ------------------------------------------------------------------------------------------------


def layer_of(inputs: dict[str, Any]) -> NoisyLinear:
    outputs, size = np.shape(inputs["weight_mu"])
    layer = NoisyLinear(nn.Linear(size, outputs), 0.5).double()
    names = {"mean.weight": "weight_mu", "mean.bias": "bias_mu", "weight_sigma": "weight_sigma"}
    names["bias_sigma"] = "bias_sigma"
    layer.load_state_dict({own: torch.tensor(inputs[name], dtype=torch.float64) for own, name in names.items()})
    return layer


def test_outputs_and_gradients_equal_an_independent_implementation() -> None:
    (case,) = oracle("noisy_layers")["cases"]
    inputs, outputs = case["inputs"], case["outputs"]
    layer, x = layer_of(inputs), torch.tensor(inputs["x"], dtype=torch.float64)
    after = np.array(inputs["bias_noise"])  # f(e_out); the matrix is f(e_out) f(e_in)^T
    before = np.array(inputs["weight_noise"])[0] / after[0]
    # The layer takes e and applies f: e = f(e) |f(e)|.
    noise = np.concatenate([before * np.abs(before), after * np.abs(after)])
    found = layer(x, torch.from_numpy(noise))
    np.testing.assert_allclose(found.detach().numpy(), outputs["outputs"], atol=1e-6)
    found.square().sum().backward()
    names = {"weight_mu": layer.mean.weight, "bias_mu": layer.mean.bias, "weight_sigma": layer.weight_sigma}
    names["bias_sigma"] = layer.bias_sigma
    for name, parameter in names.items():
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), outputs["gradients"][name], atol=1e-6)


def test_noise_of_a_row_is_the_noise_of_its_weights() -> None:
    rng = np.random.default_rng(0)
    layer = NoisyLinear(nn.Linear(3, 2), 0.5)
    x, noise = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(4, 5)).astype(np.float32)
    found = layer(torch.from_numpy(x), torch.from_numpy(noise)).detach().numpy()
    weight, bias = layer.mean.weight.detach().numpy(), layer.mean.bias.detach().numpy()
    for b in range(4):
        before, after = f(noise[b, :3]), f(noise[b, 3:])
        weights = weight + layer.weight_sigma.detach().numpy() * np.outer(after, before)
        expected = weights @ x[b] + bias + layer.bias_sigma.detach().numpy() * after
        np.testing.assert_allclose(found[b], expected, atol=1e-5)
    without = layer(torch.from_numpy(x))
    torch.testing.assert_close(without, layer.mean(torch.from_numpy(x)))


def test_noise_starts_at_one_half_over_the_root_of_the_inputs_for_weights_and_biases() -> None:
    model = make_learner("rainbow", DISCRETE, **SUPPORT).model
    for stream in (model.advantage, model.state_value):
        layers = [layer for layer in stream.layers if isinstance(layer, NoisyLinear)]
        assert [layer.inputs for layer in layers] == [3, 8, 8]
        for layer in layers:
            for sigma in (layer.weight_sigma, layer.bias_sigma):
                assert torch.all(sigma == torch.tensor(0.5 / np.sqrt(layer.inputs)).float())


# --- acting ------------------------------------------------------------------------------------------------------


def test_exploring_draws_new_noise_for_every_env_and_step_and_an_evaluation_none() -> None:
    learner = make_learner("rainbow", DISCRETE, initial_sigma=5.0, **SUPPORT)
    obs = np.zeros((200, 3), np.float32)
    still = learner.act(obs, explore=False).actions
    assert len(set(still.tolist())) == 1 and not learner.streams.state_dict()["generators"]
    noisy = learner.act(obs, explore=True).actions
    assert len(set(noisy.tolist())) == 4, "each env has its own noise"
    assert not np.array_equal(noisy, learner.act(obs, explore=True).actions)
    assert np.array_equal(still, learner.act(obs, explore=False).actions)


def test_noisy_actions_are_greedy_under_the_noise_that_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("rainbow", DISCRETE, initial_sigma=2.0, **SUPPORT)
    drawn: list[np.ndarray] = []
    greedy = learner.model.greedy_actions
    monkeypatch.setattr(learner.model, "greedy_actions", lambda obs, noise: drawn.append(noise) or greedy(obs, noise))
    obs = make_batch(DISCRETE, 30, 0).obs
    actions = learner.act(obs.numpy(), explore=True).actions
    (noise,) = drawn
    assert noise.shape == (30, learner.model.noise_size) and abs(noise.std() - 1) < 0.05
    with torch.no_grad():
        for b in range(30):
            q = learner.model.q_values(obs[b : b + 1], torch.from_numpy(noise[b]))
            assert q.argmax().item() == actions[b]


def test_training_mode_of_the_module_does_not_switch_noise() -> None:
    learner = make_learner("rainbow", DISCRETE, **SUPPORT)
    obs, noise = torch.zeros(2, 3), torch.randn(learner.model.noise_size)
    for switch in (learner.model.eval, learner.model.train):
        switch()
        assert not torch.equal(learner.model.q_values(obs), learner.model.q_values(obs, noise))
        torch.testing.assert_close(learner.model.q_values(obs), learner.model.q_values(obs))


# --- the whole update against one written out by hand -----------------------------------------------------------


def slow_logits(model: Any, obs: Tensor, noise: Tensor | None) -> list[Tensor]:
    """One row of atoms per action, with every noisy weight written out."""
    used, outputs = 0, []
    for stream in (model.advantage, model.state_value):
        if stream is None:
            continue
        x = obs
        for layer in stream.layers:
            if not isinstance(layer, NoisyLinear):
                x = layer(x)
                continue
            weight, bias = layer.mean.weight, layer.mean.bias
            if noise is not None:
                part = noise[used : used + layer.inputs + layer.outputs]
                scaled = part.sign() * part.abs().sqrt()
                before, after = scaled[: layer.inputs], scaled[layer.inputs :]
                weight = weight + layer.weight_sigma * torch.outer(after, before)
                bias = bias + layer.bias_sigma * after
            x, used = weight @ x + bias, used + layer.inputs + layer.outputs
        outputs.append(x)
    advantages = list(outputs[0].reshape(4, -1))
    if len(outputs) == 1:
        return advantages
    mean = sum(advantages) / 4
    return [outputs[1] + advantage - mean for advantage in advantages]


@pytest.mark.parametrize(
    "case",
    [{}, {"double": False, "dueling": False}, {"prioritized": False, "n_step": 1, "max_grad_norm": None}],
    ids=lambda case: "+".join(case) or "whole",
)
def test_two_updates_equal_a_reference_written_by_hand(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("rainbow", DISCRETE, learning_rate=3e-3, target_update_every=20, **SUPPORT, **case)
    twin = make_learner("rainbow", DISCRETE, **SUPPORT, **case)
    disturb(learner.target.module)
    twin.target.load_state_dict(learner.target.state_dict())
    epsilon = 1.5e-4 * 32 / learner.config.batch_size
    optimizer = torch.optim.Adam(twin.model.parameters(), lr=3e-3, eps=epsilon)
    drawn: list[tuple[Tensor, ...]] = []
    draw = learner.step_inputs
    monkeypatch.setattr(learner, "step_inputs", lambda batch: drawn.append(draw(batch)) or drawn[-1])
    atoms = learner.model.support.tolist()
    for number in range(2):
        batch = make_batch(DISCRETE, 6, number, weights=learner.config.prioritized, n_step=learner.config.n_step)
        learner.clock.env_steps = 10 * (number + 1)
        result = learner.update(batch)
        fitted, selecting, aimed = drawn[-1]
        losses, divergences = [], []
        for b in range(6):
            with torch.no_grad():
                after = slow_logits(twin.target.module, batch.next_obs[b], aimed)
                judged = slow_logits(twin.model, batch.next_obs[b], selecting) if learner.config.double else after
                means = [(torch.softmax(row, 0) * learner.model.support).sum().item() for row in judged]
                probabilities = torch.softmax(after[int(np.argmax(means))], 0).tolist()
            m = slow_projection(batch.rewards[b].item(), batch.discounts[b].item(), probabilities, atoms)
            log_p = torch.log_softmax(slow_logits(twin.model, batch.obs[b], fitted)[int(batch.actions[b])], 0)
            loss = -sum(mass * log_p[i] for i, mass in enumerate(m))
            losses.append(loss * (1.0 if batch.weights is None else batch.weights[b]))
            divergences.append(loss.item() + sum(mass * np.log(mass) for mass in m if mass > 0))
        optimizer.zero_grad()
        (sum(losses) / 6).backward()
        if learner.config.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(twin.model.parameters(), 10.0)
        optimizer.step()
        if number == 1:
            twin.target.load_state_dict(twin.model.state_dict())
        torch.testing.assert_close(snapshot(learner.model), snapshot(twin.model), rtol=0, atol=1e-5)
        torch.testing.assert_close(snapshot(learner.target.module), snapshot(twin.target.module), rtol=0, atol=1e-5)
        if learner.config.prioritized:
            np.testing.assert_allclose(result.priorities, divergences, atol=1e-4)


def test_online_selecting_and_target_noise_are_independent_and_fresh_in_every_update() -> None:
    learner = make_learner("rainbow", DISCRETE, model={"hidden_sizes": (64, 64)})
    first, second = (learner.step_inputs(make_batch(DISCRETE, 4, 0)) for _ in range(2))
    parts = torch.stack([*first, *second])
    assert parts.shape == (6, learner.model.noise_size)
    correlations = torch.corrcoef(parts) - torch.eye(6)
    assert correlations.abs().max() < 0.15, "as between random numbers"
    assert set(learner.streams.state_dict()["generators"]) == {"weight_noise"}


def test_the_size_of_the_noise_is_learned() -> None:
    learner = make_learner("rainbow", DISCRETE, learning_rate=1e-2, **SUPPORT)
    before = learner.model.advantage.layers[0].weight_sigma.detach().clone()
    learner.update(make_batch(DISCRETE, 8, 0, weights=True))
    assert not torch.equal(learner.model.advantage.layers[0].weight_sigma, before)


def test_metrics_are_named_and_no_gradient_reaches_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(logits: Tensor, target: Tensor, *others: Any) -> Any:
        seen.append(target)
        return rainbow_loss(logits, target, *others)

    monkeypatch.setattr(rainbow_module, "rainbow_loss", spy)
    learner = make_learner("rainbow", DISCRETE)
    result = learner.update(make_batch(DISCRETE, 8, 0, weights=True))
    assert set(result) == {"loss", "q_mean", "target_q_mean", "support_clipped", "grad_norm", "learning_rate"}
    assert len(seen) == 1 and seen[0].shape == (8, 51) and not seen[0].requires_grad
    without = make_learner("rainbow", DISCRETE, noisy=False, exploration=0.1).update(
        make_batch(DISCRETE, 8, 0, weights=True)
    )
    assert without["exploration"].item() == pytest.approx(0.1)


def test_images_go_through_the_encoder_both_to_act_and_to_learn() -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Discrete(3))
    learner = make_learner("rainbow", spaces, model={"encoder_size": 16}, **SUPPORT)
    rng = np.random.default_rng(0)
    obs = rng.integers(256, size=(8, 2, 36, 36), dtype=np.uint8)
    images = torch.from_numpy(obs)
    assert np.array_equal(learner.act(obs, explore=False).actions, learner.model.q_values(images).argmax(1).numpy())
    assert learner.act(obs, explore=True).actions.shape == (8,)
    before = snapshot(learner.model.encoder)
    actions, discounts = torch.from_numpy(rng.integers(3, size=8)), torch.full((8,), 0.9)
    learner.update(Transitions(images, actions, torch.linspace(-1.0, 1.0, 8), images, discounts))
    assert not torch.equal(snapshot(learner.model.encoder), before)


# --- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exploration", [0.1, {"start": 1.0, "end": 0.0}])
def test_epsilon_and_noise_together_are_refused(exploration: Any) -> None:
    message = refused({"algo": "rainbow", "env_id": "Env-v0", "algo_kwargs": {"exploration": exploration}})
    assert message.startswith("algo_kwargs.exploration: noisy layers explore already") and "\n" not in message


def test_all_six_parts_are_on_and_each_can_be_left_out() -> None:
    config = make_learner("rainbow", DISCRETE).config
    assert config.double and config.dueling and config.prioritized and config.n_step == 3 and config.noisy
    assert config.num_atoms == 51 and config.exploration.is_constant and config.exploration.start == 0
    plain = make_learner("rainbow", DISCRETE, noisy=False, dueling=False, double=False, prioritized=False, n_step=1)
    assert plain.step_inputs(make_batch(DISCRETE, 4, 0)) == ()
    assert plain.update(make_batch(DISCRETE, 4, 0)).priorities is None
