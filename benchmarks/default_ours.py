"""A worker of defaults.py: train this library with its own defaults and print a JSON line per budget."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from default_envs import evaluate

import rl_training
from rl_training.envs.factory import make_env


class Measure(rl_training.Callback):
    """Measures the agent at the first round that ends at or after each of these steps."""

    def __init__(self, budgets: list[int], measure: Callable[[Any, int, int], None]):
        self.left, self.measure = list(budgets), measure

    def on_round(self, context: rl_training.RunContext) -> None:
        while self.left and context.env_steps >= self.left[0]:
            self.measure(context.agent, self.left.pop(0), context.env_steps)


def main() -> None:
    env_id, algo, seed, budgets = sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(text) for text in sys.argv[4:]]
    started = time.perf_counter()

    def measure(agent: Any, budget: int, env_steps: int) -> None:
        # As the run makes it: the channels of an image come first.
        env = make_env(env_id, agent.config.evaluation_kwargs)
        returns = evaluate(env, lambda observation: agent.predict(observation)[0])
        settings = agent.config.model_dump(mode="json", include={"num_envs", "model", "algo_kwargs", "env_kwargs"})
        row = {"budget": budget, "env_steps": env_steps, "returns": returns, "settings": settings}
        print(json.dumps(row | {"seconds": round(time.perf_counter() - started, 1)}), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        agent = getattr(rl_training, algo.upper())(
            env_id, seed=seed, output_dir=folder, eval_episodes=1, eval_max_steps=1
        )
        # Several budgets are the points of one run: its settings must not depend on the length of the run.
        agent.learn(budgets[-1], show=False, callback=[Measure(budgets[:-1], measure)])
    measure(agent, budgets[-1], agent.env_steps)


if __name__ == "__main__":
    main()
