"""Mutations of a tree of files: plain data, so that a case can be printed, repeated, and written by hand."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file, save_file

from checkpoint_helpers import edit_manifest, sign_again
from fuzz_values import Raw, shortened
from rl_training.storage.checkpoint_format import FILES, MANIFEST
from rl_training.storage.durable_files import file_record

CANARY, CANARY_FOLDER = "../outside/canary", "../outside/folder"
LARGEST_READ = 2**26
PLACEHOLDER, REPEATED = "RawTextGoesHere", "RepeatedKeyGoesHere"
STRUCTURED = (".json", ".jsonl", ".yaml", ".safetensors")
Place = tuple[Any, ...]  # keys and indices from the root of a document to a value


class Mutation:
    """One change of a tree; `file` is relative to the working directory of the case."""

    file: str

    def apply(self, root: Path) -> None:
        raise NotImplementedError


def content_of(path: Path) -> bytes:
    """The content of a small regular file: another mutation may have put a pipe or an endless file there."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_READ:
        raise ValueError(f"{path} can no longer be changed")
    return path.read_bytes()


def read_document(path: Path) -> Any:
    """The data of a file; a list of lines for .jsonl, the header for .safetensors."""
    content = content_of(path)
    if path.suffix == ".safetensors":
        return json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in content.splitlines()]
    return yaml.safe_load(content) if path.suffix == ".yaml" else json.loads(content)


def write_document(path: Path, document: Any) -> None:
    raw: list[Raw] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Raw):
            raw.append(value)
            return f"{PLACEHOLDER}{len(raw)};"
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    document = plain(document)
    if path.suffix == ".yaml":
        text = yaml.safe_dump(document, sort_keys=False)
    elif path.suffix == ".jsonl":
        text = "".join(json.dumps(line) + "\n" for line in document)
    else:
        text = json.dumps(document)
    text = text.replace(REPEATED, "")
    for number, each in enumerate(raw, 1):
        name = f"{PLACEHOLDER}{number};"
        text = text.replace(f'"{name}"', each.text).replace(name, each.text)
    content = text.encode("utf-8", "surrogateescape")
    if path.suffix == ".safetensors":
        old = path.read_bytes()
        body = old[8 + struct.unpack("<Q", old[:8])[0] :]
        content = struct.pack("<Q", len(content)) + content + body
    path.write_bytes(content)


def header_of(tensors: dict[str, Any]) -> bytes:
    """A safetensors file with this header and no data."""
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


def value_at(document: Any, place: Place) -> Any:
    for key in place:
        document = document[key]
    return document


@dataclass(frozen=True)
class Edit(Mutation):
    """Change one value of a JSON, JSON Lines or YAML file, or of the header of a safetensors file."""

    file: str
    place: Place

    def apply(self, root: Path) -> None:
        document = read_document(root / self.file)
        self.change(value_at(document, self.place[:-1]), self.place[-1])
        write_document(root / self.file, document)

    def change(self, node: Any, key: Any) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class SetValue(Edit):
    value: Any

    def change(self, node: Any, key: Any) -> None:
        node[key] = self.value

    def __repr__(self) -> str:
        return f"SetValue({self.file!r}, {shortened(self.place)}, {shortened(self.value)})"


class DropValue(Edit):
    def change(self, node: Any, key: Any) -> None:
        del node[key]


class RepeatKey(Edit):
    """Write a key of a mapping twice."""

    def change(self, node: Any, key: Any) -> None:
        if isinstance(node, dict):
            node[f"{key}{REPEATED}"] = node[key]


@dataclass(frozen=True)
class RenameKey(Edit):
    name: str

    def change(self, node: Any, key: Any) -> None:
        if isinstance(node, dict):
            node[self.name] = node.pop(key)


@dataclass(frozen=True)
class AddKeys(Edit):
    """Many keys in the mapping at a place."""

    count: int
    value: Any

    def change(self, node: Any, key: Any) -> None:
        if isinstance(node[key], dict):
            node[key].update({f"extra{number}": self.value for number in range(self.count)})


@dataclass(frozen=True)
class SetContent(Mutation):
    file: str
    content: bytes

    def apply(self, root: Path) -> None:
        path = root / self.file
        if path.exists():
            content_of(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)

    def __repr__(self) -> str:
        return f"SetContent({self.file!r}, {shortened(self.content)})"


@dataclass(frozen=True)
class ChangeBytes(Mutation):
    """Flip a bit at each place (a share of the file), cut the file at a share of it, then add bytes."""

    file: str
    flips: tuple[float, ...] = ()
    keep: float = 1.0
    add: bytes = b""

    def apply(self, root: Path) -> None:
        content = bytearray(content_of(root / self.file))
        for share in self.flips:
            if content:
                content[int(share * len(content))] ^= 1 << int(share * 1e6) % 8
        (root / self.file).write_bytes(content[: int(self.keep * len(content))] + self.add)


@dataclass(frozen=True)
class Become(Mutation):
    """Replace a file or a directory by something else, or make it hard to read."""

    file: str
    kind: str

    def apply(self, root: Path) -> None:
        path = root / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.kind in KEEPING_THE_FILE:
            path.chmod(KEEPING_THE_FILE[self.kind])
            return
        if self.kind == MOVED:
            os.rename(path, root / CANARY_FOLDER / "moved")
            path.symlink_to(root / CANARY_FOLDER / "moved")
            return
        is_folder = path.is_dir()
        if path.is_symlink() or not is_folder:
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
        SPECIAL[self.kind](path, root / (CANARY_FOLDER if is_folder else CANARY))


def _sparse(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def _hard_link(path: Path, canary: Path) -> None:
    os.link(canary / "file" if canary.is_dir() else canary, path)


SPECIAL: dict[str, Callable[[Path, Path], None]] = {
    "link to a file outside": lambda path, canary: path.symlink_to(canary),
    "hard link to a file outside": _hard_link,
    "dangling link": lambda path, canary: path.symlink_to(canary.with_name("new")),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": lambda path, _: os.mknod(path, stat.S_IFSOCK | 0o600),
    "directory": lambda path, _: path.mkdir(),
    "sparse file of 1 TB": _sparse,
    "missing": lambda path, _: None,
}
MOVED = "link to where it was moved, outside"
KEEPING_THE_FILE = {"unreadable": 0o000, "read-only": 0o444}


@dataclass(frozen=True)
class Rename(Mutation):
    file: str
    name: str

    def apply(self, root: Path) -> None:
        path = root / self.file
        with contextlib.suppress(OSError, ValueError):  # a name that no file can have
            os.rename(path, path.parent / self.name)

    def __repr__(self) -> str:
        return f"Rename({self.file!r}, {shortened(self.name)})"


@dataclass(frozen=True)
class FillTensors(Mutation):
    """Set all weights in a safetensors file to a value."""

    file: str
    value: float

    def apply(self, root: Path) -> None:
        content_of(root / self.file)
        tensors = load_file(root / self.file)
        filled = {
            name: np.full_like(array, self.value) if array.dtype.kind == "f" else array
            for name, array in tensors.items()
        }
        save_file(filled, root / self.file)


@dataclass(frozen=True)
class FillTensor(Mutation):
    """Set all numbers of one tensor to a value, as far as its type can hold it. Neither its shape nor type changes."""

    file: str
    tensor: str
    value: float

    def apply(self, root: Path) -> None:
        content_of(root / self.file)
        tensors = load_file(root / self.file)
        with np.errstate(all="ignore"):
            tensors[self.tensor] = np.full(tensors[self.tensor].shape, self.value).astype(tensors[self.tensor].dtype)
        save_file(tensors, root / self.file)


@dataclass(frozen=True)
class Sign(Mutation):
    """Compute the hashes of a checkpoint again, as a hostile author would. A manifest beyond repair stays."""

    file: str

    def apply(self, root: Path) -> None:
        with contextlib.suppress(Exception):
            for name in (MANIFEST, *FILES):
                content_of(root / self.file / name)
            sign_again(root / self.file)
            self._sign_segments(root / self.file)

    def _sign_segments(self, checkpoint: Path) -> None:
        segments = json.loads((checkpoint / MANIFEST).read_text())["segments"]
        for segment in segments:
            path = checkpoint.parent.parent / "replay" / segment["name"]
            content_of(path)
            segment |= file_record(path)
        edit_manifest(checkpoint, segments=segments)


@dataclass(frozen=True)
class Hold(Mutation):
    """Lock a run, as a process that trains it does, until the case ends."""

    file: str

    def apply(self, root: Path) -> None:
        descriptor = os.open(root / self.file, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        held.append(descriptor)


held: list[int] = []


def release_locks() -> None:
    while held:
        os.close(held.pop())
