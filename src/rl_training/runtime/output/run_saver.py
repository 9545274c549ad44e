"""The run saver: writes a running loop to checkpoints and restores it from one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, RLTrainingError
from rl_training.runtime.agent import restore_learner
from rl_training.runtime.callbacks.callback import Hooks
from rl_training.runtime.loops import Loop
from rl_training.runtime.output.metric_window import MetricWindow
from rl_training.storage.checkpoints import (
    Checkpoint,
    SegmentRef,
    apply_retention,
    best_checkpoint,
    checkpoint_path,
    checkpoint_steps,
    list_checkpoints,
    read_segment,
    replay_directory,
    save_checkpoint,
    write_segment,
)
from rl_training.storage.durable_files import free_name
from rl_training.storage.run_directory import RunDirectory
from rl_training.telemetry.recorder import Recorder
from rl_training.text import one_line

LARGEST_SEGMENT = 500_000_000  # bytes


def _optional(kind: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else kind(value)


class RunSaver:
    """Writes the checkpoints of a run. Replay rows go into append-only segments, so a save costs only what is new.

    A failed save costs a checkpoint, not the run: `failures` counts them, and `note` tells the user.
    """

    def __init__(
        self,
        run: RunDirectory,
        config: TrainConfig,
        spaces: Spaces,
        loop: Loop,
        window: MetricWindow,
        hooks: Hooks,
        note: Callable[[str], None],
    ):
        self.run, self.config, self.spaces, self.loop, self.window = run, config, spaces, loop, window
        self.hooks = hooks
        self.run_dir = run.path
        self.note = note
        self.best_return: float | None = None
        self.evaluated_at: int | None = None  # env step of the last evaluation
        self.number = 0
        self.failures = 0
        self.metrics_offset: int | None = None  # of the restored checkpoint
        self.saved_at: int | None = None
        self.last_path: Path | None = None
        self._segments: list[SegmentRef] = []

    def save(self, recorder: Recorder, *, exact: bool, must: bool = False) -> Path | None:
        """Cut all episodes and save everything: the barrier that makes resuming exact.

        None if the save failed; with `must` a failure is an error.
        """
        # First and in any case: a run whose save failed continues exactly like one whose save succeeded.
        self.loop.barrier()
        try:
            recorder.flush()
            path = self._save(recorder.offset(), exact)
        except CheckpointError as error:
            if must:
                raise
            self._failed("checkpoint", error)
            return None
        try:
            apply_retention(self.run_dir, self.config.keep_checkpoints)
        except (OSError, CheckpointError) as error:
            self.note(f"old checkpoints could not be removed: {one_line(error)}")
        return path

    def _save(self, metrics_offset: int, exact: bool) -> Path:
        state = self._agent_state() | {
            "loop": self.loop.state_dict(),
            "window": self.window.state_dict(),
            "best_return": self.best_return,
            "evaluated_at": self.evaluated_at,
            "metrics_offset": metrics_offset,
        }
        if callbacks := self.hooks.state_dict():
            state["callbacks"] = callbacks
        self.run.folder("checkpoints")
        path = save_checkpoint(
            checkpoint_path(self.run_dir, "resume", self.loop.env_steps),
            state=state,
            exact=exact and self.loop.is_exact,
            segments=self._new_segments(),
            **self._common(),
        )
        self.number += 1
        self.saved_at, self.last_path = self.loop.env_steps, path
        return path

    def save_best(self, mean_return: float) -> Path | None:
        """Keep the agent if it beats the best so far. This is not a barrier: it is for acting, not for resuming."""
        if self.best_return is not None and mean_return <= self.best_return:
            return None
        path = checkpoint_path(self.run_dir, "agent", self.loop.env_steps)
        state = self._agent_state() | {"best_return": mean_return}
        try:
            self.run.folder("checkpoints")
            path = save_checkpoint(path, state=state, kind="agent", **self._common())
        except CheckpointError as error:
            self._failed("best agent", error)
            return None
        self.best_return = mean_return
        self.note(f"best evaluation so far: {mean_return:.1f} at step {self.loop.env_steps:,}")
        return path

    def _failed(self, what: str, error: CheckpointError) -> None:
        self.failures += 1
        self.note(f"{what} could not be saved, training continues (failed saves: {self.failures}): {error}")

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state. Later checkpoints, of the branch that is abandoned here, are renamed, not deleted."""
        state = checkpoint.state
        restore_learner(self.loop.learner, checkpoint)
        try:
            self.loop.load_state_dict(state["loop"])
            self.window.load_state_dict(state["window"])
            self.hooks.load_state_dict(state.get("callbacks", {}))
            self._restore_replay(checkpoint)
            self.best_return = _optional(float, state["best_return"])
            self.evaluated_at = _optional(int, state.get("evaluated_at"))
            self.metrics_offset = int(state["metrics_offset"])
            if self.loop.env_steps != checkpoint.env_steps:
                raise ValueError(
                    f"the loop is at step {self.loop.env_steps}, the manifest at step {checkpoint.env_steps}"
                )
            if self.metrics_offset < 0:
                raise ValueError(f"metrics_offset is {self.metrics_offset}, it should not be negative")
        except RLTrainingError:
            raise
        except Exception as error:  # a forged file can lead to anything
            reason = one_line(error) or type(error).__name__
            raise CheckpointError(f"{checkpoint.path}: cannot be resumed: {reason}") from None
        self.number = checkpoint.number + 1
        self.saved_at, self.last_path = self.loop.env_steps, checkpoint.path
        self._segments = list(checkpoint.segments)
        self._abandon_later(checkpoint.env_steps)
        self.best_return = self._best_on_disk(self.best_return)

    def _abandon_later(self, env_steps: int) -> None:
        for path in list_checkpoints(self.run_dir):
            if checkpoint_steps(path) > env_steps:
                try:
                    path.rename(free_name(path.with_name(f"abandoned-{path.name}")))
                except OSError as error:
                    raise CheckpointError(f"{path}: cannot be renamed ({one_line(error.strerror)})") from None

    def _best_on_disk(self, best_return: float | None) -> float | None:
        """The run may have been evaluated after its last save: the best agent itself stores its return.

        Without it, the evaluation that is repeated now would save the same agent a second time.
        """
        with contextlib.suppress(CheckpointError):  # none yet, or damaged: the next best one is saved beside it
            stored: Any = best_checkpoint(self.run_dir).state.get("best_return")
            if type(stored) is float and math.isfinite(stored):
                return stored if best_return is None else max(best_return, stored)
        return best_return

    def _agent_state(self) -> dict[str, Any]:
        return {"spaces": self.spaces.to_json(), "learner": self.loop.learner.state_dict()}

    def _common(self) -> dict[str, Any]:
        return {
            "algorithm": self.config.algo,
            "config": self.config.model_dump(mode="json"),
            "env_steps": self.loop.env_steps,
            "number": self.number,
        }

    def _new_segments(self) -> list[SegmentRef]:
        if self.loop.buffer is None:
            return []
        shards = self.loop.buffer.shards
        for shard, buffer in enumerate(shards):
            start = max([buffer.oldest_row, *(ref.stop for ref in self._segments if ref.shard == shard)])
            # In pieces: a copy of a whole large buffer might not fit into memory beside it.
            piece = max(1, LARGEST_SEGMENT * buffer.slots // buffer.nbytes)
            for first in range(start, buffer.rows_written, piece):
                stop = min(first + piece, buffer.rows_written)
                rows = buffer.export_rows(first, stop)
                self._segments.append(write_segment(self.run.folder("replay"), first, stop, rows, shard))
        self._segments = [ref for ref in self._segments if ref.stop > shards[ref.shard].oldest_row]
        return self._segments

    def _restore_replay(self, checkpoint: Checkpoint) -> None:
        if self.loop.buffer is None:
            return
        shards = self.loop.buffer.shards
        for ref in checkpoint.segments:
            if ref.shard >= len(shards):
                raise ValueError(f"replay segment {ref.name} is of shard {ref.shard}, but there are {len(shards)}")
            shards[ref.shard].import_rows(ref.start, read_segment(replay_directory(checkpoint.path), ref))
