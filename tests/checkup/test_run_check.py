"""A planned run: its environment, size and speed. The clock of every speed test is injected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import tiny_config
from rl_training.checkup.disk import Disk
from rl_training.checkup.examination import Examination, needed_extras
from rl_training.checkup.finding import Finding
from rl_training.checkup.machine import Machine
from rl_training.checkup.run_check import Plan, run_findings
from rl_training.checkup.run_limits import Setting, check_duration, check_limit, duration, limit_of
from rl_training.checkup.speed import Speed
from rl_training.config import own_classes
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.data import replay_memory
from rl_training.errors import install_hint
from rl_training.runtime import auto_settings
from rl_training.runtime.spec import get_spec
from rl_training.runtime.workflows import train
from sick_envs import SickEnv

MACHINE = Machine(cores=2, memory=16_000_000_000, compiler="g++")
DISK = Disk("runs", Path("runs"), free=500_000_000_000)
TICK = 1e-6  # of the injected clock, per look


class Clock:
    """Time that passes by a tick per look, and when the environment says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += TICK
        return self.now

    def after(self, seconds: float) -> Callable[[], None]:
        def wait() -> None:
            self.now += seconds

        return wait


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    return clock


def examine(
    config: TrainConfig, clock: Clock, *, machine: Machine = MACHINE, disk: Disk = DISK, seconds: float = 0.0005
) -> tuple[dict[str, Finding], Plan]:
    plan = Plan()
    findings = list(run_findings(config, machine, disk, plan, seconds=seconds, clock=clock))
    return {finding.what: finding for finding in findings}, plan


def sick(**changes: Any) -> TrainConfig:
    small = {"num_steps": 16, "minibatch_size": 16, "update_epochs": 1, "compile": "off"}
    return load_config({"algo": "ppo", "env_id": "sick_envs:Sick-v0"}, small, changes)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_can_be_examined(algorithm: str, clock: Clock) -> None:
    config = load_config(tiny_config(algorithm, total_timesteps=400))
    findings, plan = examine(config, clock)
    assert {finding.status for finding in findings.values()} <= {"ok", "warn"}, findings
    assert findings["algorithms"].detail.startswith(f"{algorithm} fits, and so do ")
    assert plan.parameters and plan.checkpoint_bytes and plan.checkpoint_bytes > 4 * plan.parameters
    assert plan.run_seconds and plan.run_seconds > 0
    assert plan.shares is not None and sum(plan.shares.values()) == pytest.approx(1.0)
    assert (plan.replay_bytes is not None) is ("replay" in ALGORITHMS[algorithm].loop)


def test_an_encoder_of_the_user_is_tried_as_training_would(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, empty in (("_given", {}), ("_allowed", set()), ("_trusted", set())):
        monkeypatch.setattr(own_classes, name, empty)
    config = load_config("ppo/cartpole", {"encoder": "mixed_envs:VectorNet"})
    findings, plan = examine(config, clock)
    assert {finding.status for finding in findings.values()} == {"ok"}, findings
    assert plan.parameters and plan.parameters != 9155


def test_a_sound_run_has_neither_warnings_nor_failures(clock: Clock) -> None:
    findings, plan = examine(load_config("ppo/cartpole"), clock)
    assert {finding.status for finding in findings.values()} == {"ok"}
    assert plan.parameters == 9155
    assert findings["size"].detail == "9,155 parameters, checkpoint 110 kB without replay"


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"num_envs": 4}, "vector_backend=async with 4 processes, one for each environment"),
        ({"num_envs": 1}, "vector_backend=async with num_envs=2, one process for each"),
    ],
)
def test_a_slow_env_is_named_as_the_limit(
    changes: dict[str, Any], fix: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SickEnv, "on_step", staticmethod(clock.after(0.01)))
    findings, plan = examine(sick(**changes, total_timesteps=100_000), clock, seconds=0.5)
    limit = findings["limit"]
    assert limit.status == "warn" and plan.limit == "env"
    assert limit.detail.startswith("the environment takes ") and limit.detail.endswith(
        "% of the time (100 steps per second)"
    )
    assert limit.fix == fix
    assert plan.run_seconds == pytest.approx(1000, rel=0.1)
    assert findings["duration"].detail.startswith("about 17 min for 100,000 steps (100 per second)")


@pytest.mark.parametrize(
    ("backend", "seconds", "is_doubted"), [("async", 1e-4, True), ("async", 0.01, False), ("sync", 1e-4, False)]
)
def test_processes_for_steps_that_are_too_short_are_advised_against(
    backend: str, seconds: float, is_doubted: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only steps in this process take time of the injected clock."""
    monkeypatch.setattr(SickEnv, "on_step", staticmethod(clock.after(seconds)))
    config = sick(num_envs=2, vector_backend=backend, total_timesteps=10_000)
    doubt = examine(config, clock, seconds=0.5)[0].get("backend")
    assert (doubt is not None) is is_doubted
    if doubt is not None:
        assert doubt.status == "warn" and doubt.detail.startswith("a step takes 10")
        assert doubt.fix == "vector_backend=sync; keep async if environments may crash or hang"


def test_a_slow_env_of_a_replay_run_is_named_too(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SickEnv, "on_step", staticmethod(clock.after(0.01)))
    config = load_config({"algo": "dqn", "env_id": "sick_envs:Sick-v0", "total_timesteps": 50_000})
    findings, plan = examine(config, clock, seconds=0.5)
    assert plan.limit == "env" and findings["limit"].status == "warn"
    assert plan.steps_per_second == pytest.approx(100, rel=0.1)


def test_an_env_that_is_slow_takes_no_longer_than_asked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole rollout of 2,048 steps would take 20 seconds of the injected clock."""
    steps: list[int] = []
    monkeypatch.setattr(SickEnv, "on_step", staticmethod(lambda: (steps.append(1), clock.after(0.01)())))
    _, plan = examine(
        sick(num_steps=2048, minibatch_size=64, total_timesteps=10_000, update_epochs=1), clock, seconds=1
    )
    assert plan.limit == "env"
    assert len(steps) < 2000  # 1,000 of the random walk, 400 of the seeds, 60 of the speed test


SPEED = Speed(env=7e-3, act=1e-3, learn=1e-3, other=1e-3)
SETTING = Setting(backend="sync", num_envs=2, cores=2, on_policy=True)


@pytest.mark.parametrize(
    ("speed", "setting", "status", "text", "fix"),
    [
        (
            SPEED,
            SETTING,
            "warn",
            "the environment takes 70% of the time (143 steps per second)",
            "vector_backend=async with 2 processes, one for each environment",
        ),
        (SPEED, replace(SETTING, backend="async"), "ok", "with vector_backend async already", ""),
        (SPEED, replace(SETTING, cores=1), "ok", "and there is only one core here", "make the environment faster"),
        (SPEED, replace(SETTING, can_fork=False), "ok", "and there is no fork here", "make the environment faster"),
        (Speed(7e-5, 1e-5, 1e-5, 1e-5), SETTING, "ok", "but a step is too short for processes to pay off", ""),
        (
            Speed(1e-4, 7e-4, 1e-4, 1e-4),
            SETTING,
            "warn",
            "acting takes 70% of the time",
            "num_envs=4 or more: one pass then serves more environments",
        ),
        (
            Speed(1e-4, 1e-4, 7e-4, 1e-4),
            replace(SETTING, cuda_unused=True),
            "warn",
            "learning takes 70%",
            "device=cuda, if",
        ),
        (Speed(1e-4, 1e-4, 7e-4, 1e-4), replace(SETTING, compiled=True), "ok", "this run compiles it", ""),
        (
            Speed(1e-4, 1e-4, 7e-4, 1e-4),
            replace(SETTING, should_compile=True),
            "warn",
            "learning takes 70% of the time",
            "compile=auto: this run is long enough for compiling to pay off",
        ),
        (
            Speed(1e-4, 1e-4, 7e-4, 1e-4),
            replace(SETTING, update_knob="train_frequency"),
            "ok",
            "only smaller networks or fewer updates (train_frequency) would change that, and also what the run learns",
            "",
        ),
        (
            Speed(1.0, 1.0, 1.0, 1.0),
            SETTING,
            "ok",
            "no part takes most of the time: the environment 25%, acting 25%",
            "",
        ),
    ],
)
def test_the_limit_and_what_to_change(speed: Speed, setting: Setting, status: str, text: str, fix: str) -> None:
    finding = check_limit(speed, setting)
    assert (finding.status, finding.what) == (status, "limit")
    assert text in finding.detail
    assert finding.fix.startswith(fix) and bool(finding.fix) is bool(fix)


def test_a_replay_run_neither_acts_nor_learns_before_learning_starts() -> None:
    speed = Speed(env=1e-3, act=1e-3, learn=7e-3, other=1e-3, learning_starts=4000)
    assert speed.run_seconds(10_000) == pytest.approx(10_000 * 2e-3 + 6000 * 8e-3)
    assert speed.run_seconds(1000) == pytest.approx(2.0)
    assert limit_of(speed) == "learn"
    finding = check_duration(speed, 10_000, compiled=True)
    assert finding.detail == (
        "at most about 68 s for 10,000 steps (147 per second), without evaluations; compiling makes it shorter"
    )


def test_durations_to_read() -> None:
    assert [duration(s) for s in (0.1, 42, 600, 5 * 3600, 3 * 86_400)] == ["1 s", "42 s", "10 min", "5.0 h", "3.0 days"]


def test_too_little_memory_for_the_replay_buffer(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 100_000_000)
    config = load_config("dqn/cartpole", {"buffer_size": 10_000_000})
    findings, plan = examine(config, clock)
    run = findings["run"]
    assert run.status == "fail" and plan.replay_bytes is None
    assert run.detail.startswith("algo_kwargs.buffer_size: the replay buffer needs 0.5 GB, but only 80% of the 0.1 GB")
    assert "set buffer_size=" in run.detail


def test_a_replay_buffer_that_takes_most_of_the_memory(clock: Clock) -> None:
    findings, plan = examine(load_config("dqn/cartpole"), clock, machine=replace(MACHINE, memory=3_000_000))
    assert plan.replay_bytes == 2_350_000
    warning = findings["size"]
    assert warning.status == "warn"
    assert warning.detail == "the replay buffer will take 2.4 MB of 3.0 MB available"


def test_too_little_space_for_the_checkpoints_of_the_run(clock: Clock) -> None:
    config = load_config(tiny_config("dqn", model={"hidden_sizes": [1024, 1024]}, keep_checkpoints=20))
    findings, plan = examine(config, clock, disk=replace(DISK, free=150_000_000), seconds=0.001)
    assert plan.disk_bytes is not None and plan.disk_bytes > 300_000_000
    failure = findings["disk"]
    assert failure.status == "fail" and failure.detail.startswith("output_dir runs: 150 MB free, but the run needs 3")


def test_an_algorithm_that_does_not_fit(clock: Clock) -> None:
    findings, plan = examine(load_config({"algo": "sac", "env_id": "CartPole-v1"}), clock)
    assert list(findings)[-1] == "algorithms"
    assert findings["algorithms"].status == "fail"
    assert findings["algorithms"].detail.startswith("sac takes Box actions, but CartPole-v1 has Discrete: use ppo")
    assert plan.run_seconds is None


def test_an_env_that_fails_ends_the_examination(clock: Clock) -> None:
    findings, _ = examine(sick(**{"env_kwargs.fault": "NaN reward"}), clock)
    assert list(findings)[-1] == "steps" and findings["steps"].status == "fail"
    findings, _ = examine(load_config({"algo": "ppo", "env_id": "NoSuchEnv-v0"}), clock)
    assert list(findings) == ["env"] and findings["env"].status == "fail"


def test_settings_that_this_machine_cannot_run(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_settings, "can_compile", lambda: False)
    findings, _ = examine(sick(compile="on"), clock)
    assert findings["run"].status == "fail"
    assert findings["run"].detail == "compile: needs a C++ compiler such as g++, or use compile=off"
    findings, _ = examine(sick(device="cuda"), clock)
    assert "cuda is not available" in findings["run"].detail


def test_a_run_that_turned_compiling_off_is_told_when_it_pays(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_settings, "can_compile", lambda: True)
    monkeypatch.setattr("rl_training.checkup.run_check.measure", lambda *_: Speed(1e-4, 1e-4, 1e-2, 1e-4))
    config = load_config("dqn/cartpole", {"compile": "off", "total_timesteps": 1_000_000})
    findings, _ = examine(config, clock)
    assert findings["limit"].fix == "compile=auto: this run is long enough for compiling to pay off"


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_the_predicted_checkpoint_is_as_large_as_a_real_one(algorithm: str, clock: Clock, tmp_path: Path) -> None:
    changes = {"model": {"hidden_sizes": [128, 128]}, "output_dir": str(tmp_path), "eval_episodes": 1}
    config = load_config(tiny_config(algorithm, **changes))
    _, plan = examine(config, clock)
    checkpoint = train(config, show=False).checkpoint
    written = sum(path.stat().st_size for path in checkpoint.rglob("*.safetensors"))
    assert plan.checkpoint_bytes == pytest.approx(written, rel=0.1)


def test_extras_that_settings_need() -> None:
    assert list(needed_extras(sick())) == []
    config = sick(tensorboard=True, wandb_project="x")
    assert list(needed_extras(config)) == [("tensorboard", "the sink tensorboard"), ("wandb", "the sink wandb")]


def test_a_missing_extra_that_the_config_needs_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rl_training.checkup import examination as module
    from rl_training.checkup.import_trial import Trial
    from rl_training.checkup.requirements import Requirement

    requirements = [Requirement("torch", ">=2"), Requirement("wandb", ">=0.17", extra="wandb")]
    monkeypatch.setattr(module, "package_requirements", lambda: requirements)
    monkeypatch.setattr(module, "installed_version", {"torch": "2.13"}.get)
    monkeypatch.setattr(module, "try_imports", lambda modules: {name: Trial() for name in modules})
    config = sick(wandb_project="x", **{"env_kwargs.fault": "cannot be made"})
    doctor = Examination(str(tmp_path), config, seconds=0.01)
    failures = [finding for finding in doctor.examine() if finding.status == "fail"]
    assert [finding.what for finding in failures] == ["extras", "env"]
    assert failures[0].detail == "the sink wandb needs the extra wandb: wandb is not installed"
    assert failures[0].fix == install_hint("wandb")
    assert doctor.report().status == "fail"


@pytest.mark.parametrize(
    ("algorithm", "settings", "updates_per_step"),
    [
        ("ppo", {"num_steps": 16, "num_envs": 2}, 1 / 32),
        ("dqn", {"train_frequency": 4, "gradient_steps": 2, "learning_starts": 1000}, 2 / 4),
        ("dqn", {"train_frequency": 4, "gradient_steps": -1}, 1.0),
    ],
)
def test_slow_learning_is_named_as_the_limit(
    algorithm: str, settings: dict[str, Any], updates_per_step: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = get_spec(algorithm).learner
    update = learner.update

    def slow(self: Any, batch: Any) -> Any:
        clock.now += 0.01
        return update(self, batch)

    monkeypatch.setattr(learner, "update", slow)
    changes = {"total_timesteps": 10_000, "compile": "off", **settings}
    config = load_config(tiny_config(algorithm, env_id="sick_envs:Sick-v0"), changes)
    _, plan = examine(config, clock, seconds=0.2)
    assert plan.limit == "learn"
    starts = getattr(config.algo_kwargs, "learning_starts", 0)
    assert plan.run_seconds == pytest.approx((10_000 - starts) * updates_per_step * 0.01, rel=0.1)
