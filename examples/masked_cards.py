"""A card game in which only the cards in the hand may be played: DQN with action masks.

    python examples/masked_cards.py

Five cards are dealt, from 0 to 9. In each of five rounds the dealer shows a card; a higher one wins a point. The agent
has ten actions, one per value. Its mask allows only the cards that it still holds.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rl_training import DQN

VALUES, HAND = 10, 5


class Tricks(gym.Env):
    def __init__(self) -> None:
        # The key `action_mask` is all that masks need. The network does not see it: `hand` has what it should know.
        self.observation_space = gym.spaces.Dict(
            {
                "hand": gym.spaces.Box(0, HAND, (VALUES,), np.float32),
                "dealer": gym.spaces.Discrete(VALUES),
                "action_mask": gym.spaces.MultiBinary(VALUES),
            }
        )
        self.action_space = gym.spaces.Discrete(VALUES)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.hand = np.bincount(self.np_random.integers(VALUES, size=HAND), minlength=VALUES)
        return self._deal(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.hand[action] > 0, "the agent played a card that it does not hold"
        self.hand[action] -= 1
        won = float(action > self.dealer)
        # After the last card the mask allows nothing. That is fine where the episode terminates.
        return self._deal(), won, not self.hand.any(), False, {}

    def _deal(self) -> dict[str, Any]:
        self.dealer = int(self.np_random.integers(VALUES))
        mask = (self.hand > 0).astype(np.int8)
        return {"hand": self.hand.astype(np.float32), "dealer": self.dealer, "action_mask": mask}


def careful_play(hand: np.ndarray, dealer: int) -> int:
    """What a person would do: win with the lowest card that wins, else lose the lowest card."""
    cards = np.flatnonzero(hand)
    winning = cards[cards > dealer]
    return int(winning[0] if len(winning) else cards[0])


def mean_points(play: Any, games: int = 200) -> float:
    env, points = Tricks(), 0.0
    for game in range(games):
        observation, over = env.reset(seed=game)[0], False
        while not over:
            observation, won, over, _, _ = env.step(play(observation))
            points += won
    return points / games


if __name__ == "__main__":
    agent = DQN(Tricks, seed=0, num_envs=4, learning_rate=2e-3, learning_starts=500, train_frequency=2)
    agent.learn(5_000)
    rng = np.random.default_rng(0)
    print(f"random cards: {mean_points(lambda seen: rng.choice(np.flatnonzero(seen['action_mask']))):.2f}")
    print(f"a careful person: {mean_points(lambda seen: careful_play(seen['hand'], seen['dealer'])):.2f}")
    print(f"the agent: {mean_points(lambda seen: agent.predict(seen)[0]):.2f}")
