"""`Agent.act`: the one way to play an agent, from raw observations to actions in the units of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from bare_agent import bare_agent
from rl_training.algorithms.common.learner import Action
from rl_training.envs.spaces import Spaces
from rl_training.experiment.registry import get_spec
from rl_training.runtime.agent import Agent
from rl_training.storage.checkpoints import latest_checkpoint
from tiny_runs import EVERY_ALGORITHM, some_observations, train_tiny

OBSERVATIONS = gym.spaces.Dict({"place": gym.spaces.Discrete(3), "speed": gym.spaces.Box(-1, 1, (2,), np.float32)})
ACTIONS = gym.spaces.Box(np.array([0.0, -4.0], np.float32), np.array([10.0, 4.0], np.float32))


class Recorder:
    """Acts with zeros, which is the middle of the bounds, and counts the steps of each row in its memory."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def act(self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None, memory: Any) -> Action:
        self.calls.append({"obs": obs.copy(), "explore": explore, "starts": episode_starts, "memory": memory})
        assert obs.flags.c_contiguous
        return Action(np.zeros((len(obs), 2), np.float32), memory=(memory or 0) + 1)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def agent(recorder: Recorder) -> Agent:
    return bare_agent(recorder, Spaces(OBSERVATIONS, ACTIONS))


def samples(count: int) -> list[Any]:
    OBSERVATIONS.seed(0)
    return [OBSERVATIONS.sample() for _ in range(count)]


def test_act_encodes_unscales_and_carries_memory(agent: Agent, recorder: Recorder) -> None:
    observations = samples(3)
    actions, memory = agent.act(observations)
    np.testing.assert_array_equal(actions, [[5.0, 0.0]] * 3)
    assert actions.dtype == ACTIONS.dtype and memory == 1
    starts = np.array([False, True, False])
    agent.act(observations, memory, starts, deterministic=False)
    first, second = recorder.calls
    np.testing.assert_array_equal(first["obs"], agent.spaces.encode(observations))
    assert (first["explore"], first["starts"], first["memory"]) == (False, None, None)
    assert (second["explore"], second["memory"]) == (True, 1) and second["starts"] is starts


def test_predict_and_predict_episode_are_act(agent: Agent, recorder: Recorder) -> None:
    observations = samples(4)
    whole = agent.predict_episode(observations)
    episode, recorder.calls = recorder.calls, []
    memory: Any = None
    for step, observation in enumerate(observations):
        action, memory = agent.predict(observation, state=memory, episode_start=np.array(step == 0))
        np.testing.assert_array_equal(action, whole[step])
    np.testing.assert_equal(recorder.calls, episode)
    batch, _ = agent.predict({name: np.array([each[name] for each in observations]) for name in OBSERVATIONS})
    np.testing.assert_array_equal(batch, agent.act(observations)[0])
    np.testing.assert_array_equal(recorder.calls[-2]["obs"], recorder.calls[-1]["obs"])


@EVERY_ALGORITHM
def test_the_hooks_of_the_registry_are_the_methods_of_the_agent(algorithm: str, tmp_path: Path) -> None:
    result = train_tiny(algorithm, tmp_path)
    spec, observations = get_spec(algorithm), some_observations(algorithm, 4)
    agent = spec.load(latest_checkpoint(result.run_dir))
    assert isinstance(agent, Agent)
    np.testing.assert_array_equal(spec.predict(agent, observations)[0], result.agent.predict(observations)[0])
    np.testing.assert_array_equal(agent.act(observations)[0], agent.predict(observations)[0])
    assert spec.evaluate(agent, episodes=1) == result.evaluation == agent.evaluate(episodes=1)
