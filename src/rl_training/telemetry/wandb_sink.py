"""The sink that logs to Weights & Biases."""

from __future__ import annotations

import contextlib
import netrc
import os
from collections.abc import Sequence
from typing import Any

from rl_training.telemetry.metric_lines import Line, warn
from rl_training.telemetry.sinks import Sink, SinkRun, tagged_numbers
from rl_training.telemetry.tracker_identity import DEFAULT_PROJECT, store_id, stored_id
from rl_training.text import reason

LONGEST_TAG = 64  # characters that W&B accepts
# The display owns the terminal, so W&B neither prints nor copies what is printed. Its crash reports stay off, and it
# does not ask the metadata service of a cloud.
_ENVIRONMENT = {"WANDB_ERROR_REPORTING": "false"}
_SETTINGS = {"console": "off", "silent": True, "disable_git": True, "x_disable_machine_info": True}


class WandbSink(Sink):
    """Weights & Biases. Without a login or a network the run is logged offline; `wandb sync` uploads it later."""

    name = "wandb"

    def __init__(
        self,
        *,
        project: str = DEFAULT_PROJECT,
        entity: str | None = None,
        group: str | None = None,
        tags: Sequence[str] | None = None,
        notes: str = "",
        mode: str | None = None,
    ) -> None:
        self._project, self._entity, self._group = project, entity, group
        self._tags, self._notes, self._mode = tags, notes, mode
        self._findings: list[str] = []
        self._run: Any = None

    def open(self, run: SinkRun) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import wandb

        self._sink_run = run
        self._findings = list(run.findings)
        tags = [str(run.config[key]) for key in ("algo", "env_id") if key in run.config]
        options = {
            "project": self._project,
            "entity": self._entity,
            "group": self._group,
            "tags": [tag[:LONGEST_TAG] for tag in (tags if self._tags is None else self._tags)],
            "notes": self._text() or None,
            "name": run.name,
            "dir": str(run.run_dir),
            "id": stored_id(run.run_dir, self.name),  # with the same id, a resumed run continues its W&B run
            "config": dict(run.config),
            "settings": dict(_SETTINGS),
        }
        mode = self._mode or os.environ.get("WANDB_MODE") or ("online" if has_wandb_key() else "offline")
        try:
            # W&B cannot resume what it has not uploaded. The same id is enough for `wandb sync`.
            extra = {} if mode == "offline" else {"resume": "allow"}
            self._run = wandb.init(**options, mode=mode, **extra)
        except Exception as error:
            if mode == "offline":
                raise
            warn(f"wandb is not reachable ({reason(error)}); the run is logged offline")
            mode = "offline"
            self._run = wandb.init(**options, mode=mode)
        store_id(run.run_dir, self.name, str(self._run.id))
        # The step of W&B may only increase, which a resumed run cannot guarantee. Use env_steps as the axis.
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")
        if mode == "offline":
            upload = f"wandb sync {run.run_dir / 'wandb' / 'offline-run-*'}"
            run.tell(f"wandb logs offline to {run.run_dir / 'wandb'}; upload it with `{upload}`")
        else:
            run.tell(f"wandb logs to {getattr(self._run, 'url', None) or self._project}")

    def _text(self) -> str:
        return "\n".join(filter(None, [self._notes, *self._findings]))

    def write(self, line: Line) -> None:
        self._run.log({"env_steps": line["env_steps"], **tagged_numbers(line)})

    def note(self, text: str, env_steps: int) -> None:
        self._findings.append(text)
        self._run.notes = self._text()
        self._run.alert(title=f"finding at step {env_steps:,}", text=text, level="WARN")

    def close(self) -> None:
        if self._run is not None:
            self._run.finish(exit_code=1 if self._sink_run.status() == "failed" else 0)
            self._run = None


def has_wandb_key() -> bool:
    """Whether W&B could log in. Nothing is sent, and the key is neither kept nor shown."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("://")[-1].split("/")[0]
    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    with contextlib.suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return netrc.netrc(path).authenticators(host) is not None
    return False
