"""Item 8: every field of every config with an unknown name, a wrong type or a wrong value, on the command line."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cli_helpers import call
from config_cases import OUT_OF_RANGE, every_field, place
from figures import record_figure
from rl_training.config.base import leaf_types
from rl_training.config.messages import sections
from rl_training.config.train_config import TrainConfig

STARTED_PROCESSES = 24


class BadConfig(NamedTuple):
    kind: str
    key: str
    settings: dict[str, Any]


def bad_configs() -> Iterator[BadConfig]:
    """Settings that several algorithms share are tried with the first of them. The test suite tries each algorithm."""
    fields = {(section, name): algo for algo, section, name in reversed(every_field())}
    for (section, name), algo in fields.items():
        dotted = f"{section}.{name}" if section else name
        # One letter too many is a common typing error.
        yield BadConfig("unknown", dotted, place(algo, section, name + "s" * (1 + name.endswith("s")), 1))
        accepted = leaf_types(sections(TrainConfig, algo)[section].model_fields[name].annotation)
        yield BadConfig("wrong type", dotted, place(algo, section, name, [{"a": 1}]))
        if str not in accepted:
            yield BadConfig("wrong type", dotted, place(algo, section, name, "abc"))
        for value in OUT_OF_RANGE.get(name, []):
            yield BadConfig("out of range", dotted, place(algo, section, name, value))


def write(case: BadConfig, folder: Path) -> Path:
    path = folder / "bad.yaml"
    path.write_text(json.dumps(case.settings), encoding="utf-8")
    return path


def check(case: BadConfig, code: int, out: str, err: str, folder: Path) -> None:
    assert code == 2 and out == "", (case, code, out, err)
    lines = err.splitlines()
    assert len(lines) == 1 and lines[0].isprintable() and lines[0].startswith("error: "), (case, err)
    assert case.key in lines[0], (case, err)
    if case.kind == "unknown":
        assert case.key in lines[0].partition("did you mean ")[2], (case, err)
    assert [path.name for path in folder.iterdir()] == ["bad.yaml"], "the command wrote a file"


def test_every_bad_config_is_one_line_with_the_key_that_was_meant(tmp_path: Path) -> None:
    cases = list(bad_configs())
    slowest = 0.0
    for case in cases:
        path = write(case, tmp_path)
        started = time.process_time()
        # An option replaces the value of the file, which is then not checked.
        options = [] if case.key == "output_dir" else ["--output-dir", tmp_path / "runs"]
        outcome = call("train", path, *options)
        slowest = max(slowest, time.process_time() - started)
        check(case, *outcome, tmp_path)
    for kind in ("unknown", "wrong type", "out of range"):
        count = sum(case.kind == kind for case in cases)
        record_figure(8, f"bad configs: {kind}, exit code 2, one line with the key", count, ">= 50")
    record_figure(8, "bad configs in all", len(cases), ">= 150")
    record_figure(8, "processor time of the slowest answer, once the program is up", slowest, "<= 1 s")


def test_a_bad_config_is_answered_within_a_second_from_the_start(tmp_path: Path) -> None:
    """Measures processor time, which other programs on the machine do not change."""
    cases = list(bad_configs())
    slowest = 0.0
    for case in cases[:: len(cases) // STARTED_PROCESSES]:
        path = write(case, tmp_path)
        command = [sys.executable, "-m", "rl_training", "train", str(path), "--output-dir", str(tmp_path / "runs")]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        slowest = max(slowest, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        check(case, done.returncode, done.stdout, done.stderr, tmp_path)
    record_figure(8, "processor time of a whole process, from its start to its answer", slowest, "<= 1 s")
