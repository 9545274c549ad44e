"""Shared test set-up: one thread per worker, no display, reproducible property tests."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

# Set before torch or pygame is imported anywhere: both read these once, at import. Several xdist workers
# on few cores are slower with threads than without.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
# As in an active environment, so that hints say `rl-training` and not its path.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("reproducible", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("reproducible")


# Tests trace with fake tensors, too, and tests fork: see `start_autograd`.
torch.ones((), requires_grad=True).backward()

for number in (signal.SIGINT, signal.SIGHUP):
    # A suite that runs in the background or under nohup inherits ignored signals, and so would the commands it tests.
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """What a test leaves to the global generators is the same each time, whichever worker ran what before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The root of the checkout, whatever the working directory is."""
    return Path(__file__).resolve().parent.parent
