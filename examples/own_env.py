"""Train PPO on an environment of your own: a Gymnasium class is all it takes.

Run it with: python examples/own_env.py
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rl_training import PPO


class Corridor(gym.Env[np.ndarray, int]):
    """Walk to the right end of a corridor. Each step costs 0.1, the end pays 1."""

    def __init__(self, length: int = 8) -> None:
        self.length = length
        # The spaces tell the library what the network sees and which actions it chooses from.
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape=(1,), dtype=np.float32)
        self.action_space = gym.spaces.Discrete(2)  # 0 is left, 1 is right

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)  # seeds self.np_random: use it for all random numbers, and runs repeat exactly
        self.position = int(self.np_random.integers(self.length // 2))
        self.steps = 0
        return self.observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.position = max(0, self.position + (1 if action == 1 else -1))
        self.steps += 1
        # `terminated` means that the task is over: nothing more can be won.
        # `truncated` means that only the clock stopped the episode: the value of the last state still counts.
        terminated = self.position == self.length - 1
        truncated = self.steps == 50
        return self.observation(), 1.0 if terminated else -0.1, terminated, truncated, {}

    def observation(self) -> np.ndarray:
        return np.array([self.position / (self.length - 1)], dtype=np.float32)


def main(total_timesteps: int = 4_000) -> None:
    # Pass the class, or any function that makes an environment. Keywords of its constructor go into `env_kwargs`.
    agent = PPO(Corridor, env_kwargs={"length": 8}, seed=0, num_envs=4, num_steps=64, minibatch_size=64)
    agent.learn(total_timesteps, show=False)
    print(f"mean return over 20 episodes: {agent.evaluate(episodes=20).mean_return:.2f}")

    env = Corridor()
    observation, _ = env.reset(seed=1)
    path, done = [env.position], False
    while not done:
        action, _ = agent.predict(observation)
        observation, _, terminated, truncated, _ = env.step(action)
        path.append(env.position)
        done = terminated or truncated
    print("one episode, by position:", *path)


if __name__ == "__main__":
    main()
