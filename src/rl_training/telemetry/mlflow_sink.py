"""The sink that logs to MLflow: to a directory of files, to a database, or to a server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rl_training.telemetry.metric_lines import Line
from rl_training.telemetry.sinks import Sink, SinkRun, tagged_numbers
from rl_training.telemetry.tracker_identity import DEFAULT_PROJECT, store_id, stored_id

STORE_DIRECTORY = "mlruns"  # beside the run directories
SECONDS_BETWEEN_BATCHES = 5.0
MOST_METRICS = 1000  # in one request, a limit of MLflow
MOST_PARAMETERS = 100
LONGEST_VALUE = 500  # characters of a parameter that every version of MLflow accepts
_NOTE_TAG = "mlflow.note.content"  # the description of a run in the pages of MLflow
_STATUSES = {"finished": "FINISHED", "failed": "FAILED"}
# MLflow reads these when it is imported or when a store is opened. Its usage statistics stay off, files are accepted as
# a store, and a server that does not answer cannot hold up the run for an hour.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}


class MlflowSink(Sink):
    """MLflow. Lines are sent in batches every few seconds, because a request costs as much as many training steps."""

    name = "mlflow"

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment: str = DEFAULT_PROJECT,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._uri, self._experiment, self._tags = tracking_uri, experiment, dict(tags or {})
        self._waiting: list[Any] = []
        self._findings: list[str] = []
        self._client: Any = None

    def open(self, run: SinkRun) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self._run = run
        self._findings = list(run.findings)
        uri = self._uri or os.environ.get("MLFLOW_TRACKING_URI") or str(run.run_dir.parent / STORE_DIRECTORY)
        client = MlflowClient(tracking_uri=uri)
        self._id, known = self._find_run(client, run)
        self._store_settings(client, run.config, known)
        if self._findings:
            client.set_tag(self._id, _NOTE_TAG, "\n".join(self._findings))
        self._client, self._sent_at = client, time.monotonic()
        run.tell(f"mlflow logs to {uri}, experiment {self._experiment}, run {self._id}")

    def _find_run(self, client: Any, run: SinkRun) -> tuple[str, dict[str, str]]:
        """The id of the run and the parameters that it has: the run that a resumed one continues, or a new one."""
        from mlflow.exceptions import MlflowException

        run_id = stored_id(run.run_dir, self.name)
        if run_id is not None:
            try:
                parameters = dict(client.get_run(run_id).data.params)
                client.update_run(run_id, status="RUNNING")
                return run_id, parameters
            except MlflowException:
                run.tell(f"mlflow does not know the run {run_id}; a new one is logged")
        created = client.create_run(self._experiment_id(client), run_name=run.name, tags=self._tags)
        store_id(run.run_dir, self.name, created.info.run_id)
        return created.info.run_id, {}

    def _experiment_id(self, client: Any) -> str:
        from mlflow.exceptions import MlflowException

        experiment = client.get_experiment_by_name(self._experiment)
        if experiment is None:
            try:
                return str(client.create_experiment(self._experiment))
            except MlflowException:  # another run was faster
                experiment = client.get_experiment_by_name(self._experiment)
                if experiment is None:
                    raise
        return str(experiment.experiment_id)

    def _store_settings(self, client: Any, config: Mapping[str, Any], known: Mapping[str, str]) -> None:
        """The settings as parameters. MLflow never changes one, so what a resumed run changed becomes a tag."""
        from mlflow.entities import Param, RunTag

        settings = dict(_flat(config))
        new = [Param(name, value) for name, value in settings.items() if name not in known]
        changed = [
            RunTag(f"resumed.{name}", settings[name])
            for name in known
            if settings.get(name, known[name]) != known[name]
        ]
        for start in range(0, len(new), MOST_PARAMETERS):
            client.log_batch(self._id, params=new[start : start + MOST_PARAMETERS])
        if changed:
            client.log_batch(self._id, tags=changed[:MOST_PARAMETERS])

    def write(self, line: Line) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        step = int(line["env_steps"])
        self._waiting += [Metric(name, float(value), now, step) for name, value in tagged_numbers(line).items()]
        if len(self._waiting) >= MOST_METRICS // 2 or time.monotonic() - self._sent_at >= SECONDS_BETWEEN_BATCHES:
            self.flush()

    def flush(self) -> None:
        while self._waiting:
            self._client.log_batch(self._id, metrics=self._waiting[:MOST_METRICS])
            del self._waiting[:MOST_METRICS]
        self._sent_at = time.monotonic()

    def note(self, text: str, env_steps: int) -> None:
        self._findings.append(text)
        self._client.set_tag(self._id, _NOTE_TAG, "\n".join(self._findings))

    def close(self) -> None:
        if self._client is not None:
            client = self._client
            try:
                self.flush()
            finally:
                self._client = None
                client.set_terminated(self._id, _STATUSES.get(self._run.status(), "KILLED"))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as `algo_kwargs.gamma` with their values as text."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)[:LONGEST_VALUE]
