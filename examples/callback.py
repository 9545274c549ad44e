"""Watch a run with a callback, and stop it as soon as it is good enough.

Run it with: python examples/callback.py
"""

from __future__ import annotations

from collections import deque
from statistics import mean

from rl_training import PPO
from rl_training.runtime.loops import Progress


class StopAtReturn:
    """Prints the mean return of the last episodes at intervals, and stops the run when it reaches `target`."""

    def __init__(self, target: float, every: int = 2_000, episodes: int = 20) -> None:
        self.target, self.every, self.next_line = target, every, every
        self.returns: deque[float] = deque(maxlen=episodes)

    def __call__(self, progress: Progress) -> bool:
        # The library calls this after each round: a rollout and its update, or a few replay steps.
        # `progress` has env_steps, updates, the metrics of the updates (results) and the finished episodes.
        self.returns.extend(episode.total_reward for episode in progress.episodes)
        full = len(self.returns) == self.returns.maxlen
        if progress.env_steps >= self.next_line and self.returns:
            self.next_line += self.every
            print(f"{progress.env_steps:6} steps: mean return {mean(self.returns):6.1f}")
        # False stops the run. It is saved first, so that `learn` or `rl-training resume` can continue it.
        return not (full and mean(self.returns) >= self.target)


def main(total_timesteps: int = 30_000, target: float = 100.0) -> None:
    agent = PPO(preset="ppo/cartpole", seed=0)
    agent.learn(total_timesteps, callback=StopAtReturn(target), show=False)
    reason = "reached the target" if agent.env_steps < total_timesteps else "used the whole budget"
    print(f"{reason} after {agent.env_steps} steps; the run is in {agent.run_dir}")


if __name__ == "__main__":
    main()
