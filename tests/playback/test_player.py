"""Recordings: the file is whole, moves, stays small, and shows the episode that evaluation would see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from rl_training.algorithms.common.learner import Action
from rl_training.algorithms.common.streams import Streams
from rl_training.config.loading import load_config
from rl_training.envs.factory import make_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, EnvError
from rl_training.experiment.registry import get_spec
from rl_training.playback import player
from rl_training.playback.player import watch
from rl_training.runtime import episode_video
from rl_training.runtime.agent import Agent
from rl_training.runtime.episode_video import has_display, record_episode
from rl_training.telemetry import video
from rl_training.telemetry.video import open_writer


@pytest.fixture(scope="module")
def agent() -> Agent:
    config = load_config({"algo": "ppo", "env_id": "CartPole-v1", "model": {"hidden_sizes": [8]}})
    env = make_env(config.env_id)
    spaces = Spaces(env.observation_space, env.action_space)
    return Agent(get_spec("ppo").learner(spaces, config, Streams(0)), spaces, config)


def gif_frames(path: Path) -> tuple[list[np.ndarray], list[int]]:
    frames, milliseconds = [], []
    with Image.open(path) as image:
        for number in range(image.n_frames):
            image.seek(number)
            frames.append(np.asarray(image.convert("RGB")))
            milliseconds.append(image.info["duration"])
    return frames, milliseconds


def moving_square(step: int, size: tuple[int, int] = (60, 80)) -> np.ndarray:
    picture = np.full((*size, 3), 255, np.uint8)
    left = step % (size[1] - 10)
    picture[20:30, left : left + 10] = (200, 30, 30)
    return picture


def test_gif_shows_the_episode_that_evaluation_plays(agent: Agent, tmp_path: Path) -> None:
    recording = record_episode(agent, tmp_path / "a.gif", episodes=2)
    evaluated = agent.evaluate(episodes=2)
    assert recording.returns == evaluated.returns and recording.lengths == evaluated.lengths

    frames, milliseconds = gif_frames(tmp_path / "a.gif")
    assert len(frames) == recording.pictures > 2
    assert len({frame.tobytes() for frame in frames}) > 2
    # CartPole is drawn 50 times a second; a GIF shows every second picture, and so keeps the pace.
    assert min(milliseconds) == 40 and milliseconds[-1] == 1000 and recording.speed == 1.0
    assert sum(milliseconds[:-1]) == pytest.approx(20 * sum(recording.lengths), abs=80)

    env = gym.make("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=10_000)
    first = np.asarray(Image.fromarray(env.render()).resize((480, 320)), np.int16)
    assert frames[0].shape == (320, 480, 3)
    assert np.abs(frames[0] - first).mean() < 2.0, "the palette and the resizing leave the picture as it was"
    assert (frames[0][0, 0] == 255).all(), "white stays white"


def test_playback_speed_can_be_chosen(agent: Agent, tmp_path: Path) -> None:
    recording = record_episode(agent, tmp_path / "a.gif", fps=10)
    _, milliseconds = gif_frames(tmp_path / "a.gif")
    assert sum(milliseconds[:-1]) == pytest.approx(100 * recording.lengths[0], abs=100)
    with pytest.raises(ConfigError, match="fps: -3 is not valid"):
        record_episode(agent, tmp_path / "b.gif", fps=-3)


def test_mp4_holds_every_picture(agent: Agent, tmp_path: Path) -> None:
    recording = record_episode(agent, tmp_path / "deep" / "a.mp4")
    assert recording.pictures == recording.lengths[0] + 1
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "deep" / "a.mp4"))
    assert frames == recording.pictures and seconds == pytest.approx(frames / 50, abs=0.05)


def test_mp4_takes_pictures_with_odd_sides(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.mp4", 30.0) as writer:
        for step in range(5):
            writer.add(moving_square(step, (61, 81)))
    details = next(imageio_ffmpeg.read_frames(str(tmp_path / "a.mp4")))
    assert tuple(details["size"]) == (80, 60)


def test_memory_is_carried_through_an_episode_and_dropped_after_it(agent: Agent, tmp_path: Path) -> None:
    seen: list[tuple[Any, bool]] = []

    class Remembering:
        def act(self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray, memory: Any) -> Action:
            seen.append((memory, bool(episode_starts[0])))
            return Action(np.array([1]), memory=(memory or 0) + 1)

    forgetful = Agent(Remembering(), agent.spaces, agent.config)  # type: ignore[arg-type]
    recording = record_episode(forgetful, tmp_path / "a.gif", episodes=2)
    expected = [(step or None, step == 0) for length in recording.lengths for step in range(length)]
    assert seen == expected


def test_long_recordings_stay_short_and_keep_their_end(tmp_path: Path) -> None:
    count = 2 * video.MOST_GIF_PICTURES * 4 + 3
    with open_writer(tmp_path / "a.gif", 30.0) as writer:
        for step in range(count):
            writer.add(moving_square(step))
    frames, milliseconds = gif_frames(tmp_path / "a.gif")
    assert len(frames) <= video.MOST_GIF_PICTURES + 1
    assert set(milliseconds[:-1]) == {100}, "no slower than ten pictures a second"
    played = sum(milliseconds[:-1]) / 1000
    assert writer.speed == pytest.approx(count / 30 / played, rel=0.05) and writer.speed > 2
    last = moving_square(count - 1)
    assert np.abs(frames[-1].astype(int) - last).mean() < 5.0


def test_a_gif_that_would_be_too_large_is_drawn_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "MOST_GIF_BYTES", 100_000)
    generator = np.random.default_rng(0)
    with open_writer(tmp_path / "a.gif", 30.0) as writer:
        for _ in range(10):
            writer.add(generator.integers(0, 256, (300, 400, 3), dtype=np.uint8))
    assert (tmp_path / "a.gif").stat().st_size <= 100_000
    frames, _ = gif_frames(tmp_path / "a.gif")
    height, width = frames[0].shape[:2]
    assert len(frames) == 10 and width < 400 and height / width == pytest.approx(0.75, abs=0.03)


class StillEnv(gym.Env[Any, Any]):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, picture: Any = None) -> None:
        self.render_mode, self.picture = render_mode, picture

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(4, np.float32), 0.0, self.steps == 3, False, {}

    def render(self) -> Any:
        return self.picture


def test_an_env_without_moving_pictures_is_refused_and_an_old_file_stays(agent: Agent, tmp_path: Path) -> None:
    old = tmp_path / "a.gif"
    old.write_bytes(b"an earlier recording")

    def still(render_mode: str) -> gym.Env[Any, Any]:
        return StillEnv(render_mode, np.zeros((8, 8, 3), np.uint8))

    with pytest.raises(EnvError, match="same picture at every step"):
        record_episode(agent, old, env=still)
    with pytest.raises(EnvError, match="draws no pictures: recording needs the render mode rgb_array"):
        record_episode(agent, old, env=StillEnv)
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]
    assert old.read_bytes() == b"an earlier recording"


class WithoutRender(gym.Env[Any, Any]):
    metadata = {"render_modes": ["rgb_array"], "render_fps": "fast"}
    observation_space = gym.spaces.Box(-9, 9, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)
    render_mode = "rgb_array"

    def __init__(self, **_: Any) -> None:
        pass

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(4, np.float32), 0.0, True, False, {}


class FailingRender(WithoutRender):
    def render(self) -> Any:
        raise ZeroDivisionError("no canvas\x1b[2J")


@pytest.mark.parametrize(("env", "reason"), [(WithoutRender, "render"), (FailingRender, "no canvas")])
def test_an_env_that_cannot_render_is_one_line(
    env: type[gym.Env[Any, Any]], reason: str, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    for play in (lambda: record_episode(agent, tmp_path / "a.gif", env=env), lambda: watch(agent, env=env)):
        with pytest.raises(EnvError, match=reason) as caught:
            play()
        assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fps", [0, -1, 0.0001, 1001, float("nan"), float("inf")])
def test_a_rate_that_no_file_can_have_is_refused(fps: float, agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^fps: .* is not valid, expected a number from 0.1 to 1000$"):
        record_episode(agent, tmp_path / "a.gif", fps=fps)


def test_the_slowest_rate_can_be_written(tmp_path: Path) -> None:
    for kind in ("gif", "mp4"):
        with open_writer(tmp_path / f"a.{kind}", episode_video.SLOWEST_FPS) as writer:
            for step in range(3):
                writer.add(moving_square(step))
        assert (tmp_path / f"a.{kind}").stat().st_size > 0


def test_an_endless_episode_is_cut(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_video, "MOST_RECORDED_STEPS", 7)

    def endless(render_mode: str) -> gym.Env[Any, Any]:
        env = gym.make("MountainCar-v0", render_mode=render_mode).unwrapped
        env.observation_space = StillEnv.observation_space
        return gym.wrappers.TransformObservation(env, lambda obs: np.resize(obs, 4), StillEnv.observation_space)

    assert record_episode(agent, tmp_path / "a.gif", env=endless).lengths == (7,)


def test_files_that_cannot_be_written_are_told_before_playing(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"only \.gif and \.mp4"):
        record_episode(agent, tmp_path / "a.avi")
    with pytest.raises(ConfigError, match="cannot be written"):
        record_episode(agent, tmp_path / "file" / "a.gif")


def test_missing_drawing_library_is_named(agent: Agent, tmp_path: Path) -> None:
    class Undrawable(StillEnv):
        def render(self) -> Any:
            raise gym.error.DependencyNotInstalled("pygame is not installed")

    with pytest.raises(EnvError, match=r"install the extra `video`"):
        record_episode(agent, tmp_path / "a.gif", env=Undrawable)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "wayland-0"}, True)],
)
def test_display_is_found_by_its_variables(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_display() is expected
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert has_display() is False


def test_watching_needs_a_display_and_draws_every_step(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "has_display", lambda: False)
    with pytest.raises(EnvError, match="no display"):
        watch(agent)
    monkeypatch.setattr(player, "has_display", lambda: True)
    watched = watch(agent, episodes=1)
    assert watched.returns == agent.evaluate(episodes=1).returns and watched.path is None
