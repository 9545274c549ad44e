"""The id under which a tracker knows a run, kept in the run directory so that a resumed run continues it."""

from __future__ import annotations

import re
from pathlib import Path

from rl_training.storage.durable_files import atomic_write_text

DEFAULT_PROJECT = "rl_training"


def stored_id(run_dir: Path, tracker: str) -> str | None:
    """The id in a file of the run. A link to a file of the user would send the content of that file to the tracker."""
    path = run_dir / f"{tracker}_run_id"
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        content = file.read(100).decode("ascii", "replace").strip()
    return content if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", content) else None


def store_id(run_dir: Path, tracker: str, run_id: str) -> None:
    atomic_write_text(run_dir / f"{tracker}_run_id", run_id)
