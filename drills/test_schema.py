"""Item 13: recorded runs of every released schema load, act and continue training; a later schema is refused."""

from __future__ import annotations

from pathlib import Path

from checkpoint_helpers import edit_manifest, refusal, save
from figures import record_figure
from golden import RUNS, check_golden
from rl_training.storage.checkpoints import SCHEMA


def test_every_released_schema_loads_and_a_later_one_is_refused(tmp_path: Path) -> None:
    for run in RUNS:
        check_golden(run, tmp_path)
    schemas = len({run.parent.name for run in RUNS})
    record_figure(13, "schemas with recorded runs that load, act as they did and train on", schemas, f"= {SCHEMA}")
    record_figure(13, "recorded runs", len(RUNS), ">= 4")
    refused = 0
    for later in range(SCHEMA + 1, SCHEMA + 6):
        path = save(tmp_path / "later", later)
        edit_manifest(path, schema=later, library_version=f"{later}.0")
        message = refusal(path)
        refused += f"({later}.0)" in message and f"schema {later}" in message and "upgrade" in message
    record_figure(13, "later schemas refused with the version that reads them", refused, "= 5")
