"""How the rate of env steps grows with the number of actors, and how old rollouts get in `async` mode.

    python benchmarks/actors.py scaling --output build/actors.json     # about 5 minutes, the machine should be idle
    python benchmarks/actors.py lag --output build/actors.json
    python benchmarks/actors.py processor --output build/actors.json
    python benchmarks/actors.py draw --output build/actors.json --picture docs/images/actors.png

`scaling` uses envs that sleep, so two cores are enough to step sixteen of them: it measures the runtime and not the
cores. A constant sleep of 5 ms shows what the transport costs. An exponential one of the same mean shows what waiting
for the slowest env costs: `vector_backend: async` does so in every step, actors do not. `processor` compares processor
time, which other programs on the machine hardly change: what a step costs inline, against what the busiest process
pays per step with actors. Their ratio is the speed-up that one core per process allows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.processes import ProcessFleet
from rl_training.runtime.loop_setup import open_loop
from rl_training.runtime.loops import Loop
from rl_training.runtime.stop_signals import StopSignals

SLEEP = 0.005
ACTORS = (1, 2, 4, 8, 16)
WARM_UP_ROUNDS = 10


class Sleeper(gym.Env[Any, Any]):
    """Each step sleeps, for 5 ms or for an exponential time of this mean. Episodes have 200 steps."""

    def __init__(self, exponential: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._exponential = exponential

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._elapsed = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(self.np_random.exponential(SLEEP) if self._exponential else SLEEP)
        self._elapsed += 1
        return np.zeros(4, np.float32), 1.0, False, self._elapsed == 200, {}


def exponential_sleeper() -> Sleeper:
    return Sleeper(exponential=True)


def sleeping_config(num_envs: int, **changes: Any) -> TrainConfig:
    base = {
        "algo": "impala",
        "env_id": "callable:Sleeper",
        "num_envs": num_envs,
        "total_timesteps": 10**9,
        "checkpoint_every": 0,
        "model": {"hidden_sizes": [16]},
        "algo_kwargs": {"num_steps": 20},
    }
    return load_config({**base, **changes})


def rate(config: TrainConfig, env: Any, seconds: float) -> float:
    """Env steps per second, after a warm-up."""
    with open_loop(config, env, None, StopSignals()) as loop:
        rounds = iter(loop)
        for _ in range(WARM_UP_ROUNDS):
            next(rounds)
        started, steps = time.perf_counter(), loop.env_steps
        while time.perf_counter() - started < seconds:
            next(rounds)
        return (loop.env_steps - steps) / (time.perf_counter() - started)


def scaling(seconds: float) -> dict[str, Any]:
    load = os.getloadavg()[0]
    result: dict[str, Any] = {"load": [load], "constant": {}, "exponential": {}}
    for name, env in (("constant", Sleeper), ("exponential", exponential_sleeper)):
        for backend in ("process", "ray"):
            rates = {}
            for actors in ACTORS:
                runtime = {"backend": backend, "actors": actors, "mode": "async"}
                rates[actors] = rate(sleeping_config(actors, runtime=runtime), env, seconds)
                share = rates[actors] / (actors * rates[1])
                print(
                    f"{name} {backend}: {actors} actors, {rates[actors]:.0f} steps/s, {share:.3f} of linear", flush=True
                )
            result[name][backend] = rates
        rates = {n: rate(sleeping_config(n, vector_backend="async"), env, seconds) for n in ACTORS}
        print(f"{name} vector_backend async: {rates}", flush=True)
        result[name]["vector_backend"] = rates
        result["load"].append(os.getloadavg()[0])
    return result


def lag(presets: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Of 4 actors in `async` mode: the 99th percentile over updates of the oldest rollout, and the stale share."""
    result = {}
    for preset in presets:
        changes = {"runtime.actors": 4, "runtime.mode": "async", "total_timesteps": steps, "checkpoint_every": 0}
        with open_loop(load_config(preset, changes), None, None, StopSignals()) as loop:
            crew, oldest = loop.collector, []
            assert isinstance(crew, ActorCollector)
            for _ in loop:
                oldest.append(crew.figures()["lag_max"])
            stale = crew.ledger.stale / loop.env_steps
        p50, p99 = np.percentile(oldest, (50, 99))
        result[preset] = {"p50": p50, "p99": p99, "max": max(oldest), "stale": stale, "steps": loop.env_steps}
        print(preset, result[preset], flush=True)
    return result


def processor(rows: tuple[tuple[str, int], ...], rounds: int, repeats: int) -> dict[str, Any]:
    """Processor time per env step, inline and with process actors by turns; the median of each."""
    result = {}
    for preset, actors in rows:
        inline, busiest = [], []
        for _ in range(repeats):
            inline.append(_inline_cost(load_config(preset, {"total_timesteps": 10**8}), rounds))
            changes = {"runtime.backend": "process", "runtime.actors": actors, "total_timesteps": 10**8}
            busiest.append(_busiest_cost(load_config(preset, changes), rounds))
        ratio = float(np.median(inline) / np.median(busiest))
        result[preset] = {"actors": actors, "inline_us": 1e6 * float(np.median(inline)), "ratio": ratio}
        print(preset, result[preset], flush=True)
    return result


def _inline_cost(config: TrainConfig, rounds: int) -> float:
    with open_loop(config, None, None, StopSignals()) as loop:
        return _cost(loop, rounds, [])


def _busiest_cost(config: TrainConfig, rounds: int) -> float:
    with open_loop(config, None, None, StopSignals()) as loop:
        assert isinstance(loop.collector, ActorCollector) and isinstance(loop.collector.fleet, ProcessFleet)
        return _cost(loop, rounds, [worker.process for _, worker in loop.collector.fleet._workers()])


def _cost(loop: Loop, rounds: int, others: list[int]) -> float:
    """Processor seconds per env step of the process that needs most, this one or one of the others."""
    each = iter(loop)
    for _ in range(WARM_UP_ROUNDS):
        next(each)
    before, steps = [time.process_time(), *map(_seconds, others)], loop.env_steps
    for _ in range(rounds):
        next(each)
    after = [time.process_time(), *map(_seconds, others)]
    return max(end - start for start, end in zip(before, after, strict=True)) / (loop.env_steps - steps)


def _seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def draw(results: dict[str, Any], picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    labels = {"process": "actors: process", "ray": "actors: Ray", "vector_backend": "vector_backend: async"}
    titles = {"constant": "every step sleeps 5 ms", "exponential": "steps sleep 5 ms on average (exponential)"}
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        one = results["scaling"][name]["process"]["1"]
        axis.plot(ACTORS, [one * count for count in ACTORS], color="0.7", linestyle="--", label="linear")
        for (kind, label), marker in zip(labels.items(), "os^", strict=True):
            axis.plot(
                ACTORS, [results["scaling"][name][kind][str(count)] for count in ACTORS], marker=marker, label=label
            )
        axis.set(title=title, xscale="log", yscale="log", xlabel="actors, or envs in one vector", xticks=ACTORS)
        axis.set_xticklabels(map(str, ACTORS))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="env steps per second")
    axes[0].legend(frameon=False)
    figure.savefig(picture, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["scaling", "lag", "processor", "draw"])
    parser.add_argument("--output", type=Path, default=Path("build/actors.json"))
    parser.add_argument("--picture", type=Path, default=Path("docs/images/actors.png"))
    parser.add_argument("--seconds", type=float, default=8.0, help="for each rate of `scaling`")
    options = parser.parse_args()
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    if options.part == "scaling":
        results["scaling"] = scaling(options.seconds)
    elif options.part == "lag":
        results["lag"] = lag(("impala/cartpole", "impala/lunarlander"), 100_000)
    elif options.part == "processor":
        results["processor"] = processor((("impala/cartpole", 1), ("impala/lunarlander", 2)), 40, 5)
    else:
        draw(results, options.picture)
        return
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
