"""Do the findings keep quiet about healthy runs? Train presets, then apply every rule to the stored metric streams.

    python scripts/calibrate_findings.py train FOLDER                 every row of the manifests, seed 0
    python scripts/calibrate_findings.py train FOLDER --seeds 0,1,2   the cheap rows first, then the next seed
    python scripts/calibrate_findings.py train FOLDER --only ppo/     rows whose preset contains the text (repeatable)
    python scripts/calibrate_findings.py report FOLDER                which rules fire, and the extremes of the streams

FOLDER keeps ordinary runs with their scores. `train` continues where it was stopped and skips what is done, so rules
can change without training again. `report` ends with exit code 1 if a rule fires on a run that reached the floor of its
row.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.diagnosis.stored_diagnosis import diagnose_run
from rl_training.diagnosis.stream_summary import StreamSummary
from rl_training.diagnosis.value_rules import GRADIENTS
from rl_training.experiment.launcher import Stopped
from rl_training.telemetry.metric_lines import read_metrics
from rl_training.zoo.manifest import Entry, load_manifest
from rl_training.zoo.runs import Job, is_done, stored_score, train_and_score

MANIFESTS = ("classic", "box2d")


def main() -> int:
    arguments = parse_arguments()
    jobs = list(chosen_jobs(arguments))
    return train(jobs) if arguments.action == "train" else report(jobs)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("train", "report"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0,1,2", help="seeds, one after another (default: 0,1,2)")
    parser.add_argument("--only", action="append", default=[], help="presets with this text in their name; repeatable")
    parser.add_argument("--manifests", default=",".join(MANIFESTS), help="manifests (default: classic,box2d)")
    return parser.parse_args()


def chosen_jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """Seed by seed, and within a seed the cheap rows first."""
    entries = [entry for name in arguments.manifests.split(",") for entry in load_manifest(name).entries]
    if arguments.only:
        entries = [entry for entry in entries if any(text in entry.name for text in arguments.only)]
    entries.sort(key=lambda entry: cost(entry.preset))
    for seed in map(int, arguments.seeds.split(",")):
        for entry in entries:
            yield Job(entry, seed, str(arguments.folder))


def cost(config: TrainConfig) -> float:
    """About how long a run takes, only to order the runs."""
    settings: Any = config.algo_kwargs
    if hasattr(settings, "learning_starts"):
        per_step = 0.5 + 3.0 * max(1, abs(settings.gradient_steps)) / settings.train_frequency
    else:
        epochs, rows = getattr(settings, "update_epochs", 1), getattr(settings, "minibatch_size", 64)
        per_step = 0.02 + 0.3 / config.num_envs + 1.5 * epochs / rows
    slow_env = 3.0 if "Lunar" in config.env_id else 1.0
    return slow_env * per_step * config.total_timesteps


def train(jobs: list[Job]) -> int:
    for number, job in enumerate(jobs, start=1):
        if is_done(job):
            continue
        started = time.perf_counter()
        try:
            train_and_score(job)
        except Stopped:
            print(f"stopped in {job.title}", flush=True)
            return 1
        except Exception as error:  # the other rows matter more than one that fails
            print(f"{job.title}: {type(error).__name__}: {error}", flush=True)
            continue
        score = stored_score(job) or {}
        seconds = time.perf_counter() - started
        print(f"{number} of {len(jobs)}: {job.title} {score.get('mean_return')} in {seconds:.0f} s", flush=True)
    return 0


def report(jobs: list[Job]) -> int:
    """Print what fires on each finished run, and how near the streams of good runs come to each threshold."""
    extremes: dict[str, tuple[float, str]] = {}
    wrong = good = below = 0
    for job in jobs:
        score = stored_score(job) if is_done(job) else None
        if score is None:
            continue
        findings = diagnose_run(job.run_dir).findings
        passed = reaches_its_row(job.entry, score["mean_return"])
        good, below = good + passed, below + (not passed)
        rules = ", ".join(f"{finding.rule} at {finding.env_steps:,}" for finding in findings)
        if rules or not passed:
            print(f"{job.title}: {score['mean_return']:.1f}, {'passes' if passed else 'below its row'}: {rules or '-'}")
        if passed:
            wrong += bool(findings)
            for name, value in figures(job).items():
                if name not in extremes or value > extremes[name][0]:
                    extremes[name] = (value, job.title)
    for seed in sorted({job.seed for job in jobs}):
        done = [job.entry.name for job in jobs if job.seed == seed and is_done(job)]
        print(f"seed {seed}: {len(done)} of {sum(job.seed == seed for job in jobs)} rows: {', '.join(done)}")
    print(f"{good} runs pass their row, {wrong} of them with findings; {below} runs do not pass")
    for name, (value, title) in sorted(extremes.items()):
        print(f"  {name:28} at most {value:.4g}  ({title})")
    return 1 if wrong else 0


def reaches_its_row(entry: Entry, score: float) -> bool:
    """A control passes by staying below its ceiling."""
    row = entry.row
    return score < row.must_stay_below if row.floor is None else score >= row.floor


def figures(job: Job) -> dict[str, float]:
    """What the rules compare with their thresholds, at its worst in the stream of a run. Larger is always worse."""
    stream, settings = StreamSummary(), job.entry.preset.algo_kwargs
    worst: dict[str, float] = {}

    def see(name: str, value: float | None) -> None:
        if value is not None:
            worst[name] = max(value, worst.get(name, -math.inf))

    for line in read_metrics(job.run_dir):
        if not stream.add(line) or stream.is_evaluation:
            continue
        early = stream.env_steps <= job.entry.preset.total_timesteps / 2
        see("approx_kl", stream.newest("approx_kl"))
        see("approx_kl, median of 5", stream.middle("approx_kl", 5))
        rate, first = stream.newest("learning_rate") or 0.0, stream.first("learning_rate") or 0.0
        moves = getattr(settings, "update_epochs", 1) > 1 and rate >= first / 2
        if early and moves and (kl := stream.middle("approx_kl", 5)) is not None:
            see("1 / approx_kl, first half", 1 / max(kl, 1e-30))
        if early and (share := stream.middle("entropy_share", 5)) is not None:
            see("-entropy_share, first half", -share)
        limit = getattr(settings, "max_grad_norm", None)
        for name in GRADIENTS:
            norms = stream.last(name, 5)
            see(f"{name} / max_grad_norm" if limit else name, min(norms) / (limit or 1.0) if norms else None)
        see("dead_units, median of 3", stream.middle("dead_units", 3))
        see("support_clipped", min(stream.last("support_clipped", 2), default=None))
        see("time_env", stream.newest("time_env"))
        if stream.update_ratios and hasattr(settings, "buffer_size"):
            see("updates per step", stream.update_ratios[-1])
        spread, loss, explained = (
            stream.middle(name, 10) for name in ("target_std", "value_loss", "explained_variance")
        )
        if spread and loss is not None and explained is not None and explained < 0.05:
            wide = spread >= 0.25 * (stream.highest("target_std") or 0.0) and stream.episodes >= 10
            if wide and stream.env_steps >= 0.2 * job.entry.preset.total_timesteps:
                see("value_loss / that of the mean", loss / (0.5 * spread**2))
        reward, longest = stream.newest("reward_max"), stream.newest("longest_episode")
        if stream.has("q_mean") and reward and longest and not hasattr(settings, "support_high"):
            horizon = min(longest, 1 / (1 - settings.gamma)) if settings.gamma < 1 else longest
            values = stream.last("q_mean", 3)
            see("q_mean / reach", min(map(abs, values)) / (reward * horizon) if values else None)
    return worst


if __name__ == "__main__":
    sys.exit(main())
