"""An agent around any object that acts, for tests that evaluate a learner without a run."""

from __future__ import annotations

from typing import Any

from rl_training.config.loading import load_config
from rl_training.envs.spaces import Spaces
from rl_training.runtime.agent import Agent


def bare_agent(learner: Any, spaces: Spaces) -> Agent:
    """`act` reads only the learner and its spaces: the config is that of no run."""
    return Agent(learner, spaces, load_config({"algo": "ppo", "env_id": "CartPole-v1"}))
