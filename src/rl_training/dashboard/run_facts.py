"""Everything about one run beside its curves: settings, sessions, checkpoints, crash files, videos."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training.analysis.run_group import StoredRun, flat_settings, setting_text
from rl_training.config.loading import load_config
from rl_training.config.own_classes import trust_option
from rl_training.errors import CheckpointError, RLTrainingError
from rl_training.program import call
from rl_training.storage.checkpoints import checkpoint_steps, list_checkpoints, read_manifest, verify_checkpoint
from rl_training.storage.durable_files import USE_ANOTHER, read_json
from rl_training.storage.run_file import read_run_info
from rl_training.text import clean_text, one_line

MOST_FILES = 200
LARGEST_VIDEO = 64 * 2**20
PICTURES = {".gif": "image/gif", ".png": "image/png"}
Fact = dict[str, Any]


def run_facts(run: StoredRun) -> Fact:
    """The facts of a run that do not need the contents of its checkpoints."""
    settings, problem = _settings(run)
    sessions = read_run_info(run.path).get("sessions", [])
    return {
        "commands": _commands(run),
        "settings": settings,
        "problem": problem,
        "sessions": [_session(each) for each in sessions],
        "versions": _versions(sessions),
        "crashes": crash_files(run.path),
        "videos": videos(run.path),
    }


def _commands(run: StoredRun) -> Fact:
    """What a user can copy into a shell: to continue the run, and to replay a failure of an environment."""
    try:
        trusted = trust_option(run.config.model.encoder)
    except (RLTrainingError, OSError):
        trusted = ()
    commands = {
        "resume": call("resume", run.path, *trusted),
        "reproduce": call("reproduce", run.path / "crash" / "FILE"),
    }
    return {name: clean_text(command, 1000) for name, command in commands.items()}


def _settings(run: StoredRun) -> tuple[list[Fact], str | None]:
    """Every setting, whether it differs from the default of the algorithm, and what is wrong with config.yaml."""
    try:
        settings = run.settings
        config = run.config
        usual = flat_settings(load_config({"algo": config.algo, "env_id": config.env_id}))
    except (RLTrainingError, OSError) as error:
        return [], one_line(error)
    missing = object()
    return [
        {"key": key, "value": setting_text(value), "changed": usual.get(key, missing) != value}
        for key, value in settings.items()
    ], None


def _session(record: dict[str, Any]) -> Fact:
    """A session as name and text, in the order of its fields."""
    words = {"package_git": "git of rl_training", "from_step": "from step"}
    found: Fact = {}
    for name, value in record.items():
        if name == "versions":
            continue
        if isinstance(value, dict):
            value = f"{value.get('commit', '')[:12]}{' with changes' if value.get('dirty') else ''}"
        found[words.get(name, name)] = f"{value:,}" if name == "from_step" else str(value)
    return found


def _versions(sessions: list[dict[str, Any]]) -> list[Fact]:
    """The versions of the last session, and those of the first where they differ."""
    first, last = (sessions[place].get("versions", {}) if sessions else {} for place in (0, -1))
    return [
        {"name": name, "version": version, "before": first[name] if first.get(name, version) != version else None}
        for name, version in last.items()
    ]


def checkpoints(run_dir: Path, verify: Callable[[Path], list[str]] | None = None) -> list[Fact]:
    """The checkpoints of a run from new to old, and whether they verify."""
    verify = verify or (lambda path: verify_checkpoint(path, segments="size"))
    with contextlib.suppress(CheckpointError):
        found = [_checkpoint(path, verify) for path in list_checkpoints(run_dir)[:MOST_FILES]]
        return [each for each in found if each is not None]
    return []


def _checkpoint(path: Path, verify: Callable[[Path], list[str]]) -> Fact | None:
    problems = verify(path)
    if not path.is_dir():
        return None  # a running run has removed it in the meantime
    fact: Fact = {
        "name": clean_text(path.name, 60),
        "steps": checkpoint_steps(path),
        "kind": "can be resumed" if path.name.startswith("step-") else "best agent",
        "problem": _inside(problems[0].removesuffix(USE_ANOTHER), path.parent.parent) if problems else None,
    }
    with contextlib.suppress(CheckpointError):
        manifest = read_manifest(path)
        fact |= {
            "exact": manifest.exact,
            "created": clean_text(manifest.created, 40),
            "bytes": sum(record["size"] for record in manifest.files.values()),
            "replay_bytes": sum(segment.size for segment in manifest.segments),
        }
    return fact


def _inside(text: str, run_dir: Path) -> str:
    """A message with paths as they are inside of the run."""
    return one_line(text.replace(f"{run_dir}{os.sep}", ""))


def crash_files(run_dir: Path) -> list[Fact]:
    """What a run has kept about failures, with one line about each."""
    found = []
    for entry in _entries(run_dir / "crash"):
        is_folder = entry.is_dir(follow_symlinks=False)
        report = Path(entry.path) / "report.json" if is_folder else Path(entry.path)
        found.append({**_file(entry), "text": _crash_text(report), "replayable": not is_folder})
    return found


def _crash_text(path: Path) -> str:
    try:
        document = read_json(path)
    except CheckpointError as error:
        return one_line(error)
    if not isinstance(document, dict):
        return "not a crash file"
    words = [document[name] for name in ("message", "reason") if isinstance(document.get(name), str)]
    place = document.get("env_step")
    return one_line(f"{words[0] if words else 'no reason'}{f' (env step {place:,})' if type(place) is int else ''}")


def videos(run_dir: Path) -> list[Fact]:
    """The GIF and PNG files of a run, in the order of their steps."""
    found = []
    for entry in _entries(run_dir / "videos"):
        suffix = os.path.splitext(entry.name)[1].lower()
        if suffix in PICTURES and entry.is_file(follow_symlinks=False) and clean_text(entry.name, None) == entry.name:
            steps = re.search(r"\d{1,18}", entry.name)
            found.append({**_file(entry), "steps": int(steps[0]) if steps else None})
    return sorted(found, key=lambda each: (each["steps"] or 0, each["name"]))


def read_video(run_dir: Path, name: str) -> tuple[bytes, str] | None:
    """The bytes and the type of a file that `videos` lists. No link is followed."""
    if name not in {each["name"] for each in videos(run_dir)}:
        return None
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(run_dir / "videos" / name, flags)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_VIDEO:
                return None
            return file.read(LARGEST_VIDEO), PICTURES[os.path.splitext(name)[1].lower()]
    except OSError:
        return None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The files of a real directory of the run; none behind a link."""
    try:
        if stat.S_ISDIR(os.lstat(folder).st_mode):
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)[:MOST_FILES]
    except OSError:
        pass
    return []


def _file(entry: os.DirEntry[str]) -> Fact:
    try:
        status = entry.stat(follow_symlinks=False)
        changed = datetime.fromtimestamp(status.st_mtime, timezone.utc).isoformat()
        return {"name": clean_text(entry.name, None), "bytes": status.st_size, "changed": changed}
    except (OSError, ValueError, OverflowError):
        return {"name": clean_text(entry.name, None), "bytes": None, "changed": None}
