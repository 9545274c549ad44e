"""Evaluate an agent on fixed seeds, and record it as a GIF.

Run it with: python examples/evaluate_and_record.py

The GIF needs the extra `video` (from a checkout: pip install -e ".[video]").
"""

from __future__ import annotations

from rl_training import PPO, evaluate_checkpoint


def main(total_timesteps: int = 20_000, path: str = "cartpole.gif") -> None:
    # With `eval_every` the run evaluates itself, and keeps the best agent as a checkpoint of its own.
    agent = PPO(preset="ppo/cartpole", seed=0, eval_every=5_000)
    agent.learn(total_timesteps, show=False)

    # Episode i is reset with seed 10000 + i, so that the same agent always gets the same score.
    last = agent.evaluate(episodes=20)
    print(f"last agent: {last.mean_return:.1f} +- {last.std_return:.1f} over {len(last.returns)} episodes")

    # Any checkpoint of any run can be evaluated from its files alone: the config and the spaces are inside.
    best = evaluate_checkpoint("best", episodes=20)
    print(f"best agent: {best.mean_return:.1f} +- {best.std_return:.1f}")

    # Without exploration the agent takes its most probable action. With it the agent acts as in training.
    exploring = agent.evaluate(episodes=20, deterministic=False)
    print(f"exploring:  {exploring.mean_return:.1f} +- {exploring.std_return:.1f}")

    recording = agent.record(path, episodes=1, seed=10_000)
    print(f"{recording.path}: {recording.pictures} pictures of an episode with return {recording.returns[0]:.0f}")


if __name__ == "__main__":
    main()
