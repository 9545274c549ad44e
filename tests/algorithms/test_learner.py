"""What every learner gets from its base class: its config, its clock, seeded networks, scheduled optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from loop_batches import build
from on_policy_helpers import SPACES, make_learner
from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.ppo import PPOConfig
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.experiment.registry import algorithm_names, get_config_class, get_learner
from tiny_runs import EVERY_ALGORITHM, tiny_config


class Idle(Learner[PPOConfig]):
    """The least that a learner must have."""

    def update(self, batch: Any) -> Any:
        raise NotImplementedError


class IdleToo(Idle):
    pass


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_a_learner_names_its_config_in_its_brackets(algorithm: str) -> None:
    assert get_learner(algorithm).config_class is get_config_class(algorithm)


def test_a_subclass_keeps_the_config_of_its_base() -> None:
    assert Idle.config_class is IdleToo.config_class is PPOConfig
    assert Learner.config_class is not PPOConfig


def test_the_config_of_another_algorithm_is_refused() -> None:
    config = load_config({"algo": "dqn", "env_id": "CartPole-v1"})
    with pytest.raises(ConfigError, match=r"^algo: Idle needs a PPOConfig, .* dqn run are a DQNConfig$") as caught:
        Idle(SPACES["discrete"], config, Streams(0))
    assert caught.value.key == "algo"


@EVERY_ALGORITHM
def test_loop_and_learner_share_one_clock(algorithm: str, tmp_path: Path) -> None:
    loop, learner = build(tiny_config(algorithm, tmp_path))
    assert (loop.env_steps, learner.env_steps) == (0, 0)
    while loop.round() is not None:
        assert learner.env_steps == loop.env_steps > 0
    state = loop.state_dict()
    other, restored = build(tiny_config(algorithm, tmp_path))
    restored.load_state_dict(learner.state_dict())
    assert restored.env_steps == 0, "a learner does not bring the steps of the run it comes from"
    if "buffer" in state:
        state["buffer"] = other.state_dict()["buffer"]
    other.load_state_dict(state)
    assert restored.env_steps == learner.env_steps


def test_built_networks_have_the_weights_of_the_runs_seed() -> None:
    learner = make_learner("ppo", seed=3)
    first, second = (learner.build(lambda: nn.Linear(4, 4)) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, make_learner("ppo", seed=4).build(lambda: nn.Linear(4, 4)).weight)


def test_learning_rates_follow_their_schedules_by_the_clock() -> None:
    learner = make_learner("ppo", learning_rate={"start": 0.4, "end": 0.0}, max_grad_norm=0.25)
    own = learner.add_optimizer(nn.Linear(2, 2).parameters(), learner.config.clip_range, max_grad_norm=None)
    assert (learner.optimizer.max_grad_norm, own.max_grad_norm) == (0.25, None)
    for env_steps, rate in ((0, 0.4), (500, 0.2), (1000, 0.0)):
        learner.clock.env_steps = env_steps
        learner.set_learning_rates()
        assert float(learner.optimizer.learning_rate) == pytest.approx(rate)
        assert float(own.learning_rate) == learner.scheduled(learner.config.clip_range)
        np.testing.assert_allclose(learner.scheduled_tensor(learner.config.learning_rate), rate, rtol=1e-6)
