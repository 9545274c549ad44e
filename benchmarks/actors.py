"""How the rate of env steps grows with the number of actors, and how old rollouts get in `async` mode.

    python benchmarks/actors.py scaling      # about 20 minutes: envs that sleep
    python benchmarks/actors.py speed        # about 5 minutes, the machine should be idle
    python benchmarks/actors.py lag          # about 3 minutes
    python benchmarks/actors.py processor    # about 2 minutes
    python benchmarks/actors.py draw         # docs/images/actors.png, and tables on the screen

`scaling` uses envs that sleep, so two cores are enough to step sixteen of them: it measures the runtime and not the
cores. A constant sleep of 5 ms shows what the transport costs. An exponential one of the same mean shows what waiting
for the slowest env costs: `vector_backend: async` does so in every step, actors do not. `speed` compares env steps per
second without actors and with `pipelined` process actors, by turns. `processor` compares processor
time, which other programs on the machine hardly change: what a step costs inline, against what the busiest process
pays per step with actors. Their ratio is the speed-up that one core per process allows. `lag` reads the metric lines
of runs whose only change is that a line is written after each update.

Results are kept in docs/benchmarks/results/actors/fleet.json; each part replaces its own, but `scaling` adds to them,
and `speed --only ROW` replaces one row.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training import load_config
from rl_training.analysis.chart import COLORS, FAINT, chart_style, new_figure, save_png
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.auto_settings import limited_threads
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.processes import ProcessFleet
from rl_training.runtime.loops import Loop
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.workflows import train
from rl_training.telemetry.recorder import read_metrics
from rl_training.zoo.results import this_machine

RESULTS = Path("docs/benchmarks/results/actors/fleet.json")
PICTURE = Path("docs/images/actors.png")
SLEEP = 0.005
ACTORS = (1, 2, 4, 8, 16)
WARM_UP_ROUNDS = 10
WINDOWS = 5  # stretches of time of `scaling`, of which the fastest counts
KINDS = {"process": "actors: process", "ray": "actors: Ray", "vector_backend": "vector_backend: async"}
SLEEPERS_IN_WORDS = {"constant": "5 ms per step", "exponential": "5 ms on average, exponential"}
PAIRS = (("impala/cartpole", 1), ("impala/lunarlander", 2))
LAGGING = ("impala/cartpole", "impala/lunarlander", "appo/cartpole", "appo/lunarlander", "a3c/cartpole")


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


SLEEPERS = {"constant": Sleeper, "exponential": exponential_sleeper}


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


@contextlib.contextmanager
def running(config: TrainConfig, env: Any = None) -> Iterator[Loop]:
    """The loop of a run, with as many threads as a run has."""
    with open_loop(config, env, None, StopSignals()) as loop, limited_threads(int(loop.config.threads)):
        yield loop


def rates_of(config: TrainConfig, env: Any, seconds: float, windows: int = 1) -> list[float]:
    """Env steps per second in each of these stretches of time, after a warm-up."""
    rates = []
    with running(config, env) as loop:
        rounds = iter(loop)
        for _ in range(WARM_UP_ROUNDS):
            next(rounds)
        for _ in range(windows):
            started, steps = time.perf_counter(), loop.env_steps
            while (elapsed := time.perf_counter() - started) < seconds:
                next(rounds)
            rates.append((loop.env_steps - steps) / elapsed)
    return rates


def scaling(seconds: float, repeats: int, known: dict[str, Any]) -> dict[str, Any]:
    """Env steps per second of every kind, sleep and number of envs: of several stretches of time, in turns.

    They are added to what is `known` of this machine.
    """
    same = known.get("machine") == this_machine()
    result: dict[str, Any] = known if same else {"machine": this_machine(), "loads": []}
    for turn in range(repeats):
        for sleep, env in SLEEPERS.items():
            for kind in KINDS:
                rates = result.setdefault(sleep, {}).setdefault(kind, {str(count): [] for count in ACTORS})
                for count in ACTORS:
                    result["loads"].append(os.getloadavg()[0])
                    runtime = {"backend": kind, "actors": count, "mode": "async"}
                    changes = {"vector_backend": "async"} if kind == "vector_backend" else {"runtime": runtime}
                    found = rates_of(sleeping_config(count, **changes), env, seconds, WINDOWS)
                    rates[str(count)] += found
                    text = ", ".join(f"{each:.0f}" for each in found)
                    print(f"turn {turn + 1}, {sleep}, {kind}, {count}: {text} steps/s", flush=True)
    return result


def share_of_linear(rates: dict[str, list[float]], count: int) -> float:
    """What `count` actors make, as a share of `count` times what one makes. Other programs only make things slower."""
    return max(rates[str(count)]) / (count * max(rates["1"]))


def lag(presets: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Of 4 actors in `async` mode: how old the oldest rollout of an update was, and the share of stale steps."""
    result: dict[str, Any] = {"machine": this_machine(), "rows": {}}
    for preset in presets:
        changes = {"runtime.actors": 4, "runtime.mode": "async", "log_every": 1, "eval_every": 0, "eval_episodes": 1}
        with tempfile.TemporaryDirectory() as folder:
            config = load_config(preset, {**changes, "output_dir": folder})
            load = os.getloadavg()[0]
            run = train(config, callback=lambda progress: progress.env_steps < steps, show=False)
            lines = [line for line in read_metrics(run.run_dir) if "lag_max" in line]
        oldest, last = [line["lag_max"] for line in lines], lines[-1]
        p50, p99 = map(float, np.percentile(oldest, (50, 99)))
        result["rows"][preset] = {
            "steps": last["env_steps"],
            "updates": last["updates"],
            "mean": statistics.fmean(line["lag_mean"] for line in lines),
            "p50": p50,
            "p99": p99,
            "max": max(oldest),
            "stale": last["env_steps_stale"] / last["env_steps"],
            "max_lag": config.runtime.resolved(config.algo).max_lag,
            "load": load,
        }
        print(preset, result["rows"][preset], flush=True)
    return result


def speed(rows: tuple[tuple[str, int], ...], seconds: float, repeats: int) -> dict[str, Any]:
    """Env steps per second of presets on one thread, without actors and with process actors by turns; the medians."""
    result: dict[str, Any] = {"machine": this_machine(), "rows": {}}
    for preset, actors in rows:
        rates: dict[str, list[float]] = {"one_process": [], "actors": []}
        endless = {"total_timesteps": 10**9, "checkpoint_every": 0, "eval_every": 0, "threads": 1}
        runtime = {"runtime.backend": "process", "runtime.actors": actors, "runtime.mode": "pipelined"}
        for _ in range(repeats):
            rates["one_process"] += rates_of(load_config(preset, endless), None, seconds)
            rates["actors"] += rates_of(load_config(preset, {**endless, **runtime}), None, seconds)
        ratios = [with_actors / alone for alone, with_actors in zip(*rates.values(), strict=True)]
        result["rows"][preset] = {"actors": actors, "load": os.getloadavg()[0], "rates": rates, "ratios": ratios}
        medians = ", ".join(f"{name} {np.median(values):,.0f} steps/s" for name, values in rates.items())
        print(f"{preset}, {actors} actors: {np.median(ratios):.3f} of {ratios}; {medians}", flush=True)
    return result


def processor(rows: tuple[tuple[str, int], ...], steps: int, repeats: int) -> dict[str, Any]:
    """Microseconds of processor time per env step: inline, and of learner and actors, by turns; the medians."""
    result = {}
    for preset, actors in rows:
        costs: list[list[float]] = []
        for _ in range(repeats):
            endless = {"total_timesteps": 10**8, "checkpoint_every": 0, "eval_every": 0}
            runtime = {"runtime.backend": "process", "runtime.actors": actors, "runtime.mode": "pipelined"}
            costs.append([*_costs(load_config(preset, endless), steps)])
            costs[-1] += _costs(load_config(preset, {**endless, **runtime}), steps)
        inline, learner, *others = (1e6 * statistics.median(turn) for turn in zip(*costs, strict=True))
        result[preset] = {"inline": inline, "learner": learner, "actors": others, "load": os.getloadavg()[0]}
        print(preset, result[preset], f"{inline / max(learner, *others):.3f}", flush=True)
    return result


def _costs(config: TrainConfig, steps: int) -> list[float]:
    """Processor seconds per env step of this process, and of each actor."""
    with running(config) as loop:
        fleet = loop.collector.fleet if isinstance(loop.collector, ActorCollector) else None
        processes = [worker.process for _, worker in fleet._workers()] if isinstance(fleet, ProcessFleet) else []
        each = iter(loop)
        for _ in range(WARM_UP_ROUNDS):
            next(each)
        before, first = [time.process_time(), *map(_seconds, processes)], loop.env_steps
        while loop.env_steps < first + steps:
            next(each)
        after = [time.process_time(), *map(_seconds, processes)]
        return [(end - start) / (loop.env_steps - first) for start, end in zip(before, after, strict=True)]


def _seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def draw(measured: dict[str, Any], picture: Path) -> None:
    with chart_style("read the tables"):
        figure = new_figure((9.0, 3.7))
        for axes, (sleep, title) in zip(figure.subplots(1, 2, sharey=True), SLEEPERS_IN_WORDS.items(), strict=True):
            one = max(measured[sleep]["process"]["1"])
            axes.plot(ACTORS, [one * count for count in ACTORS], color=FAINT, linewidth=4, label="linear")
            for (kind, label), color, marker in zip(KINDS.items(), COLORS, "os^", strict=False):
                rates = [max(measured[sleep][kind][str(count)]) for count in ACTORS]
                axes.plot(ACTORS, rates, color=color, marker=marker, markersize=5, linewidth=1.9, label=label)
            axes.set(title=title, xscale="log", yscale="log", xlabel="actors, or environments in one vector")
            axes.set_xticks(ACTORS, map(str, ACTORS))
            axes.set_yticks([200, 500, 1000, 2000], ["200", "500", "1,000", "2,000"])
            axes.minorticks_off()
        figure.axes[0].set_ylabel("env steps per second")
        figure.axes[0].legend()
        save_png(figure, picture)


def scaling_table(measured: dict[str, Any]) -> str:
    """In Markdown: steps per second, and the share of linear."""
    lines = [f"| {' | '.join(['environments sleep', 'stepped by', *map(str, ACTORS)])} |", "| --- " * 7 + "|"]
    for sleep, title in SLEEPERS_IN_WORDS.items():
        for kind, label in KINDS.items():
            rates = measured[sleep][kind]
            cells = [f"{max(rates[str(count)]):,.0f} ({share_of_linear(rates, count):.2f})" for count in ACTORS]
            lines.append(f"| {' | '.join([title, label, *cells])} |")
    return "\n".join(lines)


def lag_table(measured: dict[str, Any]) -> str:
    """In Markdown: a row per preset."""
    head = ["preset", "env steps", "updates", "mean", "median", "99th percentile", "largest", "`max_lag`", "stale"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for preset, row in measured["rows"].items():
        numbers = [f"{row['steps']:,}", f"{row['updates']:,}", f"{row['mean']:.1f}"]
        numbers += [f"{row[name]:.0f}" for name in ("p50", "p99", "max", "max_lag")]
        lines.append(f"| {' | '.join([preset, *numbers, format(row['stale'], '.2%')])} |")
    return "\n".join(lines)


def speed_table(measured: dict[str, Any]) -> str:
    """In Markdown: medians of the turns."""
    head = ["preset", "actors", "steps/s in one process", "steps/s with actors", "ratio of each turn", "median"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for preset, row in measured["rows"].items():
        rates = [f"{statistics.median(row['rates'][name]):,.0f}" for name in ("one_process", "actors")]
        ratios = [f"{ratio:.2f}" for ratio in row["ratios"]]
        median = f"{statistics.median(row['ratios']):.2f}"
        lines.append(f"| {' | '.join([preset, str(row['actors']), *rates, ', '.join(ratios), median])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["scaling", "speed", "lag", "processor", "draw"])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each rate of `scaling` and `speed`")
    parser.add_argument("--repeats", type=int, help="turns of `scaling` (1), `speed` and `processor` (5)")
    parser.add_argument("--steps", type=int, default=200_000, help="of each run of `lag`")
    names = [preset for preset, _ in PAIRS]
    parser.add_argument("--only", choices=names, help="this row of `speed` or `processor` alone")
    options = parser.parse_args()
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    repeats = options.repeats or (1 if options.part == "scaling" else 5)
    pairs = tuple(pair for pair in PAIRS if options.only in (None, pair[0]))
    if options.part == "scaling":
        results["scaling"] = scaling(options.seconds, repeats, results.get("scaling", {}))
    elif options.part == "speed":
        found = speed(pairs, options.seconds, repeats)
        known = results.get("speed", {})
        others = known["rows"] if options.only and known.get("machine") == found["machine"] else {}
        results["speed"] = {**found, "rows": others | found["rows"]}
    elif options.part == "lag":
        results["lag"] = lag(LAGGING, options.steps)
    elif options.part == "processor":
        results["processor"] = processor(pairs, 40_000, repeats)
    else:
        draw(results["scaling"], options.picture)
        print(scaling_table(results["scaling"]), lag_table(results["lag"]), sep="\n\n")
        return
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
