"""Named random streams: reproducible, independent of each other, restorable from JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from on_policy_helpers import make_learner, make_rollout, parameters_of
from rl_training.algorithms.common.streams import Streams, derived_seed


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, second = Streams(3)["exploration"].random(5), Streams(3)["exploration"].random(5)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, Streams(4)["exploration"].random(5))
    assert not np.array_equal(first, Streams(3)["replay"].random(5))


def test_using_one_stream_never_shifts_another() -> None:
    quiet, busy = Streams(3), Streams(3)
    busy["evaluation"].random(1000)
    busy.seed_for("envs", 7)
    np.testing.assert_array_equal(quiet["exploration"].random(5), busy["exploration"].random(5))


def test_state_survives_json_and_continues_exactly() -> None:
    streams = Streams(3)
    streams["exploration"].standard_normal(7, dtype=np.float32)
    streams["minibatches"].permutation(5)
    state = json.loads(json.dumps(streams.state_dict()))
    restored = Streams(3)
    restored["exploration"].random(100)
    restored.load_state_dict(state)
    for name in ("exploration", "minibatches", "never used before"):
        np.testing.assert_array_equal(streams[name].random(5), restored[name].random(5))


def test_state_of_another_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="seed is 3, the config's is 4"):
        Streams(4).load_state_dict(Streams(3).state_dict())


def test_derived_seeds_are_distinct_stable_and_fit_in_31_bits() -> None:
    paths = [("envs", 0), ("envs", 1), ("evaluation", 0), ("init",), ("envs", 0, 1)]
    seeds = {derived_seed(run, *path) for run in range(50) for path in paths}
    assert len(seeds) == 50 * len(paths)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert Streams(9).seed_for("envs", 5) == derived_seed(9, "envs", 5) == derived_seed(9, "envs", 5)


def test_a_seed_means_the_same_numbers_in_every_release() -> None:
    """A change here changes every run and every resumed checkpoint: it must be made on purpose."""
    assert [derived_seed(0, "init"), derived_seed(1, "envs", 2)] == [949240827, 874974340]
    assert Streams(0)["exploration"].integers(1000, size=4).tolist() == [729, 299, 262, 493]


def test_building_a_model_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make_learner("ppo").build(lambda: torch.nn.Linear(4, 4))
    assert torch.equal(torch.rand(3), expected)


def test_initial_weights_follow_from_the_runs_seed_alone() -> None:
    torch.manual_seed(1)
    first = parameters_of(make_learner("ppo", seed=2).model)
    torch.manual_seed(99)
    assert torch.equal(parameters_of(make_learner("ppo", seed=2).model), first)
    assert not torch.equal(parameters_of(make_learner("ppo", seed=3).model), first)


def test_acting_without_exploration_draws_nothing() -> None:
    learner = make_learner("ppo")
    obs = np.ones((2, 3), np.float32)
    before = json.dumps(learner.streams.state_dict())
    first, second = learner.act(obs, explore=False), learner.act(obs, explore=False)
    np.testing.assert_array_equal(first.actions, second.actions)
    assert json.dumps(learner.streams.state_dict()) == before


@pytest.mark.parametrize(
    ("algo", "learning", "settings"),
    [
        ("a2c", set(), {}),
        ("ppo", {"minibatches"}, {"minibatch_size": 4}),
        ("trpo", {"minibatches"}, {"minibatch_size": 4}),
        ("recurrent_ppo", {"minibatches"}, {"minibatch_size": 4, "sequence_length": 4}),
        ("impala", {"minibatches"}, {"num_minibatches": 2}),
        ("appo", {"minibatches"}, {"num_minibatches": 2}),
        ("ppg", {"minibatches", "auxiliary_minibatches"}, {"minibatch_size": 4, "policy_phases": 1}),
    ],
)
def test_collecting_and_learning_draw_from_streams_of_their_own(
    algo: str, learning: set[str], settings: dict[str, Any]
) -> None:
    """The names are part of every checkpoint: a resumed run finds its generators by them."""
    sizes = {"auxiliary_minibatch_size": 4} if algo == "ppg" else {}
    learner, other = (make_learner(algo, num_envs=2, num_steps=8, **settings, **sizes) for _ in range(2))
    rollout = make_rollout(other, 8, seed=0)
    assert set(other.streams.state_dict()["generators"]) == {"exploration"}
    learner.update(rollout)
    assert set(learner.streams.state_dict()["generators"]) == learning


def test_weights_come_from_the_init_stream() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(derived_seed(7, "init"))
        expected = torch.nn.Linear(4, 4)
    built = make_learner("ppo", seed=7).build(lambda: torch.nn.Linear(4, 4))
    assert torch.equal(parameters_of(built), parameters_of(expected))
