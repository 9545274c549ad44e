"""Masked actions in distributions and models: probability 0, no NaN in gradients, and no other effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from masked_envs import SIZES, masked_spaces, random_rows
from on_policy_helpers import model_config, oracle_cases
from rl_training.models.distributions import Categorical
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_c51 import MLPC51Network
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.models.mlp_q import MLPQNetwork
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic

SUPPORT = torch.linspace(-2.0, 5.0, 7)
POLICIES = {
    "actor_critic": MLPActorCritic,
    "ppg": MLPPPGModel,
    "lstm": lambda spaces, config: LSTMActorCritic(spaces, config, memory_size=5),
}
Q_NETWORKS = {
    "q": MLPQNetwork,
    "dueling": lambda spaces, config: MLPQNetwork(spaces, config, dueling=True),
    "c51": lambda spaces, config: MLPC51Network(spaces, config, support=SUPPORT.clone()),
    "c51_dueling": lambda spaces, config: MLPC51Network(spaces, config, support=SUPPORT.clone(), dueling=True),
}


def masked_logits(logits: Any, masks: Any) -> torch.Tensor:
    return torch.as_tensor(logits).masked_fill(torch.as_tensor(masks) == 0, -torch.inf)


def test_a_masked_action_has_probability_0_and_adds_nothing_to_the_entropy() -> None:
    distribution = Categorical([3], scalar=True, masked=True)
    logits = masked_logits([[1.0, 2.0, 3.0]], [[1, 0, 1]])
    probabilities = torch.stack([distribution.log_prob(logits, torch.tensor([a])) for a in range(3)]).exp().ravel()
    torch.testing.assert_close(probabilities, torch.tensor([0.119203, 0.0, 0.880797]), atol=1e-6, rtol=0)
    assert probabilities[1] == 0
    torch.testing.assert_close(distribution.entropy(logits), torch.tensor([0.365334]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("inputs", "outputs"), oracle_cases("masked_categorical"))
def test_log_probs_entropy_and_gradients_are_those_of_sb3_contrib(inputs: Any, outputs: Any) -> None:
    scalar = len(inputs["sizes"]) == 1
    distribution = Categorical(inputs["sizes"].tolist(), scalar=scalar, masked=True)
    leaf = torch.tensor(inputs["logits"], dtype=torch.float32, requires_grad=True)
    actions = torch.tensor(inputs["actions"])
    logits = masked_logits(leaf, inputs["masks"])
    log_probs = distribution.log_prob(logits, actions[:, 0] if scalar else actions)
    entropy = distribution.entropy(logits)
    (log_probs.sum() + inputs["entropy_coef"] * entropy.sum()).backward()
    for found, expected in ((log_probs, "log_probs"), (entropy, "entropy"), (leaf.grad, "gradient")):
        np.testing.assert_allclose(found.detach(), outputs[expected], atol=2e-6, err_msg=expected)


def test_kl_and_its_curvature_are_those_of_the_allowed_actions_alone() -> None:
    rng = np.random.default_rng(0)
    old, new = (torch.tensor(rng.normal(size=(1, 5))) for _ in range(2))
    kept = [0, 2, 3]
    mask = torch.zeros(1, 5)
    mask[:, kept] = 1
    whole, small = Categorical([5], scalar=True, masked=True), Categorical([3], scalar=True)

    def curvature(kl: Any, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(kl(leaf), leaf, create_graph=True)
        (product,) = torch.autograd.grad((gradient * torch.arange(1.0, 1.0 + logits.shape[1])).sum(), leaf)
        return gradient.detach(), product

    found = curvature(lambda leaf: whole.kl(masked_logits(old, mask), masked_logits(leaf, mask)).sum(), new)
    weights = torch.tensor([1.0, 3.0, 4.0])

    def alone(leaf: torch.Tensor) -> torch.Tensor:
        return small.kl(old[:, kept], leaf).sum()

    leaf = new[:, kept].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(alone(leaf), leaf, create_graph=True)
    (product,) = torch.autograd.grad((gradient * weights).sum(), leaf)
    torch.testing.assert_close(found[0][:, kept], gradient.detach())
    torch.testing.assert_close(found[1][:, kept], product)
    for part in found:
        assert (part[:, [1, 4]] == 0).all()


@pytest.mark.parametrize("mask", [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]])
def test_no_uniform_number_samples_a_masked_action(mask: list[int]) -> None:
    class Extremes:
        def __init__(self, number: float):
            self.number = number

        def random(self, shape: Any, dtype: Any) -> np.ndarray:
            return np.full(shape, self.number, dtype)

    distribution = Categorical([3], scalar=True, masked=True)
    logits = np.where(np.array([mask]) == 0, np.float32(-np.inf), np.float32([[3.0, -4.0, 0.5]]))
    for number in (0.0, 1e-30, 0.3, 0.5, np.nextafter(np.float32(1), np.float32(0))):
        actions, log_probs = distribution.sample(logits, Extremes(float(number)))  # type: ignore[arg-type]
        assert mask[actions[0]] == 1
        assert np.isfinite(log_probs).all()


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("normalized", [False, True])
def test_a_policy_samples_allowed_actions_and_recomputes_their_log_probs(
    name: str, kind: str, normalized: bool
) -> None:
    torch.manual_seed(0)
    spaces = masked_spaces(kind)
    model: Any = POLICIES[name](spaces, model_config(normalize_observations=normalized))
    rows = random_rows(300, kind)
    actions, extras = model.act(rows, np.random.default_rng(0))
    masks = spaces.action_masks(rows)
    assert masks is not None
    columns = actions.reshape(len(rows), -1) + spaces.choice_starts
    assert np.take_along_axis(masks, columns, 1).all()
    modes = model.act(rows)[0].reshape(len(rows), -1) + spaces.choice_starts
    assert np.take_along_axis(masks, modes, 1).all()
    log_probs, entropy, _ = model.evaluate_actions(torch.from_numpy(rows), torch.from_numpy(actions))
    np.testing.assert_allclose(log_probs.detach(), extras["log_probs"], atol=1e-5)
    (log_probs.sum() + entropy.sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", [*POLICIES, *Q_NETWORKS])
def test_no_network_sees_the_mask(name: str) -> None:
    torch.manual_seed(0)
    build: Any = (POLICIES | Q_NETWORKS)[name]
    model: Any = build(masked_spaces(), model_config(normalize_observations=True))
    rows = random_rows(20)
    everything = rows.copy()
    everything[:, -5:] = 1.0
    allowed = rows[:, -5:] != 0
    outputs = "policy" if name in POLICIES else "q_values"
    with torch.no_grad():
        some, every = (getattr(model, outputs)(torch.from_numpy(each)).numpy() for each in (rows, everything))
    np.testing.assert_array_equal(some[allowed], every[allowed])
    assert (some[~allowed] == -np.inf).all() and np.isfinite(every).all()
    if name in POLICIES:
        with torch.no_grad():
            values = [model.value(torch.from_numpy(each)).numpy() for each in (rows, everything)]
        np.testing.assert_array_equal(*values)
    assert model.normalizer is not None and model.normalizer.mean.shape == (3,)


@pytest.mark.parametrize("name", Q_NETWORKS)
def test_the_greedy_action_is_the_best_allowed_one(name: str) -> None:
    torch.manual_seed(0)
    build: Any = Q_NETWORKS[name]
    model: Any = build(masked_spaces(), model_config(normalize_observations=True))
    rows = random_rows(200)
    with torch.no_grad():
        q = model.q_values(torch.from_numpy(rows)).numpy()
    np.testing.assert_array_equal(model.greedy_actions(rows), q.argmax(1))
    unmasked = rows.copy()
    unmasked[:, -5:] = 1.0
    assert (model.greedy_actions(unmasked) != q.argmax(1)).any(), "the masks must matter here"
