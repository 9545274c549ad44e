"""Checks of the setting `sinks`: entries in, the same entries out, or one line that says why not.

Whether a sink that is not in the library exists is asked when it is opened, not here: a stored run can be inspected and
evaluated without it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from rl_training.telemetry.sink_entries import BUILT_IN_SINKS, PAIRS, SINK_KEY, TEXT, WORDS
from rl_training.text import clean_text

MOST_SINKS = 16
_NAME = re.compile(r"[A-Za-z][\w-]{0,60}|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_LONGEST_NAME = 300
_ALWAYS = {"csv": "metrics.csv", "jsonl": "metrics.jsonl", "json": "metrics.jsonl", "console": "the console"}


def checked_sinks(value: Any) -> Any:
    """One entry or a list of them: a name, or a mapping with the key `sink` and options."""
    entries = [value] if isinstance(value, (str, Mapping)) else value
    if not isinstance(entries, (list, tuple)):
        return value
    names: list[str] = []
    for entry in entries:
        if not isinstance(entry, (str, Mapping)):
            raise PydanticCustomError(
                "sink", "a config takes names and mappings; pass a sink object to PPO(...), train or learn in Python"
            )
        name = entry.get(SINK_KEY) if isinstance(entry, Mapping) else entry
        if name is None:
            raise PydanticCustomError("sink", "an entry with options needs the key sink, such as {sink: mlflow}")
        if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
            raise PydanticCustomError(
                "sink", f"expected {', '.join(BUILT_IN_SINKS)}, the name of an installed sink, or module:Class"
            )
        if name in _ALWAYS:
            raise PydanticCustomError("sink", f"leave {name} out, every run has it ({_ALWAYS[name]})")
        if name in BUILT_IN_SINKS and name in names:
            raise PydanticCustomError("sink", f"{name} is given twice")
        names.append(name)
        if isinstance(entry, Mapping) and name in BUILT_IN_SINKS:
            _check_options(name, entry)
    return entries


def _check_options(name: str, entry: Mapping[str, Any]) -> None:
    kinds = BUILT_IN_SINKS[name].options
    for option, value in entry.items():
        if option == SINK_KEY:
            continue
        if option not in kinds:
            close = difflib.get_close_matches(str(option), kinds, n=1)
            known = f"its options are {', '.join(kinds)}" if kinds else "it has no options"
            hint = f"did you mean {close[0]}?" if close else known
            raise PydanticCustomError("sink", f"{name} has no option {_safe(option)}; {hint}")
        if not _has_kind(value, kinds[option]):
            raise PydanticCustomError("sink", f"{option} of {name} must be {kinds[option]}")


def _has_kind(value: Any, kind: str) -> bool:
    if kind == WORDS:
        return isinstance(value, (list, tuple)) and all(isinstance(word, str) and word for word in value)
    if kind == PAIRS:
        return isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)
    if kind == TEXT:
        return isinstance(value, str) and bool(value)
    return isinstance(value, str) and value in kind.split(" or ")


def _safe(text: Any) -> str:
    """Text of the user for a template of pydantic, which gives braces a meaning."""
    return clean_text(str(text), 60).replace("{", "(").replace("}", ")")
