"""Train the same settings with several seeds, and report more than one lucky number.

Run it with: python examples/compare_seeds.py
"""

from __future__ import annotations

import numpy as np

from rl_training import ExperimentManager
from rl_training.analysis.statistics import bootstrap_interval, interquartile_mean


def main(total_timesteps: int = 10_000, seeds: tuple[int, ...] = (0, 1, 2)) -> None:
    manager = ExperimentManager("runs")
    # One run per seed. The seed decides everything: initial weights, exploration, minibatches and resets.
    runs = manager.run("ppo/cartpole", {"total_timesteps": total_timesteps}, seeds=seeds, show=False)

    print("seed   mean    IQM   run")
    scores = []
    for run in runs:
        returns = run.evaluate(episodes=20).returns
        scores.append(returns)
        print(f"{run.config.seed:4} {np.mean(returns):6.1f} {interquartile_mean(returns):6.1f}   {run.name}")

    # The interquartile mean (IQM) leaves out the best and the worst quarter, so that one lucky or failed episode does
    # not decide it. The interval resamples seeds, not episodes: the episodes of one agent are not new experiments.
    low, high = bootstrap_interval([np.mean(returns) for returns in scores])
    print(f" all {np.mean(scores):6.1f} {interquartile_mean(scores):6.1f}   95 % interval {low:.1f} to {high:.1f}")
    print("Three seeds show that a setting works. Use five or more before you say that it is better than another one.")


if __name__ == "__main__":
    main()
