"""Atari and other image envs: preprocessing only where it is asked for, and training and evaluation see the same."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from ale_py import roms
from gymnasium.vector import AutoresetMode

from bare_agent import bare_agent
from on_policy_helpers import make_learner
from painted_env import Painted
from rl_training.algorithms.common.learner import Action
from rl_training.algorithms.common.streams import Streams
from rl_training.config.loading import load_config
from rl_training.config.pixels import AtariOptions, ImageOptions, frame_stack, pixel_options
from rl_training.envs.atari import AtariVector
from rl_training.envs.factory import autoreset_mode, make_env, make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, EnvError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.collection.collector import Collector
from rl_training.runtime.evaluation import EvalResult, evaluate

# Nothing random in a game: then the vector env and the wrappers must agree in every pixel.
FIXED = {"sticky_actions": 0.0, "noop_max": 0}


def games(env_id: str = "ALE/Breakout-v5", num_envs: int = 2, **atari: Any) -> Any:
    return make_vector_env(env_id, num_envs, env_kwargs={"atari": atari})


@pytest.mark.parametrize(
    ("env_id", "atari", "shape"),
    [
        ("ALE/Pong-v5", {}, (4, 84, 84)),
        ("ALE/Breakout-v5", {"color": True, "image_size": [50, 40]}, (12, 50, 40)),
        ("ALE/Breakout-v5", {"frame_skip": 1, "stack": 2}, (2, 84, 84)),
        ("ALE/SpaceInvaders-v5", {"full_action_space": True, "fire_reset": False}, (4, 84, 84)),
    ],
)
def test_vector_env_and_wrappers_show_the_same_game(env_id: str, atari: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Same actions, same pixels, same scores, same ends, also across the start of a new game."""
    many = games(env_id, **FIXED, **atari)
    one = make_env(env_id, {"atari": {**FIXED, **atari}})
    assert many.single_observation_space == one.observation_space == gym.spaces.Box(0, 255, shape, np.uint8)
    assert many.single_action_space == one.action_space
    batch, _ = many.reset(seed=1)
    image, _ = one.reset(seed=2)
    np.testing.assert_array_equal(batch[0], image)
    rng, score, ends = np.random.default_rng(0), 0.0, 0
    for _ in range(300):
        action = int(rng.integers(one.action_space.n))
        batch, rewards, terminated, truncated, infos = many.step(np.full(2, action))
        image, reward, over, cut, _ = one.step(action)
        assert (rewards[0], terminated[0], truncated[0]) == (reward, over, cut)
        np.testing.assert_array_equal(infos["final_obs"][0] if over or cut else batch[0], image)
        score += float(reward)
        if over or cut:
            ends += 1
            image, _ = one.reset()
            np.testing.assert_array_equal(batch[0], image)
    if atari.get("frame_skip") != 1:  # a quarter of the game has no score yet
        assert score != 0
        assert ends > 0 or "Breakout" not in env_id


def test_idle_frames_are_where_vector_env_and_wrappers_differ() -> None:
    """At least one idle frame in the wrappers, none possible in the vector env; both press FIRE before them."""
    many, one = games(sticky_actions=0.0, noop_max=1), make_env("ALE/Breakout-v5", {"atari": {**FIXED, "noop_max": 1}})
    many_frames = many.reset(seed=0)[1]["episode_frame_number"]
    one_frames = one.reset(seed=0)[1]["episode_frame_number"]
    assert (many_frames[0], one_frames) == (1, 2)
    starts = set(games(num_envs=6, noop_max=30).reset(seed=3)[1]["episode_frame_number"].tolist())
    assert len(starts) > 2 and min(starts) >= 1 and max(starts) <= 29
    np.testing.assert_array_equal(games(**FIXED).reset(seed=0)[0][:, :3], 0)  # black before the first frame, in both


def test_scores_are_raw_and_rewards_are_floats() -> None:
    """Space Invaders pays 5 to 30 points a hit: a clipped reward would be 1."""
    envs = games("ALE/SpaceInvaders-v5", num_envs=4, sticky_actions=0.0)
    envs.reset(seed=0)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(150):
        _, rewards, *_ = envs.step(rng.integers(envs.single_action_space.n, size=4))
        assert rewards.dtype == np.float32
        seen |= set(rewards.tolist())
    assert max(seen) >= 5


def test_a_lost_life_ends_the_episode_and_not_the_game() -> None:
    envs = games(num_envs=2, episodic_life=True, **FIXED)
    assert autoreset_mode(envs) is AutoresetMode.SAME_STEP
    _, infos = envs.reset(seed=0)
    lives, frames = infos["lives"].copy(), infos["episode_frame_number"].copy()
    rng, lost, over = np.random.default_rng(0), 0, 0
    for _ in range(500):
        batch, _, terminated, truncated, infos = envs.step(rng.integers(4, size=2))
        assert not truncated.any()
        for env in np.flatnonzero(terminated):
            if infos["life_lost"][env]:
                lost += 1
                assert infos["lives"][env] == lives[env] - 1 > 0
                assert infos["episode_frame_number"][env] > frames[env]
                np.testing.assert_array_equal(infos["final_obs"][env], batch[env])
                assert batch[env, :3].any()  # the stack goes on
            else:
                over += 1
                assert lives[env] == 1 and infos["lives"][env] == 5
                assert not batch[env, :3].any()
                assert infos["final_obs"][env, :3].any()
        if terminated.any():
            still = ~terminated
            np.testing.assert_array_equal(infos["final_obs"][still], batch[still])
        lives, frames = infos["lives"].copy(), infos["episode_frame_number"].copy()
    assert lost > 4 * over - 5 and over > 1


def test_training_tells_the_score_of_whole_games_and_evaluation_plays_them() -> None:
    kwargs = {"atari": {**FIXED, "episodic_life": True}}
    envs = make_vector_env("ALE/Breakout-v5", 2, env_kwargs=kwargs)
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    learner = make_learner("dqn", spaces, exploration=1.0, model={"encoder": "mlp", "hidden_sizes": ()})
    collector = Collector(envs, spaces, learner, Streams(0))
    steps = [collector.step(random=True) for _ in range(450)]
    episodes = [episode for step in steps for episode in step.episodes]
    ends = int(sum(step.terminated.sum() for step in steps))
    assert ends >= 4 * len(episodes) > 4
    assert min(episode.length for episode in episodes) > 90  # five lives, not one
    alone = make_env("ALE/Breakout-v5", kwargs)
    alone.reset(seed=0)
    rng, over, lives = np.random.default_rng(0), False, set()
    while not over:
        *_, over, _, info = alone.step(int(rng.integers(4)))
        lives.add(info["lives"])
    assert lives == {0, 1, 2, 3, 4, 5}
    # Without FIRE nothing is ever lost: only the limit ends this game.
    idle = {"atari": {**FIXED, "episodic_life": True, "max_frames": 300, "fire_reset": False}}
    learner.act = lambda obs, **_: Action(np.zeros(len(obs), np.int64))
    result = evaluate(bare_agent(learner, spaces), lambda: make_env("ALE/Breakout-v5", idle), episodes=1)
    assert result == EvalResult(returns=(0.0,), lengths=(75,))


def test_seeds_decide_games_and_a_reset_forgets_what_was_before() -> None:
    def play(envs: Any, seed: int) -> np.ndarray:
        rng = np.random.default_rng(7)
        seen = [envs.reset(seed=seed)[0].copy()]
        seen += [envs.step(rng.integers(6, size=2))[0].copy() for _ in range(40)]
        return np.stack(seen)

    first, second = (games("ALE/Pong-v5", 2, image_size=36) for _ in range(2))
    expected = play(first, 5)
    np.testing.assert_array_equal(play(second, 5), expected)
    play(second, 6)
    np.testing.assert_array_equal(play(second, 5), expected)
    assert not np.array_equal(play(second, 6), expected)
    assert not np.array_equal(expected[:, 0], expected[:, 1])
    # Seeds are spread: those of one run are not those of the next, moved by one env.
    assert not np.array_equal(play(first, 6)[:, 0], expected[:, 1])


def test_sticky_actions_are_those_of_the_protocol() -> None:
    """v5 ids stick by themselves, v4 ids do not, and the option wins over both."""
    for env_id, given, expected in (
        ("ALE/Pong-v5", {}, 0.25),
        ("PongNoFrameskip-v4", {}, 0.0),
        ("ALE/Pong-v5", {"sticky_actions": 0.0}, 0.0),
        ("PongNoFrameskip-v4", {"sticky_actions": 0.1}, 0.1),
    ):
        one = make_env(env_id, {"atari": given})
        ale = one.unwrapped.ale  # type: ignore[attr-defined]
        assert ale.getFloat("repeat_action_probability") == pytest.approx(expected)
        one.close()


def test_games_are_cut_off_after_max_frames() -> None:
    envs = games("ALE/Pong-v5", max_frames=100, **FIXED)
    envs.reset(seed=0)
    for step in range(1, 27):
        batch, _, terminated, truncated, infos = envs.step(np.zeros(2, np.int64))
        assert not terminated.any()
        assert truncated.all() == (step == 25)
        if step == 25:
            assert not batch[:, :3].any() and infos["final_obs"][:, :3].any()
            assert not infos["life_lost"].any()


def test_without_being_asked_nothing_is_done_to_images() -> None:
    assert make_env("ALE/Pong-v5").observation_space.shape == (210, 160, 3)
    assert make_env("ALE/Pong-v5", {"atari": False}).observation_space.shape == (210, 160, 3)
    assert make_env("ALE/Pong-v5", {"obs_type": "ram"}).observation_space.shape == (128,)
    assert make_env(Painted).observation_space.shape == (8, 6, 3)
    assert make_env("CartPole-v1").observation_space.shape == (4,)
    assert type(make_vector_env("CartPole-v1", 2).unwrapped).__name__ == "CartPoleVector"
    assert not isinstance(make_vector_env("ALE/Pong-v5", 1).unwrapped, AtariVector)


@pytest.mark.parametrize(
    ("given", "options", "shape"),
    [
        ((8, 6, 3), {}, (3, 8, 6)),
        ((8, 6, 3), {"channel_first": False}, (8, 6, 3)),
        ((8, 6, 3), {"grayscale": True, "resize": 5, "stack": 4}, (4, 5, 5)),
        ((8, 6, 3), {"resize": [5, 7], "stack": 2}, (6, 5, 7)),
        ((3, 8, 6), {"grayscale": True, "stack": 2}, (2, 8, 6)),
        ((8, 6), {"stack": 3}, (3, 8, 6)),
        ((8, 6, 3), {"grayscale": True, "stack": 2, "channel_first": False}, (8, 6, 2)),
    ],
)
def test_images_of_any_env_are_prepared_as_asked(
    given: tuple[int, ...], options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    env = make_env(Painted, {"shape": given, "image": options})
    image, _ = env.reset(seed=0)
    assert env.observation_space == gym.spaces.Box(0, 255, shape, np.uint8)
    assert image.shape == shape and image.dtype == np.uint8 and image.flags["C_CONTIGUOUS"]
    for _ in range(2):
        image, *_ = env.step(0)
    stack, axis = options.get("stack", 1), 0 if options.get("channel_first", True) else -1
    parts = np.split(image, stack, axis)
    for age, part in enumerate(reversed(parts)):
        # Brightness of grey is the grey itself, down to a rounding of one.
        assert np.abs(part.astype(int) - (10 * (3 - age) if age < 3 else 0)).max() <= 1


def test_an_image_env_that_is_not_atari_goes_through_a_vector_env_and_its_ends() -> None:
    envs = make_vector_env(Painted, 2, env_kwargs={"image": {"grayscale": True, "stack": 4}})
    envs.reset(seed=0)
    for step in range(1, 9):
        batch, _, terminated, _, infos = envs.step(np.zeros(2, np.int64))
        assert terminated.all() == (step == 8)
    assert np.abs(infos["final_obs"][0][:, 0, 0].astype(int) - [60, 70, 80, 90]).max() <= 1
    assert np.abs(batch[0, :, 0, 0].astype(int) - [0, 0, 0, 10]).max() <= 1


def test_options_say_how_many_frames_an_observation_has() -> None:
    assert frame_stack({}) == frame_stack({"atari": False}) == 1
    assert frame_stack({"atari": True}) == 4
    assert frame_stack({"image": {"stack": 3}}) == 3
    assert pixel_options({"atari": {}}) == AtariOptions()
    assert pixel_options({"image": True}) == ImageOptions()


@pytest.mark.parametrize(
    ("env_kwargs", "expected"),
    [
        ({"atari": {"sticky": 0.1}}, "env_kwargs.atari.sticky: unknown key, env_kwargs.atari accepts sticky_actions"),
        ({"atari": {"sticky_actions": 1.5}}, "env_kwargs.atari.sticky_actions: 1.5 is not valid, expected number >= 0"),
        ({"atari": {"frame_skip": 0}}, "env_kwargs.atari.frame_skip: 0 is not valid, expected integer >= 1"),
        ({"atari": {"color": 1}}, "env_kwargs.atari.color: 1 is not valid, expected true or false"),
        ({"atari": "yes"}, "env_kwargs.atari: 'yes' is not valid, expected true or a mapping"),
        ({"image": {"resize": 0}}, "env_kwargs.image.resize: 0 is not valid"),
        ({"image": True, "atari": True}, "env_kwargs.image: env_kwargs.atari includes this preprocessing"),
    ],
)
def test_wrong_options_are_refused_with_the_config(env_kwargs: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"algo": "dqn", "env_id": "ALE/Pong-v5", "env_kwargs": env_kwargs})
    assert str(caught.value).startswith(expected)
    with pytest.raises(ConfigError):
        make_env("ALE/Pong-v5", env_kwargs)


@pytest.mark.parametrize(
    ("env_id", "env_kwargs", "backend", "expected"),
    [
        (
            "CartPole-v1",
            {"atari": True},
            "auto",
            "env_kwargs.atari: CartPole-v1 is not an Atari id such as ALE/Pong-v5",
        ),
        ("CartPole-v1", {"image": True}, "auto", "env_kwargs.image is for images"),
        ("CartPole-v1", {"image": True}, "native", "env_kwargs.image needs vector_backend"),
        ("ALE/Pong-v5", {}, "native", "set env_kwargs.atari=true"),
        ("ALE/Pong-v5", {"atari": {"episodic_life": True}}, "sync", "episodic_life needs vector_backend 'auto'"),
        (
            "ALE/Pong-v5",
            {"atari": True, "difficulty": 1},
            "auto",
            "takes no difficulty together with env_kwargs.atari, use",
        ),
    ],
)
def test_envs_that_cannot_be_prepared_are_told_in_one_line(
    env_id: str, env_kwargs: dict[str, Any], backend: Any, expected: str
) -> None:
    with pytest.raises(EnvError) as caught:
        make_vector_env(env_id, 2, env_kwargs=env_kwargs, backend=backend)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_raw_frames_are_no_training_material(env_id: str) -> None:
    raw = make_env(env_id)
    with pytest.raises(EnvError, match=r"has raw Atari frames \(210, 160, 3\).* set env_kwargs\.atari=true"):
        get_spec("dqn").check_spaces(Spaces(raw.observation_space, raw.action_space), env_id)


def test_a_missing_rom_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    for make in (games, lambda env_id: make_env(env_id, {"atari": True})):
        with pytest.raises(EnvError, match=r"needs the ROM pong.*pip install --force-reinstall ale-py"):
            make("ALE/Pong-v5")
    assert "pong" in roms.get_all_rom_ids()


def test_missing_packages_are_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.split(".")[0] in ("ale_py", "cv2"):
            raise ImportError(f"No module named {name!r}")
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EnvError, match="install the extra `atari`"):
        make_env("ALE/Pong-v5", {"atari": True})  # AtariPreprocessing wants OpenCV
    with pytest.raises(EnvError, match="OpenCV: install the extra `atari`"):
        make_env(Painted, {"image": {"resize": 5}})
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(EnvError, match="needs Atari: install the extra `atari`"):
        make_env("ALE/Pong-v5", {"atari": True})
