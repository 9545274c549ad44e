"""Acting, in NumPy or without autograd, equals the torch outputs of the model, also after its weights change."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import nn

import rl_training.models
from acting_models import (
    MODELS,
    assert_acts_as_torch_says,
    build,
    learn_a_little,
    obs_of,
    sees_images,
    torch_outputs,
)
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.models.policy import PolicyModel


def test_every_model_that_acts_is_tested_here() -> None:
    modules = [info.name for info in pkgutil.walk_packages(rl_training.models.__path__, "rl_training.models.")]
    parts = [part for name in modules for part in vars(importlib.import_module(name)).values()]
    models = {part for part in parts if isinstance(part, type) and issubclass(part, nn.Module)} - {PolicyModel}
    acting = {part.__name__ for part in models if hasattr(part, "act") or hasattr(part, "greedy_actions")}
    tested = {type(build(name)).__name__ for name in MODELS}
    assert acting - tested == set(), "add them to MODELS in tests/support/acting_models.py"
    assert tested == set(rl_training.models.__all__)


def test_every_model_with_an_encoder_is_tested_on_images_too() -> None:
    models = [build(name) for name in MODELS]
    encoding = {type(model).__name__ for model in models if hasattr(model, "encoder")}
    assert {type(model).__name__ for model in models if sees_images(model)} == encoding


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_acting_in_numpy_follows_the_torch_model(name: str, normalize: bool, activation: str) -> None:
    model = build(name, activation=activation, normalize_observations=normalize, observation_clip=1.5)
    optimizer = Optimizer(model.parameters())
    assert_acts_as_torch_says(model)
    if normalize:
        raw = torch_outputs(model)
        model.normalizer.update(obs_of(model))
        assert not np.allclose(torch_outputs(model), raw)
        assert_acts_as_torch_says(model)
    for _ in range(3):
        before = torch_outputs(model)
        learn_a_little(model, optimizer)
        assert not np.allclose(torch_outputs(model), before)
        assert_acts_as_torch_says(model)
    other = build(name, seed=1, activation=activation, normalize_observations=normalize, observation_clip=1.5)
    model.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(torch_outputs(model), torch_outputs(other))
    assert_acts_as_torch_says(model)


@pytest.mark.parametrize("name", MODELS)
def test_target_copies_act_by_their_own_weights(name: str) -> None:
    model = build(name)
    optimizer = Optimizer(model.parameters())
    assert_acts_as_torch_says(model)
    target = TargetNetwork(model)
    learn_a_little(model, optimizer)
    assert not np.allclose(torch_outputs(target.module), torch_outputs(model))
    assert_acts_as_torch_says(target.module)
    target.follow(0.5)
    assert_acts_as_torch_says(target.module)
    target.follow()
    np.testing.assert_array_equal(torch_outputs(target.module), torch_outputs(model))
    assert_acts_as_torch_says(target.module)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("name", MODELS)
def test_copies_of_a_model_that_has_acted_act_by_their_own_weights(name: str, clone: Callable[[Any], Any]) -> None:
    model = build(name)
    optimizer = Optimizer(model.parameters())
    assert_acts_as_torch_says(model)
    copied = clone(model)
    learn_a_little(model, optimizer)
    assert not np.allclose(torch_outputs(copied), torch_outputs(model))
    assert_acts_as_torch_says(copied)
    assert_acts_as_torch_says(model)
