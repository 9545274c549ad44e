"""Defaults by algorithm and kind of environment: which numbers they are, and what wins over them."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from rl_training.config.algorithm_table import ALGORITHMS, Algorithm, register
from rl_training.config.base import OnPolicyConfig, RolloutConfig, Schedule
from rl_training.config.env_defaults import (
    Actions,
    EnvKind,
    Observations,
    env_defaults,
    given_over_defaults,
    image_options,
    image_side,
)
from rl_training.config.loading import list_presets, load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError

KINDS = [EnvKind(*pair) for pair in product(get_args(Observations), get_args(Actions))]
ANY = {"algo": "dqn", "env_id": "Any-v0", "defaults": "env"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_the_defaults_of_every_algorithm_and_kind_are_valid_settings(algorithm: str, kind: EnvKind) -> None:
    defaults = env_defaults(algorithm, kind)
    config = TrainConfig.model_validate({"algo": algorithm, "env_id": "Any-v0", **defaults})
    assert config.num_envs == (8 if isinstance(config.algo_kwargs, RolloutConfig) else 1)
    assert config.model.normalize_observations == (
        kind.observations == "vector" and isinstance(config.algo_kwargs, RolloutConfig)
    )


TABLE, VECTOR, IMAGE, SMALL = (EnvKind(word, "discrete") for word in get_args(Observations))
EXPECTED: dict[tuple[str, EnvKind], dict[str, Any]] = {
    ("ppo", TABLE): {"model.hidden_sizes": (), "learning_rate": 0.03, "entropy_coef": 0.01, "num_steps": 16},
    ("ppo", VECTOR): {"model.hidden_sizes": (64, 64), "normalize_rewards": True, "entropy_coef": 0.01, "num_steps": 64}
    | {"model.initial_log_std": None},
    ("ppo", EnvKind("vector", "continuous")): {"model.hidden_sizes": (64, 64), "entropy_coef": None, "num_steps": 256}
    | {"model.initial_log_std": -0.5},
    ("pqn", VECTOR): {"model.layer_norm": True, "model.activation": "relu"},
    ("ppo", IMAGE): {"model.hidden_sizes": (), "minibatch_size": 64, "update_epochs": 10},
    ("ppo", SMALL): {"model.encoder": "mlp"},
    ("dqn", VECTOR): {"exploration": {"start": 1.0, "end": 0.05, "over": 0.2}, "double": True, "num_envs": 1},
    ("sac", EnvKind("table", "continuous")): {"model.hidden_sizes": (256, 256)},
    ("dqn", TABLE): {"model.hidden_sizes": (128,), "tau": 0.01},
    ("dqn", IMAGE): {"buffer_size": 50_000},
    ("sac", EnvKind("vector", "continuous")): {"model.hidden_sizes": (256, 256), "model.activation": "relu"},
}


@pytest.mark.parametrize(("case", "expected"), EXPECTED.items(), ids=str)
def test_each_kind_has_its_own_numbers(case: tuple[str, EnvKind], expected: dict[str, Any]) -> None:
    defaults = env_defaults(*case)
    flat = defaults | defaults["algo_kwargs"] | {f"model.{key}": value for key, value in defaults["model"].items()}
    assert {name: flat.get(name) for name in expected} == expected


def test_an_algorithm_of_another_package_keeps_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.config.algorithm_table.ALGORITHMS", dict(ALGORITHMS))
    register(Algorithm("foreign", "Foreign", "none", "on-policy", ("discrete",), config=OnPolicyConfig))
    defaults = env_defaults("foreign", VECTOR)
    assert defaults["num_envs"] == 8 and defaults["model"]["normalize_observations"]
    assert "algo_kwargs" not in defaults


def test_given_settings_win_and_defaults_make_room_for_them() -> None:
    given = {"algo": "ppo", "env_id": "Any-v0", "num_envs": 2, "algo_kwargs": {"num_steps": 16, "gamma": 0.5}}
    merged = given_over_defaults(given, env_defaults("ppo", VECTOR))
    assert merged["num_envs"] == 2 and merged["algo_kwargs"]["gamma"] == 0.5
    assert merged["algo_kwargs"]["minibatch_size"] == 32, "not more than the rollout"
    given["algo_kwargs"] |= {"minibatch_size": 500}
    merged = given_over_defaults(given, env_defaults("ppo", VECTOR))
    assert merged["algo_kwargs"]["minibatch_size"] == 500, "a given value is refused later, not changed"
    replay = given_over_defaults({"algo_kwargs": {"buffer_size": 10}}, env_defaults("dqn", VECTOR))
    assert replay["algo_kwargs"]["batch_size"] == 10


def test_a_given_schedule_replaces_the_whole_default() -> None:
    given = {"algo_kwargs": {"exploration": {"start": 0.5, "end": 0.1, "over": None}}}
    merged = given_over_defaults(given, env_defaults("dqn", VECTOR))
    assert merged["algo_kwargs"]["exploration"] == {"start": 0.5, "end": 0.1, "over": None}


IMAGES = {
    "channels last": ((64, 64, 3), {}, False, {"image": True}),
    "large, channels last": ((96, 200, 3), {}, False, {"image": {"resize": 84}}),
    "large, channels first": ((3, 200, 200), {}, False, {"image": {"resize": 84}}),
    "as the encoder wants it": ((3, 64, 64), {}, False, {}),
    "Atari": ((210, 160, 3), {}, True, {"atari": True}),
    "given": ((210, 160, 3), {"image": {"stack": 2}}, True, {}),
    "given, but off": ((64, 64, 3), {"image": False}, False, {}),
}


@pytest.mark.parametrize("case", IMAGES)
def test_images_are_preprocessed_unless_the_user_decided(case: str) -> None:
    shape, env_kwargs, is_atari, expected = IMAGES[case]
    assert image_options(shape, env_kwargs, is_atari=is_atari) == expected


def test_the_side_of_an_image_is_not_its_channels() -> None:
    assert [image_side(shape) for shape in ((7, 9, 3), (3, 9, 7), (84, 84, 12), (12, 84, 84))] == [7, 7, 84, 84]


def test_an_incomplete_config_knows_only_what_was_given() -> None:
    config = load_config(ANY, ["gamma=0.9", "hidden_sizes=[3]", "seed=2"])
    given = {**ANY, "seed": 2, "model": {"hidden_sizes": [3]}, "algo_kwargs": {"gamma": 0.9}}
    assert config.model_dump(mode="json") == given
    copies = (load_config(config), config.model_copy(), TrainConfig.model_validate_json(config.model_dump_json()))
    assert all(copy.model_dump(mode="json") == given for copy in copies)
    assert load_config(config, {"seed": 3}).model_dump(mode="json") == given | {"seed": 3}


def test_an_incomplete_config_is_not_checked_against_values_that_it_will_not_have() -> None:
    # 16 steps of one environment are fewer than the 64 of a minibatch, but there will be eight environments.
    load_config({**ANY, "algo": "ppo"}, ["num_steps=16"])
    with pytest.raises(ConfigError, match="minibatch_size: 64 exceeds"):
        load_config({"algo": "ppo", "env_id": "Any-v0"}, ["num_steps=16"])


def test_a_part_of_a_schedule_is_refused_while_the_rest_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"exploration\.end: the rest of exploration depends on the environment"):
        load_config(ANY, ["exploration.end=0.1"])
    config = load_config(ANY, ["exploration={start: 1, end: 0, over: 0.5}", "exploration.end=0.1"])
    assert config.model_dump()["algo_kwargs"] == {"exploration": {"start": 1.0, "end": 0.1, "over": 0.5}}


def test_a_schedule_over_a_fraction_of_the_run() -> None:
    schedule = Schedule(start=1.0, end=0.0, over=0.25)
    assert [schedule.at(step, total=400) for step in (0, 50, 100, 300)] == [1.0, 0.5, 0.0, 0.0]
    assert Schedule(start=1, end=0, over=1).at(1, total=400) == 0.0, "1 is one step, not the whole run"
    assert Schedule.model_validate({"start": 1, "end": 0, "over": "1e3"}).over == 1000
    for over in (0, -0.5, 1.5):
        with pytest.raises(ConfigError, match=r"over: .* expected integer >= 1 or number > 0 and < 1 or null"):
            load_config("dqn/cartpole", {"exploration": {"start": 1, "end": 0, "over": over}})


PINNED = [name for name in list_presets() if load_config(name).vector_backend == "batched"]


@pytest.mark.parametrize("preset", PINNED)
def test_another_env_does_not_inherit_a_pinned_backend(preset: str) -> None:
    assert load_config(preset, {"env_id": "MyEnv-v0"}).vector_backend == "auto"
    assert load_config(preset, {"env_id": load_config(preset).env_id}).vector_backend == "batched"
    assert load_config(preset, {"env_id": "MyEnv-v0", "vector_backend": "batched"}).vector_backend == "batched"


def test_another_env_keeps_a_backend_that_every_env_has() -> None:
    config = {"algo": "ppo", "env_id": "One-v0", "vector_backend": "async"}
    assert load_config(config, {"env_id": "Two-v0"}).vector_backend == "async"
    assert load_config(load_config({**config, "vector_backend": "native"}), ["env_id=Two-v0"]).vector_backend == "auto"
    assert PINNED
