"""Environments by name: their versions differ between the oldest and the newest Gymnasium that we support."""

from __future__ import annotations

import gymnasium as gym


def newest_env_id(name: str) -> str:
    """The highest version that this Gymnasium has, such as "Taxi-v3" or "Taxi-v4" for "Taxi"."""
    return f"{name}-v{max(spec.version or 0 for spec in gym.registry.values() if spec.name == name)}"
