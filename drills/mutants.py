"""Ways to damage or forge a checkpoint: each function changes a checkpoint at random.

A damaged checkpoint keeps its old manifest, so that a hash reveals the damage. A forged one gets new hashes, as a
hostile author would compute them, so that only the checks after the hashes can refuse it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from checkpoint_helpers import edit_manifest, sign_again
from rl_training.storage.checkpoint_format import FILES, MANIFEST
from rl_training.storage.durable_files import file_record

Dice = random.Random
NASTY: list[Any] = [
    None, True, -1, 0, 10**30, -(2**63), 1e308, "", "x" * 1000, "\x1b[31m\n\u202e", [], {}, [[[[]]]], {"a": {"b": 1}},
    {"$tensor": "nowhere", "$kind": "torch"}, {"$scalar": ["float64", {}]}, {"$int": "-0x1"}, {"$float": "nan"},
    2**28, 10**9, 2**62, 10**4000, 1e-320, "1" * 20_000 + "x", "1_" * 50_000, [8000, 8000], [1] * 30_000,
    ["1" * 9_000 + "x"] * 50,
    {f"k{number}": number for number in range(30_000)}, {"$int": "0x" + "f" * 100_000}, [0.5, None, "x"],
]  # fmt: skip
MARKER = "RL_TRAINING_DRILL_MARKER"


class Bomb:
    """Writes a file when it is unpickled, which must never happen."""

    def __reduce__(self) -> Any:
        return (open, (os.environ[MARKER], "w"))


def some_file(checkpoint: Path, dice: Dice) -> Path:
    return checkpoint / dice.choice([MANIFEST, *FILES])


def truncated(checkpoint: Path, dice: Dice) -> None:
    path = some_file(checkpoint, dice)
    os.truncate(path, dice.randrange(path.stat().st_size))


def truncated_and_signed(checkpoint: Path, dice: Dice) -> None:
    path = checkpoint / dice.choice(FILES)
    os.truncate(path, dice.randrange(path.stat().st_size))
    sign_again(checkpoint)


def bits_flipped(checkpoint: Path, dice: Dice) -> None:
    _flip(some_file(checkpoint, dice), dice, dice.choice([1, 2, 20]))


def bits_flipped_and_signed(checkpoint: Path, dice: Dice) -> None:
    _flip(checkpoint / dice.choice(FILES[1:]), dice, dice.choice([1, 2, 20]))
    sign_again(checkpoint)


def _flip(path: Path, dice: Dice, count: int) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(count):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def files_swapped(checkpoint: Path, dice: Dice) -> None:
    one, other = dice.sample([MANIFEST, *FILES], 2)
    (checkpoint / one).rename(checkpoint / "aside")
    (checkpoint / other).rename(checkpoint / one)
    (checkpoint / "aside").rename(checkpoint / other)
    if dice.random() < 0.5 and (checkpoint / MANIFEST).read_bytes()[:1] == b"{":
        _quietly(lambda: sign_again(checkpoint))


def file_of_another_checkpoint(checkpoint: Path, dice: Dice) -> None:
    older = sorted(path for path in checkpoint.parent.iterdir() if path != checkpoint)[0]
    shutil.copy(older / dice.choice([MANIFEST, *FILES]), checkpoint / dice.choice([MANIFEST, *FILES]))


def _rewrite_tensors(checkpoint: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    path = checkpoint / FILES[2]
    tensors = load_file(path)
    change(tensors)
    path.unlink()
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    sign_again(checkpoint)


def wrong_shape(checkpoint: Path, dice: Dice) -> None:
    def change(tensors: dict[str, np.ndarray]) -> None:
        name = dice.choice(sorted(tensors))
        array = tensors[name]
        shapes = [array.reshape(-1)[:-1], np.zeros((3, 5, 7), array.dtype), np.zeros((0,), array.dtype)]
        tensors[name] = dice.choice([*shapes, np.concatenate([array.reshape(-1)] * 3)])

    _rewrite_tensors(checkpoint, change)


def wrong_dtype(checkpoint: Path, dice: Dice) -> None:
    def change(tensors: dict[str, np.ndarray]) -> None:
        name = dice.choice(sorted(tensors))
        others = [kind for kind in ("float64", "float16", "int64", "uint8", "bool") if kind != tensors[name].dtype]
        with np.errstate(all="ignore"):
            tensors[name] = tensors[name].astype(dice.choice(others))

    _rewrite_tensors(checkpoint, change)


def tensor_missing_or_extra(checkpoint: Path, dice: Dice) -> None:
    def change(tensors: dict[str, np.ndarray]) -> None:
        name = dice.choice(sorted(tensors))
        array = tensors.pop(name)
        tensors[dice.choice(["loop/../../x", name + "x", "\n", "a" * 300])] = array

    _rewrite_tensors(checkpoint, change)


def header_forged(checkpoint: Path, dice: Dice) -> None:
    path = checkpoint / FILES[2]
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    entry = header[dice.choice(sorted(header))]
    begin, end = entry["data_offsets"]
    forged: list[dict[str, Any]] = [
        {"shape": [2**31, 2**31]}, {"shape": [2**63 - 1, 2]}, {"shape": [-1]}, {"shape": "x"}, {"dtype": "OBJECT"},
        {"data_offsets": [0, 2**40]}, {"data_offsets": [end, begin]}, {"data_offsets": [-8, 0]}, {"data_offsets": []},
        {"data_offsets": [begin + 1, end]}, {"shape": [end - begin], "dtype": "U8"}, {"dtype": "F8_E5M2"},
    ]  # fmt: skip
    entry |= dice.choice(forged)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    sign_again(checkpoint)


def header_huge(checkpoint: Path, dice: Dice) -> None:
    path = checkpoint / FILES[2]
    entries = {f"t{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(100_000)}
    nested = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    bodies = [
        struct.pack("<Q", 2**63 - 1) + b"{}",
        struct.pack("<Q", 2**40) + b"{}",
        struct.pack("<Q", 90_000_000) + b"{}".ljust(90_000_000),
        *(struct.pack("<Q", len(text)) + text for text in (json.dumps(entries).encode(), nested, b"{", b"")),
    ]
    path.write_bytes(dice.choice(bodies))
    sign_again(checkpoint)


def json_deep_or_wide(checkpoint: Path, dice: Dice) -> None:
    depth = dice.choice([101, 5_000, 100_000])
    objects, lists = '{"a":' * depth + "1" + "}" * depth, "[" * depth + "]" * depth
    element, count = dice.choice(['{"a":0}', "[]", "0", '"ab"', "1e5"]), dice.choice([200_000, 3_000_000])
    wide = "[" + ",".join([element] * count) + "]"
    odd = ["NaN", '{"a": 1e999}', '{"a": Infinity}', '{"a": 1, "a": 2}', "\ufeff{}", "1" * 10_000, '{"\\ud800": 1}']
    text = dice.choice([objects, lists, wide, *odd])
    name = dice.choice([MANIFEST, *FILES[:2]])
    (checkpoint / name).write_text(text, encoding="utf-8")
    if name != MANIFEST:
        sign_again(checkpoint)


def not_a_regular_file(checkpoint: Path, dice: Dice) -> None:
    path = some_file(checkpoint, dice)
    content = path.read_bytes()
    path.unlink()
    kind = dice.choice(["copy", "loop", "dangling", "zeros", "password", "pipe", "directory"])
    if kind == "copy":
        copy = checkpoint.parent / f"copy-{path.name}"
        copy.write_bytes(content)
        path.symlink_to(copy)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        targets = {"loop": path, "dangling": "nowhere", "zeros": "/dev/zero", "password": "/etc/passwd"}
        path.symlink_to(targets[kind])


def path_tricks(checkpoint: Path, dice: Dice) -> None:
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    trick = dice.choice(
        ["../config.json", "/etc/passwd", "..", "a\\b", "a\nb", "a\0b", "x" * 5000, "\u202e", "state.json/"]
    )
    if dice.random() < 0.5 and manifest["segments"]:
        manifest["segments"][0]["name"] = trick
        edit_manifest(checkpoint, segments=manifest["segments"])
    else:
        files = manifest["files"]
        victim = dice.choice(sorted(files))
        files[trick] = files.pop(victim) if dice.random() < 0.5 else files[victim]
        edit_manifest(checkpoint, files=files)


def pickle_in_disguise(checkpoint: Path, dice: Dice) -> None:
    name = dice.choice([MANIFEST, *FILES])
    body = pickle.dumps(Bomb(), protocol=dice.choice([0, 2, 4]))
    (checkpoint / name).write_bytes(dice.choice([body, b"{}\n" + body, b"\x80\x02" + body, b"PK\x03\x04" + body]))
    (checkpoint / "data.pkl").write_bytes(body)
    if name != MANIFEST:
        sign_again(checkpoint)


def manifest_forged(checkpoint: Path, dice: Dice) -> None:
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    edit_manifest(checkpoint, **{dice.choice(sorted(manifest)): dice.choice(NASTY)})


def state_forged(checkpoint: Path, dice: Dice) -> None:
    _forge_json(checkpoint / FILES[1], dice)
    sign_again(checkpoint)


def config_forged(checkpoint: Path, dice: Dice) -> None:
    _forge_json(checkpoint / FILES[0], dice)
    sign_again(checkpoint)


def _forge_json(path: Path, dice: Dice) -> None:
    """Replace, remove or rename one value somewhere in the tree."""
    tree = json.loads(path.read_text())
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
            places.append((node, key))
            if isinstance(child, (dict, list)):
                walk(child)

    walk(tree)
    node, key = dice.choice(places)
    if isinstance(node, dict) and dice.random() < 0.3:
        node[dice.choice(["$unknown", "", "other", "\n"])] = node.pop(key)
    else:
        node[key] = dice.choice(NASTY)
    path.write_text(json.dumps(tree))


BOX: dict[str, Any] = {"type": "box", "low": 0, "high": 1, "shape": [2**28], "dtype": "float32"}
CHOICE: dict[str, Any] = {"type": "discrete", "n": 2, "start": 0}
# Spaces that a few bytes ask for.
HUGE_SPACES: list[dict[str, Any]] = [
    BOX, {**BOX, "shape": [2**22], "dtype": "float64"}, {**BOX, "shape": [512, 512, 512], "dtype": "uint8"},
    {**BOX, "shape": [0, 2**62]}, {**BOX, "shape": [1] * 70}, {**CHOICE, "n": 2**40}, {**CHOICE, "n": 2**70},
    {"type": "multi_binary", "shape": [2**27, 2]},
    {"type": "multi_discrete", "nvec": [2**62] * 3, "start": [0] * 3, "shape": [3]},
    {"type": "tuple", "spaces": [CHOICE] * 50_000}, {"type": "tuple", "spaces": [{**BOX, "shape": [2**20]}] * 300},
    {"type": "dict", "spaces": [[str(number), CHOICE] for number in range(50_000)]},
]  # fmt: skip
# Settings of networks, threads and environments that no machine can serve.
HUGE_SETTINGS: list[dict[str, Any]] = [
    {"model": {"hidden_sizes": [8000, 8000]}}, {"model": {"hidden_sizes": [65_536] * 3}},
    {"model": {"hidden_sizes": [1] * 100}}, {"model": {"hidden_sizes": [1] * 100_000}},
    {"model": {"hidden_sizes": [2**62, 2**62]}}, {"threads": 10**9}, {"num_envs": 2**62}, {"eval_episodes": 10**12},
    {"model": 3}, {"algo_kwargs": []}, {"seed": "1" * 30_000 + "x"},
]  # fmt: skip


def space_huge(checkpoint: Path, dice: Dice) -> None:
    path = checkpoint / FILES[1]
    tree = json.loads(path.read_text())
    tree["spaces"][dice.choice(["observation", "action"])] = dice.choice(HUGE_SPACES)
    path.write_text(json.dumps(tree))
    sign_again(checkpoint)


def config_huge(checkpoint: Path, dice: Dice) -> None:
    path = checkpoint / FILES[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), **dice.choice(HUGE_SETTINGS)}))
    sign_again(checkpoint)


def manifest_huge(checkpoint: Path, dice: Dice) -> None:
    segment = {"start": 0, "stop": 1, "size": 1, "sha256": "0" * 64}
    names = [f"segment-{number:012d}-{number + 1:012d}.safetensors" for number in range(30_000)]
    forged: list[dict[str, Any]] = [
        {"fingerprint": {f"k{number}": number for number in range(200_000)}},
        {"fingerprint": {"torch": "x" * 5_000_000}},
        {"segments": [{**segment, "name": name} for name in names]},
        {"segments": [{**segment, "name": names[0]}] * 30_000},
        {"algorithm": "x" * 1_000_000}, {"env_steps": 10**4000}, {"number": -1},
    ]  # fmt: skip
    edit_manifest(checkpoint, **dice.choice(forged))


def tensors_many(checkpoint: Path, dice: Dice) -> None:
    path = checkpoint / FILES[2]
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header, end = json.loads(content[8 : 8 + length]), len(content) - 8 - length
    dtype = dice.choice(["F32", "F8_E4M3", "BF16"])
    shape = dice.choice([[0], [0, 2**62], [0] + [1] * 200])
    count = dice.choice([1, 19_000]) if dtype != "F32" or len(shape) > 2 else 19_000
    header |= {f"t{number}": {"dtype": dtype, "shape": shape, "data_offsets": [end, end]} for number in range(count)}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    sign_again(checkpoint)


def weights_not_finite(checkpoint: Path, dice: Dice) -> None:
    def change(tensors: dict[str, np.ndarray]) -> None:
        names = [name for name in sorted(tensors) if name.startswith("learner/parts/model/") and tensors[name].size]
        name = dice.choice([name for name in names if tensors[name].dtype.kind == "f"])
        tensors[name] = tensors[name].copy()
        tensors[name].reshape(-1)[0] = dice.choice([np.nan, np.inf, -np.inf])

    _rewrite_tensors(checkpoint, change)


def segment_damaged(checkpoint: Path, dice: Dice) -> None:
    path = _segment(checkpoint)
    if dice.random() < 0.5:
        os.truncate(path, dice.randrange(path.stat().st_size))
    else:
        _flip(path, dice, 1)


def segment_forged(checkpoint: Path, dice: Dice) -> None:
    path = _segment(checkpoint)
    arrays = load_file(path)
    name = dice.choice(sorted(arrays))
    changed = [arrays[name][:-1], arrays[name].astype("float64"), arrays[name].reshape(-1), arrays[name][:0]]
    if dice.random() < 0.3:
        del arrays[name]
    else:
        arrays[name] = dice.choice(changed)
    path.unlink()
    save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, path)
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    manifest["segments"][-1] |= file_record(path)
    edit_manifest(checkpoint, segments=manifest["segments"])


def mutations_of(checkpoint: Path) -> list[Callable[[Path, Dice], None]]:
    """The mutations that apply to this checkpoint: without replay it has no segments."""
    has_segments = bool(json.loads((checkpoint / MANIFEST).read_text())["segments"])
    return [each for each in MUTATIONS if has_segments or each not in (segment_damaged, segment_forged)]


def _segment(checkpoint: Path) -> Path:
    name = json.loads((checkpoint / MANIFEST).read_text())["segments"][-1]["name"]
    return checkpoint.parent.parent / "replay" / str(name)


def _quietly(action: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        action()


def encoder_of_a_stranger(checkpoint: Path, dice: Dice) -> None:
    """The config names code: modules that exist, that do not exist, and that would write a file."""
    path = checkpoint / "config.json"
    config = json.loads(path.read_text())
    names = ["os:system", "builtins:eval", "this:s", "antigravity:x", "no_such_module:Net", "subprocess:Popen"]
    config["model"]["encoder"] = dice.choice(names)
    config["model"]["encoder_kwargs"] = {"args": ["true"]}
    path.write_text(json.dumps(config))
    sign_again(checkpoint)


MUTATIONS: list[Callable[[Path, Dice], None]] = [
    truncated, truncated_and_signed, bits_flipped, bits_flipped_and_signed, files_swapped, file_of_another_checkpoint,
    wrong_shape, wrong_dtype, tensor_missing_or_extra, header_forged, header_huge, json_deep_or_wide,
    not_a_regular_file, path_tricks, pickle_in_disguise, manifest_forged, state_forged, config_forged,
    space_huge, config_huge, manifest_huge, tensors_many, weights_not_finite, segment_damaged, segment_forged,
    encoder_of_a_stranger,
]  # fmt: skip
MUST_BE_REFUSED = {
    encoder_of_a_stranger, space_huge, config_huge, manifest_huge, tensors_many, weights_not_finite,
    truncated, truncated_and_signed, wrong_dtype, header_huge, not_a_regular_file, path_tricks, pickle_in_disguise,
    segment_damaged,
}  # fmt: skip
