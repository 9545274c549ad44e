"""The checkpoints of a run: their names, the newest valid one, the best one, retention and lookup.

A run keeps `checkpoints/step-000000050000` (everything needed to resume) and `checkpoints/best-...` (the best
agent so far). `checkpoint_format` writes and reads a checkpoint, `replay_segments` the replay data.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rl_training.errors import CheckpointError
from rl_training.program import call
from rl_training.storage.checkpoint_format import (
    MANIFEST,
    SCHEMA,
    Checkpoint,
    Kind,
    Manifest,
    SegmentCheck,
    foreign_files,
    load_checkpoint,
    read_manifest,
    replay_directory,
    save_checkpoint,
    verify_checkpoint,
)
from rl_training.storage.durable_files import USE_ANOTHER, crash_point, discard, remove_leftovers
from rl_training.storage.fingerprint import fingerprint, fingerprint_differences
from rl_training.storage.replay_segments import (
    SegmentRef,
    read_segment,
    remove_unused_segments,
    write_segment,
)
from rl_training.storage.run_directory import is_run_directory, list_runs, why_unreadable
from rl_training.text import one_line

__all__ = [
    "SCHEMA",
    "Checkpoint",
    "Manifest",
    "SegmentRef",
    "apply_retention",
    "best_checkpoint",
    "checkpoint_path",
    "checkpoint_steps",
    "crash_point",
    "fingerprint",
    "fingerprint_differences",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "read_manifest",
    "read_segment",
    "replay_directory",
    "resolve_checkpoint",
    "save_checkpoint",
    "verify_checkpoint",
    "write_segment",
]

Which = Literal["latest", "best"]
_PREFIXES: dict[Kind, str] = {"resume": "step", "agent": "best"}
_NAME = re.compile(r"(step|best)-(\d{12,20})(?:-(\d{1,9}))?")


def checkpoint_path(run_dir: str | Path, kind: Kind, env_steps: int) -> Path:
    """The path of a new checkpoint: `checkpoints/step-...` to resume from, or `checkpoints/best-...` for an agent."""
    return Path(run_dir) / "checkpoints" / f"{_PREFIXES[kind]}-{env_steps:012d}"


def checkpoint_steps(path: Path) -> int:
    """The environment steps in the name of a checkpoint: 50000 for `step-000000050000`."""
    return int(path.name.split("-")[1])


def list_checkpoints(run_dir: str | Path, kind: Kind | None = None) -> list[Path]:
    """The checkpoint directories of one kind or of both, newest first, without verification."""
    folder = Path(run_dir) / "checkpoints"
    try:
        entries = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read ({one_line(error.strerror)})") from None
    ages = []
    for path in entries:
        match = _NAME.fullmatch(path.name)
        if match and kind in (None, _kind_of(path)) and os.path.isdir(path) and not os.path.islink(path):
            ages.append(((int(match[2]), match[1] == "step", int(match[3] or 0)), path))
    return [path for _, path in sorted(ages, reverse=True)]


def _kind_of(path: Path) -> Kind:
    return "resume" if path.name.startswith("step-") else "agent"


def latest_checkpoint(run_dir: str | Path, *, segments: SegmentCheck = "hash") -> Checkpoint:
    """The newest valid checkpoint to resume from; its `skipped` lists newer ones that are damaged.

    `segments="skip"` does not read the replay data, for callers that need only the agent.
    """
    return _newest(Path(run_dir), "resume", segments)


def best_checkpoint(run_dir: str | Path) -> Checkpoint:
    """The agent with the best evaluation of this run."""
    return _newest(Path(run_dir), "agent", "skip")


def _newest(run_dir: Path, kind: Kind, segments: SegmentCheck) -> Checkpoint:
    skipped: list[str] = []
    for path in list_checkpoints(run_dir, kind):
        problems = verify_checkpoint(path, segments=segments)
        if not problems:
            try:
                return replace(load_checkpoint(path), skipped=skipped)
            except CheckpointError as error:
                problems = [str(error)]
        skipped.append(problems[0].removesuffix(USE_ANOTHER))
    what = "checkpoint" if kind == "resume" else "best checkpoint"
    if skipped:
        raise CheckpointError(f"{run_dir}: no valid {what}, all {len(skipped)} are damaged; newest: {skipped[0]}")
    raise CheckpointError(f"{run_dir}: the run has no {what} yet")


def apply_retention(run_dir: str | Path, keep: int) -> list[Path]:
    """Delete old checkpoints and unused replay segments; return the deleted checkpoints.

    The newest `keep` valid checkpoints to resume from, the newest valid exact one of them, the newest valid best agent,
    everything newer than those, and every checkpoint with foreign files in its directory stay. Call this after a save,
    not between writing a segment and the save: it deletes every segment that no checkpoint uses.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    run_dir = Path(run_dir)
    unwanted = _beyond(list_checkpoints(run_dir, "resume"), keep)
    unwanted += _beyond(list_checkpoints(run_dir, "agent"), 1)
    unwanted = [path for path in unwanted if not foreign_files(path)]
    for path in unwanted:
        discard(path)
    remove_leftovers(run_dir / "checkpoints", prefixes=("step-", "best-"))
    try:
        manifests = [read_manifest(path) for path in list_checkpoints(run_dir)]
    except CheckpointError:
        # The segments of an unreadable checkpoint are unknown, so all segments stay until it is deleted.
        return unwanted
    if manifests:
        used = [ref for manifest in manifests for ref in manifest.segments]
        remove_unused_segments(run_dir / "replay", used)
    return unwanted


def _beyond(newest_first: list[Path], keep: int) -> list[Path]:
    """The checkpoints older than `keep` valid ones; an earlier save of the same step counts as replaced.

    The newest exact one is not among them: stops save off schedule, and after a few of them no other checkpoint leads
    back to the curve of the uninterrupted run.
    """
    unwanted: list[Path] = []
    valid: set[int] = set()
    has_exact = False
    for path in newest_first:
        surplus = len(valid) >= keep or checkpoint_steps(path) in valid
        # Check only the size of segments: reading them again at every save would take too long.
        is_valid = not (surplus and has_exact) and not verify_checkpoint(path, segments="size")
        is_first_exact = is_valid and not has_exact and read_manifest(path).exact
        if surplus and not is_first_exact:
            unwanted.append(path)
        elif is_valid:
            valid.add(checkpoint_steps(path))
        has_exact = has_exact or is_first_exact
    return unwanted


def resolve_checkpoint(
    target: str | Path,
    output_dir: str | Path = "runs",
    *,
    which: Which | None = None,
    segments: SegmentCheck = "hash",
) -> Path:
    """Find the checkpoint that `target` describes.

    `target` is a checkpoint directory, a run directory or the name of a run in `output_dir`, each optionally
    followed by `/best` or `/latest`; or just `latest` or `best` for the newest run that has one.
    """
    text = str(target)
    if text in ("latest", "best"):
        wanted: Which = which or ("best" if text == "best" else "latest")
        return _newest_run_checkpoint(Path(output_dir), wanted, segments)
    path = Path(target)
    for candidate in (path, Path(output_dir) / path):
        if os.path.isfile(candidate / MANIFEST):
            return candidate
        if is_run_directory(candidate):
            return _of_run(candidate, which or "latest", segments)
        if path.name in ("latest", "best") and is_run_directory(candidate.parent):
            return _of_run(candidate.parent, "best" if path.name == "best" else "latest", segments)
    if os.path.exists(path):
        raise CheckpointError(f"{path}: not an rl_training checkpoint or run directory{why_unreadable(path)}")
    names = [summary.name for summary in list_runs(output_dir)]
    close = difflib.get_close_matches(text, names, n=1)
    hint = f"; there are no runs in {output_dir}"
    if names:
        hint = f"; did you mean {close[0]!r}?" if close else f"; `{call('list', 'runs')}` shows the runs"
    raise CheckpointError(f"{one_line(text)}: no such checkpoint or run{hint}")


def _of_run(run_dir: Path, which: Which, segments: SegmentCheck) -> Path:
    checkpoint = best_checkpoint(run_dir) if which == "best" else latest_checkpoint(run_dir, segments=segments)
    return checkpoint.path


def _newest_run_checkpoint(output_dir: Path, which: Which, segments: SegmentCheck) -> Path:
    kind: Kind = "agent" if which == "best" else "resume"
    for summary in list_runs(output_dir):
        if _has_checkpoint(summary.path, kind):
            return _of_run(summary.path, which, segments)
    raise CheckpointError(f"no run with a {which} checkpoint in {output_dir}; train one first, or set --output-dir")


def _has_checkpoint(run_dir: Path, kind: Kind) -> bool:
    try:
        return bool(list_checkpoints(run_dir, kind))
    except CheckpointError:  # not readable: another user's, perhaps
        return False
