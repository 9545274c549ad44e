"""DQN on Breakout from pixels: a run of about a minute that exercises every part, or the whole preset with --full.

Needs the extra `atari` (from a checkout: pip install -e ".[atari]").
The short run learns nothing yet and cuts its games short.
"""

from reference_run import main


def tiny(total_timesteps: int) -> dict[str, object]:
    return {
        "total_timesteps": total_timesteps,
        "num_envs": 2,
        "learning_starts": total_timesteps // 4,
        "buffer_size": 10_000,
        "eval_episodes": 1,
        "env_kwargs.atari.max_frames": 1_000,
    }


if __name__ == "__main__":
    main("dqn/breakout_atari", __doc__, episodes=3, tiny=tiny)
