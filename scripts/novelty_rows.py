"""Score PPO with and without the novelty bonus on DeepSeaProbe, bsuite's deep sea of 20.

    python scripts/novelty_rows.py                    # five seeds with the bonus and five without, 300,000 steps
    python scripts/novelty_rows.py rnd --seeds 100    # one of the two

The floor is 0.8 and the bar 0.95; PPO alone must stay at 0. Settings are chosen on seeds from 100 on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from rl_training import PPO
from rl_training.envs.task_probes import DeepSeaProbe

STEPS, EPISODES = 300_000, 20
PLAIN: dict[str, Any] = {
    "num_envs": 8,
    "num_steps": 100,
    "minibatch_size": 100,
    "update_epochs": 4,
    "learning_rate": 3e-4,
    "gae_lambda": 0.8,
    "entropy_coef": 0.01,
    "vector_backend": "sync",
}
# With a learning rate of 1e-3 every cell is familiar after 10,000 steps, before the treasure has been seen twice.
NOVELTY = {"novelty_coef": 30.0, "novelty_gamma": 0.9, "novelty_learning_rate": 1e-4}
ROWS = {"rnd": {**PLAIN, **NOVELTY}, "alone": PLAIN}


def run(name: str, seed: int, steps: int = STEPS) -> float:
    with tempfile.TemporaryDirectory() as folder:
        agent = PPO(DeepSeaProbe, seed=seed, output_dir=folder, total_timesteps=steps, **ROWS[name])
        agent.learn(steps, show=False)
        return agent.evaluate(episodes=EPISODES).mean_return


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help="rnd, alone; default: both")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    arguments = parser.parse_args()
    for name in arguments.rows:
        for seed in arguments.seeds.split(","):
            started = time.process_time()
            score = run(name, int(seed))
            cost = f"{time.process_time() - started:.0f} s of processor time"
            print(f"{name}, seed {seed}: {score:.3f}; {cost}", flush=True)


if __name__ == "__main__":
    main()
