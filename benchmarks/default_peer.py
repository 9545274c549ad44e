"""A worker of defaults.py: train Stable-Baselines3 with its own defaults and print a JSON line per budget."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium as gym
import stable_baselines3
import torch
from default_envs import evaluate


def main() -> None:
    env_id, algo, seed, budgets = sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(text) for text in sys.argv[4:]]
    torch.set_num_threads(1)
    env = gym.make(env_id)
    shape = env.observation_space.shape or ()
    policy = "CnnPolicy" if len(shape) == 3 and min(shape[:2]) >= 36 else "MlpPolicy"
    env.close()
    started, done = time.perf_counter(), 0
    model: Any = getattr(stable_baselines3, algo.upper())(policy, env_id, seed=seed, device="cpu", verbose=0)
    for budget in budgets:
        # Several budgets are the points of one run: its settings must not depend on the length of the run.
        model.learn(budget - done, reset_num_timesteps=done == 0)
        done = budget
        # A Discrete action comes as an array without dimensions, which table environments cannot look up.
        returns = evaluate(gym.make(env_id), lambda observation: model.predict(observation, deterministic=True)[0][()])
        row = {"budget": budget, "env_steps": model.num_timesteps, "returns": returns}
        print(json.dumps(row | {"seconds": round(time.perf_counter() - started, 1)}), flush=True)


if __name__ == "__main__":
    main()
