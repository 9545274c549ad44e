"""Evaluation: whole episodes on separate environments, with raw returns and no effect on training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED
from rl_training.envs.env_runner import WatchedEnv
from rl_training.errors import EnvError

if TYPE_CHECKING:
    from rl_training.runtime.agent import Agent

DEFAULT_SEED = FIRST_EVAL_SEED
MOST_ENVS_AT_ONCE = 32
LONGEST_EPISODE = 200_000


@dataclass(frozen=True)
class EvalResult:
    """Raw, undiscounted returns of the episodes, in the order of their seeds."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        return float(np.std(self.returns))

    def summary(self) -> dict[str, Any]:
        return {"mean_return": self.mean_return, "std_return": self.std_return, "episodes": len(self.returns)}


def evaluate(
    agent: Agent,
    make_env: Callable[[], gym.Env[Any, Any]],
    *,
    episodes: int,
    seed: int = DEFAULT_SEED,
    deterministic: bool = True,
    stopped: Callable[[], bool] = lambda: False,
) -> EvalResult | None:
    """Play `episodes` episodes; episode i is reset with `seed` + i. None if `stopped` cut them short.

    Several environments run side by side so that acting is batched. A slot without further episodes keeps its last
    observation and is ignored: rows keep their place, as the memory of a recurrent policy requires.
    """
    envs = [WatchedEnv(make_env()) for _ in range(min(episodes, MOST_ENVS_AT_ONCE))]
    try:
        returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        playing = list(range(len(envs)))  # the episode of each slot; -1 if none is left
        observations = [env.reset(seed + i)[0] for i, env in enumerate(envs)]
        next_episode = len(envs)
        starts, memory = np.ones(len(envs), bool), None
        while any(episode >= 0 for episode in playing):
            if stopped():
                return None
            actions, memory = agent.act(observations, memory, starts, deterministic)
            starts = np.zeros(len(envs), bool)
            for slot, episode in enumerate(playing):
                if episode < 0:
                    continue
                observations[slot], reward, terminated, truncated, _ = envs[slot].step(actions[slot])
                returns[episode] += float(reward)
                lengths[episode] += 1
                if lengths[episode] >= LONGEST_EPISODE and not (terminated or truncated):
                    raise EnvError(
                        f"an evaluation episode did not end within {LONGEST_EPISODE:,} steps: give the env a time "
                        f"limit (gymnasium.wrappers.TimeLimit, or max_episode_steps where it is registered)"
                    )
                if terminated or truncated:
                    playing[slot] = next_episode if next_episode < episodes else -1
                    next_episode += 1
                    starts[slot] = True
                    if playing[slot] >= 0:
                        observations[slot], _ = envs[slot].reset(seed + playing[slot])
        return EvalResult(tuple(returns.tolist()), tuple(lengths.tolist()))
    finally:
        for env in envs:
            env.env.close()
