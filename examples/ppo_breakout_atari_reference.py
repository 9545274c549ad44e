"""PPO on Breakout from pixels: a tiny job of a minute that shows every part at work, or the packaged preset in full.

Needs the extra: pip install "rl_training[atari]". The tiny job learns nothing yet, and its games are cut short.
"""

from __future__ import annotations

import argparse

from rl_training import PPO


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("--total-timesteps", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--output-dir")
    parser.add_argument("--full", action="store_true", help="the preset as it is: many hours")
    options = vars(parser.parse_args())
    if not options.pop("full", False):
        options = tiny(options.pop("total_timesteps", 2_048)) | options
    ppo = PPO(preset="ppo/breakout_atari", **options).learn()
    evaluation = ppo.evaluate(episodes=3)
    print(f"{ppo}: raw score {evaluation.mean_return:.1f} +- {evaluation.std_return:.1f} over 3 games")
    print(f"kept in {ppo.run_dir}")


def tiny(steps: int) -> dict[str, object]:
    """Settings for a run of a few steps."""
    return {
        "total_timesteps": steps,
        "num_envs": 2,
        "num_steps": 64,
        "minibatch_size": 64,
        "eval_episodes": 1,
        "env_kwargs.atari.max_frames": 1_000,
    }


if __name__ == "__main__":
    main()
