"""Shared test set-up: one thread per worker, no display, reproducible property tests."""

from __future__ import annotations

import os
from pathlib import Path

# Set before torch or pygame is imported anywhere: both read these once, at import. Several xdist workers
# on few cores are slower with threads than without.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "reproducible", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reproducible")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The root of the checkout, whatever the working directory is."""
    return Path(__file__).resolve().parent.parent
