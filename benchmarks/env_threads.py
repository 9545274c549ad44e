"""Would it pay to step MuJoCo in threads? Whole runs of PPO on HalfCheetah-v5 by turns, with threads and without.

    python benchmarks/env_threads.py                       # 5 pairs of runs of 60,000 steps, 8 environments
    python benchmarks/env_threads.py --steps 20000 --pairs 3

A run with threads steps every second environment in another thread; MuJoCo's own step releases the lock of Python, the
rest of an environment holds it. Observations, rewards and ends are those of `sync`, bit for bit, so both runs do the
same work. A ratio is that of a pair of runs, steps per second of wall time. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from rl_training import PPO
from rl_training.envs.env_runner import EnvRunner
from rl_training.envs.sync_vector import SyncVector

SETTINGS: dict[str, Any] = {"num_envs": 8, "vector_backend": "sync", "seed": 0, "num_steps": 256}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let `SyncVector` step its environments in `count` threads."""
    pool, plain = ThreadPoolExecutor(count), SyncVector.step

    def share(runners: list[EnvRunner], actions: list[Any]) -> list[Any]:
        return [EnvRunner.step(runner, action) for runner, action in zip(runners, actions, strict=True)]

    def step(self: SyncVector, actions: Any) -> Any:
        runners, rows = self._runners, list(actions)
        parts: list[Future[list[Any]]] = [
            pool.submit(share, runners[first::count], rows[first::count]) for first in range(count)
        ]
        results: list[Any] = [None] * len(runners)
        for first, part in enumerate(parts):
            results[first::count] = part.result()
        with mock.patch.object(self, "_runners", [_Done(result) for result in results]):
            return plain(self, actions)

    with pool, mock.patch.object(SyncVector, "step", step):
        yield


class _Done:
    """A runner whose step has been made."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def step(self, _: Any) -> Any:
        return self.result


def speed(steps: int, count: int) -> tuple[float, str]:
    """Steps per second of a run, and its last numbers: they must not depend on `count`."""
    with tempfile.TemporaryDirectory() as folder:
        agent = PPO("HalfCheetah-v5", output_dir=folder, total_timesteps=steps, **SETTINGS)
        started = time.perf_counter()
        if count == 1:
            agent.learn(steps, show=False)
        else:
            with threads(count):
                agent.learn(steps, show=False)
        seconds = time.perf_counter() - started
        state = agent.agent.learner.model.state_dict()
        return steps / seconds, str(float(sum(part.double().sum() for part in state.values())))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    speed(4_000, 1)  # imports and compiling
    ratios = []
    for _ in range(arguments.pairs):
        (plain, numbers), (shared, same) = (speed(arguments.steps, count) for count in (1, arguments.threads))
        if numbers != same:
            raise SystemExit(f"the runs are not equal: {numbers} and {same}")
        ratios.append(shared / plain)
        print(f"sync {plain:,.0f} steps/s, in {arguments.threads} threads {shared:,.0f}: {ratios[-1]:.3f}", flush=True)
    print(f"median {statistics.median(ratios):.3f} ({min(ratios):.3f} .. {max(ratios):.3f})")


if __name__ == "__main__":
    main()
