"""The section `runtime`: what `auto` comes to, what is refused, and that every refusal names the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from fleet_helpers import run
from rl_training import load_config
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.errors import ConfigError
from rl_training.runtime.workflows import resume, train
from run_cases import CASES, stop_at

IMPALA = CASES["impala, box, minibatches of envs"]


def resolved(algo: str, **runtime: Any) -> tuple[str, str, int | None]:
    config = load_config({"algo": algo, "env_id": "CartPole-v1", "num_envs": 8, "runtime": runtime})
    settings = config.runtime.resolved(algo)
    return settings.backend, settings.mode, settings.max_lag


def test_auto_is_todays_loop_unless_actors_are_asked_for() -> None:
    assert resolved("impala") == ("inline", "lockstep", None)
    assert not load_config("impala/cartpole").runtime.resolved("impala").uses_fleet
    assert resolved("impala", actors=4) == ("process", "pipelined", None)
    assert resolved("impala", actors=4, backend="inline") == ("inline", "pipelined", None)
    assert resolved("impala", backend="process") == ("process", "pipelined", None)
    assert resolved("ppo", actors=4) == ("process", "lockstep", None)
    assert resolved("a3c", actors=4) == ("process", "lockstep", None)
    assert resolved("appo", actors=2, mode="async") == ("process", "async", 20)
    assert resolved("appo", actors=2, mode="async", max_lag=3) == ("process", "async", 3)


@pytest.mark.parametrize("mode", ["pipelined", "async"])
@pytest.mark.parametrize("algo", [row.name for row in ALGORITHMS.values() if row.modes == ("lockstep",)])
def test_an_algorithm_without_a_correction_refuses_stale_modes_and_names_the_alternative(algo: str, mode: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({"algo": algo, "env_id": "CartPole-v1", "num_envs": 8, "runtime": {"actors": 2, "mode": mode}})
    message = str(refused.value)
    assert message.startswith(f"runtime.mode: {algo} ") and "\n" not in message
    kind = ALGORITHMS[algo].loop == "replay"
    others = " or ".join(
        row.name for row in ALGORITHMS.values() if mode in row.modes and (row.loop == "replay") == kind
    )
    assert message.endswith(f"use mode lockstep, or {others}" if others else "use mode lockstep")
    assert others or ALGORITHMS[algo].loop == "replay"


@pytest.mark.parametrize(
    ("runtime", "start", "way_out"),
    [
        ({"actors": 3}, "runtime.actors: 3 actors cannot share num_envs=8", "num_envs=9"),
        ({"actors": 2, "max_lag": 5}, "runtime.max_lag: only runtime.mode async", "use mode async"),
        ({"actors": 0}, "runtime.actors: 0 is not valid", "integer >= 1"),
        ({"backend": "thread"}, "runtime.backend: 'thread' is not valid", "one of auto, inline, process"),
        ({"acters": 2}, "runtime.acters: unknown key", "did you mean runtime.actors?"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(runtime: dict[str, Any], start: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({"algo": "impala", "env_id": "CartPole-v1", "num_envs": 8, "runtime": runtime})
    assert str(refused.value).startswith(start)
    assert way_out in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_vector_env_that_is_made_already_is_refused_with_the_way_out(tmp_path: Path) -> None:
    envs = gym.make_vec("CartPole-v1", num_envs=2)
    config = load_config("impala/cartpole", {"num_envs": 2, "runtime.actors": 2, "output_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"runtime.actors: a vector environment .* pass its id or a function"):
        train(config, env=envs, show=False)
    assert not list(tmp_path.iterdir())
    envs.close()


def test_a_resumed_run_keeps_its_actors_and_its_mode(tmp_path: Path) -> None:
    half = run(IMPALA, tmp_path, stop_at(80), actors=2, backend="inline", mode="pipelined")
    for change, words in (("actors=4", "from 2 to 4"), ("mode=lockstep", "from pipelined to lockstep")):
        name = change.partition("=")[0]
        with pytest.raises(ConfigError, match=f"runtime.{name}: cannot change {words} when a run is resumed"):
            resume(half.run_dir, overrides=[f"runtime.{change}"], show=False)


def test_actors_in_this_process_do_not_make_a_run_larger_than_its_checkpoint(tmp_path: Path) -> None:
    """RMSprop stores one number beside each weight, and each of these actors has weights of its own."""
    small = {"num_envs": 4, "num_steps": 8, "eval_every": 0}
    runtime = {"runtime.actors": 4, "runtime.backend": "inline", "output_dir": str(tmp_path), "eval_episodes": 1}
    config = load_config("impala/cartpole", {"total_timesteps": 64, "eval_max_steps": 5, **small, **runtime})
    done = train(config, show=False)
    assert resume(done.run_dir, total_timesteps=96, show=False).env_steps == 96
