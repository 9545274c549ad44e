"""A layer between the library and the disk that sees every change below a folder and can make it fail.

While the layer is active, it replaces Python's file functions, so the tests run the real code. Changes by C libraries
would be missed; rl_training makes one, the exchange of two names, which is replaced too.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import pathlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rl_training.storage import checkpoint_format


class Operation(NamedTuple):
    """A change on the disk. `kind` is create, write, truncate, fsync, mkdir, rename, exchange, unlink or rmtree."""

    kind: str
    path: Path
    data: Any = None  # the written bytes, the new name, the other name or the new length


class DiskLayer:
    """While active, calls `hook(operation)` before every change below `root`; the hook may raise an error."""

    def __init__(self, root: Path, hook: Callable[[Operation], None]) -> None:
        self.root, self.hook = str(root.absolute()), hook
        self._patches = pytest.MonkeyPatch()
        self._descriptors: dict[int, Path] = {}
        self._quiet = False
        self.open, self.rmtree = builtins.open, shutil.rmtree

    def covers(self, path: Any) -> bool:
        if isinstance(path, (str, os.PathLike)):
            return os.path.abspath(path).startswith(self.root) and not self._quiet
        return False

    def tell(self, kind: str, path: Any, data: Any = None) -> None:
        if self.covers(path):
            self.hook(Operation(kind, Path(os.path.abspath(path)), data))

    def __enter__(self) -> DiskLayer:
        system = {
            name: getattr(os, name) for name in ("mkdir", "unlink", "fsync", "open", "close", "rename", "replace")
        }

        def mkdir(path: Any, *rest: Any, **options: Any) -> None:
            if not os.path.lexists(path):
                self.tell("mkdir", path)
            system["mkdir"](path, *rest, **options)

        def unlink(path: Any, **options: Any) -> None:
            if os.path.lexists(path):
                self.tell("unlink", path)
            system["unlink"](path, **options)

        def move(name: str) -> Callable[..., None]:
            def moved(source: Any, target: Any, **options: Any) -> None:
                self.tell("rename", source, Path(os.path.abspath(target)))
                system[name](source, target, **options)

            return moved

        def rmtree(path: Any, *rest: Any, **options: Any) -> None:
            self.tell("rmtree", path)
            # Removing a tree counts as one operation.
            self._quiet = True
            try:
                self.rmtree(path, *rest, **options)
            finally:
                self._quiet = False

        def open_descriptor(path: Any, *rest: Any, **options: Any) -> int:
            descriptor: int = system["open"](path, *rest, **options)
            if self.covers(path):
                self._descriptors[descriptor] = Path(os.path.abspath(path))
            return descriptor

        def close(descriptor: int) -> None:
            self._descriptors.pop(descriptor, None)
            system["close"](descriptor)

        def fsync(descriptor: int) -> None:
            if descriptor in self._descriptors:
                self.tell("fsync", self._descriptors[descriptor])
            system["fsync"](descriptor)

        exchange_names = checkpoint_format.exchange

        def exchange(first: Path, second: Path) -> bool:
            self.tell("exchange", first, Path(os.path.abspath(second)))
            return exchange_names(first, second)

        self._patches.setattr(checkpoint_format, "exchange", exchange)
        replacements = {"mkdir": mkdir, "unlink": unlink, "fsync": fsync, "open": open_descriptor, "close": close}
        replacements |= {"rename": move("rename"), "replace": move("replace")}
        for name, function in replacements.items():
            self._patches.setattr(os, name, function)
        self._patches.setattr(shutil, "rmtree", rmtree)
        for module in (builtins, io):  # pathlib has the second one
            self._patches.setattr(module, "open", self._open)
        # The pathlib of Python 3.10 keeps the functions from its import.
        accessor = getattr(pathlib, "_NormalAccessor", None)
        for name, function in (replacements | {"open": self._open}).items():
            if hasattr(accessor, name):
                self._patches.setattr(accessor, name, staticmethod(function))
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.undo()

    def _open(self, path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if not self.covers(path) or not set(mode) & set("wxa+"):
            return self.open(path, mode, *rest, **options)
        if not os.path.lexists(path):
            self.tell("create", path)
        elif "w" in mode:
            self.tell("truncate", path, 0)
        file = self.open(path, mode, *rest, **options)
        self._descriptors[file.fileno()] = Path(os.path.abspath(path))
        return _File(self, file, path)


class _File:
    """A file that reports its writes. A failing write writes its first half, unless it is unbuffered."""

    def __init__(self, layer: DiskLayer, file: Any, path: Any) -> None:
        self._layer, self._file, self._path = layer, file, path

    def write(self, data: Any) -> int:
        content = data.encode() if isinstance(data, str) else bytes(data)
        try:
            self._layer.tell("write", self._path, content)
        except OSError:
            half = 0 if isinstance(self._file, io.FileIO) else len(content) // 2
            self._file.write(data[:half] if isinstance(data, str) else content[:half])
            raise
        return int(self._file.write(data))

    def truncate(self, size: int) -> int:
        self._layer.tell("truncate", self._path, size)
        return int(self._file.truncate(size))

    def close(self) -> None:
        if not self._file.closed:
            self._layer._descriptors.pop(self._file.fileno(), None)
        self._file.close()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Faults:
    """A hook that counts the changes that need space and fails those for which `broken(number, operation)` is true."""

    NEEDS_ROOM = ("create", "write", "mkdir", "rename", "fsync")

    def __init__(self, broken: Callable[[int, Operation], bool], code: int = errno.ENOSPC) -> None:
        self.broken, self.code = broken, code
        self.count = self.failed = 0

    def __call__(self, operation: Operation) -> None:
        if operation.kind not in self.NEEDS_ROOM:
            return
        number, self.count = self.count, self.count + 1
        if self.broken(number, operation):
            self.failed += 1
            raise OSError(self.code, os.strerror(self.code), str(operation.path))
