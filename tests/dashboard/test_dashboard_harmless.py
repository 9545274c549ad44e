"""Looking at a run neither writes to it nor changes it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rl_training import load_config, train
from rl_training.dashboard.export_file import export_dashboard
from rl_training.dashboard.run_shelf import RunShelf
from rl_training.dashboard.site import make_site
from rl_training.storage.run_lock import is_locked
from rl_training.telemetry.metric_lines import read_metrics, without_wall_clock
from site_client import SiteClient

SETTINGS: dict[str, Any] = {
    "algo": "dqn",
    "env_id": "CartPole-v1",
    "total_timesteps": 600,
    "eval_every": 200,
    "eval_episodes": 2,
    "log_every": 10,
    "checkpoint_every": 200,
    "threads": 1,
    "compile": "off",
    "model": {"hidden_sizes": [16]},
    "algo_kwargs": {"learning_starts": 100, "buffer_size": 1000},
}
PATHS = ("/api/runs", "/api/run/{}", "/api/run/{}/metrics", "/api/run/{}/checkpoints", "/api/compare?run={}", "/run/{}")


def look(site: SiteClient, name: str) -> int:
    return sum(site.get(path.format(name)).status_code == 200 for path in PATHS)


def weights(run: Path) -> dict[str, str]:
    """The hashes of all tensors of the run's checkpoints and of its replay data."""
    files = sorted(run.rglob("*.safetensors"))
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_run_is_the_same_with_the_page_open(tmp_path: Path) -> None:
    alone = train(load_config(SETTINGS, {"output_dir": str(tmp_path / "alone"), "run_name": "one"}), show=False)
    seen, stop = [0], threading.Event()

    def poll() -> None:
        site = SiteClient(make_site(RunShelf(output_dir=tmp_path / "watched")))
        while not stop.is_set():
            seen[0] += look(site, "one")

    watcher = threading.Thread(target=poll)
    watcher.start()
    try:
        watched = train(load_config(SETTINGS, {"output_dir": str(tmp_path / "watched"), "run_name": "one"}), show=False)
    finally:
        stop.set()
        watcher.join()
    assert seen[0] > 10, "the page was not open"
    lines = [[without_wall_clock(line) for line in read_metrics(each.run_dir)] for each in (alone, watched)]
    assert lines[0] == lines[1] and len(lines[0]) > 40
    found = weights(Path(alone.run_dir))
    assert found == weights(Path(watched.run_dir)) and len(found) >= 4
    names = [
        {str(path.relative_to(each.run_dir)) for path in Path(each.run_dir).rglob("*")} for each in (alone, watched)
    ]
    assert names[0] == names[1], "the page left something in the run"


class Watcher:
    """Notes every call that could change a file below `folder`. An audit hook cannot be removed, so it is switched."""

    CHANGES = frozenset(
        {
            "os.mkdir",
            "os.rename",
            "os.remove",
            "os.rmdir",
            "os.link",
            "os.symlink",
            "os.truncate",
            "os.utime",
            "os.chmod",
        }
    )

    def __init__(self) -> None:
        self.folder: str | None = None
        self.found: list[tuple[str, Any]] = []
        self.reads = 0
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: Any) -> None:
        folder = self.folder
        if folder is None or not (event == "open" or event in self.CHANGES):
            return
        path = arguments[0]
        if not isinstance(path, (str, bytes, os.PathLike)) or not os.fsdecode(path).startswith(folder):
            return
        writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        if event == "open" and not (arguments[2] or 0) & writing:
            self.reads += 1
        else:
            self.found.append((event, arguments))


@pytest.fixture(scope="module")
def watcher() -> Watcher:
    return Watcher()


def test_nothing_in_a_run_is_opened_for_writing(tmp_path: Path, watcher: Watcher) -> None:
    settings = {"total_timesteps": 300, "output_dir": str(tmp_path / "runs"), "run_name": "one"}
    run = Path(train(load_config(SETTINGS, settings), show=False).run_dir)
    (run / "run.json").write_text((run / "run.json").read_text().replace('"finished"', '"running"'))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")}
    site = SiteClient(make_site(RunShelf(output_dir=run.parent)))
    watcher.folder = str(tmp_path / "runs")
    try:
        assert look(site, "one") == len(PATHS)
        export_dashboard([], tmp_path / "page.html", output_dir=run.parent)
        assert not is_locked(run)
    finally:
        watcher.folder = None
    assert watcher.found == [] and watcher.reads > 5
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")} == before


READ_ONLY = """
set -e
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"
if touch "$1/a-file" 2>/dev/null; then exit 9; fi
exec "$2" -m rl_training dashboard --output-dir "$1" --export "$3"
"""


def may_mount() -> bool:
    """Whether a mount of one's own can be had here: on Linux, as root or with namespaces of users."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*NAMESPACE, "mount", "--bind", "/tmp", "/tmp"], capture_output=True, check=False)
    return tried.returncode == 0


NAMESPACE = ["unshare", "--mount"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-r", "--mount"]


@pytest.mark.skipif(not may_mount(), reason="this system does not let tests mount a directory read-only")
def test_runs_on_a_read_only_mount_are_shown(tmp_path: Path) -> None:
    settings = {"total_timesteps": 300, "output_dir": str(tmp_path / "runs"), "run_name": "one"}
    train(load_config(SETTINGS, settings), show=False)
    page = tmp_path / "page.html"
    command = [*NAMESPACE, "sh", "-c", READ_ONLY, "sh", str(tmp_path / "runs"), sys.executable, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert '"one"' in text and "CartPole-v1" in text
