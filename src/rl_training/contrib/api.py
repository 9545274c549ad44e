"""The managed API of the algorithms in contrib: `RecurrentPPO("CartPole-v1", seed=0).learn(50_000)`."""

from __future__ import annotations

from rl_training.api.managed import ManagedAlgorithm


class RecurrentPPO(ManagedAlgorithm):
    """PPO with a memory, an LSTM or GRU, for any actions: for envs that do not show everything.

    `predict(observation, state=state, episode_start=...)` takes and gives back the memory; None is an empty one.
    """

    algorithm = "recurrent_ppo"
