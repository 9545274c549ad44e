"""A few forged bytes cannot ask for much time or memory, and numbers that are not finite do not act."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint_helpers import edit_manifest, sign_again
from cli_helpers import Outcome, call
from rl_training.errors import CheckpointError
from rl_training.runtime.agent import Agent
from rl_training.runtime.workflows import agent_of, resume
from rl_training.storage import checkpoint_format, tensor_files
from rl_training.storage.checkpoints import load_checkpoint, verify_checkpoint
from rl_training.storage.tensor_files import read_header, write_arrays
from tiny_runs import EVERY_ALGORITHM, train_tiny

OBSERVATIONS = {"ppo": "[0, 0, 0, 0]", "c51": "[0, 0, 0, 0]", "recurrent_ppo": "[0, 0, 0, 0]", "sac": "[0, 0, 0]"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("originals")
    return {name: train_tiny(name, folder).checkpoint for name in OBSERVATIONS}


@pytest.fixture
def forge(originals: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a run whose newest checkpoint has other values at dotted places of one of its JSON files."""

    def forged(algorithm: str, file: str, changes: dict[str, Any]) -> Path:
        source = originals[algorithm]
        shutil.copytree(source.parent.parent, tmp_path / "run")
        checkpoint = tmp_path / "run" / "checkpoints" / source.name
        tree = json.loads((checkpoint / file).read_text())
        for place, value in changes.items():
            *parents, last = place.split(".")
            inner = tree
            for name in parents:
                inner = inner[name]
            inner[last] = value
        (checkpoint / file).write_text(json.dumps(tree))
        sign_again(checkpoint)
        return checkpoint

    return forged


def refused(outcome: Outcome) -> str:
    assert outcome.code == 5, outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ") and len(line) < 1000
    return line


@pytest.mark.parametrize(
    ("algorithm", "changes", "words"),
    [
        ("ppo", {"model.hidden_sizes": [8000, 8000]}, "larger model than the .* numbers in the checkpoint"),
        ("ppo", {"model.hidden_sizes": [1] * 100}, "larger model"),
        ("ppo", {"model.hidden_sizes": [1] * 20_000}, "more than 10000 values"),
        ("ppo", {f"key{number}": 0 for number in range(20_000)}, "more than 10000 values"),
        ("ppo", {"model": 3}, "model: 3 is not valid"),
        ("ppo", {"algo_kwargs": None}, "algo_kwargs: null is not valid"),
        ("ppo", {"threads": 10**9}, "threads: .*<= 1024"),
        ("ppo", {"seed": "1" * 20_000 + "x"}, "seed: "),
        ("sac", {"model.hidden_sizes": [8000, 8000]}, "larger model"),
        ("c51", {"algo_kwargs.num_atoms": 10_000}, "larger model"),
        ("recurrent_ppo", {"algo_kwargs.memory_size": 5000}, "larger model"),
        ("recurrent_ppo", {"algo_kwargs.memory_layers": 100}, "larger model"),
    ],
)
def test_a_config_cannot_ask_for_more_than_the_checkpoint_holds(
    forge: Callable[..., Path], algorithm: str, changes: dict[str, Any], words: str
) -> None:
    checkpoint = forge(algorithm, "config.json", changes)
    started = time.process_time()
    with pytest.raises(CheckpointError, match=words):
        agent_of(checkpoint)
    assert refused(call("predict", checkpoint, "--obs", OBSERVATIONS[algorithm]))
    shown = call("inspect", checkpoint)
    assert shown.code in (0, 5) and "Traceback" not in shown.err
    assert time.process_time() - started < 4


def test_resume_does_not_build_a_larger_network_either(forge: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match="larger model"):
        resume(forge("ppo", "config.json", {"model.hidden_sizes": [8000, 8000]}), show=False)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("loop.env_steps", 63, "cannot be resumed: the loop is at step 63, the manifest at step 64"),
        ("metrics_offset", -1, "cannot be resumed: metrics_offset is -1, it should not be negative"),
    ],
)
def test_resume_refuses_a_position_that_no_run_has(
    forge: Callable[..., Path], place: str, value: int, words: str
) -> None:
    checkpoint = forge("ppo", "state.json", {place: value})
    metrics = (checkpoint.parents[1] / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=words):
        resume(checkpoint, total_timesteps=128, show=False)
    assert (checkpoint.parents[1] / "metrics.jsonl").read_bytes() == metrics


@EVERY_ALGORITHM
def test_every_algorithm_stores_at_least_what_it_builds(algorithm: str, tmp_path: Path) -> None:
    assert isinstance(Agent.load(load_checkpoint(train_tiny(algorithm, tmp_path).checkpoint)), Agent)


@pytest.mark.parametrize("which", ["observation", "action"])
def test_a_forged_space_is_refused_by_inspect_and_predict(forge: Callable[..., Path], which: str) -> None:
    box = {"type": "box", "low": -1, "high": 1, "shape": [2**28], "dtype": "float32"}
    checkpoint = forge("ppo", "state.json", {f"spaces.{which}": box})
    assert "its spaces are not valid" in refused(call("inspect", checkpoint))
    assert call("inspect", checkpoint, "--json").json["verified"] is False
    assert "too large" in refused(call("predict", checkpoint, "--obs", OBSERVATIONS["ppo"]))


def _with_header(checkpoint: Path, change: Callable[[dict[str, Any], int], None], added: bytes = b"") -> None:
    path = checkpoint / "tensors.safetensors"
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    change(header, len(body))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body + added)
    sign_again(checkpoint)


def _entry(dtype: Any, shape: Any, begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS: dict[str, tuple[Callable[[dict[str, Any], int], None], bytes, str]] = {
    "F8": (lambda header, end: header.update(x=_entry("F8_E5M2", [8], end, end + 8)), b"8" * 8, "type 'F8_E5M2'"),
    "BF16": (lambda header, end: header.update(x=_entry("BF16", [4], end, end + 8)), b"8" * 8, "type 'BF16'"),
    "no type": (lambda header, end: header.update(x=_entry(3, [4], end, end)), b"", "type '3'"),
    "thousands of empty tensors": (
        lambda header, end: header.update({f"t{n}": _entry("F32", [0], end, end) for n in range(4_001)}),
        b"",
        "exceed the limit of 4000",
    ),
    "many dimensions": (
        lambda header, end: header.update(x=_entry("F32", [0] + [1] * 99, end, end)),
        b"",
        "impossible",
    ),
    "long name": (lambda header, end: header.update({"x" * 501: _entry("F32", [0], end, end)}), b"", "501 characters"),
    "overlap": (lambda header, end: header.update(x=_entry("U8", [4], 0, 4)), b"", "overlap or leave gaps"),
    "gap": (
        lambda header, end: header.update(x=_entry("U8", [4], end + 4, end + 8)),
        b"8" * 8,
        "overlap or leave gaps",
    ),
    "bytes left over": (lambda header, end: None, b"8", "bytes, but the file has"),
    "shape": (lambda header, end: header.update(x=_entry("F32", [2**40], end, end + 4)), b"4" * 4, "does not fit"),
    "negative": (lambda header, end: header.update(x=_entry("F32", [-1], end, end + 4)), b"4" * 4, "impossible"),
}


@pytest.mark.parametrize(("change", "added", "words"), HEADERS.values(), ids=HEADERS)
def test_a_forged_tensor_header_is_refused(
    forge: Callable[..., Path], change: Callable[[dict[str, Any], int], None], added: bytes, words: str
) -> None:
    checkpoint = forge("ppo", "config.json", {})
    _with_header(checkpoint, change, added)
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(checkpoint)
    assert words.split("'")[0] in refused(call("inspect", checkpoint))
    assert refused(call("predict", checkpoint, "--obs", OBSERVATIONS["ppo"]))


def test_the_header_agrees_with_the_arrays(tmp_path: Path) -> None:
    arrays = {"a": np.zeros((2, 3), np.float32), "b": np.ones((), bool), "c": np.zeros((0, 5), np.int64)}
    write_arrays(tmp_path / "file", arrays)
    header = read_header(tmp_path / "file")
    assert {name: (info.dtype, info.shape, info.nbytes) for name, info in header.items()} == {
        name: (array.dtype.name, array.shape, array.nbytes) for name, array in arrays.items()
    }
    assert tensor_files.read_arrays(tmp_path / "file").keys() == arrays.keys()


def test_more_tensors_than_can_be_read_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"4001 tensors .*store fewer"):
        write_arrays(tmp_path / "file", {str(number): np.zeros(0) for number in range(4_001)})


SEGMENT = {"name": f"segment-{0:012d}-{1:012d}.safetensors", "start": 0, "stop": 1, "size": 1, "sha256": "0" * 64}
MANIFESTS: dict[str, tuple[dict[str, Any], str]] = {
    "fingerprint keys": ({"fingerprint": {f"k{number}": 0 for number in range(200_000)}}, "limit of 100"),
    "long fingerprint": ({"fingerprint": {"torch": "x" * 5_000_000}}, "fingerprint entry 'torch'"),
    "nested fingerprint": ({"fingerprint": {"torch": [1]}}, "fingerprint entry 'torch'"),
    "long algorithm": ({"algorithm": "x" * 1_000_000}, "'algorithm' has 1000000 characters"),
    "long version": ({"library_version": "x" * 1_000_000}, "'library_version' has"),
    "negative steps": ({"env_steps": -1}, "'env_steps' is out of range"),
    "many steps": ({"env_steps": 10**4000}, "'env_steps' is out of range"),
    "a segment twice": ({"segments": [SEGMENT] * 2}, "listed twice"),
    "an impossible segment": ({"segments": [{**SEGMENT, "start": -1}]}, "impossible range"),
}


@pytest.mark.parametrize(("fields", "words"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_forged_manifest_is_refused_at_once(forge: Callable[..., Path], fields: dict[str, Any], words: str) -> None:
    checkpoint = forge("ppo", "config.json", {})
    edit_manifest(checkpoint, **fields)
    started = time.process_time()
    assert words in refused(call("inspect", checkpoint))
    assert time.process_time() - started < 2


def test_a_report_of_thousands_of_missing_segments_is_short(forge: Callable[..., Path]) -> None:
    checkpoint = forge("ppo", "config.json", {})
    names = [f"segment-{number:012d}-{number + 1:012d}.safetensors" for number in range(20_000)]
    edit_manifest(checkpoint, segments=[{**SEGMENT, "name": name} for name in names])
    started = time.process_time()
    assert len(verify_checkpoint(checkpoint)) == checkpoint_format.MAX_PROBLEMS
    assert "missing" in refused(call("inspect", checkpoint))
    assert time.process_time() - started < 4


def test_a_config_that_could_not_be_loaded_again_is_not_saved(tmp_path: Path) -> None:
    config = {"env_kwargs": {"table": [0] * 20_000}}
    with pytest.raises(CheckpointError, match="more than 10000 values"):
        checkpoint_format.save_checkpoint(
            tmp_path / "x", algorithm="ppo", config=config, state={}, env_steps=0, number=0
        )
    assert not (tmp_path / "x").exists()
