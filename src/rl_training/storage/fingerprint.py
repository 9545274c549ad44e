"""The versions and thread count on which bit-exact resuming depends, besides the saved state."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from rl_training.text import one_line


def fingerprint() -> dict[str, Any]:
    """Versions and thread count of this process."""
    values: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("torch", "numpy", "gymnasium"):
        try:
            values[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            values[package] = None
    torch_module = sys.modules.get("torch")
    values["threads"] = torch_module.get_num_threads() if torch_module is not None else None
    return values


def fingerprint_differences(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """What changed since the save, such as ["numpy 2.3.0 -> 2.4.6"]; empty if resuming can be bit-exact."""
    names = sorted(set(saved) | set(current))
    return [
        one_line(f"{name} {saved.get(name)} -> {current.get(name)}")
        for name in names
        if saved.get(name) != current.get(name)
    ]
