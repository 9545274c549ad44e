"""`checkpoint_every: auto`: a number that follows from the kind of run, so that a killed run loses little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.base import RolloutConfig
from rl_training.config.loading import list_presets, load_config
from rl_training.runtime import auto_settings
from rl_training.runtime.auto_settings import resolve_checkpoint_every
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import list_checkpoints, load_checkpoint, read_manifest
from rl_training.storage.state_tree import state_hash
from rl_training.zoo.runs import same_settings
from run_cases import assert_same_run, stop_at
from tiny_runs import managed, tiny_config

VECTOR, IMAGE = (4,), (84, 84, 4)


def resolved(algo: str, shape: tuple[int, ...] = VECTOR, **changes: Any) -> int:
    config = load_config({"algo": algo, "env_id": "CartPole-v1"}, changes)
    return resolve_checkpoint_every(config, shape, config.num_envs)


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ON_POLICY_INTERVAL", "ON_POLICY_IMAGE_INTERVAL", "REPLAY_INTERVAL", "REPLAY_IMAGE_INTERVAL"):
        monkeypatch.setattr(auto_settings, name, 32)
    monkeypatch.setattr(auto_settings, "STEPS_PER_ENV", 1)


def test_the_default_is_auto() -> None:
    assert load_config({"algo": "ppo", "env_id": "CartPole-v1"}).checkpoint_every == "auto"


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_auto_depends_on_the_family_the_observations_and_the_envs(algo: str) -> None:
    on_policy = isinstance(load_config({"algo": algo, "env_id": "CartPole-v1"}).algo_kwargs, RolloutConfig)
    assert resolved(algo) == (50_000 if on_policy else 20_000)
    assert resolved(algo, IMAGE) == (100_000 if on_policy else 50_000)
    # With many envs, every one of them still gets thousands of steps between two cuts of its episodes.
    assert resolved(algo, num_envs=64) == 320_000


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_auto_does_not_depend_on_the_length_of_the_run_or_the_seed(algo: str) -> None:
    assert {resolved(algo, total_timesteps=total, seed=total) for total in (1_000, 50_000, 10**9)} == {resolved(algo)}


def test_a_number_is_kept_and_zero_means_never() -> None:
    assert [resolved("ppo", checkpoint_every=number) for number in (0, 7)] == [0, 7]


@pytest.mark.parametrize("name", list_presets())
def test_every_preset_states_its_interval(name: str) -> None:
    assert isinstance(load_config(name).checkpoint_every, int)


@pytest.mark.usefixtures("short_intervals")
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_default_run_saves_on_the_way_and_records_the_number(algorithm: str, tmp_path: Path) -> None:
    result = train(tiny_config(algorithm, tmp_path, total_timesteps=128, keep_checkpoints=9), show=False)
    assert load_config(result.run_dir / "config.yaml").checkpoint_every == 32
    steps = {path: read_manifest(path) for path in list_checkpoints(result.run_dir, "resume")}
    assert [manifest.env_steps for manifest in steps.values()] == [128, 96, 64, 32, 0]
    assert all(manifest.exact for manifest in steps.values())


@pytest.mark.usefixtures("short_intervals")
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_learning_in_two_parts_equals_learning_at_once(algorithm: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"learning_rate": 1e-3, "keep_checkpoints": 9}
    if algorithm == "dqn":
        settings["exploration"] = 0.1  # a schedule over the whole run would stretch
    whole = managed(algorithm, tmp_path / "whole", **settings).learn(128, show=False)
    parts = managed(algorithm, tmp_path / "parts", **settings).learn(64, show=False).learn(64, show=False)
    assert parts.config.checkpoint_every == whole.config.checkpoint_every == 32
    newest = [list_checkpoints(agent.run_dir, "resume")[0] for agent in (whole, parts)]
    assert [path.name for path in newest] == ["step-000000000128"] * 2
    learners = [load_checkpoint(path).state["learner"] for path in newest]
    assert state_hash(learners[0]) == state_hash(learners[1])


@pytest.mark.usefixtures("short_intervals")
def test_a_killed_default_run_continues_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"total_timesteps": 128, "keep_checkpoints": 9, "run_name": "run"}
    whole = train(tiny_config("dqn", tmp_path / "whole", **settings), show=False)
    half = train(tiny_config("dqn", tmp_path / "half", **settings), callback=stop_at(64), show=False)
    # A later version may choose another number: the run keeps its own.
    monkeypatch.setattr(auto_settings, "REPLAY_INTERVAL", 48)
    second = resume(half.run_dir, show=False)
    assert load_config(second.run_dir / "config.yaml").checkpoint_every == 32
    assert_same_run(whole.run_dir, second.run_dir)


def test_a_run_with_zero_resumes_with_zero(tmp_path: Path) -> None:
    stopped = train(tiny_config("ppo", tmp_path, checkpoint_every=0), callback=stop_at(32), show=False)
    resume(stopped.run_dir, show=False)
    assert load_config(stopped.run_dir / "config.yaml").checkpoint_every == 0


@pytest.mark.usefixtures("short_intervals")
def test_a_benchmark_recognizes_its_own_run_with_a_resolved_number(tmp_path: Path) -> None:
    preset = tiny_config("ppo", tmp_path)
    run = train(preset, show=False).run_dir
    assert same_settings(run / "config.yaml", preset)
    assert not same_settings(run / "config.yaml", tiny_config("ppo", tmp_path, checkpoint_every=16))
    assert not same_settings(run / "config.yaml", tiny_config("ppo", tmp_path, gamma=0.5))
