"""Crash reports: what a run writes to its `crash/` folder when an environment fails or numbers stop being finite.

The failure of an environment is a JSON file with everything that `rl-training reproduce` needs. NaN and infinity get a
folder with the batch they were found in (safetensors), its statistics and the config. Nothing in here is ever pickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rl_training._version import __version__
from rl_training.algorithms.common.learner import Learner
from rl_training.config.loading import save_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.failures import EnvFailed, EnvFailure
from rl_training.errors import NumericalError, RLTrainingError
from rl_training.program import call
from rl_training.runtime.loops import Loop
from rl_training.storage.durable_files import atomic_write_text, free_name, make_own_directory
from rl_training.storage.tensor_files import write_arrays
from rl_training.telemetry.metric_lines import clean_line
from rl_training.text import text_of

ENV_FAILURE = "env failure"


class CrashReports:
    """Writes and counts failures. A full disk must not hide the failure itself."""

    def __init__(self, run_dir: Path, config: TrainConfig, loop: Loop, note: Callable[[str], None]):
        self.folder, self.config, self.loop, self.note = run_dir / "crash", config, loop, note
        self._survived = loop.collector.failures
        self._reported = self._noted = 0

    def report_survived(self) -> None:
        """Report the env failures that the run has survived since the last call."""
        notes = self.loop.collector.notes
        while len(notes) > self._noted:
            self.note(notes[self._noted])
            self._noted += 1
        if len(self._survived) > self._reported:
            for failure, path in self._write_survived():
                self.note(f"replaced an env: {failure}" + (f" ({path})" if path else ""))

    def counts(self) -> dict[str, int]:
        """For the metric line; empty as long as nothing has failed."""
        counts = {}
        if self._survived:
            timeouts = sum(failure.timed_out for failure in self._survived)
            counts = {"env_restarts": len(self._survived), "env_timeouts": timeouts}
        if self.loop.collector.nursery_restarts:
            counts["nursery_restarts"] = self.loop.collector.nursery_restarts
        return counts

    def keep(self, error: BaseException) -> None:
        """Write the report of the error that ends the run, and add its place to the message."""
        self._write_survived()  # of the same rollout; the display is left to the error
        path, hint = None, ""
        if isinstance(error, EnvFailed):
            path = self._write_failure(error.failure)
            hint = f"; replay it with: {call('reproduce', path)}"
        elif isinstance(error, NumericalError):
            path = self._write_bundle(error)
            hint = f"; the evidence is in {path}"
        if path is not None:
            error.args = (f"{error}{hint}",)

    def _write_survived(self) -> list[tuple[EnvFailure, Path | None]]:
        written = []
        for failure in self._survived[self._reported :]:
            self._reported += 1
            failure = self.loop.collector.located(failure)
            written.append((failure, self._write_failure(failure)))
        return written

    def _write_failure(self, failure: EnvFailure) -> Path | None:
        document = {
            "kind": ENV_FAILURE,
            "library_version": __version__,
            "env_id": self.config.env_id,
            "env_kwargs": self.config.training_kwargs,
            "vector_backend": self.config.vector_backend,
            **dataclasses.asdict(failure),
        }
        who = "all-envs" if failure.env_index is None else f"env-{failure.env_index}"
        if failure.in_evaluation:
            who = "evaluation"
        step = self.loop.env_steps if failure.env_step is None else failure.env_step
        with contextlib.suppress(OSError, TypeError, ValueError, RLTrainingError):
            path = self._new_path(f"{who}-step-{step}", ".json")
            atomic_write_text(path, json.dumps(document, default=str, allow_nan=False) + "\n")
            return path
        return None

    def _write_bundle(self, error: NumericalError) -> Path | None:
        arrays = dict(_arrays(error.evidence))
        document = {
            "kind": "numbers",
            "library_version": __version__,
            "message": text_of(error),
            "field": error.field,
            "env_index": error.env_index,
            "env_step": error.env_step,
            "updates": self.loop.learner.updates,
            "metrics": clean_line(error.metrics),
            "parameters": _statistics(_flat_parameters(self.loop.learner)),
            "arrays": {name: _statistics(array) for name, array in arrays.items()},
        }
        with contextlib.suppress(OSError, TypeError, ValueError, RLTrainingError):
            path = self._new_path(f"numbers-step-{error.env_step or 0}")
            make_own_directory(path)
            atomic_write_text(path / "report.json", json.dumps(document, indent=1) + "\n")
            save_config(self.config, path / "config.yaml")
            write_arrays(path / "batch.safetensors", arrays)
            return path
        return None

    def _new_path(self, name: str, suffix: str = "") -> Path:
        """A free name in `crash/`: a resumed run may fail at the same step again."""
        return free_name(make_own_directory(self.folder) / name, suffix=suffix)


def _arrays(evidence: Any, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Every array of numbers in a batch, by name."""
    if dataclasses.is_dataclass(evidence) and not isinstance(evidence, type):
        evidence = {field.name: getattr(evidence, field.name) for field in dataclasses.fields(evidence)}
    if isinstance(evidence, Mapping):
        for name, value in evidence.items():
            yield from _arrays(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(evidence, Tensor):
        yield prefix, evidence.detach().cpu().numpy()
    elif isinstance(evidence, np.ndarray) and evidence.dtype.kind in "fiub":
        yield prefix, evidence


def _flat_parameters(learner: Learner) -> np.ndarray:
    parameters = [p.detach().cpu().numpy().ravel() for p in learner.model.parameters()]
    return np.concatenate(parameters) if parameters else np.zeros(0, np.float32)


def _statistics(array: np.ndarray) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    finite = np.isfinite(array)
    facts["nan"], facts["infinite"] = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    if finite.any():
        values = array[finite].astype(np.float64)
        facts |= {"least": float(values.min()), "mean": float(values.mean()), "largest": float(values.max())}
    return facts
