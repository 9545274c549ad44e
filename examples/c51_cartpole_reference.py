"""C51 on CartPole-v1: the packaged preset, trained and evaluated."""

from __future__ import annotations

import argparse

from rl_training import C51


def main() -> None:
    # An option that is not given is not set either: the preset's value holds.
    parser = argparse.ArgumentParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("--total-timesteps", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--output-dir")
    c51 = C51(preset="c51/cartpole", **vars(parser.parse_args())).learn()
    evaluation = c51.evaluate(episodes=20)
    print(f"{c51}: {evaluation.mean_return:.1f} +- {evaluation.std_return:.1f} over 20 episodes")
    print(f"kept in {c51.run_dir}")


if __name__ == "__main__":
    main()
