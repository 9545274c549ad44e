"""Damaged, forged and foreign checkpoints are refused in one line, and loading never runs code."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint_helpers import SOURCE, edit_manifest, refusal, run_python, save, sign_again
from rl_training.errors import CheckpointError
from rl_training.storage import checkpoint_format, durable_files
from rl_training.storage.checkpoints import (
    latest_checkpoint,
    load_checkpoint,
    read_manifest,
    verify_checkpoint,
    write_segment,
)
from rl_training.storage.tensor_files import read_header


@pytest.mark.parametrize("name", ["manifest.json", *checkpoint_format.FILES])
@pytest.mark.parametrize("damage", ["truncated", "emptied", "bit flip", "missing", "symlink", "directory"])
def test_a_damaged_file_is_named_and_the_loader_falls_back(tmp_path: Path, name: str, damage: str) -> None:
    save(tmp_path, 10)
    newest = save(tmp_path, 20)
    victim = newest / name
    content = victim.read_bytes()
    if damage == "truncated":
        victim.write_bytes(content[:-3])
    elif damage == "emptied":
        victim.write_bytes(b"")
    elif damage == "bit flip":
        position = content.rindex(b"20") + 1 if b"20" in content else len(content) // 2
        victim.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
    else:
        victim.unlink()
        if damage == "symlink":
            (tmp_path / "elsewhere").write_bytes(content)
            victim.symlink_to(tmp_path / "elsewhere")
        elif damage == "directory":
            victim.mkdir()
    assert name in refusal(newest)
    assert name in verify_checkpoint(newest)[0]
    fallback = latest_checkpoint(tmp_path)
    assert fallback.env_steps == 10
    assert len(fallback.skipped) == 1 and str(newest) in fallback.skipped[0]
    assert "use another checkpoint" not in fallback.skipped[0], "another one is used already"


@pytest.mark.parametrize("name", ["manifest.json", *checkpoint_format.FILES])
def test_a_file_that_cannot_be_read_is_named_and_the_loader_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    good, bad = save(tmp_path, 10), save(tmp_path, 20)
    fail_to_read(monkeypatch, bad / name)
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint.path == good
    assert checkpoint.skipped == [f"{bad / name}: cannot be read (Input/output error)"]
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(bad)


def test_a_tensor_header_that_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, 10) / checkpoint_format.FILES[2]
    fail_to_read(monkeypatch, path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_header(path)


def fail_to_read(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """A bad sector, or a file of another user: it has a size, but opening it fails."""
    real_open, real_read = open, Path.read_bytes

    def opening(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real_open(file, *arguments, **options)

    def reading(file: Path) -> bytes:
        with opening(file, "rb"):
            return real_read(file)

    monkeypatch.setattr("builtins.open", opening)
    monkeypatch.setattr(Path, "read_bytes", reading)


def test_every_single_bit_of_a_manifest_matters(tmp_path: Path) -> None:
    path = save(tmp_path, 10) / "manifest.json"
    content = path.read_bytes()
    original = read_manifest(path.parent)
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        try:
            assert read_manifest(path.parent) == original
        except CheckpointError:
            continue


def test_files_swapped_between_checkpoints_are_refused(tmp_path: Path) -> None:
    old, new = save(tmp_path, 10), save(tmp_path, 20)
    shutil.copy(old / "tensors.safetensors", new / "tensors.safetensors")
    assert "SHA-256" in refusal(new)


def test_all_damaged_is_an_error_that_names_the_newest(tmp_path: Path) -> None:
    for step in (10, 20):
        (save(tmp_path, step) / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"all 2 are damaged.*step-000000000020"):
        latest_checkpoint(tmp_path)


class Bomb:
    def __reduce__(self) -> Any:
        return (open, (os.environ["BOMB_MARKER"], "w"))


@pytest.mark.parametrize("name", checkpoint_format.FILES)
def test_a_renamed_pickle_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    marker = tmp_path / "marker"
    monkeypatch.setenv("BOMB_MARKER", str(marker))
    path = save(tmp_path, 10)
    (path / name).write_bytes(pickle.dumps(Bomb()))
    sign_again(path)
    assert name in refusal(path)
    assert not marker.exists()


def test_limits_of_json_and_of_the_tensor_header(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    state, tensors = path / "state.json", path / "tensors.safetensors"
    good = state.read_bytes(), tensors.read_bytes()
    for depth in (101, 100_000):
        state.write_text('{"a":' * depth + "1" + "}" * depth)
        sign_again(path)
        assert "deeper than 100" in refusal(path)
    with open(state, "wb") as file:
        file.truncate(durable_files.MAX_JSON_BYTES + 1)
    sign_again(path)
    assert "limit" in refusal(path)
    state.write_text("[" + ",".join(['{"a":0}'] * 300_000) + "]")
    sign_again(path)
    assert "600000 values in JSON exceed the limit of 500000" in refusal(path)
    state.write_bytes(b'{"a": NaN}')
    sign_again(path)
    assert "not valid JSON" in refusal(path)
    state.write_bytes(good[0])
    header = 9 * 2**20
    tensors.write_bytes(struct.pack("<Q", header) + b"{}".ljust(header))
    sign_again(path)
    assert "header" in refusal(path)
    tensors.write_bytes(struct.pack("<Q", 2**62) + good[1][8:])
    sign_again(path)
    assert "safetensors" in refusal(path)
    tensors.write_bytes(b"short")
    sign_again(path)
    assert "safetensors" in refusal(path)


@pytest.mark.parametrize(
    "tree",
    [
        {"a": {"$tensor": "nowhere", "$kind": "numpy"}},
        {"a": {"$tensor": "weights", "$kind": "pickle"}},
        {"a": {"$tensor": ["weights"], "$kind": "numpy"}},
        {"a": {"$scalar": ["object", 1]}},
        {"a": {"$scalar": ["uint8", 300]}},
        {"a": {"$scalar": 3}},
        {"a": {"$int": "zz"}},
        {"a": {"$int": 5}},
        {"a": {"$float": "1.0"}},
        {"a": {"$unknown": 1}},
        [1, 2],
    ],
)
def test_a_forged_state_is_refused(tmp_path: Path, tree: Any) -> None:
    path = save(tmp_path, 10)
    (path / "state.json").write_text(json.dumps(tree))
    sign_again(path)
    with pytest.raises(CheckpointError, match="state"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schema": 2, "library_version": "9.0"}, r"newer rl_training \(9.0\) with schema 2"),
        ({"files": {"../../secret": {"size": 1, "sha256": "0" * 64}}}, "secret|config.json"),
        ({"files": {"config.json": 1, "state.json": 1, "tensors.safetensors": 1}}, "no size"),
        ({"files": []}, "files"),
        ({"kind": "virus"}, "virus"),
        ({"env_steps": "10"}, "env_steps"),
        ({"exact": 1}, "exact"),
        ({"format": "other"}, "not the manifest of an rl_training checkpoint"),
        ({"segments": [{"name": "../x", "start": 0, "stop": 1, "size": 1, "sha256": "0"}]}, "refused"),
        ({"segments": [3]}, "malformed"),
    ],
)
def test_a_forged_manifest_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    path = save(tmp_path, 10)
    edit_manifest(path, **fields)
    assert re.search(words, refusal(path))


def test_path_tricks_beside_the_expected_files_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    files = json.loads((path / "manifest.json").read_text())["files"]
    for trick in ("../state.json", "/etc/passwd", "..", "a\\b", "extra\nline"):
        edit_manifest(path, files={**files, trick: files["state.json"]})
        assert "refused" in refusal(path)


def test_foreign_files_and_directories_are_called_foreign(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(b"PK\x03\x04rest")
    torch.save({"a": 1}, tmp_path / "model.pt")
    (tmp_path / "folder").mkdir()
    for name in ("model.zip", "model.pt", "folder"):
        assert "not an rl_training checkpoint" in refusal(tmp_path / name)
    (tmp_path / "folder" / "manifest.json").write_text('{"name": "a web app"}')
    assert "not the manifest of an rl_training checkpoint" in refusal(tmp_path / "folder")
    assert "no such checkpoint" in refusal(tmp_path / "nowhere")


LOAD_UNDER_AUDIT = """
import sys
from pathlib import Path
import torch
from rl_training.storage.checkpoints import latest_checkpoint
from rl_training.storage.checkpoints import load_checkpoint
from rl_training.storage.checkpoints import read_segment
run = Path(sys.argv[1])
latest_checkpoint(run)  # libraries import modules on first use
seen = []
watched = ("pickle.", "exec", "compile", "import", "marshal.", "ctypes.", "subprocess.", "os.system")
sys.addaudithook(lambda *event: seen.append(event) if event[0].startswith(watched) else None)
loaded = latest_checkpoint(run)
assert isinstance(loaded.state["tensor"], torch.Tensor)
read_segment(run / "replay", loaded.segments[0])
events = list(seen)
assert not events, events
try:
    load_checkpoint(run / "checkpoints" / "step-000000000020")
except Exception as error:
    assert type(error).__name__ == "CheckpointError", error
assert not [event for event in seen if not event[0] == "import"], seen
import pickle
pickle.loads(pickle.dumps(Path))
assert any(event == "pickle.find_class" for event, _ in seen), "the audit hook does not work"
"""


def test_loading_runs_no_code_and_imports_nothing(tmp_path: Path) -> None:
    segment = write_segment(tmp_path / "replay", 0, 4, {"reward": np.zeros(4)})
    save(tmp_path, 10, state={"tensor": torch.zeros(3), "array": np.zeros(2)}, segments=[segment])
    damaged = save(tmp_path, 20)
    (damaged / "tensors.safetensors").write_bytes(pickle.dumps(Path))
    sign_again(damaged)
    edit_manifest(damaged, kind="agent")
    (damaged / "extra.pkl").write_bytes(pickle.dumps(Path))
    finished = run_python(LOAD_UNDER_AUDIT, tmp_path)
    assert finished.returncode == 0, finished.stderr


def test_the_load_path_has_no_pickle_in_its_source() -> None:
    package = SOURCE.parent
    paths = [*SOURCE.glob("*.py"), *(package / "telemetry").glob("*.py")]
    paths += [package / "runtime" / name for name in ("agent.py", "output/run_saver.py")]
    assert len(paths) > 12
    for path in paths:
        source = path.read_text()
        code = re.sub(r'""".*?"""|#[^\n]*', "", source, flags=re.DOTALL)
        found = re.findall(r"pickle|torch\.load|\beval\(|\bexec\(|marshal|shelve|import_module|__import__", code)
        assert not found, (path, found)
