"""Steps per processor second of PQN and PPO on CartPole, with the same envs, rollouts, minibatches and networks.

    python benchmarks/pqn_speed.py                  # 8 envs x 128 steps and 1024 envs x 64 steps
    python benchmarks/pqn_speed.py --turns 20

PPO and PQN take turns of one round, so that what else the machine does hits both. Figures are in processor time of the
process, with one thread; the ratio is the median over the turns. PQN is measured with the layer norm that its presets
have and without. Both play at random (the learning rate is close to 0, epsilon is 1), so that envs cost both the same.
What remains beside acting, envs and learning is the rollout that the collector stores.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from parts import set_up

from rl_training.config.loading import load_config
from rl_training.runtime.loops import Loop

SIZES = {"8 x 128": (8, 128, 256), "1024 x 64": (1024, 64, 4096)}  # envs, steps, rows of a minibatch
VARIANTS = {"ppo": ("ppo", False), "pqn": ("pqn", True), "pqn, no layer norm": ("pqn", False)}
PARTS = ("acting", "envs", "learning")


def config_of(algo: str, layer_norm: bool, size: tuple[int, int, int], compiled: str) -> Any:
    num_envs, num_steps, rows = size
    settings = {"num_envs": num_envs, "num_steps": num_steps, "minibatch_size": rows, "update_epochs": 4}
    network = {"hidden_sizes": [64, 64], "layer_norm": layer_norm}
    # Both play at random and learn next to nothing: as many episodes end in both.
    settings |= {"learning_rate": 1e-12} | ({"exploration": 1.0} if algo == "pqn" else {})
    run = {"total_timesteps": 1_000_000_000, "threads": 1, "compile": compiled}
    return load_config({"algo": algo, "env_id": "CartPole-v1"}, settings | network | run)


def watch(owner: Any, method: str, part: str, seconds: dict[str, float]) -> None:
    plain: Callable[..., Any] = getattr(owner, method)

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.process_time()
        try:
            return plain(*args, **kwargs)
        finally:
            seconds[part] += time.process_time() - started

    setattr(owner, method, timed)


def turn(loop: Loop) -> float:
    """Processor seconds per env step of one round."""
    started, first = time.process_time(), loop.env_steps
    loop.round()
    return (time.process_time() - started) / (loop.env_steps - first)


def measure(size: tuple[int, int, int], turns: int, compiled: str) -> None:
    with ExitStack() as stack:
        loops = {
            name: stack.enter_context(set_up(config_of(algo, layer_norm, size, compiled)))
            for name, (algo, layer_norm) in VARIANTS.items()
        }
        for loop in loops.values():
            for _ in range(3):  # compiles
                turn(loop)
        costs: dict[str, list[float]] = {name: [] for name in loops}
        for _ in range(turns):
            for name, loop in loops.items():
                costs[name].append(turn(loop))
        for name, loop in loops.items():
            ratios = sorted(ppo / own for own, ppo in zip(costs[name], costs["ppo"], strict=True))
            quarter = len(ratios) // 4
            parts = dict.fromkeys(PARTS, 0.0)
            watch(loop.learner, "act", "acting", parts)
            watch(loop.collector.envs, "step", "envs", parts)  # type: ignore[union-attr]
            watch(loop.learner, "update", "learning", parts)
            first = loop.env_steps
            whole = statistics.mean(turn(loop) for _ in range(max(1, turns // 4)))
            shares = {part: seconds / (loop.env_steps - first) for part, seconds in parts.items()}
            shares["rest"] = whole - sum(shares.values())
            told = ", ".join(f"{part} {1e6 * seconds:.2f}" for part, seconds in shares.items())
            print(
                f"{name}: {1 / statistics.median(costs[name]):,.0f} steps/s, {statistics.median(ratios):.2f} of ppo "
                f"(middle half {ratios[quarter]:.2f} .. {ratios[-1 - quarter]:.2f}); microseconds per step: {told}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--compile", choices=["auto", "on", "off"], default="auto")
    options = parser.parse_args()
    for name, size in SIZES.items():
        print(f"CartPole, {name}, minibatches of {size[2]}", flush=True)
        measure(size, options.turns, options.compile)


if __name__ == "__main__":
    main()
