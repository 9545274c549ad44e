"""Measure what compilation costs and saves, for `compile: auto`; writes the table that ships with the library.

    python benchmarks/compile_gain.py                      # every algorithm that can be compiled
    python benchmarks/compile_gain.py --only ppo sac       # only these; the others keep their figures
    python benchmarks/compile_gain.py --images             # networks of images, for the record

For each algorithm and for a small and a large gradient step, a process of its own builds the same run twice, compiled
and not, and lets the two take turns. It starts with an empty store of compiled functions, so the first compiled round
costs what a first run pays. All figures are seconds of processor time with one thread, the compiler's included; the
other jobs of a machine change them less than its clock. The runs are real ones on CartPole or Pendulum, so the rest of
an update (advantages, permutations, drawing a batch) is on both sides and cancels out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parts import set_up

from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.experiment.registry import algorithm_names, get_config_class
from rl_training.runtime.compile_gain import TABLE, work_of
from rl_training.zoo.results import processor

TURNS, SECONDS = 7, 0.25  # turns of each form; processor seconds of each turn, roughly
FIRST_UPDATES = 4  # of a compiled loop: by then every variant of the gradient step is made
POINTS = {"small": (64, (64, 64)), "large": (256, (256, 256))}  # rows and hidden layers of a gradient step
IMAGES = {"dqn": 32, "ppo": 256}  # measured for the record: `auto` counts only part of it
ROLLOUTS = ("a2c", "ppo", "pqn")  # whose rollouts have a compiled form
# Sizes that multiply the arithmetic of some algorithms, as small as they may be: the table must not promise what a run
# with smaller ones does not save.
LEAST_SIZES = {
    "num_quantiles": 5,
    "num_atoms": 5,
    "num_action_samples": 2,
    "num_taus": 4,
    "num_target_taus": 4,
    "num_cosines": 8,
}
DISCRETE = ("dqn", "apex_dqn", "c51", "qr_dqn", "iqn", "rainbow", "pqn", "ppo", "a2c")
FLEETS = {"apex_dqn": "dqn", "apex_d4pg": "d4pg", "apex_td3": "td3"}  # their learner, without actors


class Stopwatch:
    """Processor seconds of calls to a method."""

    def __init__(self, owner: Any, method: str):
        self.seconds, self.calls = 0.0, 0
        plain = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = processor_seconds()
            try:
                return plain(*args, **kwargs)
            finally:
                self.seconds += processor_seconds() - started
                self.calls += 1

        setattr(owner, method, timed)

    def take(self) -> tuple[float, int]:
        taken = self.seconds, self.calls
        self.seconds, self.calls = 0.0, 0
        return taken


def processor_seconds() -> float:
    """Of this process and of the compilers that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def config_of(algorithm: str, rows: int, hidden: Sequence[int], compiled: bool, batched: bool) -> TrainConfig:
    """A run of `algorithm` whose gradient steps have `rows` rows and layers of `hidden` units."""
    settings = get_config_class(algorithm).model_fields
    changes: dict[str, Any] = {"compile": "on" if compiled else "off", "threads": 1, "total_timesteps": 10**9}
    changes |= {"vector_backend": "batched" if batched else "sync", "hidden_sizes": list(hidden)}
    changes |= {name: size for name, size in LEAST_SIZES.items() if name in settings}
    if "batch_size" in settings:
        changes |= {"batch_size": rows, "learning_starts": max(rows, 200), "buffer_size": 20_000, "train_frequency": 1}
    elif "minibatch_size" in settings:
        changes |= {"num_envs": 8, "num_steps": 4 * rows // 8, "minibatch_size": rows, "update_epochs": 4}
    else:
        changes |= {"num_envs": 8, "num_steps": rows // 8}
    env = "CartPole-v1" if algorithm in DISCRETE else "Pendulum-v1"
    return load_config({"algo": FLEETS.get(algorithm, algorithm), "env_id": env}, changes)


def image_config(algorithm: str, rows: int, compiled: bool) -> TrainConfig:
    from works import DQN_ATARI, PPO_ATARI

    work = (DQN_ATARI if algorithm == "dqn" else PPO_ATARI).ours
    return load_config(work, {"compile": "on" if compiled else "off", "threads": 1})


def steps_per_update(config: TrainConfig) -> int:
    settings = config.algo_kwargs
    if not hasattr(settings, "minibatch_size"):
        return 1
    return settings.num_steps * config.num_envs * settings.update_epochs // settings.minibatch_size


def measure(plain: TrainConfig, compiled: TrainConfig) -> dict[str, float]:
    """Figures of one case: seconds to compile, and seconds of a gradient step and of a step of all envs, both ways."""
    with contextlib.ExitStack() as stack:
        loops = [stack.enter_context(set_up(config)) for config in (plain, compiled)]
        rounds: list[Iterator[Any]] = [iter(loop) for loop in loops]
        updates = [Stopwatch(loop.learner, "update") for loop in loops]
        on_policy = hasattr(plain.algo_kwargs, "num_steps")
        collects = [Stopwatch(loop.collector, "collect") for loop in loops] if on_policy else []
        watches = [[updates[form], *(collects[form : form + 1])] for form in (0, 1)]
        for form in (0, 1):
            while updates[form].calls < FIRST_UPDATES:
                next(rounds[form])
        first = sum(watch.take()[0] for watch in watches[1])
        for watch in watches[0]:
            watch.take()
        figures: dict[str, list[list[float]]] = {"update": [[], []], "collect": [[], []]}
        for _ in range(TURNS):
            for form in (0, 1):
                while updates[form].seconds < SECONDS:
                    next(rounds[form])
                for name, watch in zip(("update", "collect"), watches[form], strict=False):
                    seconds, calls = watch.take()
                    figures[name][form].append(seconds / max(1, calls))
        middle = {name: [statistics.median(form or [0.0]) for form in both] for name, both in figures.items()}
        steps = steps_per_update(plain)
        vector_steps = getattr(plain.algo_kwargs, "num_steps", 1)
        usual = FIRST_UPDATES * (middle["update"][1] + middle["collect"][1])
        return {
            "compile": first - usual,
            "plain": middle["update"][0] / steps,
            "compiled": middle["update"][1] / steps,
            "rollout_plain": middle["collect"][0] / vector_steps,
            "rollout_compiled": middle["collect"][1] / vector_steps,
        }


def case(name: str, algorithm: str) -> dict[str, float]:
    """Measure one case in this process, which must not have compiled anything."""
    if name == "image":
        return measure(*(image_config(algorithm, IMAGES[algorithm], compiled) for compiled in (False, True)))
    rows, hidden = POINTS["small" if name == "rollout" else name]
    both = [config_of(algorithm, rows, hidden, compiled, name == "rollout") for compiled in (False, True)]
    return measure(*both) | {"work": work_of(both[0])}


def in_a_fresh_process(name: str, algorithm: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as store:
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": store} | threads
        command = [sys.executable, __file__, "--case", name, algorithm]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{algorithm}, {name}: {done.stderr}")
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        print(algorithm, name, {key: round(value, 6) for key, value in figures.items()}, flush=True)
        return figures


def figures_of(algorithm: str, points: Sequence[str]) -> dict[str, Any]:
    """The row of an algorithm in the table."""
    found = {point: in_a_fresh_process(point, algorithm) for point in points}
    entry: dict[str, Any] = {"compile": max(each["compile"] for each in found.values())}
    for point, each in found.items():
        entry[point] = {name: each[name] for name in ("work", "plain", "compiled")}
    if algorithm in ROLLOUTS:
        both = in_a_fresh_process("rollout", algorithm)
        more = max(0.0, both["compile"] - found["small"]["compile"])
        entry["rollouts"] = {"compile": more, "plain": both["rollout_plain"], "compiled": both["rollout_compiled"]}
    return rounded(entry)


def rounded(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        name: rounded(value) if isinstance(value, dict) else float(f"{value:.3g}") if name != "work" else int(value)
        for name, value in entry.items()
    }


def write(path: Path, algorithm: str, entry: dict[str, Any]) -> None:
    table = json.loads(path.read_text()) if path.exists() else {}
    measured = f"{processor()}, torch {version('torch')}, one thread"
    rows = table.get("algorithms", {}) | {algorithm: entry}
    table = {"measured_on": measured, "algorithms": {name: rows[name] for name in sorted(rows)}}
    path.write_text(json.dumps(table, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", default=[], help="algorithms to measure; the others keep their figures")
    parser.add_argument("--small", action="store_true", help="measure the small gradient step only")
    parser.add_argument("--images", action="store_true", help="print the figures of images instead; writes nothing")
    parser.add_argument("--write", type=Path, default=TABLE, help="the file of the table")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(case(*arguments.case)))
    elif arguments.images:
        for algorithm in IMAGES:
            in_a_fresh_process("image", algorithm)
    else:
        for algorithm in arguments.only or algorithm_names():
            if get_config_class(algorithm).compilable:
                write(arguments.write, algorithm, figures_of(algorithm, ["small"] if arguments.small else [*POINTS]))


if __name__ == "__main__":
    main()
