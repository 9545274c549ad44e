"""A worker of defaults.py: train this library with its own defaults and print a JSON line per budget."""

from __future__ import annotations

import json
import sys
import tempfile
import time

from default_envs import evaluate

import rl_training


def main() -> None:
    env_id, algo, seed, budgets = sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(text) for text in sys.argv[4:]]
    for budget in budgets:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            agent = getattr(rl_training, algo.upper())(
                env_id, seed=seed, output_dir=folder, eval_episodes=1, eval_max_steps=1
            )
            agent.learn(budget, show=False)
        returns = evaluate(env_id, lambda observation, agent=agent: agent.predict(observation)[0])
        settings = agent.config.model_dump(mode="json", include={"num_envs", "model", "algo_kwargs", "env_kwargs"})
        row = {"budget": budget, "env_steps": agent.env_steps, "returns": returns, "settings": settings}
        print(json.dumps(row | {"seconds": round(time.perf_counter() - started, 1)}), flush=True)


if __name__ == "__main__":
    main()
