"""Where compiled functions are kept: one library per function, in a folder of the user that nobody else can write to.

Loading a library runs its code. So the folder must belong to the user and be closed to others. Where that cannot be
had, functions are compiled into a folder of this process, which is removed when it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.storage.real_files import open_own_file

Function = Callable[[list[Tensor]], Sequence[Tensor]]

MOST_FUNCTIONS = 300  # a tenth to half a megabyte each; those that were not used for longest are removed
OF_A_STOPPED_PROCESS = 24 * 3600.0  # seconds after which half of a copy is removed

_ENTRY = "inductor_entry_cpp"  # the function that TorchInductor exports
_BUILDING = "building-"
_CHECKSUM = b"\nrl_training: sha256 "


class FunctionStore:
    """Compiled functions by name, in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, name: str) -> Function | None:
        """The function called `name`, or None if it is not here, not whole or cannot be loaded."""
        library = self._file(name)
        try:
            if not _is_whole(library.read_bytes()):  # half of a file, after a power cut
                return None
            os.utime(library)  # it was used now
            return load(library)
        except (ImportError, OSError):
            return None

    def keep(self, name: str, built: Path) -> Function:
        """Copy the library `built` into the store, and load it. If that fails, it serves this process only."""
        library, copy = self._file(name), self.folder / f"{_BUILDING}{secrets.token_hex(8)}"
        try:
            with open_own_file(copy, "xb") as file:
                file.write(_with_checksum(built.read_bytes()))
            copy.chmod(0o600)
            os.replace(copy, library)  # at once: two processes may keep the same function
        except OSError:
            with contextlib.suppress(OSError):
                copy.unlink()
            return load(built)
        self._remove_unused()
        return load(library)

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """An empty folder for the files of one compilation, which is removed afterwards.

        It is not in the store: that may be in a home with little room, and a run must not end because of it.
        """
        path = Path(tempfile.mkdtemp(dir=_folder_of_process()))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.so"

    def _remove_unused(self) -> None:
        with contextlib.suppress(OSError):  # other processes do the same
            libraries = sorted(self.folder.glob("*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
            for library in libraries[MOST_FUNCTIONS:]:
                library.unlink()
            for left in self.folder.glob(f"{_BUILDING}*"):
                if time.time() - left.stat().st_mtime > OF_A_STOPPED_PROCESS:
                    left.unlink()


def _with_checksum(library: bytes) -> bytes:
    """A library with its checksum behind it, which the loader of the system does not look at."""
    return library + _CHECKSUM + hashlib.sha256(library).hexdigest().encode()


def _is_whole(data: bytes) -> bool:
    library, _, _ = data.rpartition(_CHECKSUM)
    return bool(library) and data == _with_checksum(library)


def load(library: Path) -> Function:
    """The function in a library that TorchInductor made with `cpp_wrapper`."""
    guards: Any = torch._C._dynamo.guards
    os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"] = str(guards._torchinductor_pyobject_tensor_data_ptr)
    spec = importlib.util.spec_from_file_location(f"{library.stem}.{_ENTRY}", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    entry = getattr(module, _ENTRY)
    handles_of = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
    tensors_of = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs

    def call(tensors: list[Tensor]) -> Sequence[Tensor]:
        outputs: Sequence[Tensor] = tensors_of(entry(handles_of(tensors)))
        return outputs

    return call


def open_store() -> FunctionStore:
    """The store of this user; one for this process only, if there can be no other."""
    chosen = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""))
    is_named = bool(chosen.name) and not _is_torchs_default(chosen)
    try:
        folder = chosen / "rl_training" if is_named else _folder_of_user()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The user answers for a folder that the user named.
        is_safe = (is_named or belongs_to_user_only(folder)) and os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        return FunctionStore(_folder_of_process())
    return FunctionStore(folder if is_safe else _folder_of_process())


def _folder_of_user() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        if os.environ.get("HOME") == "":  # Python would take the root directory
            raise RuntimeError("there is no home")
        base = Path.home() / ".cache"
    return base / "rl_training" / "compiled"


def _is_torchs_default(folder: Path) -> bool:
    """Whether torch itself chose `folder`, and wrote it into the environment: others can make it before the user."""
    return folder.name.startswith("torchinductor_") and folder.parent == Path(tempfile.gettempdir())


def belongs_to_user_only(folder: Path) -> bool:
    """Whether `folder` is a real folder that only this user can write to or put in its place."""
    if not hasattr(os, "getuid"):
        return True
    found = folder.lstat()  # a symbolic link is nobody's folder
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return not any(_could_be_swapped(parent.stat()) for parent in folder.resolve().parents)


def _could_be_swapped(parent: os.stat_result) -> bool:
    """Whether somebody else could put another folder in the place of one in `parent`."""
    for_everyone = parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX
    return bool(for_everyone) or parent.st_uid not in (os.getuid(), 0)


@functools.cache
def _folder_of_process() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rl_training-compiled-"))  # with mode 700, and nobody can know the name
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
