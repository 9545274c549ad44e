"""Processor time of a gradient step of the continuous replay algorithms, compiled, and the share that is arithmetic.

    python benchmarks/update_cost.py                      # sac, td3, ddpg, tqc, crossq, td7
    python benchmarks/update_cost.py sac redq droq --updates 200
    python benchmarks/update_cost.py --usual sac         # SAC once more, with torch's usual products
    python benchmarks/update_cost.py --write docs/benchmarks/speed.md

Networks of two layers of 256 units, observations of 17 numbers, 6 actions and batches of 256, as on HalfCheetah. The
algorithms take turns, so that what else the machine does hits all of them; the figures are the median over the turns
and the least and the most, in processor time of one thread. Updates without and with the actor are averaged as the
algorithm mixes them. GFLOP are those of torch's counter: matrix products, forward and backward. The limit is the time
that the fastest product of this machine (1024 x 1024, one thread) takes for as many.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from rl_training.algorithms import get_learner
from rl_training.algorithms.common.compile.products import fast_product, has_fast_products
from rl_training.algorithms.common.streams import Streams
from rl_training.config.loading import load_config
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces

OBSERVATIONS, ACTIONS, ROWS = 17, 6, 256
ALGORITHMS = ["sac", "td3", "ddpg", "tqc", "crossq", "td7"]
SPACES = Spaces(
    gym.spaces.Box(-np.inf, np.inf, (OBSERVATIONS,), np.float32), gym.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
)
HEAD = (
    "| algorithm | products | ms (least .. most) | of SAC | GFLOP | limit, ms | share of the limit |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
MARKS = ("<!-- update cost -->\n", "<!-- end of update cost -->\n")


def learner_of(algorithm: str, compiled: bool, usual: bool = False) -> Any:
    settings = {"batch_size": ROWS, "hidden_sizes": [256, 256], "activation": "relu", "initialization": "torch"}
    if algorithm == "td7":
        settings["critic"] = {"activation": "elu"}
    settings |= {"compile": "on" if compiled else "off", "total_timesteps": 1_000_000}
    config = load_config({"algo": algorithm, "env_id": "HalfCheetah-v4"}, settings)
    learner = get_learner(algorithm)
    if usual:
        learner = type(learner.__name__, (learner,), {"fast_products": False})
    return learner(SPACES, config, Streams(0))


def some_batch(seed: int, weighted: bool) -> Transitions:
    generator = torch.Generator().manual_seed(seed)
    obs, next_obs = torch.randn(2, ROWS, OBSERVATIONS, generator=generator)
    actions = 2 * torch.rand(ROWS, ACTIONS, generator=generator) - 1
    weights = torch.ones(ROWS) if weighted else None
    rewards, discounts = torch.randn(ROWS, generator=generator), torch.full((ROWS,), 0.99)
    return Transitions(obs, actions, rewards, next_obs, discounts, weights, np.arange(ROWS))


def updates_per_round(learner: Any) -> int:
    """After so many updates the actor has learned once."""
    return int(getattr(learner.config, "policy_delay", 1))


def flops_of(algorithm: str) -> float:
    """Floating point operations of the matrix products of an update, counted without compiling."""
    learner = learner_of(algorithm, compiled=False)
    batch, count = some_batch(0, learner.config.prioritized), updates_per_round(learner)
    with FlopCounterMode(display=False) as counter:
        for _ in range(count):
            learner.update(batch)
    return counter.get_total_flops() / count


def best_rate() -> float:
    """Floating point operations per second of processor time in the fastest product of large matrices."""
    left, right = torch.randn(2, 1024, 1024)
    products: list[Callable[[], Any]] = [lambda: left @ right.T]
    if has_fast_products():
        products.append(lambda: fast_product(left, right))
    rates = []
    for product in products:
        product()
        for _ in range(20):
            started = time.process_time()
            product()
            rates.append(2 * 1024**3 / (time.process_time() - started))
    return max(rates)


def measure(learners: dict[str, Any], updates: int, turns: int) -> dict[str, list[float]]:
    """Seconds of processor time per update, one figure per turn."""
    batches = {name: some_batch(0, learner.config.prioritized) for name, learner in learners.items()}
    for name, learner in learners.items():
        for _ in range(2 * updates_per_round(learner)):  # compiles every variant
            learner.update(batches[name])
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(turns):
        for name, learner in learners.items():
            started = time.process_time()
            for _ in range(updates):
                learner.update(batches[name])
            seconds[name].append((time.process_time() - started) / updates)
    return seconds


def table(learners: dict[str, Any], seconds: dict[str, list[float]], rate: float) -> list[str]:
    rows = list(HEAD)
    first = statistics.median(next(iter(seconds.values())))
    for name, values in seconds.items():
        middle, flops = statistics.median(values), flops_of(name.removesuffix(" usual"))
        spread = f"{1000 * middle:.2f} ({1000 * min(values):.2f} .. {1000 * max(values):.2f})"
        products = "oneDNN" if getattr(learners[name].gradient_step, "fast_products", False) else "MKL"
        limit = flops / rate
        rows.append(
            f"| {name.removesuffix(' usual')} | {products} | {spread} | {middle / first:.2f} | {flops / 1e9:.2f} | "
            f"{1000 * limit:.2f} | {limit / middle:.0%} |"
        )
    return rows


def write(path: Path, lines: list[str]) -> None:
    """Replace what stands between the marks of a file."""
    before, rest = path.read_text().split(MARKS[0])
    path.write_text(before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + rest.split(MARKS[1])[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--usual", nargs="*", default=[], metavar="ALGO", help="once more, with torch's usual products")
    parser.add_argument("--updates", type=int, default=120, help="updates per turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the table between the marks of this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learners = {name: learner_of(name, not options.eager) for name in options.algorithms}
    learners |= {f"{name} usual": learner_of(name, not options.eager, usual=True) for name in options.usual}
    rate = best_rate()
    rows = table(learners, measure(learners, options.updates, options.turns), rate)
    note = f"Fastest product: {rate / 1e9:.0f} GFLOP/s. {options.turns} turns of {options.updates} updates."
    print("\n".join([note, "", *rows]))
    if options.write:
        write(options.write, [note, "", *rows])


if __name__ == "__main__":
    main()
