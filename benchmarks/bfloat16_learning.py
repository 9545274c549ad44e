"""What bfloat16 costs in learning: SAC and TD3 on HalfCheetah, beside the seeds that the zoo keeps in float32.

    python benchmarks/bfloat16_learning.py train          # 100,000 steps of three seeds each: half an hour on one core
    python benchmarks/bfloat16_learning.py                # the table of docs/benchmarks/speed.md

The presets are `sac/halfcheetah` and `td3/halfcheetah`. Area is the mean height of the curve of evaluations.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from rl_training import load_config, train
from rl_training.telemetry.metric_lines import METRICS_FILE, iterate_lines

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "results"
KEPT = RESULTS / "bfloat16.json"
ALGORITHMS, SEEDS, STEPS = ("sac", "td3"), ("0", "1", "2"), 100_000
Curve = list[list[float]]


def trained(algorithm: str, seed: str) -> Curve:
    with tempfile.TemporaryDirectory() as folder:
        changes = {"seed": int(seed), "precision": "bfloat16", "threads": 1, "output_dir": folder}
        config = load_config(f"{algorithm}/halfcheetah", changes)
        train(config, callback=lambda progress: progress.env_steps < STEPS, show=False)
        (run,) = Path(folder).iterdir()
        lines = [line for line in iterate_lines(run / METRICS_FILE) if line["kind"] == "eval"]
    return [[line["env_steps"], line["eval_mean_return"]] for line in lines]


def in_float32(algorithm: str) -> dict[str, Curve]:
    seeds = json.loads((RESULTS / algorithm / "halfcheetah.json").read_text())["seeds"]
    return {seed: [point[:2] for point in seeds[seed]["curve"] if point[0] <= STEPS] for seed in SEEDS}


def area(curve: Curve) -> float:
    total = sum((before[1] + after[1]) / 2 * (after[0] - before[0]) for before, after in pairwise(curve))
    return total / (curve[-1][0] - curve[0][0])


def table(kept: dict[str, dict[str, Curve]]) -> list[str]:
    lines = ["| | 20,000 | 40,000 | 60,000 | 80,000 | 100,000 steps | area, each seed | share |", "| --- " * 8 + "|"]
    for algorithm in ALGORITHMS:
        means = []
        for precision, curves in (("float32", in_float32(algorithm)), ("bfloat16", kept[algorithm])):
            points = zip(*curves.values(), strict=True)
            cells = [f"{min(y for _, y in at):,.0f} to {max(y for _, y in at):,.0f}" for at in points]
            areas = [area(curve) for curve in curves.values()]
            means.append(statistics.mean(areas))
            share = f"{means[1] / means[0]:.2f}" if len(means) == 2 else ""
            row = [f"{algorithm.upper()}, {precision}", *cells, ", ".join(f"{each:,.0f}" for each in areas), share]
            lines.append(f"| {' | '.join(row)} |")
    return lines


def main() -> None:
    if sys.argv[1:] == ["train"]:
        kept = {algorithm: {seed: trained(algorithm, seed) for seed in SEEDS} for algorithm in ALGORITHMS}
        KEPT.write_text(json.dumps(kept) + "\n")
    print("\n".join(table(json.loads(KEPT.read_text()))))


if __name__ == "__main__":
    main()
