"""A model of a disk that loses power: only synced data is certain to survive.

It replays the operations of a `DiskLayer`. The data of a file is durable after an fsync of the file, a name (created,
renamed or removed) after an fsync of its directory. Before that a power cut may leave the old or the new state, so the
model produces three states for each moment: everything unsynced is lost; names survive without their data; everything
survives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from disk_layer import Operation

WAYS = ("nothing unsynced", "names without data", "everything")


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


@dataclass
class Folder:
    entries: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)


class LossyDisk:
    def __init__(self, root: Path) -> None:
        self.root, self.tree = root, Folder()

    def find(self, path: Path) -> File | Folder:
        node: File | Folder = self.tree
        for part in path.relative_to(self.root).parts:
            assert isinstance(node, Folder)
            node = node.entries[part]
        return node

    def folder(self, path: Path) -> Folder:
        node = self.find(path)
        assert isinstance(node, Folder), f"{path} is not a directory"
        return node

    def file(self, path: Path) -> File:
        node = self.find(path)
        assert isinstance(node, File), f"{path} is not a file"
        return node

    def apply(self, operation: Operation) -> None:
        kind, path, data = operation
        if kind == "fsync":
            node = self.find(path)
            if isinstance(node, File):
                node.synced = bytes(node.data)
            else:
                node.synced = dict(node.entries)
        elif kind == "write":
            self.file(path).data += data
        elif kind == "truncate":
            del self.file(path).data[data:]
        elif kind in ("create", "mkdir"):
            self.folder(path.parent).entries[path.name] = File() if kind == "create" else Folder()
        elif kind in ("unlink", "rmtree"):
            removed = self.folder(path.parent).entries.pop(path.name)
            if isinstance(removed, Folder):
                # On the disk the content may be gone while the folder still has its name.
                removed.synced = {}
        elif kind == "exchange":
            entries = self.folder(path.parent).entries
            entries[path.name], entries[data.name] = entries[data.name], entries[path.name]
        else:
            assert kind == "rename", kind
            node = self.folder(path.parent).entries.pop(path.name)
            self.folder(data.parent).entries[data.name] = node

    def after_power_loss(self, way: str, target: Path) -> None:
        """Write the surviving files to a real directory, in one of the `WAYS`."""
        self._restore(self.tree, way, target)

    def _restore(self, folder: Folder, way: str, target: Path) -> None:
        target.mkdir()
        entries = folder.synced if way == WAYS[0] else folder.entries
        for name, node in entries.items():
            if isinstance(node, Folder):
                self._restore(node, way, target / name)
            else:
                (target / name).write_bytes(bytes(node.data) if way == WAYS[2] else node.synced)
