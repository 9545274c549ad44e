"""The player: shows an agent in a window."""

from __future__ import annotations

from rl_training.envs.env_closer import closed_after
from rl_training.envs.env_types import EnvMaker
from rl_training.errors import EnvError
from rl_training.runtime.agent import Agent
from rl_training.runtime.episode_video import Recording, has_display, play, render, rendering_env
from rl_training.runtime.evaluation import DEFAULT_SEED


def watch(
    agent: Agent,
    *,
    episodes: int = 1,
    seed: int = DEFAULT_SEED,
    deterministic: bool = True,
    env: str | EnvMaker | None = None,
) -> Recording:
    """Play episodes in a window, at the environment's own rate."""
    if not has_display():
        raise EnvError("no display to open a window on: record a .gif or .mp4 instead")
    with closed_after(rendering_env(agent, env, "human")) as env_to_watch:
        returns, lengths = play(agent, env_to_watch, episodes, seed, deterministic, render, None)
    return Recording(None, returns, lengths)
