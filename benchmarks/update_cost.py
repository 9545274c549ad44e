"""Processor time of a gradient step of the continuous replay algorithms, compiled, relative to SAC's.

    python benchmarks/update_cost.py                      # sac, tqc, td7, crossq
    python benchmarks/update_cost.py sac redq droq --updates 200

Networks of two layers of 256 units, observations of 17 numbers, 6 actions and batches of 256, as on HalfCheetah. The
algorithms take turns, so that what else the machine does hits all of them; the figure is the median over the turns, in
processor time of one thread. Updates without and with the actor are averaged as the algorithm mixes them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms import get_learner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.loading import load_config
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces

OBSERVATIONS, ACTIONS, ROWS = 17, 6, 256
SPACES = Spaces(
    gym.spaces.Box(-np.inf, np.inf, (OBSERVATIONS,), np.float32), gym.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
)


def learner_of(algorithm: str, compiled: bool) -> Any:
    settings = {"batch_size": ROWS, "hidden_sizes": [256, 256], "activation": "relu", "initialization": "torch"}
    if algorithm == "td7":
        settings["critic"] = {"activation": "elu"}
    settings |= {"compile": "on" if compiled else "off", "total_timesteps": 1_000_000}
    config = load_config({"algo": algorithm, "env_id": "HalfCheetah-v4"}, settings)
    return get_learner(algorithm)(SPACES, config, Streams(0))


def some_batch(seed: int, weighted: bool) -> Transitions:
    generator = torch.Generator().manual_seed(seed)
    obs, next_obs = torch.randn(2, ROWS, OBSERVATIONS, generator=generator)
    actions = 2 * torch.rand(ROWS, ACTIONS, generator=generator) - 1
    weights = torch.ones(ROWS) if weighted else None
    rewards, discounts = torch.randn(ROWS, generator=generator), torch.full((ROWS,), 0.99)
    return Transitions(obs, actions, rewards, next_obs, discounts, weights, np.arange(ROWS))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("algorithms", nargs="*", default=["sac", "tqc", "td7", "crossq"])
    parser.add_argument("--updates", type=int, default=120, help="updates per turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learners = {name: learner_of(name, not options.eager) for name in options.algorithms}
    batches = {name: some_batch(0, learner.config.prioritized) for name, learner in learners.items()}
    for name, learner in learners.items():
        for _ in range(2 * getattr(learner.config, "policy_delay", 1)):  # compiles every variant
            learner.update(batches[name])
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(options.turns):
        for name, learner in learners.items():
            started = time.process_time()
            for _ in range(options.updates):
                learner.update(batches[name])
            seconds[name].append((time.process_time() - started) / options.updates)
    first = statistics.median(seconds[options.algorithms[0]])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:8} {1000 * middle:7.2f} ms   {middle / first:5.2f} x {options.algorithms[0]}")


if __name__ == "__main__":
    main()
