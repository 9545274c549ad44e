"""The clock of the drills: it counts sleep, and does not count the time in which a process waits for a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

import own_clock
from own_clock import OwnClock

SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


def test_sleep_counts() -> None:
    with subprocess.Popen(["sleep", "100"]) as process, OwnClock(process.pid) as clock:
        time.sleep(0.3)
        assert 0.5 * clock.wall_seconds < clock.seconds <= clock.wall_seconds
        process.kill()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
@pytest.mark.parametrize("sample_seconds", [0.02, 1000.0])
def test_waiting_for_a_processor_does_not_count(sample_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processes share one core, so each of them waits for most of the time.

    This is so too if the thread that looks at them gets no turn: it shares the interpreter with the drill.
    """
    monkeypatch.setattr(own_clock, "SAMPLE_SECONDS", sample_seconds)
    core = str(min(os.sched_getaffinity(0)))
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN, core], stdout=subprocess.PIPE) for _ in range(4)]
    try:
        for process in spinning:
            assert process.stdout is not None
            process.stdout.readline()
        with OwnClock(spinning[0].pid) as clock:
            time.sleep(0.5)
            assert clock.seconds < 0.7 * clock.wall_seconds
    finally:
        for process in spinning:
            process.kill()
            process.communicate()
