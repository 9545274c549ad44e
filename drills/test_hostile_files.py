"""Item 4: 520 damaged and forged checkpoints, loaded in every way under an audit hook, and hostile YAML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mutant_loader
from figures import record_figure
from rl_training.config import yaml_text
from rl_training.errors import ConfigError
from rl_training.runtime.workflows import train
from run_cases import CASES

MUTANTS = {"ppo": 200, "dqn": 320}
RUNS = {"ppo": CASES["ppo, box, everything normalized and scheduled"]}
RUNS["dqn"] = CASES["dqn, native next-step envs, priorities and three steps"]


@pytest.mark.parametrize("algorithm", MUTANTS)
def test_mutants_are_refused_or_passed_over_and_run_no_code(algorithm: str, tmp_path: Path) -> None:
    run = train(RUNS[algorithm].config(tmp_path, keep_checkpoints=2), show=False).run_dir
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    finished = subprocess.run(
        [sys.executable, mutant_loader.__file__, str(run), str(MUTANTS[algorithm]), str(workplace)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout.splitlines()[-1])
    assert report["failures"] == [] and report["events"] == []
    refused = report["outcomes"]["refused"]
    record_figure(4, f"{algorithm}: mutants of a checkpoint", report["count"], f">= {MUTANTS[algorithm]}")
    record_figure(4, f"{algorithm}: of them, refused in one line or passed over", refused, f">= {report['count'] // 2}")
    record_figure(4, f"{algorithm}: mutants that ran code, or failed in another way", 0, "= 0")
    record_figure(4, f"{algorithm}: slowest load, of four ways to load each", report["worst_seconds"], "<= 2 s")
    record_figure(4, f"{algorithm}: largest, beside the program itself", report["worst_megabytes"], "<= 200 MB")


BOMBS = {
    "billion laughs": "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(20)),
    "python object": "a: !!python/object/apply:os.system ['true']\n",
    "python name": "a: !!python/name:os.system\n",
    "merge key": "a: &x {b: 1}\nc: {<<: *x}\n",
    "repeated key": "seed: 1\nseed: 2\n",
    "repeated key, nested": "model: {activation: tanh, activation: relu}\n",
    "deep list": "a: " + "[" * 100_000,
    "deep map": "a: " + "{a: " * 50_000,
    "long number": "a: " + "9" * 500_000 + "\n",
    "custom tag": "a: !env HOME\n",
    "two documents": "a: 1\n---\nb: 2\n",
    "recursive alias": "a: &a [*a]\n",
    "control characters": "a: \x07\n",
    "long number and a letter, as a key": "1" * 30_000 + "x: 1\n" + "1" * 30_000 + "x: 1\n",
    "long number, a dot and a letter": "a: [" + ", ".join(["1" * 9_000 + "." + "1" * 6_000] * 4) + "]\n",
    "more than a config file has": "a: [" + "1," * 40_000 + "]\n",
    "as many values as fit": "a: [" + "[1]," * 16_000 + "]\na: 1\n",
}


def test_yaml_bombs_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(os, "system", called.append)
    slowest = 0.0
    for name, text in BOMBS.items():
        started = time.process_time()
        with pytest.raises(ConfigError) as caught:
            yaml_text.parse(text, "bomb.yaml")
        slowest = max(slowest, time.process_time() - started)
        assert str(caught.value).isprintable() and str(caught.value).startswith("bomb.yaml"), name
    assert called == []
    record_figure(4, "YAML files with tags, aliases, repeated keys or depth, refused", len(BOMBS), ">= 13")
    record_figure(4, "slowest refusal of a YAML file", slowest, "<= 2 s")
