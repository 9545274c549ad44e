"""The values that `auto` resolves to are saved in the run, and a resumed run reuses them on any machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from rl_training.config.loading import load_config
from rl_training.envs.factory import make_vector_env
from rl_training.runtime.loops import Progress
from rl_training.runtime.workflows import resume, train
from run_cases import ROLLOUT, Case, TwoKnobs, assert_same_run, stop_at
from tiny_runs import tiny_config

REAL_THREADS = torch.get_num_threads


def recorded(run_dir: Path, name: str) -> Any:
    return getattr(load_config(run_dir / "config.yaml"), name)


def test_a_run_records_what_auto_came_to(tmp_path: Path) -> None:
    run = train(tiny_config("ppo", tmp_path, num_envs=2), show=False).run_dir
    assert [recorded(run, name) for name in ("compile", "vector_backend", "threads")] == ["off", "batched", 1]


@pytest.fixture
def own_threads() -> Iterator[None]:
    """A run puts back the number of threads that it found, which the tests below make up."""
    count = REAL_THREADS()
    yield
    torch.set_num_threads(count)


@pytest.mark.usefixtures("own_threads")
def test_threads_stay_what_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"num_steps": 128, "minibatch_size": 256, "update_epochs": 2}
    case = Case("ppo", steps=1024, num_envs=2, model={"hidden_sizes": (256,)}, settings=wide)
    used: set[int] = set()

    def stop_half_way(progress: Progress) -> bool:
        used.add(REAL_THREADS())
        return progress.env_steps < case.steps // 2

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    whole = train(case.config(tmp_path / "whole"), show=False)
    half = train(case.config(tmp_path / "halves"), callback=stop_half_way, show=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    second = resume(half.run_dir, callback=lambda _: bool(used.add(REAL_THREADS()) or True), show=False)
    assert recorded(second.run_dir, "threads") == 2 and used == {2}
    assert_same_run(whole.run_dir, second.run_dir)


@pytest.mark.parametrize("as_of_old", [False, True], ids=["recorded", "auto in an old run"])
def test_envs_with_a_vector_class_of_their_own_are_native(
    as_of_old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("ppo", "CartPole-v0", num_envs=2, settings=ROLLOUT)
    whole = train(case.config(tmp_path / "whole"), show=False)
    assert recorded(whole.run_dir, "vector_backend") == "native"
    with monkeypatch.context() as patch:
        if as_of_old:  # they had no name for it
            patch.setattr("rl_training.runtime.setup.loop_setup.backend_of", lambda envs: "auto")
        half = train(case.config(tmp_path / "halves"), callback=stop_at(case.steps // 2), show=False)
        assert recorded(half.run_dir, "vector_backend") == ("auto" if as_of_old else "native")
    second = resume(half.run_dir, show=False)
    assert recorded(second.run_dir, "vector_backend") == "native"
    assert_same_run(whole.run_dir, second.run_dir)


def test_callables_are_stepped_one_after_the_other(tmp_path: Path) -> None:
    case = Case("ppo", "callable:TwoKnobs", num_envs=2, settings=ROLLOUT, env=TwoKnobs)
    run = train(case.config(tmp_path), env=TwoKnobs, callback=stop_at(80), show=False).run_dir
    assert recorded(run, "vector_backend") == "sync"
    assert resume(run, env=TwoKnobs, show=False).env_steps == case.steps


def test_a_given_vector_env_is_taken_as_it_is(tmp_path: Path) -> None:
    case = Case("ppo", "callable:CartPole", num_envs=2, settings=ROLLOUT)
    run = train(case.config(tmp_path), env=make_vector_env("CartPole-v1", 2), callback=stop_at(80), show=False).run_dir
    assert recorded(run, "vector_backend") == "auto"
    assert resume(run, env=make_vector_env("CartPole-v1", 2), show=False).env_steps == case.steps


@pytest.mark.parametrize("started", ["native", "batched"])
def test_another_env_need_not_have_the_vector_class_of_the_first(started: str, tmp_path: Path) -> None:
    case = Case("ppo", num_envs=2, settings=ROLLOUT, options={"vector_backend": started})
    run = train(case.config(tmp_path), callback=stop_at(80), show=False).run_dir
    again = resume(run, env=lambda: gym.make("CartPole-v1"), show=False)
    assert not again.interrupted
    assert recorded(run, "vector_backend") == "sync"
