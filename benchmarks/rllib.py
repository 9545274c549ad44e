"""IMPALA and APPO with actors beside RLlib's on the same machine: env steps per second, and seconds to a solved task.

    make rllib                                             # .venv-rllib: RLlib and what it needs
    python benchmarks/rllib.py --seeds 5                   # every side, pair and seed that is not done, by turns
    python benchmarks/rllib.py --seeds 1 --seconds 60 --only impala/cartpole       # a first look
    python benchmarks/rllib.py --table                     # docs/benchmarks/rllib.md from the results

Ours are the presets with four process actors and `runtime.mode=async`. RLlib (rllib_peer.py) runs twice: with the
settings of its examples, and with those but for the networks, env runners and envs, which are ours then. A
task is solved when the mean return of the last 100 training episodes reaches 475 (CartPole) or -100 (Acrobot); the run
ends there, or after `--seconds`. The clock starts when all processes have started. Torch has one thread in every
process of both. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from rl_training import load_config
from rl_training.runtime.callbacks.callback import Callback, RunContext
from rl_training.runtime.workflows import train
from rl_training.zoo.results import this_machine

HERE = Path(__file__).resolve().parent
RESULTS = Path("docs/benchmarks/results/actors/rllib.json")
PAGE = Path("docs/benchmarks/rllib.md")
GOALS = {"CartPole-v1": 475.0, "Acrobot-v1": -100.0}
PRESETS = {"CartPole-v1": "cartpole", "Acrobot-v1": "acrobot"}
ALGORITHMS = ("impala", "appo")
EPISODES, ACTORS = 100, 4
Line = dict[str, Any]


class Watch(Callback):
    """Stops a run at its goal or when its time is over."""

    def __init__(self, seconds: float, goal: float) -> None:
        self._seconds, self._goal = seconds, goal
        self._returns: deque[float] = deque(maxlen=EPISODES)
        self.line: Line = {"solved": None, "last": None}

    def on_start(self, context: RunContext) -> None:
        self._started = time.perf_counter()

    def on_round(self, context: RunContext) -> bool:
        assert context.progress is not None
        elapsed = time.perf_counter() - self._started
        self._returns.extend(episode.total_reward for episode in context.progress.episodes)
        self.line |= {"steps": context.env_steps, "seconds": elapsed}
        if len(self._returns) == EPISODES:
            self.line["last"] = statistics.fmean(self._returns)
            self.line["solved"] = elapsed if self.line["last"] >= self._goal else None
        return self.line["solved"] is None and elapsed < self._seconds


def run_ours(algo: str, env: str, seed: int, seconds: float, goal: float) -> Line:
    runtime = {"runtime.actors": ACTORS, "runtime.backend": "process", "runtime.mode": "async"}
    watch = Watch(seconds, goal)
    with tempfile.TemporaryDirectory() as folder:
        changes = {"seed": seed, "output_dir": folder, "eval_every": 0, "eval_episodes": 1}
        train(load_config(f"{algo}/{PRESETS[env]}", {**runtime, **changes}), callback=watch, show=False)
    return watch.line


def peer_python() -> Path:
    """The environment of RLlib: that of `make rllib`, or the one that RLLIB_PYTHON names."""
    return Path(os.environ.get("RLLIB_PYTHON", HERE.parent / ".venv-rllib" / "bin" / "python"))


def run_peer(settings: str, algo: str, env: str, seed: int, seconds: float, goal: float) -> Line:
    words = [str(peer_python()), str(HERE / "rllib_peer.py"), settings, algo, env, str(seed), str(seconds), str(goal)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
    line: Line = json.loads([text for text in done.stdout.splitlines() if text.startswith("{")][-1])
    return line


SIDES = {"ours": run_ours, "rllib": partial(run_peer, "example"), "rllib, our networks": partial(run_peer, "ours")}


def key_of(side: str, algo: str, env: str, seed: int, seconds: float) -> str:
    return f"{side} {algo} {env} seed {seed} of {seconds:g} s"


def measure(seeds: int, seconds: float, only: list[str], sides: list[str], results: dict[str, Line]) -> None:
    for seed in range(seeds):
        for env, goal in GOALS.items():
            for algo in ALGORITHMS:
                if only and f"{algo}/{PRESETS[env]}" not in only:
                    continue
                for side in sides:
                    key = key_of(side, algo, env, seed, seconds)
                    if key in results:
                        continue
                    load = os.getloadavg()[0]
                    line = SIDES[side](algo, env, seed, seconds, goal) | {"load": load, "machine": this_machine()}
                    results[key] = line
                    print(key, line, file=sys.stderr, flush=True)
                    RESULTS.parent.mkdir(parents=True, exist_ok=True)
                    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in results.items())
                    RESULTS.write_text(f"{{\n{text}\n}}\n")


def cells(lines: list[Line]) -> list[str]:
    """Steps per second, and seconds to the goal of the seeds that reached it."""
    rate = statistics.median(line["steps"] / line["seconds"] for line in lines)
    solved = [line["solved"] for line in lines if line["solved"] is not None]
    missed = [line["last"] for line in lines if line["solved"] is None]
    words = ", ".join(f"{each:.1f}" for each in solved)
    if missed:
        reached = ", ".join("-" if each is None else f"{each:.0f}" for each in missed)
        words += f"{'; ' if words else ''}not yet in {len(missed)} ({reached})"
    return [f"{rate:,.0f}", words]


def table(results: dict[str, Line]) -> str:
    rows = []
    for seconds in sorted({float(key.rpartition(" of ")[2].split()[0]) for key in results}):
        for env, goal in GOALS.items():
            for algo in ALGORITHMS:
                for side in SIDES:
                    start, end = f"{side} {algo} {env} seed ", f" of {seconds:g} s"
                    lines = [line for key, line in results.items() if key.startswith(start) and key.endswith(end)]
                    if lines:
                        rows.append([algo, f"{env} {goal:g}", side, f"{len(lines)} of {seconds:g} s", *cells(lines)])
    head = ["algorithm", "task and goal", "side", "seeds, at most", "steps/s", "seconds to the goal"]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def write_page(results: dict[str, Line]) -> None:
    loads = [line["load"] for line in results.values()]
    machines = " and ".join(sorted({line["machine"] for line in results.values()}))
    PAGE.write_text(f"""# Comparison with RLlib

IMPALA and APPO with four process actors in `async` mode, compared with RLlib's (ray 2.60, torch 2.13.0, gymnasium
1.2.2) on {machines}. `python benchmarks/rllib.py` ran both sides by turns and wrote this page. The load average before
a run was {min(loads):.1f} to {max(loads):.1f}, most of it from the previous run.

Our side runs the presets of the zoo, and writes their metric lines and checkpoints. "rllib" runs RLlib's own CartPole
examples: IMPALA with 4 env runners of 16 environments each and a learner process; APPO with 5 env runners; networks of
two layers of 256 units that policy and value share. "rllib, our networks" has our networks (two layers of 64 units each
for policy and value) and 4 env runners with as many environments as our actors have. RLlib has no example for Acrobot,
so it uses its CartPole settings there; they are not tuned for that task.

A task is solved when the mean return of the last 100 training episodes reaches the goal; the run then ends. The clock
starts when all processes have started: RLlib takes several seconds for that, which do not count. RLlib looks at its
result once per second. Torch has one thread in each process. If a run did not reach the goal in time, the number in
parentheses is its last mean return. Steps per second are the median over seeds.

{table(results)}
""")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", nargs="+", default=[], help="pairs such as impala/cartpole")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES, help="all three by default")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    results: dict[str, Line] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table:
        measure(options.seeds, options.seconds, options.only, options.sides, results)
    write_page(results)


if __name__ == "__main__":
    main()
