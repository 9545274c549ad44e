"""Train, evaluate, save, load, act: the example of the README, as a program."""

from __future__ import annotations

from rl_training import PPO


def main(total_timesteps: int = 50_000) -> None:
    agent = PPO("CartPole-v1", seed=0, num_envs=8, num_steps=128)
    agent.learn(total_timesteps)
    print(agent.evaluate(episodes=20).mean_return)

    agent.save("cartpole-agent")
    action, _ = PPO.load("cartpole-agent").predict([0.0, 0.1, 0.0, -0.1])
    print(f"the loaded agent pushes {'left' if action == 0 else 'right'}")


if __name__ == "__main__":
    main()
