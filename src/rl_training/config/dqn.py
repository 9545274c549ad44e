"""Settings of DQN."""

from __future__ import annotations

from rl_training.config.q_learning import QLearningConfig


class DQNConfig(QLearningConfig):
    """Q-learning as it is; what other members of the family add is in their own files."""
