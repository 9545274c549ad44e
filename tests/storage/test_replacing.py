"""`agent.save` replaces a checkpoint of its own kind and nothing else, and at every moment one of both is there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_helpers import edit_manifest, run_python, save
from rl_training import PPO
from rl_training.errors import CheckpointError
from rl_training.storage import checkpoint_format
from rl_training.storage.checkpoints import load_checkpoint, save_checkpoint, verify_checkpoint
from rl_training.storage.real_files import exchange


def export(path: Path, number: int, **options: Any) -> Path:
    options = {"kind": "agent", "replace": True, **options}
    return save_checkpoint(path, algorithm="ppo", config={}, state={"n": number}, env_steps=number, number=0, **options)


def snapshot(folder: Path) -> dict[str, Any]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def web_extension(path: Path) -> None:
    path.mkdir()
    (path / "manifest.json").write_text(json.dumps({"manifest_version": 3, "name": "my extension"}))
    (path / "background.js").write_text("years of work")


def damaged(path: Path) -> None:
    (export(path, 1) / "state.json").write_text("{}")


def newer_schema(path: Path) -> None:
    edit_manifest(export(path, 1), schema=2)


def incomplete(path: Path) -> None:
    (export(path, 1) / "tensors.safetensors").unlink()


def with_notes(path: Path) -> None:
    (export(path, 1) / "notes.txt").write_text("do not lose this")


def with_folder(path: Path) -> None:
    (export(path, 1) / "thesis").mkdir()
    (path / "thesis" / "chapter.txt").write_text("do not lose this")


def of_a_run(path: Path) -> None:
    shutil.copytree(save(path.parent / "run", 10), path)


def linked(path: Path) -> None:
    path.symlink_to(export(path.parent / "target", 1))


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a web extension": (web_extension, "not an rl_training checkpoint that verifies"),
    "a damaged checkpoint": (damaged, "not an rl_training checkpoint that verifies"),
    "a newer schema": (newer_schema, "not an rl_training checkpoint that verifies"),
    "an incomplete checkpoint": (incomplete, "not an rl_training checkpoint that verifies"),
    "a foreign file": (with_notes, "also contains notes.txt"),
    "a foreign folder": (with_folder, "also contains thesis"),
    "a checkpoint that can be resumed": (of_a_run, "can be resumed"),
    "a symbolic link": (linked, "symbolic link"),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_but_a_valid_agent_alone_in_its_directory_is_replaced(name: str, tmp_path: Path) -> None:
    build, words = CASES[name]
    build(tmp_path / "agent")
    before = snapshot(tmp_path)
    with pytest.raises(CheckpointError, match=words) as caught:
        export(tmp_path / "agent", 2)
    assert "\n" not in str(caught.value) and str(tmp_path / "agent") in str(caught.value)
    assert snapshot(tmp_path) == before


def test_an_agent_is_not_saved_over_a_web_extension(tmp_path: Path) -> None:
    web_extension(tmp_path / "extension")
    agent = PPO("CartPole-v1", seed=0, hidden_sizes=(8,))
    with pytest.raises(CheckpointError, match="choose another name"):
        agent.save(tmp_path / "extension")
    assert (tmp_path / "extension" / "background.js").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        assert agent.save(tmp_path / "empty") == tmp_path / "empty"
    assert verify_checkpoint(tmp_path / "empty") == []


def test_files_that_appear_while_the_new_checkpoint_is_written_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(tmp_path / "agent", 1)
    real = checkpoint_format.write_arrays

    def write_notes_too(*arguments: Any) -> None:
        (path / "notes.txt").write_text("just in time")
        real(*arguments)

    monkeypatch.setattr(checkpoint_format, "write_arrays", write_notes_too)
    with pytest.raises(CheckpointError, match=r"notes\.txt"):
        export(path, 2)
    assert load_checkpoint(path).state == {"n": 1} and (path / "notes.txt").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent"]


def test_exchange_swaps_two_directories_in_one_step(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("")
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists() and (tmp_path / "b" / "a").exists()
    assert not exchange(tmp_path / "a", tmp_path / "missing")


KILLED_BETWEEN_TWO_RENAMES = """
import sys
from pathlib import Path
from rl_training.storage import checkpoint_format
checkpoint_format.exchange = lambda first, second: False
checkpoint_format.save_checkpoint(
    Path(sys.argv[1]), algorithm="ppo", config={}, state={"n": 2}, env_steps=2, number=0, kind="agent", replace=True
)
"""


def test_where_names_cannot_be_swapped_a_killed_replacement_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(tmp_path / "agent", 1)
    killed = run_python(KILLED_BETWEEN_TWO_RENAMES, path, RL_TRAINING_CRASH_AT="old-moved")
    assert killed.returncode == 137 and not path.exists()

    def full_disk(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_format, "write_arrays", full_disk)
        with pytest.raises(CheckpointError, match="No space"):
            export(path, 3)
    assert load_checkpoint(path).state == {"n": 1}
    monkeypatch.setattr(checkpoint_format, "exchange", lambda first, second: False)
    export(path, 3)
    assert load_checkpoint(path).state == {"n": 3}
    assert os.listdir(tmp_path) == ["agent"]


def test_files_that_appear_at_the_last_moment_are_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export(tmp_path / "agent", 1)

    def exchange_late(first: Path, second: Path) -> bool:
        (path / "notes.txt").write_text("after the last check")
        return exchange(first, second)

    monkeypatch.setattr(checkpoint_format, "exchange", exchange_late)
    export(path, 2)
    assert load_checkpoint(path).state == {"n": 2} and not (path / "notes.txt").exists()
    assert (tmp_path / "agent-replaced" / "notes.txt").read_text() == "after the last check"


FOREIGN = ["tmp-agents-2024-20241118", "tmp-agent-2024-backup01", "tmp-agent-old-2024-deadbeef", "old-agent-1-deadbeef"]


@pytest.mark.parametrize("name", FOREIGN)
def test_only_the_leftovers_of_this_agent_are_removed_next_to_it(tmp_path: Path, name: str) -> None:
    foreign, ours = tmp_path / f".{name}", tmp_path / f".tmp-agent-{2**31 - 1}-0123abcd"
    for folder in (foreign, ours):
        folder.mkdir()
        (folder / "precious.txt").write_text("mine")
    export(tmp_path / "agent", 1)
    assert (foreign / "precious.txt").exists() and not ours.exists()


def test_a_name_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="Not a directory"):
        export(tmp_path / "file" / "agent", 1)


@pytest.mark.parametrize("name", ["/", "a\0b"])
def test_what_can_be_no_name_is_one_line(name: str) -> None:
    with pytest.raises(CheckpointError, match="cannot have this name"):
        export(Path(name), 1)


def test_the_working_directory_itself_can_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(export(tmp_path / "agent", 1))
    assert load_checkpoint(export(Path("."), 2)).state["n"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def test_where_names_cannot_be_swapped_a_failed_rename_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(tmp_path / "agent", 1)
    real = os.rename

    def fail_for_the_new_one(source: Path, target: Path) -> None:
        if Path(target) == path and ".tmp-" in Path(source).name:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(checkpoint_format, "exchange", lambda first, second: False)
    monkeypatch.setattr(os, "rename", fail_for_the_new_one)
    with pytest.raises(CheckpointError, match="No space"):
        export(path, 2)
    assert load_checkpoint(path).state == {"n": 1} and os.listdir(tmp_path) == ["agent"]


def test_only_a_valid_checkpoint_is_restored_after_a_killed_replacement(tmp_path: Path) -> None:
    trash = tmp_path / f".trash-agent-{2**31 - 1}-0123abcd"
    damaged(trash)
    export(tmp_path / "agent", 2)
    assert load_checkpoint(tmp_path / "agent").state == {"n": 2} and os.listdir(tmp_path) == ["agent"]
