"""LSTMActorCritic: acting step by step in NumPy agrees with evaluating whole sequences in torch."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from on_policy_helpers import SPACES, model_config
from recurrent_helpers import MEMORIES, carried_rollout, recurrent_learner, stepped
from rl_training.data.recurrent_rollout_buffer import RecurrentRolloutBuffer, Sequences
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
from rl_training.models.recurrent.numpy_memory import numpy_step

EVERY_MEMORY = pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES.keys())
BOTH_MODES = pytest.mark.parametrize("next_step_resets", [False, True], ids=["same_step", "next_step"])
PIXELS = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Discrete(3))


def small_model(kind: str = "discrete", **settings: Any) -> LSTMActorCritic:
    torch.manual_seed(0)
    return LSTMActorCritic(SPACES[kind], model_config(), **{"memory_size": 5, **settings})


def observations(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU], ids=["lstm", "gru"])
def test_the_numpy_step_is_that_of_torch(kind: Any, layers: int) -> None:
    torch.manual_seed(1)
    network, rng = kind(4, 6, layers), np.random.default_rng(0)
    parts = layers * (2 if kind is torch.nn.LSTM else 1)
    inputs = rng.standard_normal((9, 4)).astype(np.float32) * 3
    before = rng.standard_normal((9, parts, 6)).astype(np.float32)
    after = np.empty_like(before)
    output = numpy_step(network)(inputs, before, after)
    states = torch.from_numpy(before).transpose(0, 1)
    state: Any = states.contiguous() if kind is torch.nn.GRU else (states[0::2].contiguous(), states[1::2].contiguous())
    expected, new = network(torch.from_numpy(inputs)[None], state)
    np.testing.assert_allclose(output, expected[0].detach(), atol=2e-6)
    for part, value in enumerate(new) if kind is torch.nn.LSTM else [(0, new)]:
        np.testing.assert_allclose(after[:, part :: len(new) if kind is torch.nn.LSTM else 1].swapaxes(0, 1),
                                   value.detach(), atol=2e-6)  # fmt: skip


@BOTH_MODES
@EVERY_MEMORY
@pytest.mark.parametrize("kind", SPACES)
def test_acting_step_by_step_and_evaluating_sequences_agree_across_episodes(
    kind: str, memory: dict[str, Any], next_step_resets: bool
) -> None:
    learner = recurrent_learner(kind, num_envs=3, **memory)
    rollout = carried_rollout(learner, 23, next_step_resets=next_step_resets)
    assert rollout.episode_starts[1:].sum() > 5
    alone = stepped(learner, rollout)
    np.testing.assert_allclose(rollout.extras["log_probs"], alone["log_probs"], atol=1e-5)
    np.testing.assert_allclose(rollout.extras["values"], alone["values"], atol=1e-5)

    buffer = RecurrentRolloutBuffer(4)
    buffer.store(rollout)
    rows, sequences = buffer.select(np.random.default_rng(0).permutation(len(buffer)))
    obs, actions = (torch.from_numpy(x.reshape(-1, *x.shape[2:]))[rows] for x in (rollout.obs, rollout.actions))
    outputs = learner.model.evaluate_actions(obs, actions, sequences)
    for name, output in zip(("log_probs", "entropy", "values"), outputs, strict=True):
        np.testing.assert_allclose(output.detach(), alone[name].ravel()[rows], atol=1e-5)


@EVERY_MEMORY
def test_acting_in_numpy_is_acting_in_torch(memory: dict[str, Any]) -> None:
    model = small_model(**memory)
    obs, rng = observations(6), np.random.default_rng(3)
    before = rng.standard_normal((6, *model.memory_shape)).astype(np.float32)
    _, extras = model.act(obs, rng, before)
    with torch.no_grad():
        _, judged, after = model._step(torch.from_numpy(obs), torch.from_numpy(before))
        np.testing.assert_allclose(extras["values"], model.critic(judged)[:, 0], atol=1e-5)
        values = model.value(torch.from_numpy(obs), torch.from_numpy(before))
    np.testing.assert_allclose(extras["values"], values, atol=1e-5)
    np.testing.assert_allclose(extras["memory"], after, atol=1e-5)


def test_act_returns_actions_values_log_probabilities_and_the_next_memory() -> None:
    model = small_model("box")
    actions, extras = model.act(observations(4), np.random.default_rng(0))
    assert actions.shape == (4, 2) and extras.keys() == {"values", "memory", "log_probs"}
    assert extras["values"].shape == extras["log_probs"].shape == (4,)
    assert extras["memory"].shape == (4, *model.memory_shape) == (4, 4, 5)
    mode, extras = model.act(observations(4))
    again, _ = model.act(observations(4))
    np.testing.assert_array_equal(mode, again)
    assert "log_probs" not in extras


@pytest.mark.parametrize(
    ("memory", "parts"), [({}, 4), ({"shared_memory": True}, 2), ({"cell": "gru"}, 2), ({"memory_layers": 3}, 12)]
)
def test_the_memory_has_the_states_of_every_network_and_layer(memory: dict[str, Any], parts: int) -> None:
    model = small_model(**memory)
    assert model.memory_shape == (parts, 5)
    assert model.initial_memory(3).shape == (3, parts, 5) and not model.initial_memory(3).any()


def test_memory_is_reset_only_where_an_episode_starts() -> None:
    model, obs = small_model(), observations(4)
    _, extras = model.act(obs)
    given = extras["memory"].copy()
    starts = np.array([True, False, True, False])
    _, mixed = model.act(obs, None, extras["memory"], starts)
    _, fresh = model.act(obs)
    _, carried = model.act(obs, None, extras["memory"])
    np.testing.assert_array_equal(mixed["memory"][starts], fresh["memory"][starts])
    np.testing.assert_array_equal(mixed["memory"][~starts], carried["memory"][~starts])
    assert not np.allclose(fresh["values"], carried["values"], atol=1e-6)
    np.testing.assert_array_equal(extras["memory"], given), "what was handed in belongs to the caller"


def test_separate_memories_learn_separately_and_a_shared_one_from_both_losses() -> None:
    for shared in (False, True):
        model = small_model(shared_memory=shared)
        log_probs, _, values = model.evaluate_actions(torch.from_numpy(observations(6)), torch.zeros(6).long())
        weights = dict(model.actor_memory.named_parameters())
        from_value = torch.autograd.grad(values.sum(), weights["weight_ih_l0"], allow_unused=True, retain_graph=True)
        assert (from_value[0] is not None) == shared
        if model.critic_memory is not None:
            other = torch.autograd.grad(log_probs.sum(), model.critic_memory.weight_ih_l0, allow_unused=True)
            assert other == (None,)


def with_padding(sequences: Sequences, row: int, extra: int) -> Sequences:
    """The same sequences with `extra` more steps of padding that point to `row`."""
    length, count = sequences.mask.shape
    mask = torch.zeros(length + extra, count, dtype=torch.bool)
    mask[:length] = sequences.mask
    place = torch.full((length + extra, count), row)
    place[:length] = torch.where(sequences.mask, sequences.place, row)
    return Sequences(mask, place, sequences.rows, sequences.memory)


@EVERY_MEMORY
def test_padding_changes_neither_outputs_nor_gradients(memory: dict[str, Any]) -> None:
    learner = recurrent_learner(num_envs=3, **memory)
    rollout = carried_rollout(learner, 23)
    buffer = RecurrentRolloutBuffer(6)
    buffer.store(rollout)
    rows, sequences = buffer.select(np.arange(len(buffer)))
    assert (~sequences.mask).any()
    obs, actions = (torch.from_numpy(x.reshape(-1, *x.shape[2:]))[rows] for x in (rollout.obs, rollout.actions))
    found = []
    for padded in (sequences, with_padding(sequences, row=7, extra=9)):
        seen = obs.clone().requires_grad_()
        outputs = learner.model.evaluate_actions(seen, actions, padded)
        loss = sum((output * torch.arange(1.0, len(rows) + 1)).sum() for output in outputs)
        gradients = torch.autograd.grad(loss, [seen, *learner.model.parameters()])
        found.append([*outputs, *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_no_gradient_reaches_another_episode_or_env_or_sequence() -> None:
    learner = recurrent_learner(num_envs=3)
    rollout = carried_rollout(learner, 23)
    buffer = RecurrentRolloutBuffer(6)
    buffer.store(rollout)
    rows, sequences = buffer.select(np.arange(len(buffer)))
    column = {int(row): s for s, lane in enumerate(sequences.place.T) for row in lane[sequences.mask[:, s]]}
    obs = torch.from_numpy(rollout.obs.reshape(-1, 3))[rows].requires_grad_()
    _, _, values = learner.model.evaluate_actions(obs, torch.zeros(len(rows)).long(), sequences)
    for row in range(0, len(rows), 5):
        reached = torch.autograd.grad(values[row], obs, retain_graph=True)[0].abs().sum(1) > 0
        mine = [other for other in range(len(rows)) if column[other] == column[row] and other <= row]
        assert reached.nonzero()[:, 0].tolist() == mine


def test_images_are_encoded_before_the_memory() -> None:
    torch.manual_seed(0)
    model = LSTMActorCritic(PIXELS, model_config(encoder_size=8), memory_size=5)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 2, 36, 36), dtype=np.uint8)
    memory, log_probs, values, actions = None, [], [], []
    for image in images:
        action, extras = model.act(image[None], rng, memory)
        memory = extras["memory"]
        actions.append(action)
        log_probs.append(extras["log_probs"])
        values.append(extras["values"])
    lane = torch.arange(6)[:, None]
    sequences = Sequences(lane >= 0, lane, torch.arange(6), torch.zeros(1, *model.memory_shape))
    found = model.evaluate_actions(torch.from_numpy(images), torch.from_numpy(np.concatenate(actions)), sequences)
    np.testing.assert_allclose(found[0].detach(), np.concatenate(log_probs), atol=1e-5)
    np.testing.assert_allclose(found[2].detach(), np.concatenate(values), atol=1e-5)


def test_a_copy_of_a_model_that_has_acted_acts_by_its_own_weights() -> None:
    model, obs = small_model(), observations(2)
    before = model.act(obs)[1]["values"]
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(2.0)
    assert not np.allclose(copied.act(obs)[1]["values"], before)
    np.testing.assert_array_equal(model.act(obs)[1]["values"], before)


@pytest.mark.parametrize("wrong", [np.zeros((3, 4, 5), np.float32), np.zeros((2, 4, 6), np.float32), "state"])
def test_a_memory_that_does_not_fit_is_refused_in_one_line(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"state: .* is not valid for 2 observations; pass the state .*\(2, 4, 5\)"):
        small_model().act(observations(2), None, wrong)


def test_sequences_of_another_model_are_refused() -> None:
    rollout = carried_rollout(recurrent_learner())
    buffer = RecurrentRolloutBuffer(4)
    buffer.store(rollout)
    rows, sequences = buffer.select(np.arange(len(buffer)))
    obs = torch.from_numpy(rollout.obs.reshape(-1, 3))[rows]
    with pytest.raises(ConfigError, match=r"memory: the shape \(4, 5\) per sequence is not valid, expected \(2, 5\)"):
        small_model(shared_memory=True).evaluate_actions(obs, torch.zeros(len(obs)).long(), sequences)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_size": 0}, "memory_size: 0 is not valid, expected integer >= 1"),
        ({"memory_layers": 0}, "memory_layers: 0 is not valid, expected integer >= 1"),
        ({"cell": "rnn"}, "cell: 'rnn' is not valid, expected one of lstm, gru"),
    ],
)
def test_impossible_memories_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small_model(**settings)


def test_the_first_weights_are_orthogonal_gate_by_gate_and_the_first_policy_nearly_uniform() -> None:
    model = small_model(memory_size=16)
    for gate in model.actor_memory.weight_hh_l0.detach().split(16):
        torch.testing.assert_close(gate @ gate.T, torch.eye(16), atol=1e-5, rtol=0)
    assert not model.actor_memory.bias_ih_l0.any()
    entropy = model.distribution.entropy(model.policy(torch.from_numpy(observations(50))))
    assert (entropy >= 0.99 * np.log(4)).all()
    plain = LSTMActorCritic(SPACES["discrete"], model_config(orthogonal_init=False), memory_size=16)
    assert plain.actor_memory.bias_ih_l0.any()
