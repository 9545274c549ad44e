"""Watch a run with a callback: log a number of your own, keep state, and stop when the agent is good enough.

Run it with: python examples/callback.py
"""

from __future__ import annotations

from typing import Any

from rl_training import PPO, Callback, RunContext, StopAtReturn


class ShortEpisodes(Callback):
    """Logs the share of episodes shorter than `length`, and prints a line after each evaluation."""

    def __init__(self, length: int = 50) -> None:
        self.length = length
        self.short = self.episodes = 0

    def on_episode(self, context: RunContext) -> None:
        # `context.episode` has total_reward, length and info, the numbers that the env reports about the episode.
        is_short = context.episode.length < self.length
        self.short += is_short
        self.episodes += 1
        # The next metric line, and so every sink, has the mean of what was logged since the last one.
        context.log("short_episodes", is_short)

    def on_evaluation(self, context: RunContext) -> None:
        print(f"{context.env_steps:6} steps: mean return {context.evaluation.mean_return:6.1f}")

    def on_end(self, context: RunContext) -> None:
        print(f"{context.status}: {context.stop_reason or 'used the whole budget'}")

    # With these two methods the state is part of every checkpoint: a resumed run counts on.
    def state_dict(self) -> dict[str, Any]:
        return {"short": self.short, "episodes": self.episodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.short, self.episodes = state["short"], state["episodes"]


def main(total_timesteps: int = 30_000, target: float = 100.0) -> None:
    watch = ShortEpisodes()
    agent = PPO(preset="ppo/cartpole", seed=0, eval_every=2_000)
    agent.learn(total_timesteps, callback=[watch, StopAtReturn(target)], show=False)
    print(f"{watch.short} of {watch.episodes} episodes had fewer than {watch.length} steps")
    print(f"the run stopped after {agent.env_steps} steps and is in {agent.run_dir}")


if __name__ == "__main__":
    main()
