"""Checks of the settings `log_info`, `callbacks` and `wrappers`: the same names out, or one line that says why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

MOST_INFO_NAMES = 32
MOST_CALLBACKS = 32
MOST_WRAPPERS = 32
CALLBACK_KEY = "callback"  # of an entry with keyword arguments
WRAPPER_KEY = "wrapper"

_INFO_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_CLASS_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_LONGEST_CLASS_NAME = 300


def is_info_name(name: Any) -> bool:
    """Whether a name can be a part of a metric name: it begins with a letter and is flat, as metric names are."""
    return isinstance(name, str) and _INFO_NAME.fullmatch(name) is not None


def checked_info_names(value: Any) -> Any:
    """One name or a list of distinct names. What is not text is left to the type of the field."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return value
    if not all(is_info_name(name) for name in names):
        raise PydanticCustomError("info_name", "a name has a letter, then at most 39 letters, digits and underscores")
    if len(set(names)) != len(names):
        raise PydanticCustomError("info_name", "a name is given twice")
    return names


def checked_callbacks(value: Any) -> Any:
    """One entry or a list of them: `module:Class`, or a mapping with the key `callback` and keyword arguments."""
    return _checked_classes(value, CALLBACK_KEY, "my_package.hooks:MyCallback")


def checked_wrappers(value: Any) -> Any:
    """One entry or a list of them: `module:Class`, or a mapping with the key `wrapper` and keyword arguments."""
    return _checked_classes(value, WRAPPER_KEY, "gymnasium.wrappers:TimeAwareObservation")


def _checked_classes(value: Any, key: str, example: str) -> Any:
    entries = [value] if isinstance(value, (str, Mapping, type)) else value
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        if isinstance(entry, type):  # a run could not name it in its config.yaml
            own_name = f"{entry.__module__}:{entry.__qualname__}"
            in_module = _CLASS_NAME.fullmatch(own_name) is not None
            write = f"write '{own_name}'" if in_module else "define it in a module, and write module:Class"
            raise PydanticCustomError(f"{key}_name", f"takes the name of a class and not the class: {write}")
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, (str, Mapping)) for entry in entries):
        return value
    for entry in entries:
        name = entry.get(key) if isinstance(entry, Mapping) else entry
        if name is None:
            raise PydanticCustomError(
                f"{key}_name", f"an entry with keyword arguments needs the key {key} with module:Class"
            )
        if not isinstance(name, str) or len(name) > _LONGEST_CLASS_NAME or not _CLASS_NAME.fullmatch(name):
            raise PydanticCustomError(f"{key}_name", f"expected module:Class, such as {example}")
    return entries
