"""Train, evaluate, save, load, act: the whole API in ten lines."""

from __future__ import annotations

import gymnasium as gym

from rl_training import PPO


def main(total_timesteps: int = 50_000) -> None:
    ppo = PPO("CartPole-v1", preset="ppo/cartpole", seed=0).learn(total_timesteps)
    print(ppo.evaluate(episodes=20).summary())
    path = ppo.save("runs/cartpole-agent")

    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    action, _ = PPO.load(path).predict(observation)
    print(f"the loaded agent answers {observation} with {action}")


if __name__ == "__main__":
    main()
