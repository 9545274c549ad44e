"""A resumed run accepts settings of the machine and the reports. Others would make it another experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.algorithms.common.learner import Learner
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.experiment.manager import RunRecord
from rl_training.runtime import auto_settings
from rl_training.runtime.setup.resume_settings import changed_on_resume
from rl_training.runtime.workflows import resume, train
from rl_training.telemetry.console import ConsoleDisplay
from run_cases import assert_same_run, stop_at
from tiny_runs import tiny_config


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(ConsoleDisplay, "note", lambda self, text: told.append(text))
    return told


def stopped_run(folder: Path, **settings: Any) -> Path:
    config = tiny_config("ppo", folder, run_name="run", **settings)
    return train(config, callback=stop_at(32), show=False).run_dir


def test_a_compiled_run_continues_without_a_compiler(
    tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = tiny_config("ppo", tmp_path, compile="on")
    monkeypatch.setattr(auto_settings, "can_compile", lambda: False)
    with pytest.raises(ConfigError, match=r"^compile: .*--set compile=off.*overrides=\{'compile': 'off'\}") as caught:
        changed_on_resume(compiled, ())
    assert "not bit for bit" in str(caught.value) and str(caught.value).isprintable()
    config, changes = changed_on_resume(compiled, {"compile": "off"})
    assert config.compile == "off" and changes == ["compile on -> off"]
    assert changed_on_resume(compiled, ["compile=off"])[0].compile == "off"


def test_the_way_out_of_a_missing_compiler_works(
    tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # Compiling takes half a minute, and only the setting matters here.
        patch.setattr(Learner, "compiled", lambda self, step, *, rows: step)
        patch.setattr(auto_settings, "can_compile", lambda: True)
        run = stopped_run(tmp_path, compile="on")
    assert load_config(run / "config.yaml").compile == "on"
    monkeypatch.setattr(auto_settings, "can_compile", lambda: False)
    with pytest.raises(ConfigError, match="needs a C\\+\\+ compiler"):
        resume(run, show=False)
    result = resume(run, overrides={"compile": "off"}, show=False)
    assert result.env_steps == 64 and load_config(run / "config.yaml").compile == "off"
    assert "continuing, but not bit for bit: compile on -> off" in notes
    resume(run, total_timesteps=96, show=False)  # from now on it is a run that is not compiled


def test_a_change_of_numbers_is_said(tmp_path: Path, notes: list[str]) -> None:
    run = stopped_run(tmp_path, checkpoint_every=32)
    resume(run, overrides={"checkpoint_every": 16}, show=False)
    assert "continuing, but not bit for bit: checkpoint_every 32 -> 16" in notes
    assert load_config(run / "config.yaml").checkpoint_every == 16


def test_reports_may_change_and_the_numbers_stay(tmp_path: Path, notes: list[str]) -> None:
    whole = train(tiny_config("ppo", tmp_path / "whole", run_name="run", checkpoint_every=32), show=False)
    run = stopped_run(tmp_path / "parts", checkpoint_every=32)
    RunRecord(run).resume(overrides=["eval_max_steps=500", "eval_episodes=1"], show=False)
    assert load_config(run / "config.yaml").eval_max_steps == 500
    assert not any("bit for bit" in note for note in notes)
    assert_same_run(whole.run_dir, run)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ({"seed": 4}, "seed"),
        ({"gamma": 0.5}, "algo_kwargs"),
        ({"hidden_sizes": (4,)}, "model"),
        (["num_envs=2"], "num_envs"),
        (["env_id=Acrobot-v1"], "env_id"),
        ({"output_dir": "elsewhere"}, "output_dir"),
    ],
    ids=str,
)
def test_the_experiment_itself_cannot_change(overrides: Any, name: str, tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    before = (run / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match=rf"^{name}: cannot change when a run is resumed, only compile, .*new run"):
        resume(run, overrides=overrides, show=False)
    assert (run / "config.yaml").read_bytes() == before


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compil: unknown key, did you mean compile"):
        resume(stopped_run(tmp_path), overrides={"compil": "off"}, show=False)
