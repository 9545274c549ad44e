"""Evaluation: full episodes on envs of its own, one seed each, raw returns, and no trace left behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from bare_agent import bare_agent
from endless_env import EndlessEnv
from probe_suite import action_kinds, build_loop
from rl_training.algorithms.common.learner import Action
from rl_training.api import PPO
from rl_training.envs.factory import make_env
from rl_training.envs.probes import MatchObservationProbe, probe_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.experiment.registry import algorithm_names
from rl_training.runtime import evaluation
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult, evaluate
from rl_training.storage.state_tree import state_hash


class SeededWalk(gym.Env[Any, Any]):
    """How long an episode lasts and what it pays follow from its seed and the actions taken."""

    made: list[SeededWalk] = []

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.seeds: list[int | None] = []
        self.closed = False
        self.made.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.left = int(self.np_random.integers(1, 9))
        self.truncates = bool(self.np_random.integers(2))
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.left > 0, "stepped after the end"
        self.left -= 1
        reward = 1000.0 * self.np_random.random() + float(action)
        over = self.left == 0
        return self._look(), reward, over and not self.truncates, over and self.truncates, {}

    def _look(self) -> np.ndarray:
        return np.array([self.np_random.normal(), self.left], np.float32)

    def close(self) -> None:
        self.closed = True


class SignLearner:
    """Acts by the sign of what it sees; with `remembers`, by how many steps its slot has seen since a start."""

    def __init__(self, remembers: bool = False):
        self.remembers = remembers
        self.calls: list[tuple[np.ndarray, bool]] = []
        self.memories: list[Any] = []

    def act(self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray, memory: Any) -> Action:
        self.calls.append((episode_starts.copy(), explore))
        self.memories.append(memory)
        if not self.remembers:
            return Action((obs[:, 0] > 0).astype(np.int64))
        counts = np.zeros(len(obs), np.int64) if memory is None else memory
        counts = np.where(episode_starts, 0, counts) + 1
        return Action(counts % 2, memory=counts)


@pytest.fixture(autouse=True)
def forget_made_envs() -> Iterator[None]:
    SeededWalk.made.clear()
    yield
    SeededWalk.made.clear()


def play(learner: Any, episodes: int, seed: int = 50, **options: Any) -> EvalResult:
    env = SeededWalk()
    SeededWalk.made.clear()
    spaces = Spaces(env.observation_space, env.action_space)
    return evaluate(bare_agent(learner, spaces), SeededWalk, episodes=episodes, seed=seed, **options)


@pytest.mark.parametrize("side_by_side", [1, 3, 32])
def test_every_episode_has_its_own_seed_however_many_envs_there_are(
    side_by_side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MOST_ENVS_AT_ONCE", side_by_side)
    play(SignLearner(), 10)
    assert sorted(seed for env in SeededWalk.made for seed in env.seeds) == list(range(50, 60))
    assert len(SeededWalk.made) == min(side_by_side, 10)
    assert all(env.closed for env in SeededWalk.made)


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("side_by_side", [3, 32])
def test_side_by_side_equals_one_by_one(remembers: bool, side_by_side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [play(SignLearner(remembers), 1, seed=50 + i) for i in range(10)]
    monkeypatch.setattr(evaluation, "MOST_ENVS_AT_ONCE", side_by_side)
    together = play(SignLearner(remembers), 10)
    assert together.returns == tuple(result.returns[0] for result in alone)
    assert together.lengths == tuple(result.lengths[0] for result in alone)
    assert len(set(together.lengths)) > 3


def test_the_memory_of_each_slot_is_carried_through_its_episodes() -> None:
    learner = SignLearner(remembers=True)
    result = play(learner, 2)
    assert learner.memories[0] is None
    counts = np.array(learner.memories[1:])
    for slot, length in enumerate(result.lengths):
        assert counts[: length - 1, slot].tolist() == list(range(1, length))
    assert max(result.lengths) > 2


def test_starts_are_told_once_per_episode() -> None:
    learner = SignLearner()
    result = play(learner, 40)
    starts = np.array([starts for starts, _ in learner.calls])
    assert starts[0].all()
    # A slot whose episodes are used up is told of its last end once and never again.
    assert 40 <= starts.sum() <= 40 + 32
    assert len(result.returns) == 40


def test_returns_are_raw_sums_and_the_summary_says_what_they_are() -> None:
    result = play(SignLearner(), 3)
    env = SeededWalk()
    for number, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        obs, _ = env.reset(seed=50 + number)
        rewards, over = [], False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(int(obs[0] > 0))
            rewards.append(reward)
            over = terminated or truncated
        assert total == pytest.approx(sum(rewards))
        assert length == len(rewards)
    assert result.summary() == {
        "mean_return": pytest.approx(np.mean(result.returns)),
        "std_return": pytest.approx(np.std(result.returns)),
        "episodes": 3,
    }


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_learner_is_told_whether_to_explore(deterministic: bool) -> None:
    learner = SignLearner()
    play(learner, 2, deterministic=deterministic)
    assert {explore for _, explore in learner.calls} == {not deterministic}


def test_the_default_seed_is_the_documented_one() -> None:
    env = SeededWalk()
    agent = bare_agent(SignLearner(), Spaces(env.observation_space, env.action_space))
    evaluate(agent, SeededWalk, episodes=1)
    assert SeededWalk.made[1].seeds == [DEFAULT_SEED] == [10_000]


def test_envs_are_closed_when_one_of_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: SeededWalk, action: Any) -> Any:
        raise RuntimeError("broken env")

    monkeypatch.setattr(SeededWalk, "step", fail)
    with pytest.raises(EnvError, match=r"step of an evaluation .*in fail: RuntimeError: broken env") as caught:
        play(SignLearner(), 4)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert len(SeededWalk.made) == 4
    assert all(env.closed for env in SeededWalk.made)


@pytest.mark.parametrize("algo", algorithm_names())
def test_a_deterministic_evaluation_leaves_no_trace_in_the_learner(algo: str) -> None:
    continuous = action_kinds(algo)[-1]
    envs = probe_vector_env(MatchObservationProbe, 2, continuous=continuous)
    loop = build_loop(algo, envs, steps=300)
    for _ in loop:
        pass
    learner = loop.learner
    before = state_hash(learner.state_dict())
    first, second = (
        evaluate(
            bare_agent(learner, learner.spaces),
            lambda: MatchObservationProbe(continuous=continuous),
            episodes=20,
            seed=7,
        )
        for _ in range(2)
    )
    assert state_hash(learner.state_dict()) == before
    assert first == second
    # Two observations: a policy without noise has two outcomes at most, but for the last bits of a product, which may
    # depend on how many rows it has.
    assert len({round(total, 4) for total in first.returns}) <= 2


def test_an_evaluation_on_the_real_env_is_the_sum_of_its_rewards() -> None:
    class Still:
        def act(self, obs: np.ndarray, **options: Any) -> Action:
            return Action(np.zeros(len(obs), np.int64))

    env = make_env("CartPole-v1")
    result = evaluate(
        bare_agent(Still(), Spaces(env.observation_space, env.action_space)),
        lambda: make_env("CartPole-v1"),
        episodes=3,
        seed=1,
    )
    assert result.returns == tuple(float(length) for length in result.lengths)
    assert all(8 <= length <= 11 for length in result.lengths)


def test_an_evaluation_can_be_stopped_in_the_middle() -> None:
    agent = PPO(EndlessEnv, hidden_sizes=(8,)).agent
    answers = iter([False, False, True])
    stopped = partial(next, answers)
    assert evaluate(agent, EndlessEnv, episodes=1, stopped=stopped) is None
