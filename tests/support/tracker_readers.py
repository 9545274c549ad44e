"""What trackers have kept of a run, read with the packages of the trackers themselves."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

BLOCK = 32_768


def wandb_records(run_dir: Path) -> list[Any]:
    """The records of all offline files of a run, oldest first, as messages of W&B.

    The package has no reader in Python. Its files are logs in the format of LevelDB: blocks of 32 KiB with fragments,
    each with a header of checksum, length and kind (whole, first, middle, last), after a header of the file.
    """
    from wandb.proto import wandb_internal_pb2

    records = []
    for path in sorted(run_dir.glob("wandb/offline-run-*/*.wandb")):
        data, position, parts = path.read_bytes(), 7, b""
        while position + 7 <= len(data):
            left = BLOCK - position % BLOCK
            if left < 7:
                position += left
                continue
            _, length, kind = struct.unpack("<IHB", data[position : position + 7])
            if kind == 0:
                position += left
                continue
            parts += data[position + 7 : position + 7 + length]
            position += 7 + length
            if kind in (1, 4):
                record = wandb_internal_pb2.Record()
                record.ParseFromString(parts)
                records.append(record)
                parts = b""
    return records


def wait_for_wandb(run_dir: Path, sessions: int) -> None:
    """Wait until W&B, which writes in a process of its own, has written the end of each session."""
    for _ in range(600):
        kinds = [record.WhichOneof("record_type") for record in wandb_records(run_dir)]
        if kinds.count("exit") == sessions:
            return
        time.sleep(0.1)
    raise AssertionError(f"W&B has not finished: {kinds}")


def wandb_history(run_dir: Path) -> list[dict[str, Any]]:
    """The lines that were logged."""
    lines = []
    for record in wandb_records(run_dir):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            lines.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return lines


def wandb_runs(run_dir: Path) -> list[Any]:
    """The states of the run that were published."""
    return [record.run for record in wandb_records(run_dir) if record.WhichOneof("record_type") == "run"]


def wandb_config(run: Any) -> dict[str, Any]:
    return {item.key or item.nested_key[0]: json.loads(item.value_json) for item in run.config.update}


def mlflow_history(client: Any, run_id: str, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, name)]


def trackio_history(project: str, run: str, name: str) -> list[tuple[int, float]]:
    from trackio.sqlite_storage import SQLiteStorage

    return [(line["step"], line[name]) for line in SQLiteStorage.get_logs(project, run) if name in line]
