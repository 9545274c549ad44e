"""The score of a preset's agents before training, which a band must distinguish from learning."""

from __future__ import annotations

import statistics

from rl_training.algorithms.common.streams import Streams
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_closer import closed_after
from rl_training.envs.factory import make_env
from rl_training.envs.spaces import Spaces
from rl_training.runtime.agent import Agent
from rl_training.runtime.spec import get_spec

AGENTS, EPISODES = 5, 5


def untrained_return(preset: TrainConfig) -> float:
    """The median over a few random initializations: some of them balance a pole for long by luck."""
    env = make_env(preset.env_id, preset.evaluation_kwargs)
    with closed_after(env):
        spaces = Spaces(env.observation_space, env.action_space, action_bound=preset.action_bound)
    returns = []
    for seed in range(AGENTS):
        config = preset.model_copy(update={"seed": seed})
        learner = get_spec(config.algo).learner(spaces, config, Streams(seed))
        returns.append(Agent(learner, spaces, config).evaluate(episodes=EPISODES).mean_return)
    return statistics.median(returns)
