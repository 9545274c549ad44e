"""Wrappers by name: applied in order to every environment of a run, refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, TimeAwareObservation, TransformReward

from rl_training.api.algorithms import PPO
from rl_training.config.loading import load_config
from rl_training.envs.factory import make_env, make_vector_env
from rl_training.errors import ConfigError, EnvError
from rl_training.runtime.workflows import evaluate_checkpoint, resume, train
from run_cases import ROLLOUT, Case, assert_same_run, stop_at

TIME = "gymnasium.wrappers:TimeAwareObservation"
CLIP = {"wrapper": "gymnasium.wrappers:ClipReward", "min_reward": 0.0, "max_reward": 0.5}
CASE = Case("ppo", num_envs=2, settings=ROLLOUT, options={"wrappers": [TIME, CLIP]})


def test_wrappers_are_applied_in_order() -> None:
    env = make_env("CartPole-v1", {"wrappers": [TIME, "gymnasium.wrappers:FlattenObservation"]})
    layers = []
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        layers.append(type(layer))
        layer = layer.env
    assert layers[:2] == [FlattenObservation, TimeAwareObservation]
    assert env.observation_space.shape == (5,)
    scaled = make_env("CartPole-v1", {"wrappers": CLIP})
    scaled.reset(seed=0)
    assert scaled.step(0)[1] == 0.5
    assert make_env("CartPole-v1", {"wrappers": []}).observation_space.shape == (4,)


@pytest.mark.parametrize("backend", ["auto", "sync", "async"])
def test_every_backend_of_single_envs_applies_them(backend: Any) -> None:
    envs = make_vector_env("CartPole-v1", 2, env_kwargs={"wrappers": [TIME]}, backend=backend)
    assert envs.single_observation_space.shape == (5,)
    envs.reset(seed=0)
    observations = envs.step(np.zeros(2, np.int64))[0]
    assert observations.shape == (2, 5)
    envs.close()


@pytest.mark.parametrize("backend", ["batched", "native"])
def test_vector_classes_refuse_them(backend: Any) -> None:
    with pytest.raises(EnvError, match="wrappers wrap single envs, use vector_backend 'sync' or 'async'"):
        make_vector_env("CartPole-v1", 2, env_kwargs={"wrappers": [TIME]}, backend=backend)
    with pytest.raises(EnvError, match="wrappers wrap single envs"):
        make_vector_env("ALE/Pong-v5", 2, env_kwargs={"wrappers": [TIME], "atari": True})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("no_such_module:Wrapper", r"wrappers\[0\]: no_such_module:Wrapper cannot be imported: ModuleNotFoundError"),
        ("gymnasium.wrappers:TimeAwareObservatio", "is not there: did you mean TimeAwareObservation"),
        ("os:system", "os:system is not a subclass of gymnasium.Wrapper"),
        ({"wrapper": TIME, "colour": 1}, "cannot wrap the env: TypeError.*colour"),
    ],
)
def test_a_wrapper_that_cannot_be_used_is_refused_in_one_line(entry: Any, words: str) -> None:
    with pytest.raises(EnvError, match=words) as refusal:
        make_env("CartPole-v1", {"wrappers": [entry]})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("TimeAwareObservation", "expected module:Class, such as gymnasium.wrappers:TimeAwareObservation"),
        ([{"flatten": True}], "needs the key wrapper"),
        (3, "wrappers: 3 is not valid"),
        ([gym.wrappers.TimeAwareObservation], "not the class: write 'gymnasium.wrappers.*:TimeAwareObservation'"),
        ([type("Local", (gym.Wrapper,), {"__module__": "a b"})], "not the class: define it in a module"),
        (gym.wrappers.TimeAwareObservation, "not the class: write 'gymnasium.wrappers.*:TimeAwareObservation'"),
    ],
)
def test_a_setting_that_is_no_name_is_refused(value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config({"algo": "ppo", "env_id": "CartPole-v1", "wrappers": value})
    with pytest.raises(EnvError, match="wrappers"):
        make_env("CartPole-v1", {"wrappers": value})


def test_a_wrapped_run_resumes_exactly_and_is_evaluated_as_it_was_trained(tmp_path: Path) -> None:
    whole = train(CASE.config(tmp_path / "whole"), show=False)
    half = train(CASE.config(tmp_path / "halves"), show=False, callback=stop_at(CASE.steps // 2))
    assert_same_run(whole.run_dir, resume(half.run_dir, show=False).run_dir)
    again = evaluate_checkpoint(whole.run_dir, episodes=2)
    assert all(score == 0.5 * length for score, length in zip(again.returns, again.lengths, strict=True))


def test_the_yaml_form_and_the_class_take_them(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"algo: ppo\nenv_id: CartPole-v1\nwrappers:\n  - {TIME}\n"
        "  - {wrapper: 'gymnasium.wrappers:ClipReward', min_reward: 0.0, max_reward: 0.5}\n"
    )
    config = load_config(tmp_path / "run.yaml")
    assert config.wrappers == (TIME, CLIP)
    assert config.training_kwargs == config.evaluation_kwargs == {"wrappers": [TIME, CLIP]}
    overridden = load_config(tmp_path / "run.yaml", {"wrappers": [TIME]})
    assert overridden.wrappers == (TIME,)
    agent = PPO("CartPole-v1", wrappers=[TIME], output_dir=str(tmp_path))
    assert agent.agent.spaces.observation_shape == (5,)
    with pytest.raises(EnvError, match="wrappers: the given vector env is already made"):
        train(config, env=gym.make_vec("CartPole-v1", num_envs=1), show=False)
    assert TransformReward.__name__  # the wrappers of gymnasium are classes like any other
