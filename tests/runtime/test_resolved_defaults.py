"""Any environment in one line: the command line, YAML and Python use the same defaults, and a run stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rl_training
from cli_helpers import call, write_config
from env_versions import newest_env_id
from rl_training.config.algorithm_table import ALGORITHMS, algorithm_names
from rl_training.config.env_defaults import EnvKind
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.runtime.setup.resolved_defaults import kind_of, resolve_defaults
from rl_training.runtime.workflows import resume, train
from run_cases import assert_same_run

MOVES = spaces.Discrete(2)


class Shown(gym.Env[Any, Any]):
    """Random observations of a given space; three steps per episode."""

    def __init__(self, space: spaces.Space[Any], actions: spaces.Space[Any] = MOVES) -> None:
        self.observation_space, self.action_space = space, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 3, False, {}


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


NUMBERS = spaces.Box(-1, 1, (3,))
KINDS: dict[str, tuple[spaces.Space[Any], str]] = {
    "Discrete": (spaces.Discrete(5), "table"),
    "Box": (NUMBERS, "vector"),
    "flat bytes": (image(12), "vector"),
    "MultiDiscrete": (spaces.MultiDiscrete([3, 4]), "vector"),
    "MultiBinary": (spaces.MultiBinary(4), "vector"),
    "Dict": (spaces.Dict({"place": spaces.Discrete(4), "speed": NUMBERS}), "vector"),
    "Tuple": (spaces.Tuple((spaces.Discrete(4), spaces.Discrete(2))), "vector"),
    "channels last": (image(40, 48, 3), "image"),
    "channels first": (image(3, 40, 40), "image"),
    "small": (image(7, 7, 3), "small image"),
}


@pytest.mark.parametrize("case", KINDS)
def test_the_spaces_tell_the_kind(case: str) -> None:
    space, observations = KINDS[case]
    assert kind_of(Spaces(space, MOVES)) == (observations, "discrete")
    assert kind_of(Spaces(space, NUMBERS)) == EnvKind(observations, "continuous")  # type: ignore[arg-type]


@pytest.mark.parametrize("case", KINDS)
@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_every_kind_of_observation_trains_without_a_setting(case: str, algorithm: str, tmp_path: Path) -> None:
    space, _ = KINDS[case]
    agent = getattr(rl_training, algorithm)(lambda: Shown(space), output_dir=str(tmp_path), eval_episodes=1)
    agent.learn(128, show=False)
    assert agent.env_steps == 128


def test_a_large_image_is_made_smaller_and_channels_come_first() -> None:
    config = TrainConfig(algo="ppo", env_id="callable:Shown", defaults="env")
    resolved = resolve_defaults(config, lambda: Shown(image(200, 160, 3)))
    assert resolved.env_kwargs == {"image": {"resize": 84}} and resolved.model.hidden_sizes == ()
    small = resolve_defaults(config, lambda: Shown(image(8, 8, 3)))
    assert small.env_kwargs == {"image": True} and small.model.encoder == "mlp"


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_images_beside_vectors_get_the_replay_buffer_of_images(algorithm: str) -> None:
    actions = MOVES if "discrete" in ALGORITHMS[algorithm].actions else NUMBERS
    both = spaces.Dict({"camera": image(40, 40, 3), "speed": NUMBERS})
    config = TrainConfig(algo=algorithm, env_id="callable:Shown", defaults="env")
    mixed = resolve_defaults(config, lambda: Shown(both, actions))
    vectors = resolve_defaults(config, lambda: Shown(NUMBERS, actions))
    assert getattr(mixed.algo_kwargs, "buffer_size", 50_000) == 50_000
    assert mixed.model == vectors.model


def test_atari_gets_its_protocol() -> None:
    pytest.importorskip("ale_py")
    resolved = resolve_defaults(load_config({"algo": "dqn", "env_id": "ALE/Pong-v5", "defaults": "env"}))
    assert resolved.env_kwargs == {"atari": True} and resolved.algo_kwargs.reward_clip == 1.0
    given = {"algo": "dqn", "env_id": "ALE/Pong-v5", "defaults": "env", "env_kwargs": {"atari": {"stack": 2}}}
    assert resolve_defaults(load_config(given)).env_kwargs == {"atari": {"stack": 2}}


TAXI = newest_env_id("Taxi")
SURFACES = {"ppo": "CartPole-v1", "dqn": TAXI, "sac": "Pendulum-v1"}


@pytest.mark.parametrize("algorithm", SURFACES)
def test_command_line_yaml_and_python_agree(algorithm: str, tmp_path: Path) -> None:
    env_id = SURFACES[algorithm]
    short = {"total_timesteps": 128, "eval_episodes": 1, "eval_max_steps": 5, "run_name": "one"}
    options = [f"--set={key}={value}" for key, value in short.items()] + ["--set=gamma=0.9"]
    folder = tmp_path / "line"
    assert call("train", algorithm, "--env", env_id, *options, "--output-dir", folder, "--quiet").code == 0
    file = {"algo": algorithm, "env_id": env_id, "defaults": "env", "algo_kwargs": {"gamma": 0.9}, **short}
    path = write_config(tmp_path / "one.yaml", file)
    assert call("train", path, "--output-dir", tmp_path / "file", "--quiet").code == 0
    agent = getattr(rl_training, algorithm.upper())(env_id, gamma=0.9, output_dir=str(tmp_path / "python"), **short)
    agent.learn(128, show=False)
    line, yaml, python = (
        load_config(tmp_path / name / "one" / "config.yaml").model_dump() for name in ("line", "file", "python")
    )
    for config in (line, yaml, python):
        del config["output_dir"]
    assert line == yaml == python
    resolved = resolve_defaults(load_config(path)).model_dump()
    assert line["model"] == resolved["model"] and line["algo_kwargs"] == resolved["algo_kwargs"]
    assert line["algo_kwargs"]["gamma"] == 0.9
    assert line["model"] != load_config({"algo": algorithm, "env_id": env_id}).model_dump()["model"]


def test_a_file_without_the_word_keeps_the_listed_defaults(tmp_path: Path) -> None:
    path = write_config(tmp_path / "old.yaml", {"algo": "dqn", "env_id": TAXI})
    config = load_config(path)
    assert resolve_defaults(config) is config
    fixed = rl_training.DQN(TAXI, defaults="fixed").config
    assert fixed.model == config.model and fixed.algo_kwargs == config.algo_kwargs


def test_a_vector_env_of_the_caller_keeps_its_number() -> None:
    envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    assert rl_training.PPO(envs).config.num_envs == 3
    envs.close()


def test_a_function_that_returns_one_env_again_and_again_is_refused(tmp_path: Path) -> None:
    env = Shown(NUMBERS)
    with pytest.raises(EnvError, match="env: its function returns the same object again; make a new"):
        rl_training.PPO(lambda: env, output_dir=str(tmp_path)).learn(64, show=False)
    assert not list(tmp_path.iterdir())
    rl_training.PPO(lambda: env, output_dir=str(tmp_path), num_envs=1, eval_max_steps=50).learn(64, show=False)


def test_a_run_with_defaults_resumes_exactly(tmp_path: Path) -> None:
    changes = {"total_timesteps": 400, "checkpoint_every": 200, "eval_episodes": 1, "log_every": 50}
    source = {"algo": "dqn", "env_id": "FrozenLake-v1", "defaults": "env", **changes}
    whole = train(load_config(source, {"output_dir": str(tmp_path / "whole")}), show=False)
    config = load_config(source, {"output_dir": str(tmp_path / "parts")})
    parts = train(config, show=False, callback=lambda progress: progress.env_steps < 200)
    resumed = resume(parts.run_dir, show=False)
    assert_same_run(whole.run_dir, resumed.run_dir)


@pytest.mark.parametrize(
    ("algorithm", "space", "actions", "text"),
    [
        ("DQN", NUMBERS, NUMBERS, "dqn takes Discrete actions, but callable:.* has Box: use ppo, a2c"),
        ("SAC", NUMBERS, MOVES, "sac takes Box actions, but callable:.* has Discrete: use ppo, a2c"),
        ("PPO", spaces.Text(5), MOVES, "observation has the space Text.* not supported: wrap the env"),
        ("PPO", NUMBERS, spaces.Text(5), "action space Text.* not supported: wrap the env"),
    ],
)
def test_an_env_that_does_not_fit_is_refused_with_the_way_out(
    algorithm: str, space: spaces.Space[Any], actions: spaces.Space[Any], text: str
) -> None:
    with pytest.raises(EnvError, match=text):
        getattr(rl_training, algorithm)(lambda: Shown(space, actions))
