"""D4PG on Pendulum-v1: the packaged preset, trained and evaluated."""

from __future__ import annotations

import argparse

from rl_training import D4PG


def main() -> None:
    # An option that is not given is not set either: the preset's value holds.
    parser = argparse.ArgumentParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("--total-timesteps", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--output-dir")
    d4pg = D4PG(preset="d4pg/pendulum", **vars(parser.parse_args())).learn()
    evaluation = d4pg.evaluate(episodes=20)
    print(f"{d4pg}: {evaluation.mean_return:.1f} +- {evaluation.std_return:.1f} over 20 episodes")
    print(f"kept in {d4pg.run_dir}")


if __name__ == "__main__":
    main()
