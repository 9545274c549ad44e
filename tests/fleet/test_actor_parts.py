"""Parts of actors: seeds by env number, streams of their own, weights in few pieces, rollouts side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training import load_config
from rl_training.algorithms.common.optimizer import vectors_of
from rl_training.algorithms.common.trajectories import env_columns
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.data.rollout import ROLLOUT_FIELDS
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.delivery import merged_rollout
from rl_training.runtime.fleet.shared_parcel import SharedParcel
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.stop_signals import StopSignals
from run_cases import CASES


def config_of(actors: int, **changes: Any) -> Any:
    base = {"algo": "impala", "env_id": "CartPole-v1", "num_envs": 4, "vector_backend": "sync", "total_timesteps": 400}
    runtime = {"actors": actors, "backend": "inline", "mode": "lockstep"}
    return load_config({**base, "runtime": runtime, "model": {"hidden_sizes": [8]}, "seed": 7, **changes})


def test_an_env_has_the_same_seed_whichever_actor_steps_it() -> None:
    first_obs = []
    for actors in (1, 2, 4):
        with open_loop(config_of(actors), None, None, StopSignals()) as loop:
            first_obs.append(loop.collector.collect(1)[0].obs[0].copy())
    assert len(np.unique(first_obs[0], axis=0)) == 4
    assert np.array_equal(first_obs[0], first_obs[1]) and np.array_equal(first_obs[0], first_obs[2])


def test_actors_draw_numbers_of_their_own() -> None:
    with open_loop(config_of(4), None, None, StopSignals()) as loop:
        crew = loop.collector
        assert isinstance(crew, ActorCollector)
        crew.collect(3)
        positions = [str(state["exploration"]) for state in crew._streams]
    assert len(set(positions)) == 4


def test_merging_the_columns_of_a_rollout_gives_the_rollout() -> None:
    short = {"env_kwargs": {"max_episode_steps": 5}, "algo_kwargs": {"num_steps": 12}}
    with open_loop(config_of(1, **short), None, None, StopSignals()) as loop:
        whole, _ = loop.collector.collect(12)
        assert len(whole.final_envs) >= 8
        merged = merged_rollout([env_columns(whole, np.array(envs)) for envs in ([0], [1, 2], [3])])
    for name in (*ROLLOUT_FIELDS, "last_obs"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name)), name
    assert np.array_equal(merged.extras["log_probs"], whole.extras["log_probs"])
    order = np.lexsort((merged.final_envs, merged.final_steps))
    for name in ("final_steps", "final_envs", "final_obs"):
        assert np.array_equal(getattr(merged, name)[order], getattr(whole, name)), name


def test_a_part_without_memory_is_merged_as_an_empty_one() -> None:
    from dataclasses import replace

    with open_loop(config_of(1), None, None, StopSignals()) as loop:
        whole, _ = loop.collector.collect(2)
    left, right = env_columns(whole, np.array([0, 1])), env_columns(whole, np.array([2, 3]))
    assert merged_rollout([left, right]).initial_memory is None
    merged = merged_rollout([replace(left, initial_memory=np.ones((2, 3), np.float32)), right])
    assert merged.initial_memory.tolist() == [[1.0] * 3] * 2 + [[0.0] * 3] * 2


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_weights_are_a_few_arrays_that_make_another_learner_act_the_same(algo: str, tmp_path: Any) -> None:
    case = next(case for case in CASES.values() if case.algo == algo and case.model.get("normalize_observations"))
    config = case.config(tmp_path)
    other = case.config(tmp_path, seed=11)
    with (
        open_loop(config, case.env, None, StopSignals()) as loop,
        open_loop(other, case.env, None, StopSignals()) as second,
    ):
        for _ in range(30):
            loop.round()
        state = loop.learner.acting_state()
        assert len(state) <= 8 + sum(1 for _ in loop.learner.model.buffers())
        obs = loop.collector.obs  # type: ignore[union-attr]
        before = acts(second.learner, obs)
        second.learner.adopt([array.copy() for array in state])
        ours, theirs = (acts(each.learner, obs) for each in (loop, second))
    assert np.array_equal(ours, theirs)
    assert before.shape == ours.shape


def acts(learner: Any, obs: np.ndarray) -> np.ndarray:
    """What it does in training, without noise. TD7 trains with a copy of its policy, and is judged by another one."""
    actions: np.ndarray = (
        learner.acting.act(obs) if hasattr(learner, "acting") else learner.act(obs, explore=False).actions
    )
    return actions


def test_neighbors_in_one_storage_are_one_vector() -> None:
    flat = torch.arange(10.0)
    parts = [torch.nn.Parameter(flat[start:stop]) for start, stop in ((0, 3), (3, 4), (6, 10))]
    apart = torch.nn.Parameter(torch.ones(2, 2))
    vectors = vectors_of([*parts, apart])
    assert [vector.tolist() for vector in vectors] == [[0, 1, 2, 3], [6, 7, 8, 9], [1, 1, 1, 1]]
    vectors[0][0] = 5
    assert parts[0][0] == 5


def test_a_shared_parcel_brings_arrays_and_weights_across_and_grows() -> None:
    weights = [np.arange(3, dtype=np.float32), np.array(2.5)]
    ours = SharedParcel([(array.shape, array.dtype) for array in weights])
    theirs = SharedParcel([(array.shape, array.dtype) for array in weights], ours.descriptor)
    ours.write_weights(weights)
    assert [view.tolist() for view in theirs.weights] == [[0, 1, 2], 2.5]
    for size in (5, 100_000, 7):
        content = {"obs": np.arange(size), "flag": np.bool_(True), "empty": np.zeros((0, 3)), "word": "x"}
        content |= {"strided": np.arange(10)[::3], "objects": np.array(["a", None], object), "number": np.array(1.5)}
        content["episode"] = Episode(2.0, 7, {"is_success": 1.0})
        received = ours.get(theirs.put(content))
        assert received["word"] == "x" and received["flag"] and received["empty"].shape == (0, 3)
        assert received["strided"].tolist() == [0, 3, 6, 9] and received["objects"].tolist() == ["a", None]
        assert received["number"] == 1.5 and received["episode"] == content["episode"]
        assert np.array_equal(received["obs"], content["obs"])
        received["obs"][0] = 9  # a copy, which may be written
    assert ours.weights[0].tolist() == [0, 1, 2]
    ours.close()
