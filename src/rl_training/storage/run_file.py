"""run.json: what a run says about itself. It is for people and listings: a wrong field is ignored, never an error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError
from rl_training.storage.durable_files import read_json
from rl_training.storage.session_record import SESSIONS_FIELD, valid_sessions
from rl_training.text import clean_text

RUN_FILE = "run.json"
STATUSES = ("running", "finished", "interrupted", "failed")
# Beyond these limits a value was forged or damaged. They keep sorting, arithmetic and time zones safe.
MOST_STEPS = 2**63 - 1
MOST_SECONDS = 1e10
MOST_RUNS = 10**12
LARGEST_SEED = 2**128
_YEARS = range(1971, 9000)


def read_run_info(run_dir: Path) -> dict[str, Any]:
    """The valid fields of a run.json; none if it is missing, damaged or not readable."""
    try:
        info = read_json(run_dir / RUN_FILE)
    except CheckpointError:
        return {}
    return valid_info(info) if isinstance(info, dict) else {}


def valid_info(info: dict[str, Any]) -> dict[str, Any]:
    """`info` without the known fields that have a wrong type or an impossible value. Unknown fields stay."""
    checked = {name: _CHECKS[name](value) if name in _CHECKS else value for name, value in info.items()}
    return {name: value for name, value in checked.items() if value is not None or name not in _CHECKS}


def created_at(info: dict[str, Any], run_dir: Path) -> datetime:
    """When a run was created; the time of its directory if run.json does not say."""
    text = info.get("created")
    if isinstance(text, str):
        return _aware(datetime.fromisoformat(text))
    with contextlib.suppress(OSError, OverflowError, ValueError):
        moment = datetime.fromtimestamp(os.stat(run_dir).st_mtime, timezone.utc)
        if moment.year in _YEARS:
            return moment
    return datetime(_YEARS.start, 1, 1, tzinfo=timezone.utc)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


def _status(value: Any) -> str | None:
    return value if isinstance(value, str) and value in STATUSES else None


def _time(value: Any) -> str | None:
    with contextlib.suppress(ValueError, TypeError):
        return value if datetime.fromisoformat(value).year in _YEARS else None
    return None


def _text(value: Any) -> str | None:
    return clean_text(value) if isinstance(value, str) else None


def _whole(least: int, largest: int) -> Callable[[Any], int | None]:
    def check(value: Any) -> int | None:
        return value if type(value) is int and least <= value <= largest else None  # a bool is not a number here

    return check


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value <= MOST_SECONDS else None


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "status": _status,
    "created": _time,
    "number": _whole(1, MOST_RUNS),
    "algorithm": _text,
    "env": _text,
    "seed": _whole(0, LARGEST_SEED),
    "env_steps": _whole(0, MOST_STEPS),
    "total_timesteps": _whole(0, MOST_STEPS),
    "wall_seconds": _seconds,
    "stop_reason": _text,
    "stopped_at": _whole(0, MOST_STEPS),
    SESSIONS_FIELD: valid_sessions,
}
