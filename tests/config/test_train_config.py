"""Which settings are accepted and which are refused, with their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from config_cases import BASE, BUILT_IN, refused
from rl_training import errors
from rl_training.config.algorithms.ppo import PPOConfig
from rl_training.config.algorithms.sac import SACConfig
from rl_training.config.base import Schedule
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.experiment import registry


def test_defaults_are_those_of_the_algorithm():
    config = load_config(BASE)
    assert isinstance(config.algo_kwargs, PPOConfig)
    assert (config.algo_kwargs.num_steps, config.algo_kwargs.minibatch_size) == (2048, 64)
    assert config.model.hidden_sizes == (64, 64)
    assert load_config({**BASE, "algo": "sac"}).algo_kwargs == SACConfig()


@pytest.mark.parametrize("value", [1e6, "1e6", 1_000_000, "1_000_000", np.int64(1_000_000), np.float32(1e6)])
def test_whole_numbers_are_accepted_for_integers_however_they_are_written(value):
    total = load_config({**BASE, "total_timesteps": value}).total_timesteps
    assert total == 1_000_000 and type(total) is int


def test_numeric_text_is_accepted_for_numbers_and_large_integers_keep_every_digit():
    config = load_config({**BASE, "seed": str(2**63 - 1), "algo_kwargs": {"learning_rate": "1e-4", "gamma": "0.9"}})
    assert config.seed == 2**63 - 1
    assert config.algo_kwargs.learning_rate.at(0, 1) == 1e-4
    assert config.algo_kwargs.gamma == 0.9


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "inf", "nan", 1e400])
def test_numbers_that_are_not_finite_are_refused(value):
    assert "observation_clip" in refused({**BASE, "model": {"observation_clip": value}})
    assert "learning_rate" in refused({**BASE, "algo_kwargs": {"learning_rate": value}})


@pytest.mark.parametrize("name", ["a", "run-1_b.c", "x" * 64])
def test_run_names_that_are_safe_directory_names_are_accepted(name):
    assert load_config({**BASE, "run_name": name}).run_name == name


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-rf", "a/b", "a b", "a\n", "x" * 65, "é"])
def test_run_names_that_could_leave_the_output_directory_are_refused(name):
    assert refused({**BASE, "run_name": name}).startswith("run_name: ")


@pytest.mark.parametrize("algo", BUILT_IN)
def test_json_dump_round_trips(algo):
    config = load_config({**BASE, "algo": algo, "env_kwargs": {"a": [1, {"b": None}]}})
    dumped = config.model_dump(mode="json")
    assert set(dumped["algo_kwargs"]) == set(registry.get_config_class(algo).model_fields)
    assert TrainConfig.model_validate(dumped) == config


def test_configs_are_frozen():
    config = load_config(BASE)
    for model, name in ((config, "seed"), (config.model, "activation"), (config.algo_kwargs, "gamma")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(model, name, getattr(model, name))


def test_settings_of_another_algorithm_are_refused_as_an_object():
    with pytest.raises(ConfigError, match=r"^algo_kwargs: "):
        TrainConfig(algo="ppo", env_id="CartPole-v1", algo_kwargs=SACConfig())


def test_constructing_a_train_config_directly_gives_the_same_one_line_error():
    with pytest.raises(ConfigError, match=r"^seed: -1 is not valid, expected integer >= 0"):
        TrainConfig(algo="ppo", env_id="CartPole-v1", seed=-1)
    with pytest.raises(ConfigError, match=r"^config: 3 is not a mapping"):
        TrainConfig.model_validate(3)


def test_schedule_is_linear_then_constant():
    schedule = Schedule(start=1.0, end=0.0, over=100)
    assert [schedule.at(step, 1000) for step in (0, 25, 100, 101, 1000)] == [1.0, 0.75, 0.0, 0.0, 0.0]


def test_schedule_without_over_lasts_the_whole_run():
    schedule = Schedule(start=0.0, end=2.0)
    assert (schedule.at(0, 10), schedule.at(5, 10), schedule.at(10, 10)) == (0.0, 1.0, 2.0)


@given(
    st.floats(-1e6, 1e6),
    st.floats(-1e6, 1e6),
    st.integers(1, 10**6),
    st.integers(0, 10**7),
    st.integers(1, 10**7),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_schedule_never_leaves_its_two_ends(start, end, over, step, total):
    value = Schedule(start=start, end=end, over=over).at(step, total)
    slack = 1e-9 * max(abs(start), abs(end))
    assert min(start, end) - slack <= value <= max(start, end) + slack
    assert step < over or value == end


def test_plain_number_becomes_a_constant_schedule_and_is_dumped_as_a_number():
    config = PPOConfig.model_validate({"learning_rate": 1e-3, "clip_range": {"start": 0.2, "end": 0, "over": 7}})
    assert config.learning_rate.at(5, 10) == 1e-3
    dumped = config.model_dump(mode="json")
    assert dumped["learning_rate"] == 1e-3
    assert dumped["clip_range"] == {"start": 0.2, "end": 0.0, "over": 7}


def test_broken_schedules_name_the_part():
    def with_rate(value: Any) -> str:
        return refused({**BASE, "algo_kwargs": {"learning_rate": value}})

    assert with_rate({"start": 1}).startswith("algo_kwargs.learning_rate.end: missing")
    assert with_rate({"start": 1, "end": 0, "over": 0}).startswith("algo_kwargs.learning_rate.over: 0 is not valid")
    assert "did you mean algo_kwargs.learning_rate.over?" in with_rate({"start": 1, "end": 0, "ovr": 5})
    assert "number >= 0" in with_rate({"start": 1, "end": -1})


def test_minibatch_larger_than_a_rollout_is_refused_and_equal_is_not():
    data = {**BASE, "num_envs": 2, "algo_kwargs": {"num_steps": 8, "minibatch_size": 17}}
    message = refused(data)
    assert message.startswith("algo_kwargs.minibatch_size: 17") and "8 * 2 = 16" in message
    assert load_config(data, {"minibatch_size": 16}).algo_kwargs.minibatch_size == 16


def test_learning_must_start_before_the_run_ends():
    data = {**BASE, "algo": "dqn", "total_timesteps": 100}
    assert refused(data).startswith("algo_kwargs.learning_starts: 100 must be below total_timesteps (100)")
    assert load_config(data, ["learning_starts=99"]).algo_kwargs.learning_starts == 99


def test_replay_buffer_must_hold_a_batch_and_the_pending_steps_of_every_env():
    data = {**BASE, "algo": "sac"}
    assert "at least batch_size (256)" in refused(data, ["buffer_size=255"])
    assert "at least n_step * num_envs (300)" in refused(data, ["buffer_size=256", "n_step=3", "num_envs=100"])
    assert load_config(data, ["buffer_size=256"]).algo_kwargs.buffer_size == 256


def test_a_key_in_the_wrong_place_is_pointed_to_the_right_one():
    assert refused({**BASE, "learning_rate": 1}).endswith("did you mean algo_kwargs.learning_rate?")
    assert refused({**BASE, "model": {"gamma": 1}}).endswith("did you mean algo_kwargs.gamma?")
    assert refused({**BASE, "algo_kwargs": {"hiden_sizes": []}}).endswith("did you mean model.hidden_sizes?")
    assert refused({**BASE, "algo_kwargs": {"num_env": 1}}).endswith("did you mean num_envs?")


def test_an_unknown_key_without_a_close_match_gets_the_list_of_its_section():
    assert "model accepts hidden_sizes, activation" in refused({**BASE, "model": {"qqq": 1}})


def test_several_errors_are_counted_by_key():
    message = refused({**BASE, "seed": -1, "threads": "many", "algo_kwargs": {"gamma": 3}})
    assert message.startswith("seed: -1") and message.endswith("(and 2 more errors)")


def test_values_and_keys_from_outside_are_shortened_and_cleaned():
    message = refused({**BASE, "device": "\x1b]0;title\x07" + "y" * 500})
    assert "\x1b" not in message and "yyy..." in message and len(message) < 200
    assert len(refused({**BASE, "z\n\x1b" * 300: 1}).partition(":")[0]) <= 60


def test_keys_that_are_not_text_are_unknown_keys():
    assert refused({**BASE, 7: 1}).startswith("7: unknown key")
    assert refused({**BASE, "env_kwargs": {7: 1}}).startswith("env_kwargs")


def test_the_description_of_the_field_explains_the_error():
    assert "(Environment steps of the whole run)" in refused({**BASE, "total_timesteps": 0})


def test_exit_codes_are_those_of_the_command_line():
    codes = {
        kind: getattr(errors, kind).exit_code
        for kind in dir(errors)
        if isinstance(getattr(errors, kind), type) and issubclass(getattr(errors, kind), Exception)
    }
    assert codes == {
        "RLTrainingError": 1,
        "ConfigError": 2,
        "EnvError": 3,
        "NumericalError": 4,
        "CheckpointError": 5,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threads": 100_000}, "threads: 100000 .*<= 1024"),
        ({"num_envs": 10**9}, "num_envs: .*<= 65536"),
        ({"num_envs": 1025, "vector_backend": "async"}, "num_envs: 1025 .*at most 1,024"),
        ({"eval_episodes": 10**12}, "eval_episodes: "),
        ({"hidden_sizes": [10**9]}, r"model.hidden_sizes\[0\]: .*<= 65536"),
        ({"hidden_sizes": [1] * 101}, "model.hidden_sizes: .*at most 100 integers"),
        ({"encoder_size": 10**9}, "model.encoder_size: "),
        ({"algo": "recurrent_ppo", "memory_size": 10**9}, "algo_kwargs.memory_size: "),
        ({"algo": "recurrent_ppo", "memory_layers": 10**9}, "algo_kwargs.memory_layers: "),
        ({"algo": "c51", "num_atoms": 10**9}, "algo_kwargs.num_atoms: "),
        ({"algo": "mpo", "num_action_samples": 10**9}, "algo_kwargs.num_action_samples: "),
        ({"env_kwargs": {"atari": {"stack": 10**9}}}, "env_kwargs.atari.stack: "),
        ({"env_kwargs": {"image": {"resize": 10**9}}}, "env_kwargs.image.resize"),
    ],
)
def test_settings_that_no_machine_can_serve_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_config({"algo": "ppo", "env_id": "CartPole-v1"}, changes)
    assert len(str(caught.value)) < 500
