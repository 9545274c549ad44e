"""Let SAC learn to swing a pendulum up from pixels alone, and print its learning curve.

    python scripts/pixel_rows.py                  # three seeds, 15,000 steps
    python scripts/pixel_rows.py --seeds 100      # one seed; settings are chosen on seeds from 100 on

Actor and critics share one convolutional encoder, which the critics train; the images of each batch are moved at random
(DrQ, arXiv:2004.13649). The floor is -250 and the bar -200; with the state instead of pixels, SAC has about -140. The
curves are in docs/images-and-atari.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from rl_training import SAC
from rl_training.envs.task_probes import PendulumPixelsProbe

STEPS, POINTS, EPISODES = 15_000, 6, 20
SETTINGS: dict[str, Any] = {
    "encoder": "nature",
    "encoder_size": 64,
    "hidden_sizes": [128, 128],
    "activation": "relu",
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "learning_starts": 1000,
    "batch_size": 128,
    "train_frequency": 2,
    "buffer_size": 20_000,
    "gamma": 0.95,
    "tau": 0.02,
    "reward_scale": 0.1,
    "random_shift": 2,
}


def run(seed: int) -> list[float]:
    """Mean returns of the deterministic policy at equal distances of training."""
    with tempfile.TemporaryDirectory() as folder:
        agent = SAC(PendulumPixelsProbe, seed=seed, output_dir=folder, total_timesteps=STEPS, **SETTINGS)
        curve = []
        for point in range(1, POINTS + 1):
            agent.learn(STEPS // POINTS, show=False)
            episodes = EPISODES if point == POINTS else 5
            curve.append(agent.evaluate(episodes=episodes).mean_return)
            print(f"seed {seed}, {point * STEPS // POINTS:,} steps: {curve[-1]:.1f}", flush=True)
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", default="0,1,2")
    for seed in parser.parse_args().seeds.split(","):
        started = time.process_time()
        run(int(seed))
        print(f"seed {seed}: {time.process_time() - started:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
