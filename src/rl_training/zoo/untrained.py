"""What a preset's agents score before any training: the mark that a band has to tell learning from."""

from __future__ import annotations

import statistics

from rl_training.algorithms.common.streams import Streams
from rl_training.config.train_config import TrainConfig
from rl_training.envs.factory import make_env
from rl_training.envs.spaces import Spaces
from rl_training.runtime.agent import Agent
from rl_training.runtime.spec import get_spec

AGENTS, EPISODES = 5, 5


def untrained_return(preset: TrainConfig) -> float:
    """The median of a few agents with other first weights: some of them are lucky, and balance a pole for long."""
    env = make_env(preset.env_id, preset.evaluation_kwargs)
    spaces = Spaces(env.observation_space, env.action_space)
    env.close()
    returns = []
    for seed in range(AGENTS):
        config = preset.model_copy(update={"seed": seed})
        learner = get_spec(config.algo).learner(spaces, config, Streams(seed))
        returns.append(Agent(learner, spaces, config).evaluate(episodes=EPISODES).mean_return)
    return statistics.median(returns)
