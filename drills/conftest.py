"""A session of drills: it collects the figures of all its processes and publishes them when every drill passes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

# As in the test suite: torch and pygame read these once, at import.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")

import pytest

import figures


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "all drills run (or the whole soak): also drop the figures of drills that no longer exist"
    parser.addoption("--whole", action="store_true", help=text)
    text = "watch each run of test_soak.py for this long, and record its figures under their own item"
    parser.addoption("--soak-minutes", type=float, default=0.0, help=text)
    text = "kill an actor of test_actors.py every 5 seconds for this long, instead of every 2 seconds for one minute"
    parser.addoption("--actor-minutes", type=float, default=0.0, help=text)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[figures.FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="drill-figures-")


@pytest.hookimpl(trylast=True)  # after the workers end, because that takes time too
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workerinput"):
        return
    folder = Path(os.environ.pop(figures.FOLDER_VARIABLE))
    try:
        if exitstatus == pytest.ExitCode.OK and not config.option.collectonly:
            whole, soak = config.getoption("--whole"), config.getoption("--soak-minutes") > 0
            if whole and not soak:
                os.environ[figures.FOLDER_VARIABLE] = str(folder)
                # Not the time on the clock, which depends on what else the machine does.
                minutes = sum(os.times()[:4]) / 60
                what = "processor time of all of them; two cores have 40 minutes in 20"
                figures.record_figure(figures.WHOLE_SESSION, what, minutes, "< 30 min")
            drills = set(figures.ITEMS) - {figures.SOAK}
            figures.publish(folder, replaces=() if not whole else {figures.SOAK} if soak else drills)
    except AssertionError as error:
        print(f"\n{error}: no figure is published")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
