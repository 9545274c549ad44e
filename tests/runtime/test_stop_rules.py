"""Runs that end by themselves: `stop_at_return`, `patience`, callbacks of a config, and `record_every`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from PIL import Image

import reporting_env
from cli_helpers import call
from reporting_env import Reporting
from rl_training import RecordVideo, StopAtReturn, StopWithoutImprovement
from rl_training.config.loading import load_config
from rl_training.diagnosis.findings_file import FINDINGS_FILE
from rl_training.errors import ConfigError, EnvError
from rl_training.runtime.evaluation import EvalResult
from rl_training.runtime.workflows import TrainResult, resume, train
from rl_training.telemetry import video
from rl_training.telemetry.recorder import read_metrics
from run_cases import CASES, Case, assert_same_run, metric_lines, stop_at

A2C = CASES["a2c, one env"]
DQN = CASES["dqn, one env, a buffer that overflows"]
BOTH = pytest.mark.parametrize("case", [A2C, DQN], ids=["on-policy", "replay"])


def run(folder: Path, case: Case = A2C, callback: Any = None, env: Any = None, **changes: Any) -> TrainResult:
    return train(case.config(folder, **changes), callback=callback, env=env, show=False)


def info(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())


def returns(monkeypatch: pytest.MonkeyPatch, *means: float) -> None:
    """Evaluations, in their order, have these mean returns; the last one is repeated."""
    scores = list(means)

    def evaluate(*arguments: Any, **options: Any) -> EvalResult:
        return EvalResult((scores.pop(0) if len(scores) > 1 else scores[0],), (1,))

    monkeypatch.setattr("rl_training.runtime.session.evaluate", evaluate)


def test_a_return_that_is_reached_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, 10.0, 474.9, 475.0, 0.0)
    result = run(tmp_path, eval_every=20, stop_at_return=475)
    reason = "the evaluation at step 60 has a mean return of 475.0, stop_at_return is 475"
    assert (result.env_steps, result.stop_reason, result.interrupted) == (60, reason, False)
    assert (info(result.run_dir)["status"], info(result.run_dir)["stop_reason"]) == ("finished", reason)
    assert result.evaluation is not None and result.evaluation.mean_return == 0.0


def test_patience_counts_evaluations_without_a_new_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, 1.0, 5.0, 5.0, 4.0, 6.0, 6.0, 6.0, 6.0)
    result = run(tmp_path, eval_every=10, patience=3)
    assert result.env_steps == 80
    assert result.stop_reason == "3 evaluations did not beat the mean return of 6.0 at step 50, patience is 3"


def test_a_resume_counts_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, 6.0, 5.0, 5.0)
    half = run(tmp_path, callback=stop_at(40), eval_every=20, patience=4)
    assert resume(half.run_dir, show=False).env_steps == 100


@BOTH
@pytest.mark.parametrize("how", ["again", "another target", "no target", "longer patience"])
def test_a_run_that_stopped_at_a_return_goes_on_as_if_it_had_not(case: Case, how: str, tmp_path: Path) -> None:
    """Every evaluation of CartPole reaches 1, so a run with that target stops at each one, and here off schedule."""
    rule = {"patience": 1, "stop_at_return": 10_000} if how == "longer patience" else {"stop_at_return": 1.0}
    change: dict[str, Any] = {
        "again": {},
        "another target": {"stop_at_return": 1000.0},
        "no target": {"stop_at_return": None},
        "longer patience": {"patience": 100},
    }[how]
    settings = {"eval_every": 30, "checkpoint_every": 40}
    whole = run(tmp_path / "whole", case, **settings)
    half = run(tmp_path / "half", case, **settings, **rule)
    assert half.env_steps % 40 and half.stop_reason is not None
    done = resume(half.run_dir, overrides=change, show=False)
    if how == "again":
        assert done.stop_reason is not None and done.env_steps == 60
        done = resume(half.run_dir, overrides={"stop_at_return": None}, show=False)
    assert (done.env_steps, done.stop_reason) == (160, None)
    assert metric_lines(whole.run_dir) == metric_lines(done.run_dir)


@BOTH
def test_everything_on_resumes_exactly(case: Case, tmp_path: Path) -> None:
    """Rules that never fire, videos, callbacks of the config, numbers of the env, event files, and findings."""
    sick = {"reward_scale": 1e6} if case is A2C else {"gradient_steps": 12}
    settings = {
        **{f"algo_kwargs.{name}": value for name, value in sick.items()},
        "tensorboard": True,
        "env_id": "Reporting-v0",
        "eval_every": 40,
        "log_info": ["score", "place"],
        "stop_at_return": 1e9,
        "patience": 50,
        "record_every": 60,
        "callbacks": ["reporting_env:Counting", {"callback": "reporting_env:Counting", "factor": 3.0}],
    }
    whole = run(tmp_path / "whole", case, **settings)
    half = run(tmp_path / "half", case, callback=stop_at(80), **settings)
    done = resume(half.run_dir, show=False)
    assert_same_run(whole.run_dir, done.run_dir)
    line = [line for line in metric_lines(done.run_dir) if line["kind"] == "train"][-1]
    assert {"info_score", "info_is_success", "total", "longest"} <= set(line)
    again = run(tmp_path / "again", case, **settings)
    assert_same_run(whole.run_dir, again.run_dir)
    assert whole.findings and whole.findings == done.findings == again.findings
    found = [(result.run_dir / FINDINGS_FILE).read_bytes() for result in (whole, done, again)]
    assert found[0] == found[1] == found[2]
    quiet = {name: settings[name] for name in settings if name.startswith("algo_kwargs.")}
    off = run(tmp_path / "off", case, env_id="Reporting-v0", eval_every=40, **quiet)
    shared = [{name: line[name] for name in line if name in other} for line, other in
              zip(metric_lines(whole.run_dir), metric_lines(off.run_dir), strict=True)]  # fmt: skip
    assert shared == metric_lines(off.run_dir)


def test_a_rule_without_evaluations_gets_twenty(tmp_path: Path) -> None:
    result = run(tmp_path, stop_at_return=1e9)
    assert result.agent.config.eval_every == 8
    assert load_config(result.run_dir / "config.yaml").eval_every == 8
    assert sum(line["kind"] == "eval" for line in read_metrics(result.run_dir)) >= 16


@pytest.mark.parametrize("setting", [{"stop_at_return": 0}, {"patience": 2}, {"record_every": 50}], ids=str)
def test_a_setting_that_needs_an_evaluation_env_is_refused_without_one(setting: Any, tmp_path: Path) -> None:
    envs = SyncVectorEnv([Reporting])
    with pytest.raises(ConfigError, match=rf"^{next(iter(setting))}: there is no environment to evaluate on, pass"):
        run(tmp_path, env=envs, **setting)
    assert not list(tmp_path.iterdir())
    envs.close()


def test_the_ready_ones_work_as_objects_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, 1.0, 2.0)
    assert run(tmp_path / "a", callback=StopAtReturn(2), eval_every=20).env_steps == 40
    returns(monkeypatch, 1.0)
    assert run(tmp_path / "b", callback=StopWithoutImprovement(2), eval_every=20).env_steps == 60
    result = run(tmp_path / "c", env=Reporting, callback=[RecordVideo(80)])
    assert sorted(path.name for path in (result.run_dir / "videos").iterdir()) == [
        "step-000000000080.gif",
        "step-000000000160.gif",
    ]


# Videos


def test_record_every_writes_gifs_and_changes_nothing(tmp_path: Path) -> None:
    for case in (A2C, DQN):
        plain = run(tmp_path / case.algo / "plain", case, env=Reporting, eval_every=0)
        filmed = run(tmp_path / case.algo / "filmed", case, env=Reporting, eval_every=0, record_every=50)
        assert_same_run(plain.run_dir, filmed.run_dir)
        names = sorted(path.name for path in (filmed.run_dir / "videos").iterdir())
        assert names == [f"step-{step:012d}.gif" for step in (50, 100, 150)]
        with Image.open(filmed.run_dir / "videos" / names[0]) as picture:
            assert picture.format == "GIF" and picture.n_frames == reporting_env.LENGTH + 1


def test_a_missing_package_is_one_line_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"^record_every: gif: pillow is not installed; "):
        run(tmp_path, record_every=50)
    assert not list(tmp_path.iterdir())


def test_an_env_that_cannot_draw_is_one_line_before_training(tmp_path: Path) -> None:
    class Blind(Reporting):
        def render(self) -> Any:
            return None

    with pytest.raises(EnvError, match=r"^record_every: .*draws no pictures: "):
        run(tmp_path, env=Blind, record_every=50)

    class WithoutModes(Reporting):
        def __init__(self) -> None:
            super().__init__()

    gym.register("WithoutModes-v0", entry_point=WithoutModes)
    try:
        with pytest.raises(EnvError, match=r"^record_every: .*; a recorded env must take render_mode='rgb_array'$"):
            run(tmp_path, env="WithoutModes-v0", record_every=50)
    finally:
        del gym.registry["WithoutModes-v0"]
    assert not list(tmp_path.iterdir())


def test_a_recording_that_fails_costs_the_videos_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(video, "_save_gif", full)
    assert run(tmp_path, env=Reporting, record_every=50).env_steps == 160
    told = capfd.readouterr().err
    assert told.count("\n") == 1 and "callback record_every: on_round failed at step 50" in told
    assert list((tmp_path / "run" / "videos").iterdir()) == []


def test_a_videos_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    half = run(tmp_path, env=Reporting, callback=stop_at(40), record_every=50)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (half.run_dir / "videos").symlink_to(elsewhere)
    with pytest.raises(Exception, match="videos"):
        resume(half.run_dir, env=Reporting, show=False)
    assert list(elsewhere.iterdir()) == []


def test_a_signal_ends_a_recording(tmp_path: Path) -> None:
    class Slow(Reporting):
        pictures = 0

        def render(self) -> np.ndarray:
            Slow.pictures += 1
            if Slow.pictures == 4:
                signal.raise_signal(signal.SIGTERM)
            return super().render()

    result = run(tmp_path, env=Slow, record_every=50)
    assert (result.interrupted, result.env_steps) == (True, 50)
    assert list((result.run_dir / "videos").iterdir()) == []


# Callbacks of a config


def hooks_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_hooks.py").write_text(
        "from rl_training import Callback\n"
        "class Limit(Callback):\n"
        "    def __init__(self, steps=50):\n"
        "        self.steps = steps\n"
        "    def on_round(self, context):\n"
        "        context.log('left', self.steps - context.env_steps)\n"
        "        if context.env_steps >= self.steps:\n"
        "            context.stop('enough')\n"
        "class Picky(Callback):\n"
        "    def __init__(self):\n"
        "        raise ValueError('never')\n"
        "    def on_round(self, context): ...\n"
        "def function(progress): ...\n"
        "broken = 3\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "my_hooks", raising=False)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])


def test_a_config_names_callbacks_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks_module(tmp_path, monkeypatch)
    result = run(tmp_path / "a", callbacks="my_hooks:Limit")
    assert (result.env_steps, result.stop_reason) == (50, "enough")
    assert read_metrics(result.run_dir)[0]["left"] > 0
    assert run(tmp_path / "b", callbacks=[{"callback": "my_hooks:Limit", "steps": 80}]).env_steps == 80
    again = resume(result.run_dir, overrides={"callbacks": []}, show=False)
    assert again.env_steps == 160


def test_the_working_directory_hides_no_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks_module(tmp_path, monkeypatch)
    (tmp_path / "reporting_env.py").write_text("raise SystemExit('hidden')")
    before = list(sys.path)
    run(tmp_path / "a", callbacks="reporting_env:Counting")
    with pytest.raises(ConfigError, match="importing no_such_module failed"):
        run(tmp_path / "b", callbacks="no_such_module:Counting")
    assert sys.path == before  # the directory is added only for a module that is there


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("os:system", r"callbacks: 'os:system': it is not a subclass of rl_training.Callback"),
        ({"callback": "subprocess:Popen", "args": "true"}, r"'subprocess:Popen': it is not a subclass"),
        ("my_hooks:function", r"it is not a subclass of rl_training.Callback"),
        ("my_hooks:broken", r"it is not a subclass of rl_training.Callback"),
        ("my_hooks:Limits", r"has no such name, did you mean Limit\?"),
        ("my_hooks:Picky", r"it cannot be created: ValueError: never"),
        ({"callback": "my_hooks:Limit", "step": 3}, r"it cannot be created: TypeError: .*unexpected keyword"),
        ("no_such_module:Limit", r"importing no_such_module failed with ModuleNotFoundError"),
        ("rl_training.runtime.callbacks.callback:Callback", r"callback Callback: overrides no hook"),
    ],
    ids=str,
)
def test_what_a_config_cannot_name_is_refused_before_a_run_is_made(
    entry: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks_module(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=text) as caught:
        run(tmp_path / "runs", callbacks=[entry])
    assert str(caught.value).isprintable() and not (tmp_path / "runs").exists()


def test_the_command_line_trains_stops_and_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks_module(tmp_path, monkeypatch)
    config = tmp_path / "config.yaml"
    config.write_text(
        "algo: ppo\nenv_id: reporting_env:Reporting-v0\ntotal_timesteps: 2000\nnum_envs: 2\neval_every: 200\n"
        "log_info: [score]\nstop_at_return: 0\nrun_name: one\n"
        "callbacks: [{callback: 'my_hooks:Limit', steps: 100000}]\n"
        "algo_kwargs: {num_steps: 50, minibatch_size: 50}\n"
    )
    done = call("train", str(config), "--json", "--quiet")
    summary = done.json
    assert done.code == 0 and summary["env_steps"] == 200
    assert summary["stop_reason"].startswith("the evaluation at step 200 has a mean return of ")
    assert summary["eval"]["info_score"] == 1.0
    scored = call("eval", "one", "--json", "--episodes", "2").json
    assert (scored["info_score"], scored["info_is_success"]) == (1.0, 0.0)
    shown = call("eval", "one", "--episodes", "2").out
    assert "score" in shown and "1 on average" in shown
    more = call("resume", "one", "--set", "stop_at_return=null", "--quiet")
    assert more.code == 0 and "2,000 in" in more.out
