"""The head of an algorithm's file states how it deviates from its paper, with the defaults that it really has."""

from __future__ import annotations

import re
import sys

import pytest

from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.experiment.registry import get_learner
from tiny_runs import env_of

# A default is written as a setting of the command line: `gamma=0.99`.
DEFAULT = re.compile(r"`(\w+)=([^`]+)`")
NETWORKS = {"hidden_sizes", "activation", "initialization", "importance_exponent"}
# The settings whose defaults differ from the paper, so that the head must name them.
DIFFERENT = {
    "dqn": NETWORKS | {"exploration", "learning_starts", "max_grad_norm"},
    "apex_dqn": NETWORKS - {"importance_exponent"}
    | {"samples_per_insert", "ticket_steps", "buffer_size", "learning_starts", "target_update_every"},
    "apex_d4pg": NETWORKS | {"tau", "samples_per_insert"},
    "c51": NETWORKS | {"exploration", "learning_starts", "max_grad_norm"},
    "qr_dqn": NETWORKS | {"exploration", "learning_starts", "max_grad_norm"},
    "iqn": NETWORKS | {"exploration", "learning_starts", "max_grad_norm"},
    "rainbow": NETWORKS | {"learning_starts", "max_grad_norm"},
    "pqn": NETWORKS - {"importance_exponent"} | {"exploration", "layer_norm"},
    "ddpg": NETWORKS | {"exploration_noise", "tau", "actor_learning_rate", "batch_size"},
    "td3": NETWORKS | {"learning_starts"},
    "apex_td3": NETWORKS | {"learning_starts", "samples_per_insert"},
    "sac": NETWORKS,
    "d4pg": NETWORKS | {"tau"},
    "naf": NETWORKS,
    "mpo": NETWORKS | {"tau"},
    "tqc": NETWORKS | {"num_critics", "learning_starts"},
    "td7": NETWORKS | {"learning_starts"},
    "crossq": NETWORKS | {"learning_starts"},
    "redq": NETWORKS | {"learning_starts"},
    "droq": NETWORKS | {"learning_starts"},
    "ppg": {"max_grad_norm", "entropy_coef", "gamma", "normalize_rewards"},
    "ppo": {"max_grad_norm", "entropy_coef", "value_coef"},
    "a2c": {"max_grad_norm", "entropy_coef", "value_coef"},
    "a3c": {"max_grad_norm", "entropy_coef"},
    "impala": {"entropy_coef", "value_coef"},
    "appo": {"normalize_advantages"},
    "trpo": {"entropy_coef", "max_grad_norm"},
    "recurrent_ppo": {"shared_memory"},
    "r2d2": NETWORKS | {"exploration", "max_grad_norm"},
    "acktr": {"entropy_coef", "value_coef", "learning_rate", "max_kl", "momentum"},
    "acer": {"entropy_coef", "value_coef", "max_grad_norm"},
}


def head_of(algorithm: str) -> str:
    return " ".join((sys.modules[get_learner(algorithm).__module__].__doc__ or "").split())


def defaults_of(algorithm: str) -> TrainConfig:
    return load_config({"algo": algorithm, "env_id": env_of(algorithm)})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_defaults_that_a_head_names_are_those_of_the_config(algorithm: str) -> None:
    config, head = defaults_of(algorithm), head_of(algorithm)
    assert "Deviations" in head
    for name, value in DEFAULT.findall(head):
        assert load_config(config, [f"{name}={value}"]) == config, f"{algorithm} names {name}={value}"


@pytest.mark.parametrize("algorithm", DIFFERENT)
def test_a_head_names_every_default_that_differs_from_the_paper(algorithm: str) -> None:
    assert DIFFERENT[algorithm] <= {name for name, _ in DEFAULT.findall(head_of(algorithm))}


def test_a_wrong_default_is_noticed() -> None:
    config = defaults_of("dqn")
    for changed in ("max_grad_norm=9", "exploration={start: 1.0, end: 0.05, over: 9}", "activation=relu"):
        assert load_config(config, [changed]) != config
