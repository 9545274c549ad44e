"""Each tracker with its real package, offline, read back with the package's own classes: `make trackers`.

Packages that are not installed are skipped, because they take 300 MB and Trackio refuses the newest Pillow. `make
trackers` installs all of them into an environment of its own and fails if one is missing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracker_readers as readers
from reporting_env import Counting, Reporting
from rl_training.config.loading import load_config
from rl_training.diagnosis.rule_book import Diagnosis
from rl_training.diagnosis.run_finding import Finding
from rl_training.runtime.workflows import resume, train
from rl_training.telemetry.recorder import read_metrics, without_wall_clock
from run_cases import stop_at

TRACKERS = ("wandb", "mlflow", "trackio")
MISSING = [name for name in TRACKERS if importlib.util.find_spec(name) is None]
ALL_NEEDED = os.environ.get("RL_TRAINING_TRACKERS") == "all"
FINDING = Finding("steps_too_large", 16, "the steps are too large", "because", "a smaller learning rate")


def needs(*names: str) -> Any:
    missing = [name for name in names if name in MISSING]
    return pytest.mark.skipif(bool(missing) and not ALL_NEEDED, reason=f"{', '.join(missing)} not installed")


def settings(folder: Path, *sinks: Any, **more: Any) -> Any:
    values = {
        "algo": "ppo",
        "env_id": "callable:Reporting",
        "num_envs": 2,
        "total_timesteps": 64,
        "log_every": 16,
        "eval_every": 32,
        "eval_episodes": 4,
        "checkpoint_every": 32,
        "log_info": ["score"],
        "run_name": "run",
        "output_dir": str(folder),
        "model": {"hidden_sizes": [8]},
        "algo_kwargs": {"num_steps": 8, "minibatch_size": 8},
        "sinks": list(sinks),
    }
    return load_config({**values, **more})


@pytest.fixture(autouse=True, scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No account, and a place of its own for what the packages keep at home."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_API_KEY", "WANDB_MODE", "MLFLOW_TRACKING_URI", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            patch.delenv(name, raising=False)
        for name in ("NETRC", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "XDG_STATE_HOME", "LOCALAPPDATA"):
            patch.setenv(name, str(home / name))
        patch.setenv("TRACKIO_DIR", str(home / "trackio"))
        if "trackio" not in MISSING:  # it reads the variable when it is imported
            from trackio.sqlite_storage import SQLiteStorage

            assert str(home) in str(SQLiteStorage.get_project_db_path("x")), "trackio was imported before"
        yield


@pytest.fixture
def finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the diagnosis find one thing at step 16."""

    def look(self: Diagnosis, line: dict[str, Any]) -> list[Finding]:
        found = [FINDING] if line["env_steps"] == 16 and line["kind"] == "train" and not self.findings else []
        self.findings.extend(found)
        return found

    monkeypatch.setattr(Diagnosis, "look", look)


def interrupted_and_resumed(folder: Path, sink: Any) -> tuple[Path, list[dict[str, Any]]]:
    run_dir = train(settings(folder, sink), env=Reporting, callback=[Counting(), stop_at(32)], show=False).run_dir
    resume(run_dir, env=Reporting, callback=[Counting()], show=False)
    return run_dir, read_metrics(run_dir)


def expected(lines: list[dict[str, Any]], kind: str, key: str) -> list[tuple[int, float]]:
    return [(line["env_steps"], line[key]) for line in lines if line["kind"] == kind and key in line]


NUMBERS = (
    ("train", "info_score", "info_score"),
    ("train", "total", "total"),
    ("eval", "eval_mean_return", "mean_return"),
)


@needs("wandb")
def test_wandb_keeps_everything_offline(finding: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sink = {"sink": "wandb", "project": "mine", "tags": ["a", "b"], "group": "seeds", "notes": "my note"}
    run_dir, lines = interrupted_and_resumed(tmp_path, sink)
    readers.wait_for_wandb(run_dir, 2)
    history = readers.wandb_history(run_dir)
    for kind, key, name in NUMBERS:
        logged = [(line["env_steps"], line[f"{kind}/{name}"]) for line in history if f"{kind}/{name}" in line]
        assert logged == expected(lines, kind, key) and len(logged) >= 2
    runs = readers.wandb_runs(run_dir)
    assert len({run.run_id for run in runs}) == 1, "a resumed run continues its W&B run"
    first, last = runs[0], runs[-1]
    assert (first.project, first.run_group, list(first.tags), first.notes) == ("mine", "seeds", ["a", "b"], "my note")
    assert first.display_name == "run"
    config = readers.wandb_config(first)
    assert config["algo_kwargs"]["minibatch_size"] == 8 and config["env_id"] == "callable:Reporting"
    assert set(json.loads(settings(tmp_path, sink).model_dump_json())) <= set(config)
    assert last.notes == f"my note\n{FINDING}", "findings from before the resume are kept"
    alerts = [record.alert for record in readers.wandb_records(run_dir) if record.WhichOneof("record_type") == "alert"]
    assert [(alert.level, alert.text) for alert in alerts] == [("WARN", str(FINDING))]
    assert capfd.readouterr().out == "", "stdout belongs to --json"


@needs("wandb")
def test_wandb_has_tags_and_a_project_without_options(tmp_path: Path) -> None:
    run_dir = train(settings(tmp_path, "wandb", eval_every=0), env=Reporting, show=False).run_dir
    readers.wait_for_wandb(run_dir, 1)
    (run, *_) = readers.wandb_runs(run_dir)
    assert run.project == "rl_training" and list(run.tags) == ["ppo", "callable:Reporting"] and run.run_group == ""


@needs("mlflow")
@pytest.mark.parametrize("store", ["default", "directory", "database"])
def test_mlflow_keeps_everything(finding: None, tmp_path: Path, store: str, capfd: pytest.CaptureFixture[str]) -> None:
    from mlflow import MlflowClient

    if store == "database":
        pytest.importorskip("sqlalchemy")
        pytest.importorskip("alembic")
    uri = {"default": str(tmp_path / "mlruns"), "directory": str(tmp_path / "x"), "database": f"sqlite:///{tmp_path}/x"}
    named = {} if store == "default" else {"tracking_uri": uri[store], "experiment": "mine", "tags": {"who": "me"}}
    _, lines = interrupted_and_resumed(tmp_path, {"sink": "mlflow", **named})
    client = MlflowClient(tracking_uri=uri[store])
    experiment = client.get_experiment_by_name("rl_training" if store == "default" else "mine")
    (run,) = client.search_runs([experiment.experiment_id])
    for kind, key, name in NUMBERS:
        assert readers.mlflow_history(client, run.info.run_id, f"{kind}/{name}") == expected(lines, kind, key)
    assert run.info.run_name == "run" and run.info.status == "FINISHED"
    assert run.data.params["algo_kwargs.minibatch_size"] == "8" and run.data.params["env_id"] == "callable:Reporting"
    assert run.data.tags["mlflow.note.content"] == str(FINDING)
    assert store == "default" or run.data.tags["who"] == "me"
    assert capfd.readouterr().out == ""


@needs("mlflow")
def test_a_setting_that_changes_on_resume_is_a_tag_in_mlflow(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    run_dir = train(settings(tmp_path, "mlflow", eval_every=0), env=Reporting, show=False).run_dir
    resume(run_dir, env=Reporting, total_timesteps=96, show=False)
    run = MlflowClient(tracking_uri=str(tmp_path / "mlruns")).get_run((run_dir / "mlflow_run_id").read_text())
    assert run.data.params["total_timesteps"] == "64" and run.data.tags["resumed.total_timesteps"] == "96"


@needs("mlflow")
def test_a_run_that_mlflow_has_lost_is_logged_as_a_new_one(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    run_dir = train(settings(tmp_path, "mlflow"), env=Reporting, callback=stop_at(32), show=False).run_dir
    (run_dir / "mlflow_run_id").write_text("0" * 32)
    resume(run_dir, env=Reporting, show=False)
    client = MlflowClient(tracking_uri=str(tmp_path / "mlruns"))
    runs = client.search_runs([client.get_experiment_by_name("rl_training").experiment_id])
    assert sorted(run.info.status for run in runs) == ["FINISHED", "KILLED"]
    assert (run_dir / "mlflow_run_id").read_text() in {run.info.run_id for run in runs}


@needs("trackio")
def test_trackio_keeps_everything(finding: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import trackio

    project = f"mine-{os.getpid()}"
    run_dir, lines = interrupted_and_resumed(tmp_path, {"sink": "trackio", "project": project, "group": "seeds"})
    (run,) = trackio.Api().runs(project)
    assert run.name == f"run-{(run_dir / 'trackio_run_id').read_text()}"
    for kind, key, name in NUMBERS:
        assert readers.trackio_history(project, run.name, f"{kind}/{name}") == expected(lines, kind, key)
    assert run.config["algo_kwargs"]["minibatch_size"] == 8 and run.config["_Group"] == "seeds"
    assert [(alert["level"], alert["text"], alert["step"]) for alert in run.alerts()] == [("warn", str(FINDING), 16)]
    assert capfd.readouterr().out == ""


@needs(*TRACKERS)
def test_all_trackers_together_change_no_number_and_resume_exactly(tmp_path: Path) -> None:
    every = ("tensorboard", *TRACKERS)
    plain = train(settings(tmp_path / "plain"), env=Reporting, show=False).run_dir
    whole = train(settings(tmp_path / "whole", *every), env=Reporting, show=False).run_dir
    parts = train(settings(tmp_path / "parts", *every), env=Reporting, callback=stop_at(32), show=False).run_dir
    resume(parts, env=Reporting, show=False)
    streams = [[without_wall_clock(line) for line in read_metrics(run)] for run in (plain, whole, parts)]
    assert streams[0] == streams[1] == streams[2] and len(streams[0]) >= 6
    files = [sorted((run / "checkpoints" / "step-000000000064").glob("*.safetensors")) for run in (plain, whole, parts)]
    assert files[0]
    contents = [[path.read_bytes() for path in group] for group in files]
    assert contents[0] == contents[1] == contents[2]


@needs(*TRACKERS)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the watcher reads /proc")
@pytest.mark.parametrize("tracker", TRACKERS)
def test_without_an_account_no_tracker_leaves_the_machine(tracker: str, tmp_path: Path) -> None:
    from cli_helpers import tiny_config, write_config
    from test_network import watched

    config = write_config(tmp_path / "config.yaml", tiny_config("ppo", sinks=[tracker]))
    events, _ = watched(tmp_path, [config])
    assert {event for event in events if not event.startswith("import ")} == set()
