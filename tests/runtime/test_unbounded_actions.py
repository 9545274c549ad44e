"""Box actions without bounds: replay algorithms refuse them or get `action_bound`; Gaussian policies use them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml

from cli_helpers import call
from rl_training import resume
from rl_training.config.algorithm_table import ALGORITHMS, get_algorithm
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, EnvError
from rl_training.runtime.workflows import TrainResult, agent_of
from run_cases import assert_same_run
from tiny_runs import STEPS, Blocks, managed, tiny_config, train_function

TAKES_BOX = [name for name in ALGORITHMS if "box" in get_algorithm(name).actions]
BOUNDED = pytest.mark.parametrize("algorithm", [name for name in TAKES_BOX if get_algorithm(name).loop == "replay"])
GAUSSIAN = pytest.mark.parametrize("algorithm", [name for name in TAKES_BOX if get_algorithm(name).loop == "on-policy"])
OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (3,))
# Bounded, unbounded, and bounded on one side.
LOW, HIGH = np.float32([-1.0, -np.inf, 0.0, -np.inf]), np.float32([1.0, np.inf, np.inf, 1.0])
ENV_ID = "tests/Unbounded-v0"


class Recorder(Blocks):
    """Keeps every action that it gets."""

    def __init__(self, seen: list[np.ndarray] | None = None) -> None:
        # A new space: its generator, which samples observations, must not be shared between environments.
        super().__init__(gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(LOW, HIGH))
        self.seen = [] if seen is None else seen

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.seen.append(np.array(action))
        return super().step(action)


@pytest.fixture
def env_id() -> Any:
    gym.register(ENV_ID, Recorder)
    yield ENV_ID
    del gym.registry[ENV_ID]


@BOUNDED
def test_bounded_policies_refuse_them_with_both_ways_out(algorithm: str, tmp_path: Path) -> None:
    wanted = (
        f"callable:Recorder does not bound action[1] (-inf to inf) and 2 more, and {algorithm} acts within bounds: "
        "set action_bound, for example action_bound=2.0, or wrap the env with gymnasium.wrappers.TransformAction"
    )
    config = tiny_config(algorithm, tmp_path, env_id="callable:Recorder")
    with pytest.raises(EnvError) as of_a_run:
        train_function(algorithm)(config, env=Recorder, show=False)
    with pytest.raises(EnvError) as of_an_agent:
        managed(algorithm, tmp_path, Recorder)
    assert str(of_a_run.value) == str(of_an_agent.value) == wanted
    assert list(tmp_path.iterdir()) == []


def test_the_refusal_names_the_only_dimension_and_its_place(tmp_path: Path) -> None:
    low, high = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    high[1, 2] = np.inf
    with pytest.raises(EnvError, match=r"does not bound action\[1, 2\] \(0\.0 to inf\), and sac acts"):
        managed("sac", tmp_path, partial(Blocks, OBSERVATIONS, gym.spaces.Box(low, high)))


def train_bounded(algorithm: str, folder: Path, seen: list[np.ndarray] | None = None, **options: Any) -> TrainResult:
    """A run with `action_bound`, of which the first 48 steps are random actions."""
    settings = {"env_id": "callable:Recorder", "run_name": "run", "action_bound": 4.0, "learning_starts": 48}
    config = tiny_config(algorithm, folder, checkpoint_every=STEPS // 2, **settings)
    result: TrainResult = train_function(algorithm)(config, env=partial(Recorder, seen), show=False, **options)
    return result


@BOUNDED
def test_action_bound_is_the_bound_in_training_and_playing(algorithm: str, tmp_path: Path) -> None:
    seen: list[np.ndarray] = []
    trained = train_bounded(algorithm, tmp_path, seen)
    taken = np.stack(seen[:48])
    np.testing.assert_allclose(taken.min(0), [-1.0, -4.0, 0.0, -4.0], atol=0.9)
    np.testing.assert_allclose(taken.max(0), [1.0, 4.0, 4.0, 1.0], atol=0.9)
    assert yaml.safe_load((trained.run_dir / "config.yaml").read_text())["action_bound"] == 4.0

    loaded = agent_of(trained.run_dir)
    observations = np.random.default_rng(0).uniform(-1, 1, (9, 3)).astype(np.float32)
    actions, _ = loaded.act(observations)
    np.testing.assert_array_equal(actions, trained.agent.act(observations)[0])
    stored = loaded.learner.act(observations, explore=False).actions
    np.testing.assert_allclose(actions, stored * [1.0, 4.0, 2.0, 2.5] + [0.0, 0.0, 2.0, -1.5], rtol=1e-5, atol=1e-6)


def test_a_resumed_run_keeps_its_action_bound(tmp_path: Path) -> None:
    whole_actions: list[np.ndarray] = []
    whole = train_bounded("sac", tmp_path / "whole", whole_actions)
    actions: list[np.ndarray] = []
    half = train_bounded("sac", tmp_path / "half", actions, callback=lambda progress: progress.env_steps < STEPS // 2)
    assert len(actions) == STEPS // 2
    resume(half.run_dir, env=partial(Recorder, actions), show=False)
    np.testing.assert_array_equal(actions, whole_actions)
    assert_same_run(whole.run_dir, half.run_dir)


@GAUSSIAN
def test_a_gaussian_policy_acts_without_bounds_where_there_are_none(algorithm: str, tmp_path: Path) -> None:
    agent = managed(algorithm, tmp_path, Recorder, initial_log_std=1.5).agent
    observations = np.zeros((500, 3), np.float32)
    stored = agent.learner.act(observations, explore=True, episode_starts=np.ones(500, bool)).actions
    given = agent.spaces.to_env_actions(stored)
    assert np.abs(stored).min(1).max() > 2
    np.testing.assert_array_equal(given[:, 1], stored[:, 1])
    np.testing.assert_array_equal(given, np.clip(stored, LOW, HIGH))
    seen: list[np.ndarray] = []
    config = tiny_config(algorithm, tmp_path, env_id="callable:Recorder", initial_log_std=1.5)
    train_function(algorithm)(config, env=partial(Recorder, seen), show=False)
    assert np.abs(np.stack(seen)[:, 1]).max() > 4


@GAUSSIAN
def test_with_an_action_bound_a_gaussian_policy_is_scaled_and_clipped(algorithm: str, tmp_path: Path) -> None:
    agent = managed(algorithm, tmp_path, Recorder, action_bound=3.0).agent
    given = agent.spaces.to_env_actions(np.float32([[0.5] * 4, [9.0] * 4, [-9.0] * 4]))
    expected = [[0.5, 1.5, 2.25, 0.0], [1.0, 3.0, 3.0, 1.0], [-1.0, -3.0, 0.0, -3.0]]
    np.testing.assert_allclose(given, expected)


def test_the_wrapper_that_the_refusal_names_works(tmp_path: Path) -> None:
    def bounded() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformAction(Recorder(), np.float32, gym.spaces.Box(np.maximum(LOW, -2), np.float32(1)))

    agent = managed("sac", tmp_path, bounded).learn(show=False)
    assert agent.env_steps == STEPS


def test_command_line_and_files_take_the_setting(env_id: str, tmp_path: Path) -> None:
    settings = ["total_timesteps=32", "learning_starts=8", "batch_size=8", "buffer_size=100", f"output_dir={tmp_path}"]
    base = tmp_path / "base.yaml"
    base.write_text(f"algo: td3\nenv_id: {env_id}\n", encoding="utf-8")
    options = [word for setting in settings for word in ("--set", setting)]
    refused = call("train", base, *options)
    assert refused.code == EnvError.exit_code
    assert len(refused.err.splitlines()) == 1 and "action_bound=2.0" in refused.err
    assert call("train", base, *options, "--set", "action_bound=2.0", "--set", "run_name=told").code == 0
    base.write_text(f"algo: td3\nenv_id: {env_id}\naction_bound: 2.0\n", encoding="utf-8")
    assert call("train", base, *options, "--set", "run_name=written").code == 0
    assert agent_of(tmp_path / "told").config.action_bound == agent_of(tmp_path / "written").config.action_bound == 2.0


@pytest.mark.parametrize(
    ("low", "high", "dtype", "bound", "problem"),
    [
        (5.0, np.inf, np.float32, 2.0, r"action_bound: 2\.0 leaves nothing of action\[0\] \(5\.0 to inf\): use a"),
        (-np.inf, -3.0, np.float32, 3.0, r"action_bound: 3\.0 leaves nothing of action\[0\] \(-inf to -3\.0\): use a"),
        (-np.inf, np.inf, np.float32, 1e39, r"action_bound: 1e\+39 is too large for actions of type float32: use a"),
    ],
)
def test_a_bound_that_does_not_fit_is_refused(
    low: float, high: float, dtype: Any, bound: float, problem: str, tmp_path: Path
) -> None:
    space = gym.spaces.Box(low, high, (1,), dtype)
    with pytest.raises(EnvError, match=problem):
        managed("sac", tmp_path, partial(Blocks, OBSERVATIONS, space), action_bound=bound)


def test_a_bounded_space_ignores_the_setting(tmp_path: Path) -> None:
    low, high = np.float32([2.0, -7.0]), np.float32([2.0, 7.0])  # the first dimension has one value only
    maker = partial(Blocks, OBSERVATIONS, gym.spaces.Box(low, high))
    stored = np.float32([[0.3, -0.4], [-9.0, 9.0]])
    given = [
        managed("sac", tmp_path, maker, **settings).agent.spaces.to_env_actions(stored)
        for settings in ({}, {"action_bound": 1.0}, {"action_bound": 1e39})  # the last one does not fit float32
    ]
    np.testing.assert_array_equal(given[0], given[1])
    np.testing.assert_array_equal(given[0], given[2])


def test_bounds_near_the_largest_float_do_not_overflow(tmp_path: Path) -> None:
    low, high = np.array([-1.7e308, 1e308]), np.array([1.7e308, 1.7e308])
    spaces = Spaces(OBSERVATIONS, gym.spaces.Box(low, high, dtype=np.float64))
    actions = spaces.to_env_actions(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]))
    np.testing.assert_allclose(actions, [low, [0.0, 1.35e308], high], rtol=1e-12)


def test_a_bound_must_be_positive_and_finite(tmp_path: Path) -> None:
    for value in (0, -1.0, "inf", "two"):
        with pytest.raises(ConfigError, match=r"action_bound: .* is not valid, expected number > 0 or null"):
            tiny_config("sac", tmp_path, action_bound=value)
