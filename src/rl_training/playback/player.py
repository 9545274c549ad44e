"""Watching an agent: in a window, or as a GIF or MP4 where there is no display."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.env_runner import WatchedEnv
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.factory import make_env
from rl_training.errors import ConfigError, EnvError
from rl_training.playback.video import open_writer
from rl_training.runtime.agent import Agent
from rl_training.runtime.evaluation import DEFAULT_SEED
from rl_training.runtime.threads import limited_threads

DEFAULT_FPS = 30
FASTEST_FPS = 1000
# An env without a time limit must not fill the disk: a recorded episode is cut here.
MOST_RECORDED_STEPS = 10_000


@dataclass(frozen=True)
class Recording:
    """What was played. `speed` is the file's against the env's own: long GIFs are played faster."""

    path: Path | None
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    pictures: int = 0
    speed: float = 1.0


def has_display() -> bool:
    """Whether a window could be opened here."""
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
    """Play episodes (number i is reset with `seed` + i) on an env of their own and write them to a .gif or .mp4.

    `fps` is in env steps per second; without it the env's own speed is taken. The file appears whole or not at
    all, and never with a single picture in it: an env that draws nothing is an error.
    """
    path = Path(path)
    if fps is not None and not 0 < fps <= FASTEST_FPS:
        raise ConfigError(f"fps: {fps} is not valid, expected a number above 0 and up to {FASTEST_FPS}")
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    with contextlib.closing(_drawing_env(agent, env, "rgb_array")) as drawn:
        rate = (drawn.metadata or {}).get("render_fps") or DEFAULT_FPS if fps is None else fps
        with open_writer(path, float(rate)) as writer:

            def add_picture() -> None:
                writer.add(_picture(drawn))

            returns, lengths = _play(agent, drawn, episodes, seed, deterministic, add_picture, MOST_RECORDED_STEPS)
            if not writer.moves:
                name = agent.config.env_id if env is None else env
                raise EnvError(f"{name} draws the same picture at every step: there is nothing to show")
    return Recording(path, returns, lengths, writer.pictures, writer.speed)


def watch(
    agent: Agent,
    *,
    episodes: int = 1,
    seed: int = DEFAULT_SEED,
    deterministic: bool = True,
    env: str | EnvMaker | None = None,
) -> Recording:
    """Play episodes in a window, at the env's own speed."""
    if not has_display():
        raise EnvError("there is no display to open a window on: record a .gif or .mp4 instead")
    with contextlib.closing(_drawing_env(agent, env, "human")) as drawn:
        returns, lengths = _play(agent, drawn, episodes, seed, deterministic, drawn.render, None)
    return Recording(None, returns, lengths)


def _drawing_env(agent: Agent, env: str | EnvMaker | None, render_mode: str) -> gym.Env[Any, Any]:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    agent.env_maker(env)  # refuses, with the way out, an env that cannot be made from its name
    source = agent.config.env_id if env is None else env
    return make_env(source, agent.env_kwargs(env), render_mode=render_mode)


def _play(
    agent: Agent,
    env: gym.Env[Any, Any],
    episodes: int,
    seed: int,
    deterministic: bool,
    show: Callable[[], Any],
    most_steps: int | None,
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    returns, lengths = [], []
    watched = WatchedEnv(env)
    with limited_threads(1), _drawing_problems(env):
        for episode in range(episodes):
            observation, _ = watched.reset(seed + episode)
            show()
            total, length, memory, over = 0.0, 0, None, False
            while not over:
                action = agent.learner.act(
                    np.ascontiguousarray(agent.spaces.encode([observation])),
                    explore=not deterministic,
                    episode_starts=np.array([length == 0]),
                    memory=memory,
                )
                memory = action.memory
                step = watched.step(agent.spaces.to_env_actions(action.actions)[0])
                observation, reward, terminated, truncated, _ = step
                show()
                total, length = total + float(reward), length + 1
                over = bool(terminated or truncated or length == most_steps)
            returns.append(total)
            lengths.append(length)
    return tuple(returns), tuple(lengths)


@contextlib.contextmanager
def _drawing_problems(env: gym.Env[Any, Any]) -> Iterator[None]:
    """Some envs import their drawing library only when they first draw."""
    try:
        yield
    except gym.error.DependencyNotInstalled as error:
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        reason = " ".join(str(error).split())
        raise EnvError(f'{name} cannot be drawn ({reason}): pip install "rl_training[video]"') from None


def _picture(env: gym.Env[Any, Any]) -> np.ndarray:
    picture: Any = env.render()
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
        modes = ", ".join((env.metadata or {}).get("render_modes", [])) or "none"
        raise EnvError(f"{name} draws no pictures: it needs the render mode rgb_array, it has {modes}")
    return picture if picture.dtype == np.uint8 else picture.clip(0, 255).astype(np.uint8)
