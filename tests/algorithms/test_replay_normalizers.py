"""Normalized observations in replay learners: acting and learning are those of a learner that is shown them ready."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from replay_helpers import BOX, DISCRETE, assert_same_parameters, make_batch, make_learner
from rl_training.config.base import ReplayConfig
from rl_training.experiment.registry import ALGORITHMS, get_config_class, get_spec
from rl_training.models.mlp_td7 import copy_weights

# r2d2 learns from windows: tests/test_r2d2_update.py has its normalizer.
REPLAY = [name for name in ALGORITHMS if issubclass(get_config_class(name), ReplayConfig) and name != "r2d2"]


@pytest.mark.parametrize("algo", REPLAY)
def test_acting_and_learning_see_every_observation_normalized_once(algo: str) -> None:
    """One network that misses the normaliser, online or target, acting or learning, and the two part ways."""
    spaces = DISCRETE if "discrete" in get_spec(algo).actions else BOX
    through, plain = (make_learner(algo, spaces, model={"normalize_observations": asked}) for asked in (True, False))
    rng = np.random.default_rng(0)
    through.observe(5 + 3 * rng.standard_normal((200, 3)))
    normalizer = through.model.normalizer
    if algo == "td7":  # its policy acts as it was when its trial began, statistics included
        copy_weights(through.acting, through.model)
    for number in range(3):
        batch = make_batch(spaces, 16, number)
        batch.obs, batch.next_obs = 5 + 3 * batch.obs, 5 + 3 * batch.next_obs
        seen = {name: normalizer(getattr(batch, name)) for name in ("obs", "next_obs")}
        assert max(float(value.abs().max()) for value in seen.values()) < normalizer.clip
        assert not torch.allclose(seen["obs"], batch.obs, atol=1.0)
        for explore in (False, True):
            ours = through.act(batch.obs.numpy(), explore=explore).actions
            np.testing.assert_allclose(ours, plain.act(seen["obs"].numpy(), explore=explore).actions, atol=1e-4)
        through.update(batch)
        plain.update(dataclasses.replace(batch, **seen))
        assert_same_parameters(through.model, plain.model, 1e-4)
        if hasattr(through, "target"):
            assert_same_parameters(through.target.module, plain.target.module, 1e-4)
