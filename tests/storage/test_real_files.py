"""Writing never follows a link: a run directory of a stranger cannot change anything outside it."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from house import MODULES, PACKAGE, tree
from rl_training.errors import CheckpointError
from rl_training.runtime.episode_video import record_episode
from rl_training.runtime.workflows import agent_of, resume, train
from rl_training.storage import real_files
from rl_training.storage.durable_files import make_own_directory
from rl_training.storage.real_files import open_own_descriptor, open_own_file
from rl_training.storage.run_directory import create_run_directory, list_runs
from run_cases import CASES, stop_at

DQN = CASES["dqn, one env, a buffer that overflows"]
SECRET = "nothing may change this"


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return train(DQN.config(folder, tensorboard=True), callback=stop_at(45), show=False).run_dir


class Trap:
    """A copy of a run, and files outside it that a link in the run leads to."""

    def __init__(self, original: Path, folder: Path) -> None:
        self.run = folder / "runs" / "run"
        shutil.copytree(original, self.run)
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.file = self.outside / "victim"
        self.file.write_text(SECRET)
        (self.outside / "folder").mkdir()
        self.before = self.state()

    def state(self) -> dict[str, Any]:
        return {str(path): path.read_bytes() if path.is_file() else None for path in self.outside.rglob("*")}

    def set(self, name: str, way: Callable[[Path, Path], Any]) -> None:
        (self.run / name).unlink(missing_ok=True)
        way(self.run / name, self.file)


@pytest.fixture
def trap(stopped_run: Path, tmp_path: Path) -> Trap:
    return Trap(stopped_run, tmp_path)


def symbolic(path: Path, target: Path) -> None:
    path.symlink_to(target)


def hard(path: Path, target: Path) -> None:
    os.link(target, path)


def pipe(path: Path, target: Path) -> None:
    os.mkfifo(path)


WAYS = {"symbolic link": symbolic, "hard link": hard, "regular file": pipe}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_resume_refuses_a_link_or_a_pipe_where_it_would_append(trap: Trap, name: str, way: str) -> None:
    trap.set(name, WAYS[way])
    config = (trap.run / "config.yaml").read_bytes()
    with pytest.raises(CheckpointError, match=way) as caught:
        resume(trap.run, total_timesteps=200, show=False)
    assert name in str(caught.value) and ("cp -rL" if "link" in way else "remove it") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert trap.state() == trap.before
    assert (trap.run / "config.yaml").read_bytes() == config, "refused before anything is written"
    assert [run.name for run in list_runs(trap.run.parent)] == ["run"]


@pytest.mark.parametrize("name", ["checkpoints", "replay", "tensorboard", "crash"])
def test_resume_refuses_a_directory_that_is_a_link(trap: Trap, name: str) -> None:
    moved = trap.outside / "moved"
    (trap.run / name).mkdir(exist_ok=True)
    shutil.move(trap.run / name, moved)
    (trap.run / name).symlink_to(moved)
    before = trap.state()
    with pytest.raises(CheckpointError, match=f"{name}: refused, it is a symbolic link"):
        resume(trap.run, show=False)
    assert trap.state() == before
    (trap.run / name).unlink()
    shutil.copytree(moved, trap.run / name)
    assert not resume(trap.run, show=False).interrupted, "the way out works"


def test_a_run_directory_that_is_itself_a_link_is_the_users_choice(trap: Trap, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(trap.run)
    assert not resume(tmp_path / "mine", show=False).interrupted
    assert list_runs(trap.run.parent)[0].status == "finished"


def test_files_that_are_replaced_leave_the_target_of_a_link_alone(trap: Trap) -> None:
    names = ["config.yaml", "run.json", "metrics.csv", "config.yaml.tmp", "metrics.csv.tmp", ".play.partial.gif"]
    for name in names:
        (trap.run / name).unlink(missing_ok=True)
        (trap.run / name).symlink_to(trap.file)
    resume(trap.run, show=False)
    assert trap.state() == trap.before
    for name in names[:3]:
        assert (trap.run / name).is_file() and not (trap.run / name).is_symlink()


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_recording_leaves_the_target_of_a_link_alone(trap: Trap, suffix: str) -> None:
    for name in (f"play{suffix}", f".play.partial{suffix}"):
        (trap.run / name).symlink_to(trap.file)
    dead = trap.run / f".tmp-play{suffix}-999999999-0123abcd"
    dead.write_bytes(b"left by a killed process")
    record_episode(agent_of(trap.run), trap.run / f"play{suffix}")
    assert trap.state() == trap.before
    assert not (trap.run / f"play{suffix}").is_symlink() and (trap.run / f"play{suffix}").stat().st_size > 100
    assert [path.name for path in trap.run.iterdir() if path.name.startswith(".tmp")] == []


def test_a_link_that_appears_during_a_run_is_not_followed(trap: Trap) -> None:
    target = trap.outside / "folder"

    def swap(progress: Any) -> None:
        if progress.env_steps == 100:
            shutil.move(trap.run / "replay", trap.run / "old-replay")
            (trap.run / "replay").symlink_to(target)

    with pytest.raises(CheckpointError, match="refused, it is a symbolic link"):
        resume(trap.run, callback=swap, show=False)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("look_first", [True, False], ids=["as it is", "changed after the first look"])
@pytest.mark.parametrize("way", ["symbolic", "dangling", "hard", "pipe", "directory", "device"])
def test_only_a_regular_file_with_one_name_is_opened(
    way: str, look_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", Path("/dev/null") if way == "device" else tmp_path / "path"
    victim.write_text(SECRET)
    make = {
        "symbolic": lambda: path.symlink_to(victim),
        "dangling": lambda: path.symlink_to(tmp_path / "new"),
        "hard": lambda: os.link(victim, path),
        "pipe": lambda: os.mkfifo(path),
        "directory": lambda: path.mkdir(),
        "device": lambda: None,
    }
    make[way]()
    if not look_first:
        monkeypatch.setattr(real_files, "why_not_own_file", lambda path: None)
    for mode in ("ab", "r+b", "xb"):
        with pytest.raises(OSError):
            open_own_file(path, mode)
    with pytest.raises(OSError):
        os.close(open_own_descriptor(path, os.O_RDWR | os.O_CREAT))
    assert victim.read_text() == SECRET and not (tmp_path / "new").exists()


def test_a_file_is_never_emptied_before_it_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mode 'w'"):
        open_own_file(tmp_path / "x", "wb")


def test_own_directories_are_real(tmp_path: Path) -> None:
    assert make_own_directory(tmp_path / "real") == make_own_directory(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(OSError, match="refused"):
            make_own_directory(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        make_own_directory(tmp_path / "missing" / "folder")


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_no_one_else_may_write_to_a_run_and_the_umask_decides_who_reads_it(umask: int, tmp_path: Path) -> None:
    previous = os.umask(umask)
    try:
        train(DQN.config(tmp_path / "runs"), show=False)
    finally:
        os.umask(previous)
    run = tmp_path / "runs" / "run"
    paths = [run, *run.rglob("*")]
    assert len(paths) > 20
    for path in paths:
        expected = (0o755 if path.is_dir() else 0o644) & ~umask
        assert path.stat().st_mode & 0o777 == expected, path


def test_the_library_opens_files_for_writing_in_one_place_only() -> None:
    wrong = []
    for module in MODULES:
        if module == "rl_training.storage.real_files":
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Call) and _opens_for_writing(node):
                wrong.append(f"{MODULES[module].relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def _opens_for_writing(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("write_text", "write_bytes"):
        return True
    if name != "open":
        return False
    text = ast.unparse(call)
    if text.startswith("os.open("):
        return "os.devnull" not in text and any(flag in text for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
    modes = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return any(set(mode) <= set("rwxabt+") and set(mode) & set("wxa+") for mode in modes)


def test_a_full_disk_does_not_keep_a_run_from_being_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run_directory(tmp_path, "run")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with run.lock():
        assert list_runs(tmp_path)[0].status == "running"
