"""Recordings: an agent plays episodes, which are drawn into a GIF or MP4."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.env_closer import closed_after
from rl_training.envs.env_runner import WatchedEnv
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.failures import EnvFailed
from rl_training.errors import ConfigError, EnvError, install_hint
from rl_training.program import call
from rl_training.runtime.agent import Agent
from rl_training.runtime.auto_settings import limited_threads
from rl_training.runtime.evaluation import DEFAULT_SEED
from rl_training.telemetry.console_view import format_return
from rl_training.telemetry.notebook_view import media_html
from rl_training.telemetry.video import open_writer, require_gif
from rl_training.text import one_line

DEFAULT_FPS = 30
SLOWEST_FPS, FASTEST_FPS = 0.1, 1000  # a GIF cannot show one picture for more than eleven minutes
# An environment without a time limit must not fill the disk: a recorded episode is cut here.
MOST_RECORDED_STEPS = 10_000
SHORTEST_SIDE = 2  # of a picture, in pixels: a video stores color at half the resolution


class RecordingStopped(Exception):
    """The run was asked to stop while an episode was recorded. There is no file."""


@dataclass(frozen=True)
class Recording:
    """The result of playing. `speed` is relative to the environment's own rate: long GIFs are played faster."""

    path: Path | None
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    pictures: int = 0
    speed: float = 1.0

    def _repr_html_(self) -> str:
        """What a notebook shows: the episodes themselves."""
        scores = ", ".join(format_return(value) for value in self.returns)
        caption = f"{len(self.returns)} episode{'s' * (len(self.returns) != 1)}, return {scores}"
        if self.speed > 1.05:
            caption += f", {self.speed:.3g} times as fast"
        return media_html(self.path, caption) if self.path is not None else f"<div>{caption}</div>"


def has_display() -> bool:
    """Whether a window can be opened here."""
    if os.environ.get("SDL_VIDEODRIVER") in ("dummy", "offscreen"):
        return False
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def record_episode(
    agent: Agent,
    path: str | Path,
    *,
    episodes: int = 1,
    seed: int = DEFAULT_SEED,
    fps: float | None = None,
    deterministic: bool = True,
    env: str | EnvMaker | None = None,
) -> Recording:
    """Play episodes on a separate environment and write them to a .gif or .mp4; episode i is reset with `seed` + i.

    `fps` is in env steps per second (default: the environment's own rate). The file appears whole or not at all, and
    never with a single picture: an environment that draws nothing is an error.
    """
    path = Path(path)
    target = path.absolute()  # now: an environment may change the working directory
    if fps is not None and not SLOWEST_FPS <= fps <= FASTEST_FPS:
        raise ConfigError(f"fps: {fps:g} is not valid, expected a number from {SLOWEST_FPS} to {FASTEST_FPS}")
    name = str(agent.config.env_id if env is None else env)
    recording = record(
        agent,
        partial(rendering_env, agent, env, "rgb_array"),
        target,
        episodes=episodes,
        seed=seed,
        fps=fps,
        deterministic=deterministic,
        name=name,
    )
    return replace(recording, path=path if path.absolute() == target else target)


def record(
    agent: Agent,
    make_env: Callable[[], gym.Env[Any, Any]],
    path: Path,
    *,
    episodes: int = 1,
    seed: int = DEFAULT_SEED,
    fps: float | None = None,
    deterministic: bool = True,
    name: str = "the environment",
    stopped: Callable[[], bool] = lambda: False,
) -> Recording:
    """Write episodes on an environment of `make_env`, which draws; RecordingStopped as soon as `stopped` is true."""
    prepare_rendering()
    with closed_after(make_env()) as env:
        rate = _own_rate(env) if fps is None else fps
        with open_writer(path, float(rate)) as writer:

            def add_picture(watched: WatchedEnv) -> None:
                if stopped():
                    raise RecordingStopped
                writer.add(picture_of(watched))

            returns, lengths = play(agent, env, episodes, seed, deterministic, add_picture, MOST_RECORDED_STEPS)
            if not writer.moves:
                raise EnvError(f"{name} draws the same picture at every step: there is nothing to show")
    return Recording(path, returns, lengths, writer.pictures, writer.speed)


def check_rendering(make_env: Callable[[], gym.Env[Any, Any]]) -> None:
    """Draw one picture; ConfigError or EnvError if a package is missing or the environment cannot draw."""
    require_gif()
    prepare_rendering()
    with closed_after(make_env()) as env, missing_renderer_named(env):
        watched = WatchedEnv(env)
        watched.reset(DEFAULT_SEED)
        picture_of(watched)


def prepare_rendering() -> None:
    """Let environments draw without a screen."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def rendering_env(agent: Agent, env: str | EnvMaker | None, render_mode: str) -> gym.Env[Any, Any]:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    return agent.env_maker(env, render_mode=render_mode)()


def play(
    agent: Agent,
    env: gym.Env[Any, Any],
    episodes: int,
    seed: int,
    deterministic: bool,
    show: Callable[[WatchedEnv], Any],
    most_steps: int | None,
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    returns, lengths = [], []
    watched = WatchedEnv(env)
    with limited_threads(1), missing_renderer_named(env):
        for episode in range(episodes):
            observation, _ = watched.reset(seed + episode)
            show(watched)
            total, length, memory, over = 0.0, 0, None, False
            while not over:
                actions, memory = agent.act([observation], memory, np.array([length == 0]), deterministic)
                observation, reward, terminated, truncated, _ = watched.step(actions[0])
                show(watched)
                total, length = total + float(reward), length + 1
                over = bool(terminated or truncated or length == most_steps)
            returns.append(total)
            lengths.append(length)
    return tuple(returns), tuple(lengths)


@contextlib.contextmanager
def missing_renderer_named(env: gym.Env[Any, Any]) -> Iterator[None]:
    """Some environments import their rendering library only when they first render."""
    try:
        yield
    except gym.error.DependencyNotInstalled as error:
        raise EnvError(f"{_name(env)} cannot be drawn ({one_line(error)}): {install_hint('video')}") from None


def _own_rate(env: gym.Env[Any, Any]) -> float:
    """The frame rate that an environment states, if it is a usable number."""
    rate: Any = (env.metadata or {}).get("render_fps")
    usable = isinstance(rate, (int, float)) and SLOWEST_FPS <= rate <= FASTEST_FPS
    return float(rate if usable else DEFAULT_FPS)


def _name(env: gym.Env[Any, Any]) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def render(watched: WatchedEnv) -> Any:
    try:
        return watched.render()
    except EnvFailed as error:
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        name = _name(watched.env)
        raise EnvError(f"{name} cannot be drawn: it has no render(); `{call('eval')}` scores it") from None


def picture_of(watched: WatchedEnv) -> np.ndarray:
    picture, env = render(watched), watched.env
    name = _name(env)
    if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
        modes = ", ".join((env.metadata or {}).get("render_modes", [])) or "none"
        raise EnvError(f"{name} draws no pictures: recording needs the render mode rgb_array, it has {modes}")
    if min(picture.shape[:2]) < SHORTEST_SIDE or picture.dtype.kind not in "buif":
        height, width = picture.shape[:2]
        raise EnvError(
            f"{name} draws pictures of {width} x {height} pixels of type {picture.dtype}: recording needs numbers, and "
            f"at least {SHORTEST_SIDE} x {SHORTEST_SIDE} pixels"
        )
    return picture if picture.dtype == np.uint8 else picture.clip(0, 255).astype(np.uint8)
