"""Rollouts by one compiled function: the same steps as the plain path, the same streams, the same exactness."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.ppo import PPO
from rl_training.algorithms.pqn import PQN
from rl_training.config.loading import load_config
from rl_training.data.rollout import ROLLOUT_FIELDS
from rl_training.envs.batched_classic import BATCHED_ENVS
from rl_training.envs.spaces import Spaces
from rl_training.errors import NumericalError
from rl_training.models.distributions import Categorical
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.runtime.collection.collector import STEP_BY_STEP, Collector
from rl_training.runtime.setup import loop_setup
from rl_training.runtime.setup.loop_setup import build_loop
from rl_training.runtime.setup.run_envs import training_envs
from rl_training.runtime.spec import get_spec
from rl_training.runtime.workflows import train
from tiny_runs import tiny_config

STEPS, ENVS = 12, 3


@contextmanager
def collector_of(compiled: str, env: str = "CartPole-v1", algo: str = "ppo", **settings: Any) -> Iterator[Collector]:
    steps = settings.pop("num_steps", STEPS)
    config = load_config(
        {
            "algo": algo,
            "env_id": env,
            "num_envs": settings.pop("num_envs", ENVS),
            "total_timesteps": 100_000,
            "compile": compiled,
            "device": "cpu",
            "precision": "float32",
            "checkpoint_every": 1000,
            "threads": 1,
            "model": {"hidden_sizes": [16]} | settings.pop("model", {}),
            "algo_kwargs": {"num_steps": steps, "minibatch_size": 12} | settings.pop("algo_kwargs", {}),
            **settings,
        }
    )
    with training_envs(config, None) as envs:
        spaces = Spaces(envs.single_observation_space, envs.single_action_space)
        collector = build_loop(config, envs, spaces).collector
        assert isinstance(collector, Collector)
        yield collector


def positions(collector: Collector) -> dict[str, Any]:
    """Where every random stream is. `uinteger` is half a number that is left over, and nothing where none is."""
    states = collector.streams.state_dict()["generators"]
    return {name: state | ({} if state["has_uint32"] else {"uinteger": 0}) for name, state in states.items()}


LAYER_NORM = {"model": {"layer_norm": True}}
HALF_RANDOM = {"algo_kwargs": {"exploration": 0.5}}


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        *((env, {}) for env in sorted(BATCHED_ENVS)),
        ("CartPole-v1", {"algo": "pqn", "num_envs": 4, **LAYER_NORM, **HALF_RANDOM}),
        ("Acrobot-v1", {"algo": "pqn", **HALF_RANDOM}),
    ],
)
def test_every_step_is_the_one_of_the_plain_path(env: str, settings: dict[str, Any]) -> None:
    """With a limit of a few steps: every env is truncated several times, and CartPole falls, too."""
    settings = settings | {"num_steps": 40}
    with collector_of("off", env, **settings) as plain, collector_of("on", env, **settings) as compiled:
        for collector in (plain, compiled):
            collector.envs.limit = 17  # type: ignore[attr-defined]
        for _ in range(2):  # the second rollout starts in the middle of episodes
            expected, episodes = plain.collect(40)
            found, others = compiled.collect(40)
            assert compiled.rollouts == "one compiled function"
            for name in ROLLOUT_FIELDS:
                np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-5)
            for name in ("last_obs", "final_steps", "final_envs", "final_obs"):
                np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-5)
            assert found.extras.keys() == expected.extras.keys() and found.extras
            for name, column in expected.extras.items():
                np.testing.assert_allclose(found.extras[name], column, rtol=1e-4, atol=1e-5)
            assert expected.truncated.any()
            assert [each.length for each in others] == [each.length for each in episodes]
            assert [each.total_reward for each in others] == pytest.approx([each.total_reward for each in episodes])
            assert compiled.env_step == plain.env_step
            assert compiled.longest_running == plain.longest_running
        draws = [collector.envs.np_random.bit_generator.state for collector in (plain, compiled)]
        assert draws[0] == draws[1], "the next episode starts alike"
        assert positions(plain) == positions(compiled)


def test_poles_fall_in_the_comparison() -> None:
    with collector_of("on", num_steps=40) as collector:
        rollout, episodes = collector.collect(40)
    assert rollout.terminated.any()
    assert len(episodes) == np.count_nonzero(rollout.ends)


def test_a_shorter_rollout_is_made_step_by_step_and_goes_on_where_the_other_ended() -> None:
    with collector_of("off") as plain, collector_of("on") as compiled:
        for steps in (STEPS, 5, STEPS):
            expected, found = plain.collect(steps)[0], compiled.collect(steps)[0]
            np.testing.assert_allclose(found.obs, expected.obs, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found.episode_starts, expected.episode_starts)


@pytest.mark.parametrize(("variable", "number"), [(1, np.inf), (2, np.nan)])  # the first one ends the episode
def test_numbers_that_are_not_finite_are_found_in_their_step(variable: int, number: float) -> None:
    messages = []
    for compiled in ("off", "on"):
        with collector_of(compiled) as collector:
            collector.collect(STEPS)
            collector.envs.state[variable, 2] = number  # type: ignore[attr-defined]
            with pytest.raises(NumericalError, match=r"env 2 returned a.* that is not finite") as raised:
                collector.collect(STEPS)
            messages.append((str(raised.value), raised.value.env_index, raised.value.env_step))
    assert messages[0] == messages[1]


def test_numbers_that_are_only_large_are_counted_once() -> None:
    """Their squares overflow, so each step is looked at."""
    with collector_of("off", "Pendulum-v1") as plain, collector_of("on", "Pendulum-v1") as compiled:
        for collector in (plain, compiled):
            with torch.no_grad():
                collector.learner.model.log_std.fill_(55.0)
            rollout, _ = collector.collect(STEPS)
            assert collector.rollouts == ("step by step" if collector is plain else "one compiled function")
            with np.errstate(over="ignore"):
                assert np.isfinite(rollout.actions).all() and not np.isfinite(np.vdot(rollout.actions, rollout.actions))
            assert collector.env_step == STEPS * ENVS


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("have a compiled form", {"vector_backend": "sync"}),
        ("has no compiled form", {"env": "Pendulum-v1", "algo_kwargs": {"state_dependent_noise": True}}),
        ("precision=float32", {"precision": "bfloat16"}),
    ],
)
def test_other_runs_say_why_they_are_made_step_by_step(reason: str, settings: dict[str, Any]) -> None:
    with collector_of("on", **settings) as collector:
        assert collector.rollouts.startswith(f"{STEP_BY_STEP}: ")
        assert reason in collector.rollouts
        assert collector._compiled is None


class PrefersTheFirst(PQN):
    def q_values(self, obs: np.ndarray) -> np.ndarray:
        return super().q_values(obs) + np.float32([100.0, 0.0])


class ActingPolicy(MLPActorCritic):
    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        actions, extras = super().act(obs, rng)
        return np.zeros_like(actions), extras


class ShiftedPolicy(MLPActorCritic):
    def policy_numpy(self, obs: np.ndarray) -> np.ndarray:
        return super().policy_numpy(obs) + np.float32([100.0, 0.0])


class FirstAction(Categorical):
    def sample(self, logits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        actions, log_probs = super().sample(logits, rng)
        return np.zeros_like(actions), log_probs


class OwnModel(PPO):
    model_class: type[MLPActorCritic] = MLPActorCritic

    def __init__(self, spaces: Spaces, config: Any, streams: Any):
        super().__init__(spaces, config, streams)
        self.model.__class__ = self.model_class


class ActsItself(OwnModel):
    model_class = ActingPolicy


class ShiftsThePolicy(OwnModel):
    model_class = ShiftedPolicy


class SamplesItself(PPO):
    def __init__(self, spaces: Spaces, config: Any, streams: Any):
        super().__init__(spaces, config, streams)
        self.model.distribution = FirstAction(spaces.action_sizes, scalar=True)


@pytest.mark.parametrize("learner", [PrefersTheFirst, ActsItself, ShiftsThePolicy, SamplesItself])
def test_a_subclass_that_acts_in_its_own_way_is_obeyed(
    learner: type[PQN | PPO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them always takes action 0, whatever the parent would do."""
    algo = "pqn" if issubclass(learner, PQN) else "ppo"
    spec = replace(get_spec(algo), learner=learner)
    monkeypatch.setattr(loop_setup, "get_spec", lambda name: spec)
    settings: dict[str, Any] = {"algo_kwargs": {"exploration": 0.0}} if algo == "pqn" else {}
    with collector_of("on", algo=algo, **settings) as collector:
        assert type(collector.learner) is learner
        assert f"the way {learner.__name__} acts here has no compiled form" in collector.rollouts
        assert not collector.collect(STEPS)[0].actions.any()


def test_a_run_that_is_not_compiled_has_nothing_to_say() -> None:
    with collector_of("off") as collector:
        assert collector.rollouts == STEP_BY_STEP


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr("rl_training.runtime.collection.compiled_rollout.CompiledLoop", fail)


@pytest.mark.usefixtures("no_compiler")
def test_a_compiler_that_fails_leaves_the_plain_path() -> None:
    with collector_of("off") as plain, collector_of("on") as compiled:
        said: list[str] = []
        compiled.learner.note = said.append
        np.testing.assert_array_equal(compiled.collect(STEPS)[0].obs, plain.collect(STEPS)[0].obs)
        assert "no such operator" in compiled.rollouts
        assert said[-1] == f"rollouts are made {compiled.rollouts}"


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("end", ["finished", "failed"])
def test_the_run_file_says_how_rollouts_were_made_in_the_end(end: str, tmp_path: Path) -> None:
    def fail(progress: Any) -> None:
        if end == "failed":
            raise RuntimeError("enough")

    settings = {"compile": "on", "device": "cpu", "num_envs": 2, "vector_backend": "batched", "checkpoint_every": 0}
    with contextlib.suppress(RuntimeError):
        train(tiny_config("a2c", tmp_path, **settings), show=False, callback=fail)
    (run_file,) = tmp_path.rglob("run.json")
    info = json.loads(run_file.read_text())
    assert info["status"] == end
    assert info["rollouts"] == f"{STEP_BY_STEP}: they cannot be compiled (RuntimeError: no such operator)"
