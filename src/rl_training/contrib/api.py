"""The managed API of the algorithms in contrib: `RecurrentPPO("CartPole-v1", seed=0).learn(50_000)`."""

from rl_training.api.algorithms import RecurrentPPO

__all__ = ["RecurrentPPO"]
