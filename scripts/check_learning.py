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
from rl_training.experiment.config import load_config

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ROOT / "scripts" / "learning_targets.yaml"
EPISODES, FIRST_SEED = 100, 10_000


def main() -> int:
    arguments = parse_arguments()
    rows = [row for row in load_targets() if selected(row, arguments)]
    for row in rows:
        steps = load_config(row["preset"]).total_timesteps
        if steps > row["budget"]:
            sys.exit(f"{row['preset']}: total_timesteps {steps} is over its budget of {row['budget']}")
    jobs = [(row["preset"], seed, arguments.output_dir) for row in rows for seed in range(arguments.seeds)]
    if not arguments.table:
        train_all(jobs, arguments.jobs)
    found = {(preset, seed): stored_score(preset, seed, arguments.output_dir) for preset, seed, _ in jobs}
    table = [summarise(row, [found[row["preset"], seed] for seed in range(arguments.seeds)]) for row in rows]
    text = markdown(table, arguments.seeds)
    print(text)
    if arguments.write:
        write_report(table, text)
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


def load_targets() -> list[dict[str, Any]]:
    return list(read_file(TARGETS, TARGETS.name).data["rows"])


def selected(row: dict[str, Any], arguments: argparse.Namespace) -> bool:
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


def train_and_score(preset: str, seed: int, output_dir: str) -> dict[str, Any]:
    """Train, or go on with, one seed of a preset, then evaluate its last checkpoint."""
    from rl_training.runtime.workflows import evaluate_checkpoint, resume, train

    if (score := stored_score(preset, seed, output_dir)) is not None:
        return score
    config = run_config(preset, seed, output_dir)
    run_dir = Path(output_dir) / str(config.run_name)
    if run_dir.exists() and settings_of(run_dir) != config.model_dump(mode="json"):
        discard_run(run_dir)
    result = resume(run_dir, show=False) if run_dir.exists() else train(config, show=False)
    evaluation = evaluate_checkpoint(run_dir, episodes=EPISODES, seed=FIRST_SEED)
    score = evaluation.summary() | {
        "env_steps": result.env_steps,
        "wall_seconds": result.wall_seconds,
        "settings": config.model_dump(mode="json"),
    }
    (run_dir / "score.json").write_text(json.dumps(score, indent=1))
    return score


def settings_of(run_dir: Path) -> Any:
    path = run_dir / "config.yaml"
    return load_config(path).model_dump(mode="json") if path.exists() else None


def discard_run(run_dir: Path) -> None:
    """Set a run of older settings aside instead of deleting it."""
    number = 1
    while (aside := run_dir.with_name(f"old-{run_dir.name}-{number}")).exists():
        number += 1
    run_dir.rename(aside)


def stored_score(preset: str, seed: int, output_dir: str) -> dict[str, Any] | None:
    config = run_config(preset, seed, output_dir)
    path = Path(output_dir) / str(config.run_name) / "score.json"
    if not path.exists():
        return None
    score: dict[str, Any] = json.loads(path.read_text())
    return score if score["settings"] == config.model_dump(mode="json") else None


def steps_to_floor(preset: str, seed: int, output_dir: str, floor: float) -> int | None:
    from rl_training.runtime.metric_lines import read_metrics

    config = run_config(preset, seed, output_dir)
    for line in read_metrics(Path(output_dir) / str(config.run_name)):
        if line["kind"] == "eval" and line["eval_mean_return"] >= floor:
            return int(line["env_steps"])
    return None


def summarise(row: dict[str, Any], scores: list[dict[str, Any] | None]) -> dict[str, Any]:
    present = [score for score in scores if score is not None]
    returns = [score["mean_return"] for score in present]
    entry = row | {"scores": returns, "env_steps": max((s["env_steps"] for s in present), default=0)}
    if len(returns) < len(scores):
        return entry | {"verdict": f"{len(returns)} of {len(scores)} seeds"}
    output_dir = present[0]["settings"]["output_dir"]
    reached = [steps_to_floor(row["preset"], seed, output_dir, row["floor"]) for seed in range(len(scores))]
    enough = sum(value >= row["floor"] for value in returns) >= 0.8 * len(returns)
    passed = enough and statistics.median(returns) >= row["bar"]
    return entry | {
        "median": statistics.median(returns),
        "low": min(returns),
        "high": max(returns),
        "steps_to_floor": statistics.median([s for s in reached if s]) if any(reached) else None,
        "seeds_that_reached_floor_in_training": sum(s is not None for s in reached),
        "minutes": statistics.median(score["wall_seconds"] for score in present) / 60,
        "verdict": "pass" if passed else "MISS",
    }


def markdown(table: list[dict[str, Any]], seeds: int) -> str:
    head = "| preset | env steps | median | worst .. best | steps to floor | floor | bar | peer | min/seed | verdict |"
    lines = [head, "| --- " * 10 + "|"]
    for entry in table:
        if "median" not in entry:
            bars = f"{entry['floor']} | {entry['bar']} | {entry['peer']}"
            lines.append(f"| {entry['preset']} | | | | | {bars} | | {entry['verdict']} |")
            continue
        steps = "-" if entry["steps_to_floor"] is None else f"{entry['steps_to_floor']:,.0f}"
        lines.append(
            f"| {entry['preset']} | {entry['env_steps']:,} | {entry['median']:.1f} "
            f"| {entry['low']:.1f} .. {entry['high']:.1f} | {steps} | {entry['floor']} | {entry['bar']} "
            f"| {entry['peer']} | {entry['minutes']:.1f} | {entry['verdict']} |"
        )
    rule = f"{seeds} seeds, {EPISODES} deterministic episodes each, reset seeds from {FIRST_SEED}."
    return "\n".join(lines) + f"\n\n{rule}\n"


def write_report(table: list[dict[str, Any]], text: str) -> None:
    import gymnasium
    import numpy
    import torch

    folder = ROOT / "docs" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, gymnasium {gymnasium.__version__}, "
    versions += f"numpy {numpy.__version__}, {platform.machine()}"
    intro = f"""# Learning benchmarks

Made by `python scripts/check_learning.py --write`: every preset trained within its budget over 5 seeds, the LAST
checkpoint of each seed evaluated. A row passes when at least 4 of 5 seeds reach the floor and the median reaches the
bar. Steps to floor: median over seeds of the first evaluation during training at or above the floor (10 episodes on
other seeds). {versions}.

"""
    (folder / "learning.md").write_text(intro + text)
    (folder / "learning.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
