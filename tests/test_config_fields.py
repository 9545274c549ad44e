"""Every field of every config: unknown neighbours, wrong types and values out of range are refused."""

from __future__ import annotations

from typing import Any

import pytest

from config_cases import BASE, BUILT_IN, refused
from rl_training.config.base import Schedule, leaf_types
from rl_training.config.messages import sections
from rl_training.config.train import TrainConfig
from rl_training.experiment.config import describe_config

# Every numeric field and values just outside of what it may be. A schedule is tried as a number.
OUT_OF_RANGE: dict[str, list[float]] = {
    "seed": [-1, 2**63],
    "total_timesteps": [0, -5],
    "num_envs": [0],
    "env_timeout": [0, -1.5],
    "threads": [0],
    "log_every": [0],
    "eval_every": [-1],
    "eval_episodes": [0],
    "checkpoint_every": [-1],
    "keep_checkpoints": [0],
    "observation_clip": [0.0],
    "encoder_size": [0],
    "gamma": [0.0, 1.001],
    "max_grad_norm": [0.0],
    "reward_scale": [0.0],
    "reward_clip": [0.0],
    "num_steps": [0],
    "gae_lambda": [-0.01, 1.01],
    "learning_rate": [-1e-9],
    "entropy_coef": [-0.1],
    "value_coef": [-0.1],
    "minibatch_size": [0],
    "update_epochs": [0],
    "clip_range": [-0.1],
    "rho_bar": [0.0, -1.0],
    "c_bar": [0.0],
    "pg_rho_bar": [0.0],
    "num_minibatches": [0],
    "kl_coef": [-0.1],
    "value_clip_range": [0.0],
    "target_kl": [0.0],
    "adam_epsilon": [0.0],
    "rmsprop_decay": [-0.1, 1.0],
    "optimizer_epsilon": [0.0],
    "buffer_size": [0],
    "batch_size": [0],
    "learning_starts": [-1],
    "train_frequency": [0],
    "gradient_steps": [0, -2],
    "n_step": [0],
    "warm_up_repeat": [0],
    "priority_exponent": [-0.1, 1.1],
    "importance_exponent": [-0.1, 1.1],
    "priority_epsilon": [0.0],
    "exploration": [-0.1, 1.1],
    "target_update_every": [0],
    "tau": [0.0, 1.1],
    "actor_learning_rate": [-1e-9],
    "critic_learning_rate": [-1e-9],
    "temperature_learning_rate": [-1e-9],
    "exploration_noise": [-0.1],
    "policy_delay": [0],
    "target_noise": [-0.1],
    "target_noise_clip": [-0.1],
    "temperature": [0.0],
    "initial_temperature": [0.0],
    "dual_learning_rate": [-1e-9],
    "num_action_samples": [0],
    "improvement_kl": [0.0],
    "mean_kl": [0.0],
    "covariance_kl": [0.0],
    "penalty_kl": [0.0],
    "initial_mean_multiplier": [0.0],
    "initial_covariance_multiplier": [0.0],
    "max_kl": [-1e-9],
    "damping": [-0.1],
    "conjugate_gradient_steps": [0],
    "line_search_steps": [0],
    "line_search_decay": [0.0, 1.0],
    "policy_phases": [0],
    "auxiliary_epochs": [0],
    "auxiliary_minibatch_size": [0],
    "auxiliary_learning_rate": [-1e-9],
    "clone_coef": [-0.1],
    "num_atoms": [1],
    "memory_size": [0],
    "memory_layers": [0],
    "sequence_length": [0],
}
UNBOUNDED = {"initial_log_std", "target_entropy", "support_low", "support_high"}


def every_field() -> list[tuple[str, str, str]]:
    """(algorithm, section, field) for each setting; what all algorithms share is tried once, under ppo."""
    rows = []
    for algo in BUILT_IN:
        for section, model in sections(TrainConfig, algo).items():
            if algo == "ppo" or section == "algo_kwargs":
                rows += [(algo, section, name) for name in model.model_fields]
    return rows


def place(algo: str, section: str, name: str, value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {**BASE, "algo": algo}
    return {**data, section: {name: value}} if section else {**data, name: value}


@pytest.mark.parametrize(("algo", "section", "name"), every_field())
def test_unknown_sibling_of_every_field_is_refused_with_its_dotted_key_and_the_nearest(algo, section, name):
    dotted = f"{section}.{name}" if section else name
    message = refused(place(algo, section, name + "x", 1))
    assert message.startswith(f"{dotted}x: unknown key, did you mean ")
    assert dotted in message.split("did you mean ")[1]


@pytest.mark.parametrize(("algo", "section", "name"), every_field())
def test_wrong_type_for_every_field_is_refused_with_its_dotted_key(algo, section, name):
    accepted = leaf_types(sections(TrainConfig, algo)[section].model_fields[name].annotation)
    wrong: list[Any] = [[[]], float("nan"), [{"a": 1}]]
    if str not in accepted or name in ("threads", "temperature", "target_entropy"):
        wrong += ["abc", "\x1b[31mred\n" * 50]
    if bool not in accepted:
        wrong += [True, [False]]
    if accepted & {bool, str, dict, tuple} and not accepted & {int, float}:
        wrong += [1, 2.5]
    if int in accepted and float not in accepted:
        wrong += [1.5, "1.5"]
    dotted = f"{section}.{name}" if section else name
    for value in wrong:
        message = refused(place(algo, section, name, value))
        assert message.startswith(dotted), (value, message)
        assert len(message) < 400


@pytest.mark.parametrize(("algo", "section", "name"), every_field())
def test_out_of_range_value_of_every_number_is_refused_with_what_is_allowed(algo, section, name):
    accepted = leaf_types(sections(TrainConfig, algo)[section].model_fields[name].annotation)
    if name == "hidden_sizes":
        assert "model.hidden_sizes[1]: 0 is not valid" in refused(place(algo, section, name, [8, 0]))
        return
    bad = OUT_OF_RANGE.get(name, [])
    is_number = bool(accepted & {int, float, Schedule})
    assert is_number == (bool(bad) or name in UNBOUNDED), f"{name} has no row in the table of this test"
    dotted = f"{section}.{name}" if section else name
    for value in bad:
        message = refused(place(algo, section, name, value))
        assert message.startswith(f"{dotted}: {value} is "), message
        assert "expected" in message and any(sign in message for sign in (">", "<"))


@pytest.mark.parametrize("algo", BUILT_IN)
def test_every_setting_is_described_by_one_sentence(algo):
    rows = describe_config(algo)
    assert [row.key for row in rows][:2] == ["algo", "env_id"]
    assert {"model.hidden_sizes", "algo_kwargs.gamma"} <= {row.key for row in rows}
    for row in rows:
        assert row.description.endswith(".") and "\n" not in row.description, row
        assert row.type and "class" not in row.type and "typing" not in row.type, row


def test_described_types_and_defaults_read_like_yaml():
    rows = {row.key: row for row in describe_config("dqn")}
    assert rows["threads"][1:3] == ("auto or integer >= 1", "auto")
    assert rows["algo_kwargs.gamma"][1:3] == ("number > 0 and <= 1", "0.99")
    assert rows["algo_kwargs.gradient_steps"].type == "-1 or integer >= 1"
    assert rows["algo_kwargs.exploration"].default == "{start: 1.0, end: 0.05, over: null}"
    assert rows["algo_kwargs.tau"][1:3] == ("number > 0 and <= 1 or null", "null")
    assert rows["model.hidden_sizes"][1:3] == ("list of integers >= 1", "[64, 64]")
    assert rows["env_id"].default == "required"
