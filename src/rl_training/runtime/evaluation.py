"""Evaluation: whole episodes on separate environments, with raw returns and no effect on training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rl_training.config.arguments import whole_number
from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED, LONGEST_EPISODE, MOST_EPISODES
from rl_training.envs.env_closer import close_all
from rl_training.envs.env_runner import WatchedEnv
from rl_training.errors import NumericalError
from rl_training.runtime.collection.info_numbers import InfoNumbers, means

if TYPE_CHECKING:
    from rl_training.runtime.agent import Agent

DEFAULT_SEED = FIRST_EVAL_SEED
LARGEST_SEED = 2**63 - 1 - MOST_EPISODES  # episode i is reset with seed + i
MOST_ENVS_AT_ONCE = 32


@dataclass(frozen=True)
class EvalResult:
    """Raw, undiscounted returns of the episodes, in the order of their seeds.

    `cut_episodes` of them did not end within the step limit; they count with their return until then. `infos` has the
    numbers in the last info of each episode: `is_success` and those of the setting `log_info`.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    cut_episodes: int = 0
    infos: tuple[Mapping[str, float], ...] = field(default=(), hash=False)

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        return float(np.std(self.returns))

    @property
    def info_means(self) -> dict[str, float]:
        """The mean of each number over the episodes that have it, as `info_<name>`."""
        return means(self.infos, list(dict.fromkeys(name for info in self.infos for name in info)))

    @property
    def finding(self) -> str | None:
        """What the returns do not say, with the way out: how many episodes were cut."""
        if not self.cut_episodes:
            return None
        return (
            f"{self.cut_episodes} of {len(self.returns)} evaluation episodes did not end and were cut at step "
            f"{max(self.lengths):,} (eval_max_steps); give the env a time limit (env_kwargs.max_episode_steps, or "
            "gymnasium.wrappers.TimeLimit in Python) or change eval_max_steps"
        )

    def summary(self) -> dict[str, Any]:
        cut = {"cut_episodes": self.cut_episodes} if self.cut_episodes else {}
        scores = {"mean_return": self.mean_return, "std_return": self.std_return, "episodes": len(self.returns)}
        return {**scores, **self.info_means, **cut}


def evaluate(
    agent: Agent,
    make_env: Callable[[], gym.Env[Any, Any]],
    *,
    episodes: int,
    seed: int = DEFAULT_SEED,
    deterministic: bool = True,
    max_steps: int = LONGEST_EPISODE,
    stopped: Callable[[], bool] = lambda: False,
    numbers: InfoNumbers | None = None,
) -> EvalResult | None:
    """Play `episodes` episodes; episode i is reset with `seed` + i. None if `stopped` cut them short.

    An episode that does not end by itself is cut after `max_steps` steps: an env without a time limit has a result too.
    `numbers` reads the last info of each episode. Several environments run side by side so that acting is batched. A
    slot without further episodes keeps an observation and is ignored: rows keep their place, as the memory of a
    recurrent policy requires.
    """
    episodes = whole_number("episodes", episodes, most=MOST_EPISODES)
    seed = whole_number("seed", seed, least=0, most=LARGEST_SEED)
    max_steps = whole_number("max_steps", max_steps)
    numbers = InfoNumbers() if numbers is None else numbers
    envs = [WatchedEnv(make_env()) for _ in range(min(episodes, MOST_ENVS_AT_ONCE))]
    try:
        returns, lengths, cut_episodes = np.zeros(episodes), np.zeros(episodes, np.int64), 0
        infos: list[Mapping[str, float]] = [{}] * episodes
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
                before = observations[slot]
                observations[slot], reward, terminated, truncated, info = envs[slot].step(actions[slot])
                returns[episode] += float(reward)
                lengths[episode] += 1
                is_over = bool(terminated or truncated)
                if lengths[episode] >= max_steps and not is_over:
                    is_over, cut_episodes = True, cut_episodes + 1
                if is_over:
                    infos[episode] = numbers.read(info)
                    playing[slot] = next_episode if next_episode < episodes else -1
                    next_episode += 1
                    starts[slot] = True
                    if playing[slot] >= 0:
                        observations[slot], _ = envs[slot].reset(seed + playing[slot])
                    else:
                        observations[slot] = before  # the last one may allow no action
        _check_finite(returns, seed)
        return EvalResult(
            tuple(returns.tolist()), tuple(lengths.tolist()), cut_episodes, tuple(infos) if any(infos) else ()
        )
    finally:
        close_all(*(env.env.close for env in envs))


def _check_finite(returns: np.ndarray, seed: int) -> None:
    """NumericalError that names the first episode whose rewards do not add up to a number."""
    bad = np.flatnonzero(~np.isfinite(returns))
    if len(bad):
        episode = int(bad[0])
        raise NumericalError(
            f"episode {episode} of the evaluation (seed {seed + episode}) has a return of {returns[episode]}: the env "
            f"gave a reward that is not finite, fix the env",
            field="reward",
            env_index=episode,
            evidence={"returns": returns},
        )
