"""NaN and infinity do not act: in the weights of a checkpoint, in observations, in actions, and in evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from bare_agent import bare_agent
from checkpoint_helpers import sign_again
from cli_helpers import call
from rl_training.algorithms.common.learner import Action
from rl_training.api import PPO
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, ConfigError, NumericalError
from rl_training.runtime.agent import Agent
from rl_training.runtime.loops import Loop
from rl_training.runtime.workflows import agent_of, train
from rl_training.storage.checkpoints import load_checkpoint
from rl_training.storage.tensor_files import read_arrays, write_arrays
from tiny_runs import EVERY_ALGORITHM, tiny_config, train_tiny

BAD = [float("nan"), float("inf"), float("-inf")]


@EVERY_ALGORITHM
def test_a_weight_that_is_not_finite_is_refused_with_its_name(algorithm: str, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(train_tiny(algorithm, tmp_path).checkpoint)
    model = checkpoint.state["learner"]["parts"]["model"]
    name = next(name for name, tensor in model.items() if tensor.is_floating_point() and tensor.numel() > 1)
    weight = model[name].clone()
    for bad in BAD:
        weight.view(-1)[-1] = bad
        model[name] = weight
        with pytest.raises(CheckpointError, match=rf"learner\.parts\.model\.{name} has values that are not finite"):
            Agent.load(replace(checkpoint))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_tiny("ppo", tmp_path_factory.mktemp("saved")).checkpoint


def test_every_command_that_acts_refuses_nan_weights(saved: Path) -> None:
    path = saved / "tensors.safetensors"
    good = path.read_bytes()
    arrays = read_arrays(path)
    name = next(name for name in arrays if "/model/" in name and arrays[name].dtype == np.float32)
    arrays[name].reshape(-1)[0] = np.nan
    path.unlink()
    write_arrays(path, arrays)
    sign_again(saved)
    try:
        for command in (["predict", "--obs", "[0, 0, 0, 0]"], ["eval"], ["play"]):
            outcome = call(command[0], saved, *command[1:])
            assert outcome.code == 5, outcome
            assert "not finite" in outcome.err and len(outcome.err.splitlines()) == 1
        with pytest.raises(CheckpointError, match="not finite"):
            PPO.load(saved)
    finally:
        path.write_bytes(good)
        sign_again(saved)


@pytest.mark.parametrize("bad", BAD)
def test_an_observation_that_is_not_finite_is_refused_with_its_place(saved: Path, bad: float) -> None:
    agent = agent_of(saved)
    observations = np.zeros((3, 4), np.float32)
    observations[1, 2] = bad
    with pytest.raises(NumericalError, match=rf"^observation 1 of 3 is not finite, it has {bad} at position \[2\]"):
        agent.predict(observations)
    with pytest.raises(NumericalError, match=r"^the observation is not finite.* at position \[2\]") as caught:
        agent.predict(observations[1])
    assert (caught.value.field, caught.value.exit_code) == ("observation", 4)
    with pytest.raises(NumericalError, match="observation 1 of 3"):
        agent.predict_episode(observations)
    with pytest.raises(NumericalError, match="observation 1 of 3"):
        agent.act(list(observations))


def test_predict_on_the_command_line_refuses_infinity(saved: Path) -> None:
    for text in ("[0, 1e999, 0, 0]", "[0, 1e300, 0, 0]"):  # the second is finite only as a double
        outcome = call("predict", saved, "--obs", text)
        assert outcome.code == 4 and "position [1]" in outcome.err, outcome


def test_large_but_finite_numbers_are_accepted(saved: Path) -> None:
    agent_of(saved).predict(np.full(4, 1e30, np.float32))


class Constant:
    """Acts with the same number always."""

    def __init__(self, number: float):
        self.number = number

    def act(self, obs: np.ndarray, **options: Any) -> Action:
        return Action(np.full((len(obs), 1), self.number, np.float32))


def test_nan_in_an_image_is_refused_although_bytes_cannot_hold_it() -> None:
    image = gym.spaces.Box(0, 255, (3, 4, 4), np.uint8)
    agent = bare_agent(Constant(0.0), Spaces(image, gym.spaces.Box(-1, 1, (1,))))
    agent.predict(np.zeros((3, 4, 4), np.uint8))
    agent.act([np.zeros((3, 4, 4), np.uint8)] * 2)
    pixels = np.zeros((2, 3, 4, 4))
    pixels[1, 0, 3, 2] = np.nan
    with pytest.raises(NumericalError, match=r"observation 1 of 2 .*position \[0, 3, 2\]"):
        agent.predict(pixels)


def test_an_action_that_is_not_finite_is_refused() -> None:
    spaces = Spaces(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,)))
    with pytest.raises(NumericalError, match=r"^the action is not finite"):
        bare_agent(Constant(np.nan), spaces).predict(np.zeros(2, np.float32))


class Broken(gym.Env[Any, Any]):
    """Returns NaN as an observation or as a reward in its second step."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, what: str):
        self.what = what

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.elapsed = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        bad = np.nan if self.elapsed == 2 else 0.0
        observation = np.full(4, bad if self.what == "observation" else 0.0, np.float32)
        return observation, bad if self.what == "reward" else 0.0, self.elapsed == 4, False, {}


@pytest.mark.parametrize("what", ["observation", "reward"])
def test_an_env_that_returns_nan_in_an_evaluation_is_a_numerical_error(saved: Path, what: str) -> None:
    with pytest.raises(NumericalError, match=r"not finite.*fix the env") as caught:
        agent_of(saved).evaluate(env=lambda: Broken(what), episodes=2)
    assert caught.value.field == what


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_a_run_that_is_out_of_memory_ends_in_one_line(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(self: Loop, batch: Any) -> Any:
        raise error

    monkeypatch.setattr(Loop, "learn", learn)
    with pytest.raises(ConfigError, match=r"out of memory .*use smaller batches"):
        train_tiny("ppo", tmp_path)


def test_a_rollout_beyond_the_memory_there_is_is_refused_before_it_is_collected(tmp_path: Path) -> None:
    huge = {"num_steps": 10**13, "total_timesteps": 10**15}
    with pytest.raises(ConfigError, match=r"^algo_kwargs.num_steps: a rollout of .* GB available"):
        train(tiny_config("ppo", tmp_path / "runs", **huge), show=False)
    assert not (tmp_path / "runs").exists()
