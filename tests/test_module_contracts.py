"""What every algorithm's parts promise each other: spec, learner, losses, model, trainer."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loop_batches import batches_of, build
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.experiment.registry import get_config_class, get_learner, get_spec
from rl_training.models.policy import PolicyModel
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.storage.state_tree import flatten_state, state_hash, to_numpy, unflatten_state
from tiny_runs import EVERY_ALGORITHM, env_of, some_observations, tiny_config, train_function


@EVERY_ALGORITHM
def test_spec_registry_and_trainer_agree(algorithm: str) -> None:
    spec = get_spec(algorithm)
    assert spec.name == algorithm and spec.title and spec.paper
    assert spec.config is get_config_class(algorithm) and spec.learner is get_learner(algorithm)
    assert callable(spec.load) and callable(spec.evaluate) and callable(spec.predict)
    assert next(iter(inspect.signature(train_function(algorithm)).parameters)) == "config"
    assert train_function(algorithm).__doc__


@EVERY_ALGORITHM
def test_algorithm_file_names_its_paper(algorithm: str) -> None:
    text = sys.modules[get_learner(algorithm).__module__].__doc__ or ""
    words = get_spec(algorithm).paper.replace("(", "").replace(")", "").split()
    assert words and all(word in text for word in words)
    assert "eviation" in text, "what differs from the paper is said at the head of the file"


@EVERY_ALGORITHM
def test_update_gives_named_finite_metrics_and_moves_the_model(algorithm: str, tmp_path: Path) -> None:
    batches, learner = batches_of(tiny_config(algorithm, tmp_path), 2)
    before = [p.detach().clone() for p in learner.model.parameters()]
    for number, batch in enumerate(batches, start=1):
        result = learner.update(batch)
        assert isinstance(result, UpdateResult) and learner.updates == number
        assert "loss" in result or "critic_loss" in result
        for name, value in result.items():
            assert name.isidentifier() and name == name.lower()
            assert isinstance(value, torch.Tensor) and value.ndim == 0 and not value.requires_grad, name
            assert torch.isfinite(value) or name == "explained_variance", name
    moved = [not torch.equal(old, new) for old, new in zip(before, learner.model.parameters(), strict=True)]
    assert any(moved)


@EVERY_ALGORITHM
def test_loss_gives_a_scalar_with_gradient_and_named_metrics(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[get_learner(algorithm).__module__]
    loss_function = getattr(module, f"{algorithm}_loss")
    seen: list[tuple[torch.Tensor, dict[str, torch.Tensor]]] = []

    def spy(*arguments: Any, **keywords: Any) -> Any:
        seen.append(loss_function(*arguments, **keywords))
        return seen[-1]

    batches, learner = batches_of(tiny_config(algorithm, tmp_path), 1)
    monkeypatch.setattr(module, f"{algorithm}_loss", spy)
    # An Ape-X learner calls the step of its sibling, which finds the loss in its own file.
    monkeypatch.setattr(sys.modules[loss_function.__module__], loss_function.__name__, spy)
    learner.update(batches[0])
    assert seen, "the learner does not use its own loss"
    loss, metrics = seen[0]
    assert loss.ndim == 0 and loss.requires_grad and torch.isfinite(loss)
    assert metrics and not any(value.requires_grad for value in metrics.values())
    assert any(torch.equal(value, loss.detach()) for value in metrics.values()), "the loss itself is a metric"
    assert loss_function.__doc__


@EVERY_ALGORITHM
def test_learner_is_serialised_whole(algorithm: str, tmp_path: Path) -> None:
    batches, learner = batches_of(tiny_config(algorithm, tmp_path, normalize_observations=True), 4)
    for batch in batches[:3]:
        learner.update(batch)
    learner.observe(some_observations(algorithm))
    state = learner.state_dict()
    parts = {type(part) for name, part in vars(learner).items() if name in state["parts"]}
    expected = {type(part) for part in vars(learner).values() if isinstance(part, (Optimizer, TargetNetwork))}
    assert any(issubclass(part, Optimizer) for part in parts) and expected <= parts and Streams in parts
    assert state["updates"] == 3

    # Through the form it has on the disk, into a learner that has done other things since.
    tree, tensors = flatten_state(state)
    copied = unflatten_state(tree, {name: to_numpy(value).copy() for name, value in tensors.items()})
    other = build(tiny_config(algorithm, tmp_path, normalize_observations=True))[1]
    other.update(batches[3])
    other.load_state_dict(copied)
    assert state_hash(other.state_dict()) == state_hash(state)

    observations = some_observations(algorithm)
    for explore in (False, True):
        mine, theirs = (x.act(observations, explore=explore) for x in (learner, other))
        np.testing.assert_array_equal(mine.actions, theirs.actions)
    for batch in batches:
        first, second = learner.update(batch), other.update(batch)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first if name != "explained_variance")
    assert state_hash(other.state_dict()) == state_hash(learner.state_dict())


@EVERY_ALGORITHM
def test_state_of_another_model_is_refused(algorithm: str, tmp_path: Path) -> None:
    learner = build(tiny_config(algorithm, tmp_path))[1]
    wider = build(tiny_config(algorithm, tmp_path, hidden_sizes=(9,)))[1]
    with pytest.raises((RuntimeError, ValueError), match=r"shape|size|needs"):
        learner.load_state_dict(wider.state_dict())
    with pytest.raises(ValueError, match="seed"):
        learner.load_state_dict(build(tiny_config(algorithm, tmp_path, seed=1))[1].state_dict())


@EVERY_ALGORITHM
def test_acting_without_exploration_repeats_itself_and_draws_no_numbers(algorithm: str, tmp_path: Path) -> None:
    learner = build(tiny_config(algorithm, tmp_path))[1]
    observations = some_observations(algorithm)
    streams = state_hash(learner.streams.state_dict())
    first, second = (learner.act(observations, explore=False) for _ in range(2))
    np.testing.assert_array_equal(first.actions, second.actions)
    assert state_hash(learner.streams.state_dict()) == streams
    random = [learner.act(observations, explore=True).actions for _ in range(2)]
    assert not np.array_equal(random[0], random[1]), "exploration draws anew each time"


@EVERY_ALGORITHM
def test_actions_lie_on_the_policy_scale(algorithm: str, tmp_path: Path) -> None:
    learner = build(tiny_config(algorithm, tmp_path))[1]
    actions = learner.act(some_observations(algorithm), explore=False).actions
    assert actions.shape == (32, *learner.spaces.action_shape)
    if env_of(algorithm) == "Pendulum-v1":
        assert actions.dtype == np.float32 and np.abs(actions).max() <= 1.0
    else:
        assert np.issubdtype(actions.dtype, np.integer) and set(np.unique(actions)) <= {0, 1}


@EVERY_ALGORITHM
def test_model_has_the_surface_of_its_family(algorithm: str, tmp_path: Path) -> None:
    loop, learner = build(tiny_config(algorithm, tmp_path))
    model, observations = learner.model, some_observations(algorithm)
    tensor = torch.from_numpy(observations)
    if isinstance(model, PolicyModel):
        assert isinstance(loop, OnPolicyLoop)
        actions, extras = model.act(observations, np.random.default_rng(0))
        log_probs, entropy, values = model.evaluate_actions(tensor, torch.from_numpy(actions))
        assert log_probs.shape == entropy.shape == values.shape == (32,)
        np.testing.assert_allclose(log_probs.detach().numpy(), extras["log_probs"], atol=1e-5)
    elif env_of(algorithm) == "CartPole-v1":
        assert model.q_values(tensor).shape == (32, 2)
    else:
        outputs = model.actor(tensor)
        actions = outputs[0] if isinstance(outputs, tuple) else outputs
        assert actions.shape == (32, 1)
        assert model.q_values(tensor, actions.tanh()).shape[-1] == 32


@EVERY_ALGORITHM
def test_learner_never_touches_global_random_state(algorithm: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    batches, learner = batches_of(tiny_config(algorithm, tmp_path), 1)
    learner.update(batches[0])
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
