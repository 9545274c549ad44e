"""Settings of DQN."""

from __future__ import annotations

from rl_training.config.algorithms.q_learning import QLearningConfig


class DQNConfig(QLearningConfig):
    """DQN adds no settings to those of its family."""
