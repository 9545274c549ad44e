"""Compiled runs that stop and go on: the same bits as runs that never stopped, in this process and in fresh ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiled_cases import case_of, was_compiled
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.experiment.registry import algorithm_names, get_config_class
from rl_training.runtime.workflows import resume, train
from run_cases import assert_same_run, final_hash, stop_at

# In every run of the tests: minibatches of rollouts, replay, two graphs. The others are slow.
QUICK = ("ppo", "dqn", "td3")
COMPILABLE = [name for name in algorithm_names() if get_config_class(name).compilable]


@pytest.mark.parametrize(
    "algo", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COMPILABLE]
)
def test_a_compiled_run_resumes_bit_for_bit(algo: str, tmp_path: Path) -> None:
    case = case_of(algo)
    whole = train(case.config(tmp_path / "whole", compile="on"), show=False)
    half = train(case.config(tmp_path / "halves", compile="on"), callback=stop_at(case.steps // 2), show=False)
    second = resume(half.run_dir, show=False)
    assert half.interrupted and second.env_steps == whole.env_steps
    assert all(was_compiled(result) for result in (whole, half, second))
    assert_same_run(whole.run_dir, second.run_dir)


def test_a_run_that_auto_compiled_goes_on_compiled_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of("ppo")
    monkeypatch.setattr("rl_training.runtime.compile_gain.Forecast.pays", True)
    whole = train(case.config(tmp_path / "whole"), show=False)
    half = train(case.config(tmp_path / "halves"), callback=stop_at(case.steps // 2), show=False)
    monkeypatch.setattr("rl_training.runtime.compile_gain.Forecast.pays", False)
    second = resume(half.run_dir, show=False)
    for result in (whole, half, second):
        assert load_config(result.run_dir / "config.yaml").compile == "on" and was_compiled(result)
    assert_same_run(whole.run_dir, second.run_dir)


def test_a_run_that_auto_left_plain_goes_on_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("ppo")
    monkeypatch.setattr("rl_training.runtime.compile_gain.Forecast.pays", True)
    monkeypatch.setattr("rl_training.runtime.auto_settings.can_compile", lambda: False)
    whole = train(case.config(tmp_path / "whole"), show=False)
    half = train(case.config(tmp_path / "halves"), callback=stop_at(case.steps // 2), show=False)
    monkeypatch.setattr("rl_training.runtime.auto_settings.can_compile", lambda: True)
    second = resume(half.run_dir, show=False)
    assert load_config(second.run_dir / "config.yaml").compile == "off" and not was_compiled(second)
    assert_same_run(whole.run_dir, second.run_dir)


def test_without_a_compiler_a_compiled_run_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(case_of("ppo").config(tmp_path, compile="on"), callback=stop_at(1), show=False).run_dir
    before = (run / "config.yaml").read_text()
    monkeypatch.setattr("rl_training.runtime.auto_settings.can_compile", lambda: False)
    needs = (
        r"^compile: the run was compiled and needs a C\+\+ compiler .*; install one, or resume with --set compile=off"
    )
    with pytest.raises(ConfigError, match=needs):
        resume(run, show=False)
    assert (run / "config.yaml").read_text() == before


PROGRAM = """
import sys
from pathlib import Path
from rl_training.runtime.workflows import resume
from rl_training.runtime.workflows import train
from run_cases import stop_at
from compiled_cases import case_of, was_compiled

part, algo, directory = sys.argv[1:]
case = case_of(algo)
if part == "resume":
    result = resume(Path(directory) / "run", show=False)
else:
    stop = stop_at(case.steps // 2) if part == "half" else None
    result = train(case.config(Path(directory), compile="on"), callback=stop, show=False)
assert was_compiled(result)
"""


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "td3"])
def test_fresh_processes_that_compile_anew_go_on_bit_for_bit(algo: str, tmp_path: Path) -> None:
    def in_a_fresh_process(part: str, directory: str) -> None:
        cache = tmp_path / f"compiled_{part}"
        support = Path(__file__).parents[1] / "support"
        path = os.pathsep.join([str(support), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        command = [sys.executable, "-c", PROGRAM, part, algo, str(tmp_path / directory)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        assert list(cache.rglob("*.so")), "nothing was taken from an earlier process"

    in_a_fresh_process("whole", "whole")
    in_a_fresh_process("half", "halves")
    in_a_fresh_process("resume", "halves")
    assert final_hash(tmp_path / "whole" / "run") == final_hash(tmp_path / "halves" / "run")
