"""Recurrent PPO's loss and update, against a policy that is stepped one observation at a time and plain formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from config_cases import refused
from on_policy_helpers import learn_from, parameters_of
from recurrent_helpers import MEMORIES, carried_rollout, recurrent_learner, stepped
from rl_training.algorithms.ppo import ppo_loss
from rl_training.contrib.recurrent_ppo import recurrent_ppo_loss
from rl_training.data.rollout import Rollout
from slow_formulas import slow_advantages

BOTH_MODES = pytest.mark.parametrize("next_step_resets", [False, True], ids=["same_step", "next_step"])
CLIP, ENTROPY = torch.tensor(0.2), torch.tensor(0.01)


def loss_of(learner: Any, rollout: Rollout, chosen: np.ndarray | None = None) -> tuple[torch.Tensor, Any, np.ndarray]:
    """The loss on these sequences (all of them unless said), its metrics, and the rows it is of."""
    learner.buffer.store(rollout)
    rows, sequences = learner.buffer.select(np.arange(len(learner.buffer)) if chosen is None else chosen)
    batch = learner._batch(rollout).select(rows)
    loss, metrics = recurrent_ppo_loss(
        learner.model, batch, sequences, learner.config, clip_range=CLIP, entropy_coef=ENTROPY
    )
    return loss, metrics, rows.numpy()


@BOTH_MODES
@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES.keys())
def test_advantages_bootstrap_from_what_really_followed_with_its_memory(
    memory: dict[str, Any], next_step_resets: bool
) -> None:
    learner = recurrent_learner(num_envs=3, gamma=0.9, gae_lambda=0.7, **memory)
    rollout = carried_rollout(learner, 23, next_step_resets=next_step_resets)
    assert len(rollout.final_steps) > 3
    found = stepped(learner, rollout)
    batch, valid = learner._batch(rollout), rollout.valid.ravel()
    expected = slow_advantages(rollout, found, 0.9, 0.7)
    np.testing.assert_allclose(batch.advantages[valid], expected.ravel()[valid], atol=1e-5)
    np.testing.assert_allclose(batch.returns[valid], (expected + found["values"]).ravel()[valid], atol=1e-5)


def test_a_bootstrap_without_memory_would_be_another_value() -> None:
    learner = recurrent_learner(num_envs=3)
    rollout = carried_rollout(learner, 23)
    remembered = learner._batch(rollout).advantages
    rollout.extras["memory"] = np.zeros_like(rollout.extras["memory"])
    forgotten = learner._batch(rollout).advantages
    changed = ((remembered - forgotten).abs() > 1e-4).numpy().reshape(rollout.rewards.shape)
    truncated_or_last = rollout.truncated.copy()
    truncated_or_last[-1] |= ~rollout.ends[-1]
    assert changed[truncated_or_last].all()


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_loss_is_ppos_formula_on_stepped_probabilities_and_values(kind: str, normalize: bool) -> None:
    learner = recurrent_learner(kind, num_envs=3, normalize_advantages=normalize)
    rollout = carried_rollout(learner, 19)
    rollout.extras["log_probs"] = rollout.extras["log_probs"] + np.random.default_rng(0).normal(
        0, 0.3, rollout.rewards.shape
    ).astype(np.float32)
    loss, metrics, rows = loss_of(learner, rollout)
    found = {name: value.ravel()[rows] for name, value in stepped(learner, rollout).items()}
    batch = learner._batch(rollout).select(torch.from_numpy(rows))
    advantages = batch.advantages.numpy().astype(np.float64)
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std(ddof=1)
    ratio = np.exp(found["log_probs"] - rollout.extras["log_probs"].ravel()[rows])
    policy_loss = -np.minimum(ratio * advantages, ratio.clip(0.8, 1.2) * advantages).mean()
    value_loss = 0.5 * ((found["values"] - batch.returns.numpy()) ** 2).mean()
    assert metrics["policy_loss"].item() == pytest.approx(policy_loss, abs=1e-5)
    assert metrics["value_loss"].item() == pytest.approx(value_loss, rel=1e-5)
    assert metrics["entropy"].item() == pytest.approx(found["entropy"].mean(), abs=1e-5)
    assert metrics["clip_fraction"].item() == pytest.approx((np.abs(ratio - 1) > 0.2).mean(), abs=1e-6)
    assert metrics["approx_kl"].item() == pytest.approx((ratio - 1 - np.log(ratio)).mean(), abs=1e-5)
    assert loss.item() == pytest.approx(policy_loss + 0.5 * value_loss - 0.01 * found["entropy"].mean(), abs=1e-5)


def test_loss_is_the_same_function_as_ppos() -> None:
    learner = recurrent_learner(num_envs=3)
    rollout = carried_rollout(learner)
    loss, metrics, rows = loss_of(learner, rollout)
    batch = learner._batch(rollout).select(torch.from_numpy(rows))
    sequences = learner.buffer.select(np.arange(len(learner.buffer)))[1]
    outputs = learner.model.evaluate_actions(batch.obs, batch.actions, sequences)
    expected, expected_metrics = ppo_loss(*outputs, batch, learner.config, clip_range=CLIP, entropy_coef=ENTROPY)
    assert torch.equal(loss, expected) and metrics.keys() == expected_metrics.keys()


def test_padded_sequences_give_the_loss_and_gradient_of_their_transitions_alone() -> None:
    """Half of a minibatch is padding: its mean must still be over transitions, not over places."""
    learner = recurrent_learner(num_envs=2, sequence_length=12, normalize_advantages=False)
    rollout = carried_rollout(learner, 29, seed=4)
    learner.buffer.store(rollout)
    order = np.argsort(learner.buffer.lengths)
    short, long = order[0], order[-1]
    assert learner.buffer.lengths[short] <= learner.buffer.lengths[long] / 2
    parameters = list(learner.model.parameters())

    def weighted(chosen: list[int]) -> tuple[float, list[torch.Tensor]]:
        loss, _, rows = loss_of(learner, rollout, np.array(chosen))
        gradients = torch.autograd.grad(loss, parameters)
        return loss.item() * len(rows), [gradient * len(rows) for gradient in gradients]

    together, apart = weighted([short, long]), [weighted([short]), weighted([long])]
    assert together[0] == pytest.approx(apart[0][0] + apart[1][0], rel=1e-4)
    for gradient, first, second in zip(together[1], apart[0][1], apart[1][1], strict=True):
        torch.testing.assert_close(gradient, first + second, atol=1e-4, rtol=1e-3)


@BOTH_MODES
@pytest.mark.parametrize("kind", ["discrete", "multi_discrete", "multi_binary", "box"])
def test_the_first_ratio_is_one(kind: str, next_step_resets: bool) -> None:
    learner = recurrent_learner(kind, num_envs=3, model={"normalize_observations": True})
    learner.observe(np.random.default_rng(0).standard_normal((50, 3)) * 2 + 1)
    rollout = carried_rollout(learner, 29, next_step_resets=next_step_resets)
    _, metrics, rows = loss_of(learner, rollout)
    assert metrics["approx_kl"] < 1e-9 and metrics["clip_fraction"] == 0
    batch = learner._batch(rollout).select(torch.from_numpy(rows))
    sequences = learner.buffer.select(np.arange(len(learner.buffer)))[1]
    with torch.no_grad():
        log_probs, _, _ = learner.model.evaluate_actions(batch.obs, batch.actions, sequences)
    assert ((log_probs - batch.log_probs).exp() - 1).abs().max() < 1e-5


def test_rows_that_are_no_transitions_are_not_learned_from() -> None:
    settings = {"num_envs": 3, "update_epochs": 2, "minibatch_size": 8, "model": {"normalize_observations": True}}
    moved = []
    for garbage in (0.0, 1e4):
        learner = recurrent_learner(**settings)
        rollout = carried_rollout(learner, 29, next_step_resets=True)
        assert not rollout.valid.all()
        rollout.obs[~rollout.valid] += garbage
        rollout.rewards[~rollout.valid] += garbage
        learn_from(learner, rollout)
        moved.append((parameters_of(learner.model), learner.model.normalizer.mean.clone()))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*moved, strict=True))


def test_update_gives_named_metrics_and_takes_one_step_per_minibatch_and_epoch() -> None:
    learner = recurrent_learner(num_envs=4, num_steps=32, minibatch_size=32, update_epochs=3, learning_rate=1e-3)
    before = parameters_of(learner.model)
    result = learner.update(carried_rollout(learner, 32))
    assert learner.updates == 1 and int(learner.optimizer.steps) == 3 * 4
    names = {"loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm"}
    assert result.keys() == names | {"explained_variance", "learning_rate", "target_std", "entropy_share"}
    assert all(torch.isfinite(value) for value in result.values())
    moved = (parameters_of(learner.model) != before).float().mean()
    assert moved > 0.99, "policy, value and both memories learn"


def test_updates_stop_once_the_policy_has_moved_too_far() -> None:
    steps = []
    for target_kl in (None, 1e-4):
        learner = recurrent_learner(num_envs=4, minibatch_size=16, learning_rate=0.05, target_kl=target_kl)
        learner.update(carried_rollout(learner, 32))
        steps.append(int(learner.optimizer.steps))
    assert steps[0] == 10 * 8 and 1 <= steps[1] < 10


def test_a_loss_needs_as_many_rows_as_its_sequences_have() -> None:
    learner = recurrent_learner()
    rollout = carried_rollout(learner)
    learner.buffer.store(rollout)
    rows, sequences = learner.buffer.select(np.array([0, 1]))
    batch = learner._batch(rollout).select(rows[1:])
    with pytest.raises(ValueError, match="the sequences have"):
        recurrent_ppo_loss(learner.model, batch, sequences, learner.config, clip_range=CLIP, entropy_coef=ENTROPY)


RECURRENT = {"algo": "recurrent_ppo", "env_id": "CartPole-v1"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sequence_length": 0}, "algo_kwargs.sequence_length: 0 is not valid, expected integer >= 1"),
        ({"memory_size": -1}, "algo_kwargs.memory_size: -1 is not valid, expected integer >= 1"),
        ({"memory_layers": 0}, "algo_kwargs.memory_layers: 0 is not valid, expected integer >= 1"),
        ({"cell": "rnn"}, "algo_kwargs.cell: 'rnn' is not valid, expected one of lstm, gru"),
        ({"sequence_length": 200}, "algo_kwargs.sequence_length: 200 exceeds num_steps (128)"),
        ({"minibatch_size": 16}, "algo_kwargs.sequence_length: 32 exceeds minibatch_size (16)"),
        ({"minibatch_size": 300}, "algo_kwargs.minibatch_size: 300 exceeds the transitions of one rollout"),
    ],
)
def test_impossible_settings_are_refused_before_anything_runs(settings: dict[str, Any], message: str) -> None:
    assert refused({**RECURRENT, "algo_kwargs": settings}).startswith(message)


@pytest.mark.parametrize("key", ["memory_size", "sequence_length", "cell", "lstm_hidden_size", "recurrent"])
@pytest.mark.parametrize("section", ["algo_kwargs", "model", ""])
def test_plain_ppo_is_never_silently_recurrent(section: str, key: str) -> None:
    setting = {section: {key: 8}} if section else {key: 8}
    message = refused({"algo": "ppo", "env_id": "CartPole-v1", **setting})
    dotted = f"{section}.{key}" if section else key
    assert message.startswith(f"{dotted}: unknown key") and "recurrent_ppo" in message


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("", "policy", "MlpLstmPolicy"), ("model", "type", "recurrent"), ("model", "encoder", "gru"), ("", "net", "LSTM")],
)
def test_plain_ppo_asked_for_a_memory_by_value_names_who_has_one(section: str, key: str, value: str) -> None:
    setting = {section: {key: value}} if section else {key: value}
    message = refused({"algo": "ppo", "env_id": "CartPole-v1", **setting})
    assert message.startswith(f"{section}.{key}: ".lstrip(".")) and message.endswith("algo recurrent_ppo has a memory")


@pytest.mark.parametrize(
    ("algo", "key", "meant"),
    [
        ("recurrent_ppo", "lstm_hidden_size", "algo_kwargs.memory_size"),
        ("recurrent_ppo", "hidden_size", "algo_kwargs.memory_size"),
        ("recurrent_ppo", "n_lstm_layers", "algo_kwargs.memory_layers"),
        ("ppo", "hidden_size", "model.hidden_sizes"),
        ("d4pg", "v_min", "algo_kwargs.support_low"),
        ("c51", "v_max", "algo_kwargs.support_high"),
    ],
)
def test_names_from_elsewhere_lead_to_the_settings_here(algo: str, key: str, meant: str) -> None:
    assert refused({"algo": algo, "env_id": "Env-v0", key: 8}) == f"{key}: unknown key, did you mean {meant}?"
