"""Checkpoints are complete or absent, can be found by name, and are kept as long as promised."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checkpoint_helpers import SOURCE, edit_manifest, run_python, save, small_state
from rl_training.errors import CheckpointError
from rl_training.storage import checkpoint_format
from rl_training.storage.checkpoints import (
    apply_retention,
    best_checkpoint,
    fingerprint_differences,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    read_manifest,
    read_segment,
    resolve_checkpoint,
    save_checkpoint,
    verify_checkpoint,
    write_segment,
)
from rl_training.storage.durable_files import file_record
from rl_training.storage.run_directory import create_run_directory
from rl_training.storage.state_tree import state_hash


def test_manifest_fields_and_permissions(tmp_path: Path) -> None:
    path = save(tmp_path, 50_000, exact=False)
    assert path == tmp_path / "checkpoints" / "step-000000050000"
    loaded = load_checkpoint(path)
    assert (loaded.algorithm, loaded.env_steps, loaded.number, loaded.kind) == ("ppo", 50_000, 5000, "resume")
    assert loaded.exact is False and loaded.segments == [] and loaded.config == {"algo": "ppo", "seed": 3}
    assert {"torch", "numpy", "gymnasium", "python", "threads"} <= set(loaded.fingerprint)
    manifest = read_manifest(path)
    assert {name: getattr(loaded, name) for name in vars(manifest)} == vars(manifest)
    assert path.stat().st_mode & 0o500 == 0o500
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_fingerprint_differences_are_named() -> None:
    assert fingerprint_differences({"numpy": "1", "threads": 2}, {"numpy": "1", "threads": 2}) == []
    assert fingerprint_differences({"numpy": "1"}, {"numpy": "2"}) == ["numpy 1 -> 2"]


def test_the_same_step_saved_again_gets_a_suffix_and_is_the_newer_one(tmp_path: Path) -> None:
    paths = [save(tmp_path, 10, state={"attempt": attempt}) for attempt in range(12)]
    assert paths[11].name == "step-000000000010-11"
    assert list_checkpoints(tmp_path, "resume") == paths[::-1]
    assert latest_checkpoint(tmp_path).state == {"attempt": 11}
    apply_retention(tmp_path, keep=2)
    assert list_checkpoints(tmp_path) == [paths[11]]


def test_replace_keeps_the_name_and_replaces_only_checkpoints(tmp_path: Path) -> None:
    target = tmp_path / "agent"
    for attempt in range(2):
        saved = save_checkpoint(
            target, algorithm="ppo", config={}, state={"n": attempt}, env_steps=1, number=0, replace=True
        )
        assert saved == target
    assert load_checkpoint(target).state == {"n": 1}
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "notes").write_text("x")
    for name in ("thesis", "notes"):
        with pytest.raises(CheckpointError, match="not an rl_training checkpoint"):
            save_checkpoint(tmp_path / name, algorithm="ppo", config={}, state={}, env_steps=1, number=0, replace=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent", "notes", "thesis"]
    assert (tmp_path / "thesis" / "chapter.txt").exists()


def test_resolve_accepts_paths_names_and_keywords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = create_run_directory(tmp_path, "old").path
    new = create_run_directory(tmp_path, "new").path
    create_run_directory(tmp_path, "empty")
    steps = {run: [save(run, 10), save(run, 20)] for run in (old, new)}
    best = save(old, 10, kind="agent")
    assert resolve_checkpoint("latest", tmp_path) == steps[new][1]
    assert resolve_checkpoint("best", tmp_path) == best
    assert resolve_checkpoint(old) == steps[old][1]
    assert resolve_checkpoint(str(old), which="best") == best
    assert resolve_checkpoint(f"{old}/best") == best
    assert resolve_checkpoint("old/best", tmp_path) == best
    assert resolve_checkpoint("old", tmp_path) == steps[old][1]
    assert resolve_checkpoint("old/latest", tmp_path) == steps[old][1]
    assert resolve_checkpoint(steps[old][0]) == steps[old][0]
    monkeypatch.chdir(tmp_path)
    assert resolve_checkpoint("old", ".").resolve() == steps[old][1].resolve()
    assert best_checkpoint(old).env_steps == 10


def test_resolve_says_clearly_what_is_missing(tmp_path: Path) -> None:
    create_run_directory(tmp_path / "runs", "cartpole")
    (tmp_path / "model.zip").write_bytes(b"PK\x03\x04")
    (tmp_path / "folder").mkdir()
    expected = {
        "latest": "train one first",
        "cartpol": "did you mean 'cartpole'",
        "cartpole": "has no checkpoint yet",
        "cartpole/best": "has no best checkpoint yet",
        str(tmp_path / "model.zip"): "not an rl_training checkpoint",
        str(tmp_path / "folder"): "not an rl_training checkpoint",
    }
    for target, words in expected.items():
        with pytest.raises(CheckpointError, match=re.escape(words)) as caught:
            resolve_checkpoint(target, tmp_path / "runs")
        assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError, match="there are no runs"):
        resolve_checkpoint("x", tmp_path / "nowhere")


CRASHING_WRITERS = """
import os, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from rl_training.storage.checkpoints import *

def write(run):
    old = latest_checkpoint(run).segments
    segments = [*old, write_segment(run / "replay", 10, 20, {"reward": np.ones(10)})]
    state = {"weights": np.full(64, 20, np.float32), "counters": {"env_steps": 20}}
    common = dict(algorithm="ppo", config={}, state=state, env_steps=20, number=2)
    save_checkpoint(checkpoint_path(run, "resume", 20), segments=segments, **common)
    apply_retention(run, keep=1)
    save_checkpoint(run / "export", replace=True, **common)

for run in sorted(Path(sys.argv[1]).iterdir()):
    writer = os.fork()
    if writer == 0:
        os.environ["RL_TRAINING_CRASH_AT"] = run.name
        write(run)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1])
    (run / "exit_code").write_text(str(code))
"""


def crash_points_in_source() -> list[str]:
    text = "".join(path.read_text() for path in sorted(SOURCE.glob("*.py")))
    return sorted(set(re.findall(r'crash_point\("([a-z-]+)"\)', text)))


@pytest.fixture(scope="module")
def crashed_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for each crash point, where the writer of the second checkpoint died."""
    root = tmp_path_factory.mktemp("crashed")
    for point in crash_points_in_source():
        segment = write_segment(root / point / "replay", 0, 10, {"reward": np.zeros(10)})
        first = save(root / point, 10, segments=[segment])
        shutil.copytree(first, root / point / "export")
    finished = run_python(CRASHING_WRITERS, root)
    assert finished.returncode == 0, finished.stderr
    return root


@pytest.mark.parametrize("point", crash_points_in_source())
def test_a_crash_at_any_point_leaves_a_good_checkpoint_and_no_litter(crashed_runs: Path, point: str) -> None:
    run = crashed_runs / point
    assert (run / "exit_code").read_text() == "137"
    newest = latest_checkpoint(run)
    assert newest.env_steps in (10, 20) and newest.skipped == []
    assert state_hash(newest.state) == state_hash(small_state(newest.env_steps))
    for ref in newest.segments:
        read_segment(run / "replay", ref)
    assert load_checkpoint(run / "export").env_steps in (10, 20), "the replaced agent has its name at every moment"

    # The resumed run writes the lost interval again and cleans up after the dead writer.
    first = newest.segments[0]
    again = write_segment(run / "replay", 10, 20, {"reward": np.ones(10)})
    save(run, 20, segments=[first, again])
    save_checkpoint(run / "export", algorithm="ppo", config={}, state={}, env_steps=20, number=2, replace=True)
    apply_retention(run, keep=1)
    assert [path for path in run.rglob("*") if path.name.startswith(".")] == []
    assert sorted(path.name for path in (run / "replay").iterdir()) == sorted([first.name, again.name])
    assert latest_checkpoint(run).env_steps == 20


def test_every_step_of_a_save_has_a_crash_point() -> None:
    assert len(crash_points_in_source()) >= 11


def test_a_failed_write_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(path: Path) -> None:
        raise OSError(28, "No space left on device")

    save(tmp_path, 10)
    monkeypatch.setattr(checkpoint_format, "sync_directory", full_disk)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save(tmp_path, 20)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000000010"]


def test_temporary_files_of_a_living_writer_stay(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    living = folder / f".tmp-step-000000000020-{os.getppid()}-0123abcd"
    dead = folder / ".trash-step-000000000020-999999999-0123abcd"
    foreign = folder / ".tmp-step-notes"
    for path in (living, dead, foreign):
        path.mkdir(parents=True)
    save(tmp_path, 30)
    assert living.exists() and foreign.exists() and not dead.exists()


def test_temporary_files_with_the_number_of_this_process_are_those_of_a_dead_one(tmp_path: Path) -> None:
    """In a container every run may be process 1."""
    leftover = save(tmp_path, 10).parent / f".tmp-step-000000000020-{os.getpid()}-0123abcd"
    leftover.mkdir()
    save(tmp_path, 30)
    assert not leftover.exists()


def test_a_link_among_the_checkpoints_is_not_one_of_them(tmp_path: Path) -> None:
    newest = save(tmp_path / "elsewhere", 20)
    checkpoint = save(tmp_path / "run", 10)
    (checkpoint.parent / newest.name).symlink_to(newest)
    assert list_checkpoints(tmp_path / "run") == [checkpoint]
    assert latest_checkpoint(tmp_path / "run").path == checkpoint


def test_retention_keeps_the_newest_good_ones_and_the_newest_best(tmp_path: Path) -> None:
    steps = [save(tmp_path, step) for step in (10, 20, 30, 40)]
    bests = [save(tmp_path, step, kind="agent") for step in (10, 30)]
    (steps[2] / "state.json").write_text("{}")
    removed = apply_retention(tmp_path, keep=2)
    assert set(removed) == {steps[0], bests[0]}
    # The damaged checkpoint between two valid ones does not count and is deleted with the older one.
    assert list_checkpoints(tmp_path, "resume") == [steps[3], steps[2], steps[1]]
    assert list_checkpoints(tmp_path, "agent") == [bests[1]]
    assert best_checkpoint(tmp_path).path == bests[1]
    newest = [save(tmp_path, step) for step in (50, 60)]
    apply_retention(tmp_path, keep=2)
    assert list_checkpoints(tmp_path, "resume") == newest[::-1]


def test_retention_never_deletes_the_newest_exact_checkpoint(tmp_path: Path) -> None:
    steps = [save(tmp_path, step, exact=step < 30) for step in (10, 20, 30, 40, 50)]
    assert apply_retention(tmp_path, keep=2) == [steps[2], steps[0]]
    assert list_checkpoints(tmp_path) == [steps[4], steps[3], steps[1]]
    again = save(tmp_path, 20, exact=False)
    assert apply_retention(tmp_path, keep=4) == [], "a later save of the same step does not replace the exact one"
    newest = save(tmp_path, 60)
    apply_retention(tmp_path, keep=1)
    assert list_checkpoints(tmp_path) == [newest] and not again.exists()


def test_an_exact_checkpoint_that_is_damaged_does_not_count(tmp_path: Path) -> None:
    steps = [save(tmp_path, step, exact=step < 30) for step in (10, 20, 30)]
    (steps[1] / "state.json").write_text("{}")
    apply_retention(tmp_path, keep=1)
    assert list_checkpoints(tmp_path) == [steps[2], steps[0]]


def test_a_checkpoint_without_its_replay_data_does_not_count(tmp_path: Path) -> None:
    refs = [write_segment(tmp_path / "replay", i, i + 1, {"reward": np.zeros(1)}) for i in range(2)]
    steps = [save(tmp_path, 10), save(tmp_path, 20, segments=refs[:1]), save(tmp_path, 30, segments=refs[1:])]
    (tmp_path / "replay" / refs[1].name).unlink()
    assert apply_retention(tmp_path, keep=1) == [steps[0]]
    assert list_checkpoints(tmp_path) == [steps[2], steps[1]]


def test_retention_leaves_a_checkpoint_with_foreign_files_alone(tmp_path: Path) -> None:
    steps = [save(tmp_path, step) for step in (10, 20, 30)]
    (steps[0] / "notes.txt").write_text("the run before the bug")
    assert apply_retention(tmp_path, keep=1) == [steps[1]]
    assert (steps[0] / "notes.txt").exists() and verify_checkpoint(steps[0]) == []


def test_retention_deletes_nothing_if_nothing_is_valid(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        (save(tmp_path, step) / "state.json").unlink()
    assert apply_retention(tmp_path, keep=1) == []
    assert len(list_checkpoints(tmp_path)) == 3
    with pytest.raises(ValueError, match="at least 1"):
        apply_retention(tmp_path, keep=0)


def test_segments_stay_as_long_as_a_checkpoint_uses_them(tmp_path: Path) -> None:
    replay = tmp_path / "replay"
    refs = [write_segment(replay, 4 * i, 4 * i + 4, {"reward": np.full(4, i)}) for i in range(4)]
    for step, used in ((10, refs[:2]), (20, refs[1:3]), (30, refs[2:3])):
        save(tmp_path, step, segments=used)
    (replay / "notes.txt").write_text("kept")
    apply_retention(tmp_path, keep=2)
    assert {path.name for path in replay.iterdir()} == {refs[1].name, refs[2].name, "notes.txt"}
    np.testing.assert_array_equal(read_segment(replay, refs[2])["reward"], np.full(4, 2))
    apply_retention(tmp_path, keep=1)
    assert {path.name for path in replay.iterdir()} == {refs[2].name, "notes.txt"}


def test_no_segment_is_deleted_while_a_manifest_is_unreadable(tmp_path: Path) -> None:
    refs = [write_segment(tmp_path / "replay", i, i + 1, {"reward": np.zeros(1)}) for i in range(2)]
    save(tmp_path, 10, segments=refs[:1])
    edit_manifest(save(tmp_path, 20, segments=refs[1:]), schema=2)
    apply_retention(tmp_path, keep=1)
    assert all((tmp_path / "replay" / ref.name).exists() for ref in refs)


def test_segments_keep_every_bit_and_are_never_overwritten(tmp_path: Path) -> None:
    arrays = {
        "observation": np.random.default_rng(1).integers(0, 255, (6, 2, 3), dtype=np.uint8),
        "reward": np.arange(12.0, dtype=np.float32)[::2],
        "done": np.array([True, False] * 3),
    }
    refs = [write_segment(tmp_path, 0, 6, arrays) for _ in range(2)]
    assert refs[0].name != refs[1].name and refs[0].sha256 == refs[1].sha256
    restored = read_segment(tmp_path, refs[1])
    for name, array in arrays.items():
        assert restored[name].dtype == array.dtype
        np.testing.assert_array_equal(restored[name], array)
    with pytest.raises(ValueError, match="start < stop"):
        write_segment(tmp_path, 3, 3, arrays)
    with pytest.raises(TypeError, match="info"):
        write_segment(tmp_path, 6, 7, {"info": np.array([None])})


def test_a_segment_that_is_not_a_file_of_arrays_does_not_verify_although_its_hash_matches(tmp_path: Path) -> None:
    ref = write_segment(tmp_path / "replay", 0, 1, {"reward": np.zeros(100)})
    victim = tmp_path / "replay" / ref.name
    victim.write_bytes(victim.read_bytes().replace(b"[100]", b"[101]"))
    path = save(tmp_path, 10, segments=[replace(ref, **file_record(victim))])
    (problem,) = verify_checkpoint(path)
    assert ref.name in problem and "does not fit its 800 bytes" in problem


@pytest.mark.parametrize("damage", ["bit flip", "truncated", "missing"])
def test_a_damaged_segment_is_detected_by_reading_it_and_by_latest_checkpoint(tmp_path: Path, damage: str) -> None:
    replay = tmp_path / "replay"
    refs = [write_segment(replay, i, i + 1, {"reward": np.full(100, float(i))}) for i in range(2)]
    save(tmp_path, 10, segments=refs[:1])
    newest = save(tmp_path, 20, segments=refs)
    victim = replay / refs[1].name
    content = victim.read_bytes()
    if damage == "bit flip":
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "truncated":
        victim.write_bytes(content[:-8])
    else:
        victim.unlink()
    with pytest.raises(CheckpointError, match=refs[1].name):
        read_segment(replay, refs[1])
    assert refs[1].name in verify_checkpoint(newest)[0]
    assert verify_checkpoint(newest, segments="skip") == []
    assert latest_checkpoint(tmp_path).env_steps == 10
    assert latest_checkpoint(tmp_path, segments="skip").env_steps == 20
    assert hashlib.sha256(content).hexdigest() == refs[1].sha256
