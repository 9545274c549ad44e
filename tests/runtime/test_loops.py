"""The on-policy loop, and the window that turns its progress into lines of metrics."""

from __future__ import annotations

from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from on_policy_helpers import learn_from
from probe_suite import build_loop
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.api import A2C
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.base import RolloutConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.probes import AutoresetCanaryProbe, probe_vector_env
from rl_training.errors import NumericalError
from rl_training.experiment.registry import algorithm_names, get_config_class
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.loops import OnPolicyLoop, Progress
from rl_training.runtime.output.metric_window import RECENT_EPISODES, MetricWindow
from rl_training.storage.state_tree import state_hash

ON_POLICY = [name for name in algorithm_names() if issubclass(get_config_class(name), RolloutConfig)]


def a2c_loop(
    steps: int, num_steps: int, num_envs: int = 2, mode: AutoresetMode = AutoresetMode.SAME_STEP, **settings: Any
) -> OnPolicyLoop:
    envs = probe_vector_env(AutoresetCanaryProbe, num_envs, autoreset_mode=mode, length=3)
    loop = build_loop("a2c", envs, steps=steps, num_steps=num_steps, **settings)
    assert isinstance(loop, OnPolicyLoop)
    return loop


@pytest.mark.parametrize(
    ("steps", "num_steps", "num_envs", "rollouts"),
    [
        (40, 5, 2, [5, 5, 5, 5]),
        (46, 5, 2, [5, 5, 5, 5, 3]),  # the last one shrinks to what is left
        (47, 5, 2, [5, 5, 5, 5, 3]),  # and never by half a vector step
        (44, 8, 2, [8, 8, 6]),
        (36, 8, 2, [8, 8, 2]),  # a quarter of a rollout is still worth an update
        (34, 8, 2, [8, 8]),  # less is not
        (2, 8, 2, [1]),  # but a run never ends before it has begun
        (1, 8, 2, []),
        (10, 1, 3, [1, 1, 1]),
    ],
)
def test_rollouts_fit_the_budget(steps: int, num_steps: int, num_envs: int, rollouts: list[int]) -> None:
    loop = a2c_loop(steps, num_steps, num_envs)
    seen: list[int] = []
    update = loop.learner.update

    def watched(rollout: Any) -> UpdateResult:
        seen.append(len(rollout.rewards))
        return update(rollout)

    loop.learner.update = watched  # type: ignore[method-assign]
    # Limited: a loop that overlooks its budget would never end.
    done = [progress.env_steps for progress in islice(loop, 20)]
    assert done == (num_envs * np.cumsum(rollouts)).tolist()
    assert seen == rollouts
    assert loop.round() is None


def test_reset_rows_are_not_counted_and_their_budget_is_spent_later() -> None:
    loop = a2c_loop(40, 8, mode=AutoresetMode.NEXT_STEP)
    # One row in four is a reset: 8 rows of 2 envs are 12 steps. The last rollout has room for 2 rows.
    assert [progress.env_steps for progress in loop] == [12, 24, 36, 40]


def test_progress_says_what_the_round_brought() -> None:
    loop = a2c_loop(24, 6)
    first, second = list(loop)
    assert (first.updates, second.updates) == (1, 2)
    assert first.episodes == [Episode(6.0, 3)] * 4
    assert len(first.results) == 1
    assert set(first.results[0]) >= {"loss", "policy_loss", "value_loss", "entropy"}
    assert loop.seconds_learning > 0
    assert loop.collector.seconds_env > 0
    assert loop.collector.seconds_acting > 0


def test_schedules_go_by_the_steps_before_the_rollout() -> None:
    loop = a2c_loop(40, 5, learning_rate={"start": 0.4, "end": 0.0})
    rates = [float(progress.results[0]["learning_rate"]) for progress in loop]
    np.testing.assert_allclose(rates, [0.4, 0.3, 0.2, 0.1], rtol=1e-6)


def test_acting_within_a_rollout_sees_the_steps_before_it() -> None:
    loop = a2c_loop(20, 5)
    seen: list[int] = []
    act = loop.learner.act

    def watched(obs: np.ndarray, **options: Any) -> Any:
        seen.append(loop.learner.env_steps)
        return act(obs, **options)

    loop.learner.act = watched  # type: ignore[method-assign]
    list(loop)
    assert seen == [0] * 5 + [10] * 5


@pytest.mark.parametrize("algo", [name for name in ON_POLICY if ALGORITHMS[name].loop == "on-policy"])
def test_a_round_shapes_rewards_then_updates_then_shows_the_observations(algo: str) -> None:
    """Reset rows and ends of both kinds included; a twin learner gets the same rollouts from `learn_from`."""
    settings: dict[str, Any] = {"num_steps": 12, "reward_scale": 0.5, "reward_clip": 0.6, "normalize_rewards": True}
    settings["learning_rate"] = {"start": 1e-2, "end": 0.0}
    settings |= {"minibatch_size": 8} if "minibatch_size" in get_config_class(algo).model_fields else {}

    def build() -> OnPolicyLoop:
        envs = probe_vector_env(AutoresetCanaryProbe, 2, autoreset_mode=AutoresetMode.NEXT_STEP, length=3)
        loop = build_loop(algo, envs, steps=80, model={"normalize_observations": True}, **settings)
        assert isinstance(loop, OnPolicyLoop)
        return loop

    loop, twin = build(), build().learner
    collected: list[tuple[int, Rollout]] = []
    seen: list[tuple[float, np.ndarray]] = []
    collect, update = loop.collector.collect, loop.learner.update

    def watched_collect(num_steps: int) -> Any:
        rollout, episodes = collect(num_steps)
        collected.append((loop.env_steps, deepcopy(rollout)))
        return rollout, episodes

    def watched_update(rollout: Rollout) -> UpdateResult:
        seen.append((float(loop.learner.model.normalizer.count), rollout.rewards))
        return update(rollout)

    loop.collector.collect, loop.learner.update = watched_collect, watched_update  # type: ignore[method-assign]
    list(loop)
    assert len(seen) == len(collected) > 2
    assert [count for count, _ in seen] == [env_steps for env_steps, _ in collected]
    assert float(loop.learner.model.normalizer.count) == loop.env_steps
    for (env_steps, rollout), (_, rewards) in zip(collected, seen, strict=True):
        assert not rollout.valid.all() and not np.array_equal(rewards, rollout.rewards)
        twin.clock.env_steps = env_steps
        learn_from(twin, rollout)
    for part in ("model", "return_normalizer"):
        ours, theirs = (learner.state_dict()["parts"][part] for learner in (loop.learner, twin))
        assert state_hash(ours) == state_hash(theirs), part


def test_a_restored_loop_goes_on_where_the_saved_one_stood() -> None:
    loop = a2c_loop(40, 5)
    loop.round()
    other = a2c_loop(40, 5)
    other.load_state_dict(loop.state_dict())
    assert [progress.env_steps for progress in other] == [20, 30, 40]


def progress(steps: int = 10, episodes: Any = (), **metrics: float) -> Progress:
    result = UpdateResult({name: torch.tensor(value) for name, value in metrics.items()})
    return Progress(steps, steps // 10, [result], list(episodes))


def test_a_line_averages_what_was_computed_since_the_last_one() -> None:
    window = MetricWindow()
    assert window.is_empty
    window.add(progress(10, [Episode(4.0, 2)], loss=1.0, actor_loss=5.0))
    window.add(progress(20, [Episode(8.0, 6)], loss=3.0))
    assert not window.is_empty
    assert window.line() == {
        "kind": "train",
        "env_steps": 20,
        "updates": 2,
        "episodes": 2,
        "mean_return": 6.0,
        "mean_length": 4.0,
        "loss": 2.0,
        "actor_loss": 5.0,
    }
    assert window.is_empty
    window.add(progress(30, loss=7.0))
    line = window.line()
    assert line["loss"] == 7.0
    assert "actor_loss" not in line
    assert (line["episodes"], line["mean_return"]) == (2, 6.0)


def test_a_line_without_episodes_or_updates_claims_nothing_about_them() -> None:
    window = MetricWindow()
    window.add(Progress(10, 0, [], []))
    assert window.line() == {"kind": "train", "env_steps": 10, "updates": 0, "episodes": 0}


def test_episode_statistics_are_over_the_most_recent_hundred() -> None:
    window = MetricWindow()
    window.add(progress(10, [Episode(float(number), number) for number in range(150)], loss=0.0))
    line = window.line()
    assert line["episodes"] == 150
    assert line["mean_return"] == np.mean(range(150 - RECENT_EPISODES, 150)) == line["mean_length"]
    restored = MetricWindow()
    restored.load_state_dict(window.state_dict())
    for copy in (window, restored):
        copy.add(progress(20, [Episode(1000.0, 7)], loss=0.0))
    assert restored.line() == window.line()
    assert restored.recent.maxlen == RECENT_EPISODES


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_metric_that_is_not_finite_stops_the_run_by_name_and_step(value: float) -> None:
    window = MetricWindow()
    window.add(progress(10, loss=1.0))
    window.add(progress(20, loss=value))
    for check in (window.check, window.line):
        with pytest.raises(NumericalError, match=r"loss is -?(nan|inf) at env step 20") as caught:
            check()
        assert "\n" not in str(caught.value)


def test_explained_variance_alone_may_be_undefined() -> None:
    window = MetricWindow()
    window.add(progress(10, loss=1.0, explained_variance=float("nan")))
    window.check()
    assert np.isnan(window.line()["explained_variance"])


def test_a_check_takes_nothing_out_of_the_window() -> None:
    window = MetricWindow()
    window.check()
    window.add(progress(10, loss=1.0))
    window.check()
    assert window.line()["loss"] == 1.0


def test_after_a_barrier_envs_start_from_seeds_that_follow_from_the_step() -> None:
    loop = a2c_loop(40, 5)
    seeds: list[int] = []
    reset = loop.collector.envs.reset

    def watched(*, seed: int, **options: Any) -> Any:
        seeds.append(seed)
        return reset(seed=seed, **options)

    loop.collector.envs.reset = watched  # type: ignore[method-assign]
    for _ in loop:
        updates = loop.learner.updates
        loop.barrier()
        loop.restart_envs()
        assert loop.learner.updates == updates
        assert loop.collector.episode_starts.all()
    assert seeds == [loop.streams.seed_for("envs", step) for step in (10, 20, 30, 40)]
    assert len(set(seeds)) == 4


def test_rollouts_of_resets_only_are_not_learned_from(tmp_path: Path) -> None:
    """One env under next-step autoreset, one step per rollout: the step after an end holds no transition."""
    settings = {"num_envs": 1, "num_steps": 1, "vector_backend": "native", "output_dir": str(tmp_path)}
    agent = A2C("CartPole-v1", hidden_sizes=(8,), eval_episodes=1, **settings).learn(300, show=False)
    assert agent.env_steps == 300
