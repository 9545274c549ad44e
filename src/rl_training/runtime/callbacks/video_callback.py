"""A callback that records the agent while it learns; the setting `record_every`."""

from __future__ import annotations

from rl_training.config.arguments import whole_number
from rl_training.runtime.callbacks.callback import Callback, RunContext
from rl_training.runtime.run_clock import Cadence


class RecordVideo(Callback):
    """Writes a GIF of one episode to `videos/` every `every` env steps.

    The agent plays on an environment of its own, without exploration, and from the same seed each time. So the training
    is the same with and without it.
    """

    def __init__(self, every: int):
        self.every = whole_number("every", every)
        self._cadence = Cadence(self.every)

    def on_start(self, context: RunContext) -> None:
        context.check_video()
        self._cadence = Cadence(self.every, context.env_steps)

    def on_round(self, context: RunContext) -> None:
        if self._cadence.due(context.env_steps):
            recording = context.record_video()
            if recording is not None:
                context.note(f"recorded {recording.path}: return {recording.returns[0]:,.1f}")
