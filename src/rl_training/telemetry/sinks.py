"""Sinks that show metric lines as a table, in TensorBoard, in W&B and on the console."""

from __future__ import annotations

import csv
import json
import os
import re
import time
from pathlib import Path
from typing import Any, Protocol

from rl_training.errors import ConfigError, install_hint
from rl_training.storage.durable_files import (
    atomic_write_text,
    make_own_directory,
    release_temporary,
    temporary_sibling,
)
from rl_training.storage.real_files import open_own_file
from rl_training.telemetry.metric_lines import METRICS_FILE, WALL_CLOCK_FIELDS, Line, iterate_lines, warn
from rl_training.text import reason

CSV_FILE = "metrics.csv"
TENSORBOARD_DIRECTORY = "tensorboard"
_EVENT_FILE = re.compile(r"events\.out\.tfevents\.\d{10}\.")
_LEADING_COLUMNS = ("kind", "env_steps", "updates", "episodes")


class Sink(Protocol):
    """Receives metric lines; `write` gets each clean line after it is in the JSONL file."""

    name: str

    def write(self, line: Line) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class CsvSink:
    """`metrics.csv`, one wide table. A new column, or a table that is gone, makes it write all of it from the JSONL."""

    name = "csv"

    def __init__(self, run_dir: Path) -> None:
        self._source = run_dir / METRICS_FILE
        self._path = run_dir / CSV_FILE
        self._rewrite()

    def _rewrite(self) -> None:
        columns: dict[str, None] = {}
        for line in iterate_lines(self._source):
            columns.update(dict.fromkeys(line))
        leading = [name for name in _LEADING_COLUMNS if name in columns]
        self._columns = leading + [name for name in columns if name not in _LEADING_COLUMNS]
        self._known = frozenset(self._columns)
        temporary = temporary_sibling(self._path)
        try:
            with open_own_file(temporary, "x", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if self._columns:
                    writer.writerow(self._columns)
                writer.writerows(self._row(line) for line in iterate_lines(self._source))
            os.replace(temporary, self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            release_temporary(temporary)

    def _row(self, line: Line) -> list[Any]:
        cells = [line.get(column) for column in self._columns]
        return [json.dumps(cell) if isinstance(cell, (list, dict)) else cell for cell in cells]

    def write(self, line: Line) -> None:
        if not self._known.issuperset(line) or not self._path.exists():
            self._rewrite()
            return
        with open_own_file(self._path, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(self._row(line))

    def flush(self) -> None:
        pass  # the file is closed after every row

    def close(self) -> None:
        pass


class TensorBoardSink:
    """Scalars as `train/...`, `eval/...` and `time/...` over environment steps."""

    name = "tensorboard"

    def __init__(self, run_dir: Path, purge_step: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                f"tensorboard: the package is not installed; {install_hint('tensorboard')} or set tensorboard=false"
            ) from error
        # TensorBoard hides earlier events from purge_step on, because the resumed run writes them again.
        folder = make_own_directory(run_dir / TENSORBOARD_DIRECTORY)
        _wait_for_a_later_name(folder)
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge_step)

    def write(self, line: Line) -> None:
        kind = line["kind"]
        for key, value in line.items():
            if key == "env_steps" or not isinstance(value, (int, float)):
                continue
            group = "time" if key in WALL_CLOCK_FIELDS else kind
            self._writer.add_scalar(f"{group}/{key.removeprefix(kind + '_')}", value, line["env_steps"])

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _wait_for_a_later_name(folder: Path) -> None:
    """Wait until a new event file is named after a later second than the files in `folder`, at most one second.

    TensorBoard reads event files in the order of their names, which begin with the second of their creation. Within
    one second the order is that of process numbers and counters, as text: a resumed run could come before its past.
    """
    seconds = [int(name.split(".")[3]) for name in os.listdir(folder) if _EVENT_FILE.match(name)]
    now = time.time()
    if seconds and int(now) <= max(seconds):
        time.sleep(min(max(seconds) + 1 - now, 1.0))


class WandbSink:
    """Weights & Biases. Without a login or a network the run is logged offline; `wandb sync` uploads it later."""

    name = "wandb"

    def __init__(self, project: str, run_dir: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError(
                f"wandb_project: wandb is not installed; {install_hint('wandb')} or remove the key"
            ) from error
        # With the same id, a resumed run continues its W&B run.
        identity = run_dir / "wandb_run_id"
        run_id = _stored_id(identity)
        options = {"project": project, "name": run_dir.name, "dir": str(run_dir), "id": run_id}
        try:
            self._run: Any = wandb.init(**options, resume="allow")
        except Exception as error:
            warn(f"wandb is not reachable ({reason(error)}); the run is logged offline")
            self._run = wandb.init(**options, mode="offline")
        atomic_write_text(identity, str(self._run.id))
        # The step of W&B may only increase, which a resumed run cannot guarantee. Use env_steps as the axis.
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    def write(self, line: Line) -> None:
        kind = line["kind"]
        numbers = {key: value for key, value in line.items() if isinstance(value, (int, float))}
        env_steps = numbers.pop("env_steps")
        named = {f"{kind}/{key.removeprefix(kind + '_')}": value for key, value in numbers.items()}
        self._run.log({"env_steps": env_steps, **named})

    def flush(self) -> None:
        pass  # W&B uploads in another process

    def close(self) -> None:
        self._run.finish()


def _stored_id(path: Path) -> str | None:
    """The id in a file of the run. A link to a file of the user would send the content of that file to W&B."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        content = file.read(100).decode("ascii", "replace").strip()
    return content if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", content) else None


class Display(Protocol):
    """The methods of a console display that the recorder uses."""

    def update(self, env_steps: int, line: Line | None = None) -> None: ...

    def stop(self) -> None: ...


class ConsoleSink:
    """Passes each line to a display and stops the display at the end."""

    name = "console"

    def __init__(self, display: Display) -> None:
        self._display = display

    def write(self, line: Line) -> None:
        self._display.update(line["env_steps"], line)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._display.stop()
