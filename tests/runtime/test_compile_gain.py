"""`compile: auto` decides by a forecast that knows the settings of a run and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.experiment.registry import get_config_class
from rl_training.runtime import compile_gain
from rl_training.runtime.auto_settings import compile_forecast, resolve_compile
from rl_training.runtime.compile_gain import (
    LEAST_SAVED,
    MARGIN,
    Figures,
    Forecast,
    Step,
    figures_of,
    forecast,
    planned_gradient_steps,
    work_of,
)
from rl_training.runtime.workflows import resume, train
from run_cases import stop_at
from tiny_runs import tiny_config

FIGURES = Figures(6.0, Step(1_000, 0.5e-3), Step(5_000, 2.5e-3), compile_rollouts=2.0, saved_per_vector_step=20e-6)


def config_of(algo: str, steps: int, env: str = "CartPole-v1", **settings: Any) -> TrainConfig:
    return load_config({"algo": algo, "env_id": env}, {"total_timesteps": steps, **settings})


def plain(config: TrainConfig, **changes: Any) -> Forecast:
    return forecast(config, **({"batched": False, "images": False, "threads": 1} | changes))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_gain, "_table", lambda: {"dqn": FIGURES, "ppo": FIGURES})


def test_the_table_has_figures_of_algorithms_that_compile() -> None:
    table = json.loads(compile_gain.TABLE.read_text())["algorithms"]
    assert {"ppo", "a2c", "pqn", "dqn", "sac"} <= set(table)
    for name in table:
        figures = figures_of(name, ALGORITHMS[name].loop)
        assert get_config_class(name).compilable and figures.compile_steps > 1 and figures.small.saved > 0, name
        assert figures.large.work > figures.small.work > 0, name
        assert figures.large.saved >= figures.small.saved, name


@pytest.mark.parametrize(
    ("work", "threads", "milliseconds"),
    [(0, 1, 0.5), (1_000, 1, 0.5), (3_000, 1, 1.5), (5_000, 1, 2.5), (10**9, 1, 2.5), (5_000, 4, 1.0), (1_000, 4, 0.5)],
)
def test_a_step_saves_in_proportion_to_its_work_between_the_measured_ones(
    work: float, threads: int, milliseconds: float
) -> None:
    assert FIGURES.saved(work, threads) == pytest.approx(milliseconds / 1e3)


def test_threads_do_not_share_a_loss() -> None:
    slower = Figures(6.0, Step(0, 0.5e-3), Step(10, 0.1e-3))
    assert slower.saved(10, 4) == pytest.approx(0.1e-3)


@pytest.mark.parametrize(("cost", "least"), [(5.0, 15.0), (10.0, 20.0), (20.0, 40.0)])
def test_the_gain_must_be_a_multiple_of_the_cost_and_some_seconds_more(cost: float, least: float) -> None:
    assert least == max(MARGIN * cost, cost + LEAST_SAVED)
    assert Forecast(cost, least).pays
    assert not Forecast(cost, least - 1e-6).pays


@pytest.mark.usefixtures("known")
def test_a_run_is_compiled_from_the_step_on_that_pays() -> None:
    due = round((FIGURES.compile_steps + LEAST_SAVED) / FIGURES.small.saved)
    settings = {"learning_starts": 100, "train_frequency": 1, "batch_size": 1, "hidden_sizes": [8, 8]}
    last_off, first_on = (config_of("dqn", 100 + steps, **settings) for steps in (due - 1, due))
    assert planned_gradient_steps(first_on) == due and work_of(first_on) < FIGURES.small.work
    assert resolve_compile(last_off, "cpu") == "off"
    assert resolve_compile(first_on, "cpu") == "on"


@pytest.mark.usefixtures("known")
def test_compiled_rollouts_cost_and_save_their_part() -> None:
    config = config_of("ppo", 80_000, num_envs=8, num_steps=64, minibatch_size=64)
    steps, batched = plain(config), plain(config, batched=True)
    assert batched.cost - steps.cost == pytest.approx(FIGURES.compile_rollouts)
    assert batched.gain - steps.gain == pytest.approx(10_000 * FIGURES.saved_per_vector_step)
    actors = load_config(config, {"runtime": {"actors": 2}})
    assert plain(actors, batched=True).gain == steps.gain, "actors make rollouts step by step"


@pytest.mark.usefixtures("known")
def test_minibatches_of_which_none_is_compiled_save_nothing() -> None:
    whole = config_of("ppo", 1_000_000, num_steps=128, minibatch_size=64)
    uneven = load_config(whole, {"minibatch_size": 60})
    assert plain(whole).gain > 0 == plain(uneven).gain
    assert resolve_compile(uneven, "cpu") == "off"


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(("images", "precision"), [(True, "float32"), (False, "bfloat16"), (False, "auto")])
def test_what_was_not_measured_counts_as_the_smallest_step(images: bool, precision: str) -> None:
    wide = config_of("dqn", 50_000, batch_size=256, hidden_sizes=[256, 256])
    found = plain(load_config(wide, {"precision": precision}), images=images)
    assert found.gain == pytest.approx(planned_gradient_steps(wide) * FIGURES.small.saved)
    assert plain(wide).gain > found.gain


def test_an_algorithm_that_was_not_measured_counts_as_the_smallest_step_of_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Figures(4.0, Step(1_000, 0.3e-3), Step(5_000, 0.9e-3))
    monkeypatch.setattr(compile_gain, "_table", lambda: {"dqn": FIGURES, "sac": other, "ppo": FIGURES})
    found = figures_of("own", "replay")
    assert found.compile_steps == 4.0 and found.saved(0, 1) == found.saved(10**9, 1) == 0.3e-3
    found = figures_of("own", "on-policy")
    assert (found.compile_steps, found.compile_rollouts, found.saved_per_vector_step) == (6.0, 2.0, 0.0)


def test_ppo_on_halfcheetah_is_compiled_with_its_defaults() -> None:
    assert resolve_compile(config_of("ppo", 200_000, "HalfCheetah-v5"), "cpu", (17,), "sync") == "on"
    assert resolve_compile(config_of("ppo", 10_000, "HalfCheetah-v5"), "cpu", (17,), "sync") == "off"


@pytest.mark.parametrize("algo", ["ppo", "dqn", "sac", "a2c", "redq"])
def test_a_tiny_run_is_not_compiled(algo: str) -> None:
    config = load_config({"algo": algo, "env_id": "Pendulum-v1"}, {"total_timesteps": 500})
    assert resolve_compile(config, "cpu", (3,), "batched") == "off"


def test_a_config_is_decided_in_one_way_whatever_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [load_config(name) for name in ("ppo/cartpole", "dqn/cartpole", "sac/halfcheetah", "td3/pendulum")]
    before = [compile_forecast(config, (4,), "sync") for config in configs]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("time.perf_counter", lambda: pytest.fail("a stopwatch"))
    assert [compile_forecast(config, (4,), "sync") for config in configs] == before


def choice_in(run: Path) -> str | None:
    choice: str | None = json.loads((run / "run.json").read_text()).get("compile_choice")
    return choice


def test_a_run_says_why_it_is_not_compiled(tmp_path: Path) -> None:
    half = train(tiny_config("ppo", tmp_path), callback=stop_at(1), show=False)
    choice = choice_in(half.run_dir)
    assert choice is not None and choice.startswith("off: compiling takes about ") and choice.endswith(" about 0 s")
    assert choice_in(resume(half.run_dir, show=False).run_dir) == choice
    assert choice_in(train(tiny_config("ppo", tmp_path / "own", compile="off"), show=False).run_dir) is None
    trpo = train(tiny_config("trpo", tmp_path / "trpo"), show=False).run_dir
    assert choice_in(trpo) == "off: trpo has no step to compile"
