"""Does every preset reach its score? Trains it over several seeds, evaluates by one rule and prints a table.

    python scripts/check_learning.py                      every row that is not marked long, 5 seeds
    python scripts/check_learning.py --only ppo/cartpole  one row (may be repeated)
    python scripts/check_learning.py --table              print what is there, train nothing
    python scripts/check_learning.py --write              also write docs/benchmarks/learning.md and .json

Stop it at any time and start it again: finished seeds are kept, an interrupted one is resumed. A preset whose
settings changed since its run was made is trained anew.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rl_training.config.yaml_text import read_file
from rl_training.errors import ConfigError
from rl_training.experiment.config import load_config

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ROOT / "scripts" / "learning_targets.yaml"
EPISODES, FIRST_SEED = 100, 10_000
SHARE_OF_SEEDS_AT_FLOOR = 0.8
# What differs between two runs of one preset, or is what `auto` came to, and says nothing about the preset.
PER_RUN = ("seed", "run_name", "output_dir", "threads", "device", "compile", "vector_backend")

Row = dict[str, Any]
Score = dict[str, Any]


def main() -> int:
    arguments = parse_arguments()
    rows = [row for row in load_targets() if selected(row, arguments)]
    for row in rows:
        if (steps := load_config(row["preset"]).total_timesteps) > row["budget"]:
            sys.exit(f"{row['preset']}: total_timesteps {steps} is over its budget of {row['budget']}")
    jobs = [(row["preset"], seed, arguments.output_dir) for row in rows for seed in range(arguments.seeds)]
    if not arguments.table:
        train_all(jobs, arguments.jobs)
    found = {(preset, seed): stored_score(preset, seed, output_dir) for preset, seed, output_dir in jobs}
    table = [summarise(row, [found[row["preset"], seed] for seed in range(arguments.seeds)]) for row in rows]
    text = markdown(table, arguments.seeds)
    print(text)
    if arguments.write:
        write_report(table, text, ROOT / "docs" / "benchmarks")
    return 0 if all(entry["verdict"] == "pass" for entry in table) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="preset to run; repeat for several")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--long", action="store_true", help="include the rows that take hours")
    parser.add_argument("--table", action="store_true", help="train nothing, show what is there")
    parser.add_argument("--write", action="store_true", help="write the report to docs/benchmarks/")
    parser.add_argument("--output-dir", default="runs/learning")
    return parser.parse_args()


def load_targets() -> list[Row]:
    return list(read_file(TARGETS, TARGETS.name).data["rows"])


def selected(row: Row, arguments: argparse.Namespace) -> bool:
    if arguments.only:
        return row["preset"] in arguments.only
    return arguments.long or not row.get("long", False)


def train_all(jobs: list[tuple[str, int, str]], workers: int) -> None:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(train_and_score, *job): job for job in jobs}
        for future in as_completed(futures):
            preset, seed, _ = futures[future]
            if (problem := future.exception()) is not None:
                print(f"{preset} seed {seed} failed: {problem}", file=sys.stderr, flush=True)
                continue
            score = future.result()
            print(f"{preset} seed {seed}: {score['mean_return']:.1f} ({score['wall_seconds']:.0f} s)", flush=True)


def run_config(preset: str, seed: int, output_dir: str) -> Any:
    name = preset.replace("/", "-") + f"-seed{seed}"
    return load_config(preset, {"seed": seed, "run_name": name, "output_dir": output_dir, "threads": 1})


def settings(config: Any) -> dict[str, Any]:
    """What a preset says, the same for all its seeds and wherever its runs are kept."""
    return {key: value for key, value in config.model_dump(mode="json").items() if key not in PER_RUN}


def train_and_score(preset: str, seed: int, output_dir: str) -> Score:
    """Train, or go on with, one seed of a preset, then evaluate its last checkpoint."""
    from rl_training.runtime.workflows import evaluate_checkpoint, resume, train

    if (score := stored_score(preset, seed, output_dir)) is not None:
        return score
    config = run_config(preset, seed, output_dir)
    run_dir = Path(output_dir) / str(config.run_name)
    if run_dir.exists() and not same_settings(run_dir / "config.yaml", config):
        set_aside(run_dir)
    result = resume(run_dir, show=False) if run_dir.exists() else train(config, show=False)
    if result.interrupted:
        raise RuntimeError(f"stopped at env step {result.env_steps}; the next call goes on from there")
    evaluation = evaluate_checkpoint(result.checkpoint, episodes=EPISODES, seed=FIRST_SEED)
    score = evaluation.summary() | {
        "env_steps": result.env_steps,
        "wall_seconds": result.wall_seconds,
        "steps_to_floor": steps_to_floor(run_dir, floor_of(preset)),
        "settings": settings(config),
    }
    (run_dir / "score.json").write_text(json.dumps(score, indent=1))
    return score


def same_settings(stored: Path | dict[str, Any], config: Any) -> bool:
    """Whether stored settings, read by today's rules (a field that is new since has its default), are the preset's."""
    try:
        return settings(load_config(stored)) == settings(config)
    except ConfigError:
        return False


def set_aside(run_dir: Path) -> None:
    """Rename a run of older settings instead of deleting it."""
    number = 1
    while (aside := run_dir.with_name(f"old-{run_dir.name}-{number}")).exists():
        number += 1
    run_dir.rename(aside)


def stored_score(preset: str, seed: int, output_dir: str) -> Score | None:
    """The score of a finished run, unless the preset has changed since."""
    config = run_config(preset, seed, output_dir)
    path = Path(output_dir) / str(config.run_name) / "score.json"
    if not path.exists():
        return None
    score: Score = json.loads(path.read_text())
    return score if same_settings(score["settings"], config) else None


def floor_of(preset: str) -> float:
    """Infinite for a control, which has none to reach."""
    return next(float(row.get("floor", "inf")) for row in load_targets() if row["preset"] == preset)


def steps_to_floor(run_dir: Path, floor: float) -> int | None:
    """Env steps at the first evaluation during training that reached the floor."""
    from rl_training.runtime.metric_lines import read_metrics

    for line in read_metrics(run_dir):
        if line["kind"] == "eval" and line["eval_mean_return"] >= floor:
            return int(line["env_steps"])
    return None


def passes(row: Row, returns: list[float]) -> bool:
    """At least four in five seeds at the floor, and the median at the bar; a control: every seed below its ceiling."""
    if "must_stay_below" in row:
        return max(returns) <= row["must_stay_below"]
    at_floor = sum(value >= row["floor"] for value in returns)
    return at_floor >= SHARE_OF_SEEDS_AT_FLOOR * len(returns) and statistics.median(returns) >= row["bar"]


def summarise(row: Row, scores: list[Score | None]) -> Row:
    """A row of the table: the target, what the seeds reached, and the verdict."""
    present = [score for score in scores if score is not None]
    returns = [score["mean_return"] for score in present]
    if len(present) < len(scores):
        return row | {"scores": returns, "verdict": f"{len(present)} of {len(scores)} seeds"}
    reached = [score["steps_to_floor"] for score in present if score["steps_to_floor"] is not None]
    return row | {
        "verdict": "pass" if passes(row, returns) else "MISS",
        "scores": returns,
        "median": statistics.median(returns),
        "low": min(returns),
        "high": max(returns),
        "env_steps": max(score["env_steps"] for score in present),
        "steps_to_floor": statistics.median(reached) if reached else None,
        "seeds_that_reached_floor_in_training": len(reached),
        "minutes": round(statistics.median(score["wall_seconds"] for score in present) / 60, 2),
        "settings": present[0]["settings"],
    }


def markdown(table: list[Row], seeds: int) -> str:
    head = "| preset | env steps | median | worst .. best | steps to floor | floor | bar | peer | min/seed | verdict |"
    lines = [head, "| --- " * 10 + "|"]
    for entry in table:
        bars = f"{entry.get('floor', '-')} | {entry.get('bar', '-')} | {entry['peer']}"
        if "must_stay_below" in entry:
            bars = f"- | stay <= {entry['must_stay_below']} | {entry['peer']}"
        if "median" not in entry:
            lines.append(f"| {entry['preset']} | | | | | {bars} | | {entry['verdict']} |")
            continue
        steps = "-" if entry["steps_to_floor"] is None else f"{entry['steps_to_floor']:,.0f}"
        lines.append(
            f"| {entry['preset']} | {entry['env_steps']:,} | {entry['median']:.1f} "
            f"| {entry['low']:.1f} .. {entry['high']:.1f} | {steps} | {bars} "
            f"| {entry['minutes']:.1f} | {entry['verdict']} |"
        )
    rule = f"{seeds} seeds, {EPISODES} deterministic episodes each, reset seeds from {FIRST_SEED}."
    return "\n".join(lines) + f"\n\n{rule}\n"


def write_report(table: list[Row], text: str, folder: Path) -> None:
    import gymnasium
    import numpy
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, gymnasium {gymnasium.__version__}, "
    versions += f"numpy {numpy.__version__}, {platform.machine()}"
    intro = f"""# Learning benchmarks

Made by `python scripts/check_learning.py --write`: every preset trained within its budget over 5 seeds, the LAST
checkpoint of each seed evaluated. A row passes when at least 4 of 5 seeds reach the floor and the median reaches the
bar; a control (PPO on what needs a memory) passes when every seed stays below its ceiling. Steps to floor: median,
over the seeds that got there, of the first evaluation during training at or above the floor (10 episodes on other
seeds). Minutes are wall time of one seed on one thread of a busy two-core machine.
{versions}.

"""
    (folder / "learning.md").write_text(intro + text)
    (folder / "learning.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
