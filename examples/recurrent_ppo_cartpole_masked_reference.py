"""Recurrent PPO on CartPole-v1 without velocities: the packaged preset, trained and evaluated."""

from __future__ import annotations

import argparse

from rl_training.contrib import RecurrentPPO


def main() -> None:
    # An option that is not given is not set either: the preset's value holds.
    parser = argparse.ArgumentParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("--total-timesteps", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--output-dir")
    agent = RecurrentPPO(preset="recurrent_ppo/cartpole_masked", **vars(parser.parse_args())).learn()
    evaluation = agent.evaluate(episodes=20)
    print(f"{agent}: {evaluation.mean_return:.1f} +- {evaluation.std_return:.1f} over 20 episodes")
    print(f"kept in {agent.run_dir}")


if __name__ == "__main__":
    main()
