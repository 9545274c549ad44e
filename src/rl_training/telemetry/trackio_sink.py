"""The sink that logs to Trackio: to its local database, to a server of one's own, or to a Hugging Face Space."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from typing import Any

from rl_training.telemetry.metric_lines import Line
from rl_training.telemetry.sinks import Sink, SinkRun, tagged_numbers
from rl_training.telemetry.tracker_identity import DEFAULT_PROJECT, store_id, stored_id

# huggingface_hub, on which Trackio stands, reports its use and looks for updates unless this is set.
_ENVIRONMENT = {"HF_HUB_DISABLE_TELEMETRY": "1"}


class TrackioSink(Sink):
    """Trackio. `trackio show --project NAME` draws the runs; nothing leaves the machine without a Space or a server."""

    name = "trackio"

    def __init__(
        self,
        *,
        project: str = DEFAULT_PROJECT,
        group: str | None = None,
        space_id: str | None = None,
        server_url: str | None = None,
    ) -> None:
        self._options = {"project": project, "group": group, "space_id": space_id, "server_url": server_url}
        self._run: Any = None

    def open(self, run: SinkRun) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        token = stored_id(run.run_dir, self.name)
        resume = "never" if token is None else "allow"
        # Trackio continues a run by its name, and two output directories may hold runs of one name.
        token = token or secrets.token_hex(3)
        with _silence():
            import trackio

            self._run = trackio.init(
                name=f"{run.name}-{token}",
                resume=resume,
                config=dict(run.config),
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
                **self._options,
            )
        store_id(run.run_dir, self.name, token)
        self._warn = trackio.AlertLevel.WARN
        where = self._options["space_id"] or self._options["server_url"]
        show = f"logs to {where}" if where else f"is shown by `trackio show --project {self._options['project']}`"
        run.tell(f"trackio {show}, as {run.name}-{token}")

    def write(self, line: Line) -> None:
        self._run.log(tagged_numbers(line), step=int(line["env_steps"]))

    def note(self, text: str, env_steps: int) -> None:
        with _silence():
            self._run.alert(title="finding", text=text, level=self._warn, step=env_steps)

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            with _silence():
                from trackio import context_vars

                run.finish()
                if context_vars.current_run.get() is run:  # otherwise Trackio finishes it again at exit, and prints
                    context_vars.current_run.set(None)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Trackio prints to stdout, which belongs to the display and to `--json`."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
