"""Do the defaults learn? Train environments without a preset, here and with the defaults of Stable-Baselines3.

    .venv-bench/bin/python benchmarks/defaults.py                    every row that is missing, then the page
    .venv-bench/bin/python benchmarks/defaults.py --only taxi        rows whose name contains the text
    .venv-bench/bin/python benchmarks/defaults.py --side peer        one side only
    .venv-bench/bin/python benchmarks/defaults.py --table            only write the page from the stored results
    .venv-bench/bin/python benchmarks/defaults.py --list             the rows and how many runs each has

Both sides run in one virtual environment: that of `make bench-setup`, with `pip install minigrid highway-env` and
`pip install -e ".[box2d,mujoco]"`. A run is one process with one thread. Its result is a small file in
docs/benchmarks/results/defaults, so the command continues where it stopped. The sides alternate, seed by seed. Delete
the files of a side to measure it again.

The rule: the last policy of a run, deterministic, 20 episodes with reset seeds 10000 to 10019, cut after 1,000 steps. A
row is behind if its mean is lower by more than the spread of the seeds: the larger range of the two sides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "results" / "defaults"
PAGE = ROOT / "docs" / "benchmarks" / "defaults.md"
SEEDS = (0, 1, 2)
WORKERS = {"peer": "default_peer.py", "ours": "default_ours.py"}
SIDES = tuple(WORKERS)
WORDS = ("ahead", "higher", "equal", "lower", "behind", "not finished")  # the last words of the verdicts


@dataclass(frozen=True)
class Row:
    """One environment and algorithm, with a small and a large budget of environment steps."""

    env: str
    algo: str
    budgets: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.algo}-{self.env.rpartition(':')[2].lower()}"

    @property
    def shown_env(self) -> str:
        return SHOWN.get(self.env, self.env)

    def path(self, side: str, budget: int, seed: int) -> Path:
        return RESULTS / side / f"{self.name}-{budget}-seed{seed}.json"


SHOWN = {
    "default_envs:DoorKey-v0": "MiniGrid-DoorKey-5x5-v0",
    "default_envs:EmptyRGB-v0": "MiniGrid-Empty-5x5-v0 (image)",
    "default_envs:Highway-v0": "highway-fast-v0",
}
# Cheap rows first.
ROWS = (
    *(Row(env, "dqn", (10_000, 30_000)) for env in ("Taxi-v4", "FrozenLake-v1", "CliffWalking-v1", "LunarLander-v3")),
    *(Row(env, "ppo", (10_000, 30_000)) for env in ("Taxi-v4", "FrozenLake-v1", "CliffWalking-v1")),
    *(Row(env, "ppo", (20_000, 50_000)) for env in ("InvertedDoublePendulum-v5", "Reacher-v5", "Swimmer-v5")),
    Row("default_envs:DoorKey-v0", "ppo", (30_000, 80_000)),
    Row("InvertedDoublePendulum-v5", "sac", (3_000, 10_000)),
    Row("Reacher-v5", "sac", (3_000, 10_000)),
    Row("default_envs:Highway-v0", "dqn", (2_000, 5_000)),
    Row("BipedalWalker-v3", "ppo", (20_000, 50_000)),
    Row("default_envs:DoorKey-v0", "dqn", (10_000, 30_000)),
    Row("default_envs:EmptyRGB-v0", "ppo", (8_000, 20_000)),
    Row("default_envs:Highway-v0", "ppo", (2_000, 5_000)),
    Row("Swimmer-v5", "sac", (3_000, 10_000)),
    Row("BipedalWalker-v3", "sac", (3_000, 10_000)),
    Row("LunarLander-v3", "ppo", (20_000, 50_000)),
    Row("InvertedDoublePendulum-v5", "td3", (3_000, 10_000)),
    Row("Reacher-v5", "td3", (3_000, 10_000)),
)


def is_one_run(row: Row) -> bool:
    """Whether one run gives both budgets: nothing in the settings of either side depends on the length of the run."""
    return row.algo != "dqn"


def missing(row: Row, side: str, seed: int) -> list[int]:
    return [budget for budget in row.budgets if not row.path(side, budget, seed).exists()]


def run(row: Row, side: str, seed: int) -> None:
    """Train what is missing of a row on one side with one seed, and keep the results."""
    budgets = missing(row, side, seed)
    if not budgets:
        return
    runs = [list(row.budgets)] if is_one_run(row) else [[budget] for budget in budgets]
    folder = Path(__file__).resolve().parent
    path = os.pathsep.join([str(folder), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    for wanted in runs:
        command = [sys.executable, "-W", "ignore", str(folder / WORKERS[side]), row.env, row.algo, str(seed)]
        done = subprocess.run(
            [*command, *map(str, wanted)],
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            print(f"{row.name} {side} seed {seed}: failed with exit code {done.returncode}", flush=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for result in lines:
            target = row.path(side, result["budget"], seed)
            target.parent.mkdir(parents=True, exist_ok=True)
            mean = statistics.mean(result["returns"])
            versions = {name: version(name) for name in ("gymnasium", "torch", "stable_baselines3")}
            result["returns"] = [round(each, 3) for each in result["returns"]]
            record = {
                "row": row.name,
                "side": side,
                "seed": seed,
                **result,
                "mean": round(mean, 3),
                "versions": versions,
            }
            target.write_text(json.dumps(record) + "\n", encoding="utf-8")
            print(
                f"{row.name} {side} seed {seed} at {result['budget']}: {mean:.2f} in {result['seconds']} s", flush=True
            )


def means(row: Row, side: str, budget: int) -> list[float]:
    """The score of each seed that has been measured."""
    paths = [row.path(side, budget, seed) for seed in SEEDS]
    return [json.loads(path.read_text(encoding="utf-8"))["mean"] for path in paths if path.exists()]


def verdict(ours: list[float], peer: list[float]) -> str:
    """Ahead or behind, if the means differ by more than the spread of the seeds."""
    if len(ours) < len(SEEDS) or len(peer) < len(SEEDS):
        return "not finished"
    difference = statistics.mean(ours) - statistics.mean(peer)
    spread = max(max(side) - min(side) for side in (ours, peer))
    if abs(difference) <= spread:
        return "equal" if difference == 0 else "within the spread, " + ("higher" if difference > 0 else "lower")
    return "ahead" if difference > 0 else "behind"


def cell(scores: list[float]) -> str:
    if not scores:
        return "-"
    text = f"{statistics.mean(scores):,.2f} ({min(scores):,.2f} to {max(scores):,.2f})"
    return text if len(scores) == len(SEEDS) else f"{text}, {len(scores)} of {len(SEEDS)} seeds"


def page() -> str:
    lines, verdicts = [], []
    for row in ROWS:
        for budget in row.budgets:
            ours, peer = (means(row, side, budget) for side in ("ours", "peer"))
            verdicts.append(verdict(ours, peer))
            lines.append(
                f"| {row.shown_env} | {row.algo} | {budget:,} | {cell(ours)} | {cell(peer)} | {verdicts[-1]} |"
            )
    counts = {word: sum(each.endswith(word) for each in verdicts) for word in WORDS}
    table = "\n".join(lines)
    return HEAD + (
        f"Of {len(verdicts)} comparisons, rl_training has the higher mean in {counts['ahead'] + counts['higher']}, in "
        f"{counts['ahead']} of them by more than the spread,\nand the lower mean in "
        f"{counts['behind'] + counts['lower']}, in {counts['behind']} of them by more than the spread. "
        f"{counts['equal']} are equal, and {counts['not finished']} are not finished.\n\n"
        "| environment | algorithm | steps | rl_training | Stable-Baselines3 | verdict |\n"
        f"| --- | --- | --- | --- | --- | --- |\n{table}\n"
    )


HEAD = """# Defaults

Environments without a preset, trained by `rl-training train ALGO --env ID` and by Stable-Baselines3 with its own
defaults: no setting is given on either side. `python benchmarks/defaults.py` trains what is missing and writes this
page. [Configuration](../configuration.md#defaults-for-an-environment) lists the defaults.

The rule: the last policy of a run, deterministic, 20 episodes with reset seeds 10000 to 10019, raw returns, episodes
cut after 1,000 steps. A cell has the mean over seeds 0 to 2, and the lowest and highest seed. A row is ahead or behind
if the means differ by more than the spread, which is the larger range of the two sides. One run may
give both budgets, except with DQN, whose exploration depends on the length of the run. PPO finishes its rollout, so it
may train a little more than the budget says: up to 2,047 steps there, and up to 127 (one Discrete observation), 511
(other observations with discrete actions) or 2,047 (continuous actions) here.

How the defaults were chosen, on seeds 100 to 102:

- PPO with continuous actions: rollouts of 512, 1,024 and 2,048 steps, other settings of normalization, and two initial
  standard deviations, on Swimmer and BipedalWalker (one to three runs each), and a few runs of
  InvertedDoublePendulum and Reacher. Rollouts of 2,048 steps with an initial logarithm of -0.5 are also those of the
  presets for MuJoCo.
- PPO with one Discrete observation: twelve variants on FrozenLake, Taxi and CliffWalking, one or two runs each.
- PPO with images: five variants on MiniGrid-Empty, one or two runs each. An earlier version (rollouts of 1,024 steps,
  minibatches of 256, 4 epochs) was dropped after it scored 0 with all seeds of the table at 8,000 steps, so that row
  is not independent.
- DQN: on LunarLander and on one Discrete observation, one or two runs each.
- TD3: 1,000 random steps at the start instead of 100, on InvertedDoublePendulum (497.7 and 1,027.6 after 10,000 steps
  of seed 100, without and with them). DDPG, D4PG and Ape-X have the same number.
- The others come from the presets and have not been tuned.

Two more rows are not independent: a first version of DQN's settings for one Discrete observation was dropped after
seed 0 of Taxi scored -559 at 10,000 steps, and 100 random steps of TD3 after seed 0 of InvertedDoublePendulum scored
19.8.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    parser.add_argument("--side", choices=SIDES, action="append", help="only this side")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--list", action="store_true", help="show the rows")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if arguments.only in row.name]
    if arguments.list:
        for row in rows:
            counts = {side: sum(len(means(row, side, budget)) for budget in row.budgets) for side in SIDES}
            print(f"{row.name}: " + ", ".join(f"{side} {count}/{2 * len(SEEDS)}" for side, count in counts.items()))
        return
    for row in rows if not arguments.table else []:
        for seed in SEEDS:
            for side in arguments.side or SIDES:
                run(row, side, seed)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
