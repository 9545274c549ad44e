"""Do the findings keep quiet about healthy runs? Train presets, then apply every rule to the stored metric streams.

    python scripts/calibrate_findings.py train FOLDER                 every row of the manifests, seed 0 to 2
    python scripts/calibrate_findings.py train FOLDER --seeds 0       one seed
    python scripts/calibrate_findings.py train FOLDER --only ppo/     rows whose preset contains the text (repeatable)
    python scripts/calibrate_findings.py report FOLDER                which rules fire, and the extremes of the streams
    python scripts/calibrate_findings.py page                         write docs/diagnoses.md from what reports kept

FOLDER keeps ordinary runs with their scores, as the folder of `rl-training zoo run` does. `train` continues where it
was stopped and skips what is done, so rules can change without training again. `report` adds what it has seen to
docs/benchmarks/results/findings.json (scripts/kept_findings.py), so that folders may come and go. It ends with exit
code 1 if a rule fires on a run that reached the floor of its row.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import kept_findings

from rl_training._version import __version__
from rl_training.config.train_config import TrainConfig
from rl_training.diagnosis.data_rules import usual_updates
from rl_training.diagnosis.policy_rules import (
    CLEAR_GAIN,
    FALLEN_AT_THE_END,
    FALLEN_IN_A_ROW,
    LOW_ENTROPY,
    MOST_NOISE_EPISODES,
    STEADY,
)
from rl_training.diagnosis.stored_diagnosis import diagnose_run
from rl_training.diagnosis.stream_summary import KEPT, StreamSummary
from rl_training.diagnosis.value_rules import GRADIENTS
from rl_training.errors import CheckpointError
from rl_training.experiment.launcher import Stopped
from rl_training.storage.git_state import git_state
from rl_training.storage.run_directory import open_run_directory
from rl_training.telemetry.metric_lines import read_metrics
from rl_training.zoo.manifest import Entry, load_manifest
from rl_training.zoo.runs import Job, is_done, stored_score, train_and_score

MANIFESTS = ("classic", "box2d")
EVERY_MANIFEST = (*MANIFESTS, "mujoco", "atari")


def main() -> int:
    arguments = parse_arguments()
    if arguments.action == "page":
        return write_page(arguments.kept, arguments.page, every_entry(arguments.manifests))
    jobs = list(chosen_jobs(arguments))
    return (
        train(jobs) if arguments.action == "train" else report(jobs, arguments.kept, every_entry(arguments.manifests))
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("train", "report", "page"))
    parser.add_argument("folder", type=Path, nargs="?", help="the runs; `page` needs none")
    parser.add_argument("--seeds", default="0,1,2", help="seeds, one after another (default: 0,1,2)")
    parser.add_argument("--only", action="append", default=[], help="presets with this text in their name; repeatable")
    parser.add_argument("--manifests", default=",".join(MANIFESTS), help="manifests (default: classic,box2d)")
    parser.add_argument("--kept", type=Path, default=kept_findings.KEPT, help="the file that keeps what reports saw")
    parser.add_argument("--page", type=Path, default=kept_findings.PAGE, help="the page that `page` writes")
    arguments = parser.parse_args()
    if arguments.folder is None and arguments.action != "page":
        parser.error(f"{arguments.action} needs a folder")
    return arguments


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


def report(jobs: list[Job], kept_path: Path, entries: list[Entry]) -> int:
    """Print what fires on each finished run and how near the streams of good runs come to each threshold; keep it."""
    seen: dict[tuple[str, int], kept_findings.Seen] = {}
    judged, rules = described(git_state(kept_findings.ROOT)), kept_findings.rules_hash()
    for job in jobs:
        score = stored_score(job) if is_done(job) else None
        if score is None:
            continue
        findings = diagnose_run(job.run_dir).findings
        passed = reaches_its_row(job.entry, score["mean_return"])
        places = ", ".join(f"{finding.rule} at {finding.env_steps:,}" for finding in findings)
        if places or not passed:
            print(
                f"{job.title}: {score['mean_return']:.1f}, {'passes' if passed else 'below its row'}: {places or '-'}"
            )
        numbers = {name: float(f"{value:.4g}") for name, value in figures(job).items()}
        fired = [finding.rule for finding in findings]
        seen[job.entry.name, job.seed] = kept_findings.Seen(
            score["mean_return"], passed, fired, numbers, trained_by(job.run_dir), judged, rules
        )
    for seed in sorted({job.seed for job in jobs}):
        done = [name for name, each in seen if each == seed]
        print(f"seed {seed}: {len(done)} of {sum(job.seed == seed for job in jobs)} rows: {', '.join(done)}")
    good = [each for each in seen.values() if each.passed]
    wrong = sum(bool(each.fired) for each in good)
    print(f"{len(good)} runs pass their row, {wrong} of them with findings; {len(seen) - len(good)} runs do not pass")
    kept = kept_findings.merge(kept_findings.load(kept_path), entries, seen)
    kept_findings.save(kept, kept_path)
    print(f"{kept_path} keeps {len(kept_findings.healthy(kept))} runs that pass their row, now or in earlier reports")
    for name, (value, title) in sorted(kept_findings.worst(kept).items()):
        print(f"  {name:28} at most {value:.4g}  ({title or 'older runs'})")
    return 1 if wrong else 0


def write_page(kept_path: Path, page: Path, entries: list[Entry]) -> int:
    kept = kept_findings.merge(kept_findings.load(kept_path), entries, {})
    page.write_text(kept_findings.with_healthy_runs(page.read_text(encoding="utf-8"), kept, len(entries)), "utf-8")
    return 0


def every_entry(more: str = "") -> list[Entry]:
    """The rows of all packaged manifests, and of others that were named."""
    names = dict.fromkeys([*EVERY_MANIFEST, *filter(None, more.split(","))])
    return [entry for name in names for entry in load_manifest(name).entries]


def trained_by(run_dir: Path) -> str:
    """The version, and the commit if there was one, of the first session of a run."""
    try:
        sessions = open_run_directory(run_dir).read_info().get("sessions") or [{}]
    except CheckpointError:
        return "unknown"
    first = sessions[0]
    return described(first.get("package_git"), first.get("versions", {}).get("rl-training", "unknown"))


def described(git: dict[str, Any] | None, version: str = __version__) -> str:
    """
    >>> described({"commit": "0123456789abcdef", "dirty": True}, "0.2.0")
    '0.2.0 at 0123456789 (changed)'
    >>> described(None, "0.2.0")
    '0.2.0'
    """
    return version if git is None else f"{version} at {git['commit'][:10]}{' (changed)' if git['dirty'] else ''}"


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
        if not stream.add(line):
            continue
        if stream.is_evaluation:
            see("gain lost in evaluations", lost_in_evaluations(stream, job.entry.preset))
            continue
        early = stream.env_steps <= job.entry.preset.total_timesteps / 2
        see("approx_kl", stream.newest("approx_kl"))
        see("approx_kl, median of 5", stream.middle("approx_kl", STEADY))
        rate, first = stream.newest("learning_rate") or 0.0, stream.first("learning_rate") or 0.0
        moves = getattr(settings, "update_epochs", 1) > 1 and rate >= first / 2
        if early and moves and (kl := stream.middle("approx_kl", STEADY)) is not None:
            see("1 / approx_kl, first half", 1 / max(kl, 1e-30))
        if early and (share := stream.middle("entropy_share", STEADY)) is not None:
            see("-entropy_share, first half", -share)
            score, best, first_score = (each("mean_return") for each in (stream.newest, stream.highest, stream.first))
            if share < LOW_ENTROPY and None not in (score, best, first_score) and best > first_score:
                see("gain lost at low entropy", (best - score) / (best - first_score))
        limit = getattr(settings, "max_grad_norm", None)
        for name in GRADIENTS:
            norms = stream.last(name, 5)
            figure = "gradient / max_grad_norm" if limit else "gradient without a limit"
            see(figure, min(norms) / (limit or 1.0) if norms else None)
        see("dead_units, median of 3", stream.middle("dead_units", 3))
        see("support_clipped", min(stream.last("support_clipped", 2), default=None))
        see("reward_clipped, median of 5", stream.middle("reward_clipped", STEADY))
        see("time_env, 10 in a row", min(stream.last("time_env", KEPT), default=None))
        see("steps without an end", (stream.env_steps - stream.episode_at) // job.entry.preset.num_envs)
        if len(stream.update_ratios) >= STEADY and hasattr(settings, "batch_size") and hasattr(settings, "buffer_size"):
            updates = median(list(stream.update_ratios)[-STEADY:])
            see("updates per step", updates / max(1.0, usual_updates(settings)))
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


def lost_in_evaluations(stream: StreamSummary, config: TrainConfig) -> float | None:
    """The share of what was gained that is lost in every evaluation that `fell_from_peak` looks at."""
    seen, untrained = stream.evaluations, stream.first("mean_return")
    needed = FALLEN_AT_THE_END if stream.env_steps >= 0.99 * config.total_timesteps else FALLEN_IN_A_ROW
    start = seen.first if untrained is None else min(seen.first, untrained)
    gained = seen.best - start
    if config.eval_episodes < MOST_NOISE_EPISODES or seen.count <= needed or gained <= CLEAR_GAIN * seen.noise:
        return None
    return (seen.best - max(list(seen.recent)[-needed:])) / gained


if __name__ == "__main__":
    sys.exit(main())
