"""The loops of Ape-X: the account, the kept ratio, priorities of actors, exact resume, and equal numbers everywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fleet_helpers import run
from replay_helpers import DISCRETE
from rl_training import load_config
from rl_training.config.algorithms.apex_dqn import ApexDQNConfig
from rl_training.data.experience import Experience
from rl_training.data.replay_factory import recent_steps
from rl_training.runtime.fleet.apex_loops import ApexLoop, AsyncApexLoop
from rl_training.runtime.fleet.experience_maker import add_steps
from rl_training.runtime.fleet.sample_ratio import SampleRatio
from rl_training.runtime.fleet.tickets import Ticket
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import load_checkpoint
from run_cases import Case, assert_same_run, metric_lines, stop_at

SHORT = {"env_kwargs": {"max_episode_steps": 7}}
DQN_CASE = Case(
    "apex_dqn",
    num_envs=4,
    steps=160,
    model={"normalize_observations": True},
    settings={"ticket_steps": 3, "batch_size": 8, "learning_starts": 20, "buffer_size": 120, "train_frequency": 2},
    options=SHORT,
)
D4PG_CASE = Case(
    "apex_d4pg",
    "Pendulum-v1",
    num_envs=2,
    steps=96,
    model={"normalize_observations": True},
    settings={"ticket_steps": 3, "batch_size": 8, "learning_starts": 20, "buffer_size": 500, "noise_type": "ou"},
    options=SHORT,
)

TD3_CASE = replace(D4PG_CASE, algo="apex_td3")


@contextlib.contextmanager
def apex_loop(mode: str = "lockstep", *, actors: int = 2, total: int = 400, **changes: Any) -> Iterator[ApexLoop]:
    base = {"algo": "apex_dqn", "env_id": "CartPole-v1", "num_envs": 4, "total_timesteps": total, "checkpoint_every": 0}
    runtime = {"actors": actors, "mode": mode, "backend": changes.pop("backend", "inline")}
    settings = {"batch_size": 8, "learning_starts": 40, "buffer_size": 4000, "train_frequency": 2, "ticket_steps": 4}
    settings |= changes.pop("algo_kwargs", {})
    model = {"hidden_sizes": [8]}
    config = load_config({**base, "runtime": runtime, "model": model, "algo_kwargs": settings, **changes})
    with open_loop(config, None, None, StopSignals()) as loop:
        assert isinstance(loop, ApexLoop)
        yield loop


def assert_account(loop: ApexLoop) -> dict[str, Any]:
    line = loop.figures()
    parts = ("learned", "stale", "lost", "in_flight")
    assert line["env_steps_granted"] == sum(line[f"env_steps_{name}"] for name in parts)
    assert line["env_steps_learned"] == loop.env_steps and line["env_steps_stale"] == 0
    assert line["env_steps_granted"] - line["env_steps_lost"] <= loop.config.total_timesteps
    return line


# The same numbers everywhere, and exact resume.


@pytest.mark.parametrize("case", [DQN_CASE, D4PG_CASE, TD3_CASE], ids=["dqn", "d4pg", "td3"])
def test_processes_equal_inline_and_a_resumed_run_equals_both(case: Case, tmp_path: Path) -> None:
    inline = run(case, tmp_path / "inline", actors=2, backend="inline", mode="lockstep")
    processes = run(case, tmp_path / "process", actors=2, backend="process", mode="lockstep")
    assert_same_run(inline.run_dir, processes.run_dir)
    half = run(case, tmp_path / "half", stop_at(case.steps // 2), actors=2, backend="process", mode="lockstep")
    checkpoint = load_checkpoint(half.checkpoint)
    assert checkpoint.exact and {ref.shard for ref in checkpoint.segments} == {0, 1}
    resumed = resume(half.run_dir, overrides={"runtime.backend": "inline"}, show=False)
    assert_same_run(inline.run_dir, resumed.run_dir)


def test_a_checkpoint_of_an_asynchronous_run_is_one_cut_and_no_step_is_counted_twice(tmp_path: Path) -> None:
    case = DQN_CASE
    half = run(case, tmp_path, stop_at(case.steps // 2), actors=2, backend="process", mode="async")
    checkpoint = load_checkpoint(half.checkpoint)
    assert not checkpoint.exact
    state = checkpoint.state["loop"]
    assert state["fleet"]["ledger"]["learned"] == state["env_steps"] == half.env_steps
    shards = state["buffer"]["shards"].values()
    assert sum(shard["rows_written"] * shard["num_envs"] for shard in shards) >= half.env_steps
    finished = resume(half.run_dir, show=False)
    assert finished.env_steps == case.steps
    for line in metric_lines(finished.run_dir):
        if line["kind"] == "train":
            assert line["env_steps_learned"] == line["env_steps"]


# The account and the budget.


@pytest.mark.parametrize("total", [400, 407])
@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_the_account_is_exact_at_every_line_and_the_budget_is_kept(mode: str, total: int) -> None:
    with apex_loop(mode, total=total, backend="process") as loop:
        for _ in loop:
            assert_account(loop)
        assert loop.is_over and not loop.collector.ledger.in_flight
        assert total - 4 < loop.env_steps <= total
        assert all(len(shard) > 0 for shard in loop.buffer.shards)
        assert len(loop.buffer) == loop.env_steps


def test_scarce_tickets_go_round() -> None:
    """The learner is the limit, so few tickets are out: still every actor, with its own exploration, has its share."""
    with apex_loop("async", actors=4) as loop:
        for _ in loop:
            made = [shard.rows_written for shard in loop.buffer.shards]
            assert max(made) - min(made) <= 2 * loop.ticket_steps
        assert made == [100] * 4


def test_every_row_comes_home_once() -> None:
    """Rows of all shards together are what the envs did: as many ends as episodes, and rewards of 1."""
    with apex_loop("async", backend="process", **SHORT) as loop:
        episodes = [episode for progress in loop for episode in progress.episodes]
        rows = [shard.export_rows(0, shard.rows_written) for shard in loop.buffer.shards]
    assert sum(int((part["terminated"] | part["truncated"]).sum()) for part in rows) >= len(episodes) > 20
    assert all((part["rewards"][part["valid"]] == 1.0).all() for part in rows)
    assert sum(int(part["valid"].sum()) for part in rows) == 400


def test_a_barrier_takes_back_what_is_not_inserted() -> None:
    with apex_loop("async") as loop:
        for _ in range(2):
            loop.round()
        loop._grant()  # type: ignore[attr-defined]
        assert loop.collector.ledger.in_flight > 0
        loop.barrier()
        line = assert_account(loop)
        assert line["env_steps_in_flight"] == line["queue"] == 0
        assert line["env_steps_granted"] == loop.env_steps


# The ratio.


@pytest.mark.parametrize("ratio", [0.5, 4.0, 64.0])
@pytest.mark.parametrize("actors_are", ["fast", "slow", "in turn"])
def test_samples_per_insert_stay_within_a_tenth_and_nobody_waits_for_ever(ratio: float, actors_are: str) -> None:
    """A model of a run: whoever may act does, at its own pace; at every moment someone may."""
    batch, ticket = 32, 16
    keeper = SampleRatio(ratio, batch, slack=4 * ticket)
    rng = np.random.default_rng(0)
    chance = {"fast": 0.95, "slow": 0.05, "in turn": 0.5}[actors_are]
    for _ in range(20_000):
        may_insert, may_sample = keeper.may_insert(ticket), keeper.may_sample()
        assert may_insert or may_sample
        if may_insert and (rng.random() < chance or not may_sample):
            keeper.inserts += ticket
        elif may_sample:
            keeper.sampled()
        wanted = ratio * keeper.inserts
        assert keeper.samples <= 1.1 * wanted + batch
        assert keeper.samples >= 0.9 * (wanted - ratio * 4 * ticket) - 1e-6
    assert keeper.inserts > 1000 or keeper.samples > 1000


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_an_asynchronous_run_keeps_the_ratio_of_its_settings(backend: str) -> None:
    with apex_loop("async", backend=backend, total=600) as loop:
        assert isinstance(loop, AsyncApexLoop)
        for _ in loop:
            inserts, samples = loop.ratio.inserts, loop.ratio.samples
            assert 0.9 * 4 * (inserts - 16) <= samples + 8 and samples <= 1.1 * 4 * inserts + 8
        assert loop.figures()["samples_per_insert"] == pytest.approx(4.0, rel=0.1)
        assert loop.learner.updates == loop.ratio.samples // 8


def test_lockstep_has_the_ratio_exactly() -> None:
    with apex_loop() as loop:
        for _ in loop:
            assert loop.ratio.samples == loop.ratio.inserts * 4 // 8 * 8


def test_a_ratio_of_ones_own_and_free_running() -> None:
    with apex_loop("async", total=160, algo_kwargs={"samples_per_insert": 16.0}) as loop:
        for _ in loop:
            pass
        assert loop.ratio.samples / loop.ratio.inserts == pytest.approx(16.0, rel=0.11)
    with apex_loop("async", total=160, algo_kwargs={"samples_per_insert": None}) as loop:
        rounds = sum(1 for _ in loop)
        assert loop.env_steps == 160
        assert 0 < loop.learner.updates <= rounds  # at most one between two looks for deliveries
        assert loop.ratio.owed() == 0


# What actors do.


def actors_of(loop: ApexLoop) -> list[Any]:
    return loop.collector.fleet._actors  # type: ignore[attr-defined, no-any-return]


def test_each_actor_explores_by_its_own_rung() -> None:
    with apex_loop(actors=4) as loop:
        rates = [actor._learner.exploration_rate() for actor in actors_of(loop)]
    np.testing.assert_allclose(rates, [0.4 ** (1 + 7 * i / 3) for i in range(4)])


def test_each_actor_of_r2d2_explores_by_its_own_rung() -> None:
    base = {"algo": "r2d2", "env_id": "CartPole-v1", "num_envs": 4, "total_timesteps": 400, "checkpoint_every": 0}
    settings = {"sequence_length": 8, "burn_in": 2, "batch_size": 4, "buffer_size": 400}
    runtime = {"actors": 4, "backend": "inline"}
    with open_loop(
        load_config({**base, "runtime": runtime, "algo_kwargs": settings}), None, None, StopSignals()
    ) as loop:
        rates = [actor._learner.exploration_rate() for actor in loop.collector.fleet._actors]
    np.testing.assert_allclose(rates, [0.4 ** (1 + 7 * i / 3) for i in range(4)])


def assert_priorities_are_errors(loop: ApexLoop, rounds: int) -> None:
    for _ in range(rounds):
        loop.round()
        for shard in loop.buffer.shards:
            rows = shard.newest_rows(min(shard.rows_written, 6)).ravel()
            rows = rows[shard.is_valid(rows)]
            errors = loop.learner.priorities(shard.rows(rows)).numpy()  # type: ignore[attr-defined]
            assert shard._tree is not None
            np.testing.assert_allclose(shard._tree.get(rows), (errors + 1e-6) ** 0.6, rtol=1e-4)
    assert loop.learner.updates == 0  # the weights are those of the actors


def test_priorities_of_actors_are_the_errors_that_the_learner_finds_on_the_same_rows() -> None:
    """Also of rows whose n-step window the next ticket completes, of ends, and over the end of the ring."""
    with apex_loop(algo_kwargs={"learning_starts": 390, "buffer_size": 60}, **SHORT) as loop:
        assert_priorities_are_errors(loop, 9)


def test_replay_and_priorities_have_the_rewards_that_the_settings_shape() -> None:
    with apex_loop(algo_kwargs={"learning_starts": 390, "reward_scale": 4.0, "reward_clip": 3.0}, **SHORT) as loop:
        assert_priorities_are_errors(loop, 3)
        for shard in loop.buffer.shards:
            rows = shard.export_rows(0, shard.rows_written)
            assert (rows["rewards"][rows["valid"]] == 3.0).all()


def test_after_a_restart_actors_have_priorities_of_the_new_steps_only() -> None:
    with apex_loop(algo_kwargs={"learning_starts": 390}) as loop:
        assert_priorities_are_errors(loop, 1)
        loop.barrier()
        loop.restart_envs()
        assert_priorities_are_errors(loop, 2)


def test_actions_are_random_until_learning_starts() -> None:
    with apex_loop() as loop:
        assert [loop._order(steps)["random"] for steps in (0, 39, 40, 400)] == [True, True, False, False]


def test_priorities_of_images_are_those_of_the_frames_in_replay() -> None:
    """An actor keeps whole images, replay single frames."""
    pytest.importorskip("ale_py")
    atari = {"image_size": 36, "max_frames": 160, "sticky_actions": 0.25, "episodic_life": True}
    settings = {"learning_starts": 390, "buffer_size": 60, "reward_clip": 1.0}
    images = {"env_id": "ALE/Pong-v5", "env_kwargs": {"atari": atari}, "num_envs": 2}
    with apex_loop(algo_kwargs=settings, model={"hidden_sizes": (), "encoder_size": 16}, **images) as loop:
        assert loop.buffer.shards[0].layout.stack == 4
        assert_priorities_are_errors(loop, 4)


def test_an_actor_sends_priorities_of_the_rows_before_its_ticket_once_more() -> None:
    with apex_loop() as loop:
        sizes = []
        insert = loop.insert

        def watched(delivery: Any) -> Any:
            experience = delivery.content
            assert isinstance(experience, Experience) and experience.priorities is not None
            sizes.append((experience.fresh, len(experience), len(experience.priorities)))
            return insert(delivery)

        loop.insert = watched  # type: ignore[method-assign]
        loop.round()
        loop.round()
    assert sizes == [(True, 4, 4)] * 2 + [(False, 4, 6)] * 2  # n_step - 1 rows more


def test_after_a_restart_no_window_reaches_over_the_cut() -> None:
    with apex_loop(algo_kwargs={"learning_starts": 390}) as loop:
        loop.round()
        before = [shard.newest_rows(1).ravel() for shard in loop.buffer.shards]
        loop.barrier()
        loop.restart_envs()
        loop.round()
        for shard, last in zip(loop.buffer.shards, before, strict=True):
            assert shard.rows(last).discounts.tolist() == pytest.approx([0.99] * 2)


def test_a_replaced_actor_cuts_its_shard() -> None:
    with apex_loop(algo_kwargs={"learning_starts": 390}) as loop:
        loop.round()
        shard = loop.buffer.shards[1]
        last = shard.newest_rows(1).ravel()
        loop.collector._fresh[1] = True  # as after a replacement
        loop.round()
        assert shard.rows(last).discounts.tolist() == pytest.approx([0.99] * 2)
        whole = loop.buffer.shards[0].newest_rows(5)[0]
        assert loop.buffer.shards[0].rows(whole).discounts.tolist() == pytest.approx([0.99**3] * 2)


def test_an_episode_whose_env_broke_ends_with_the_row_before() -> None:
    buffer = recent_steps(DISCRETE, ApexDQNConfig(n_step=3, gamma=0.5), 2, 4)
    columns: dict[str, Any] = {name: np.zeros((4, 2), bool) for name in ("terminated", "truncated")}
    columns |= {name: np.zeros((4, 2, 3), np.float32) for name in ("obs", "next_obs")}
    columns |= {"actions": np.zeros((4, 2), np.int64), "valid": np.ones((4, 2), bool)}
    broken = np.zeros((4, 2), bool)
    broken[2, 1], columns["valid"][2, 1] = True, False
    add_steps(buffer, columns, np.ones((4, 2), np.float32), broken)
    assert buffer.export_rows(0, 4)["truncated"].tolist() == [[False] * 2, [False, True], [False] * 2, [False] * 2]
    assert buffer.rows(buffer.newest_rows(4)[0]).rewards.tolist() == [1.75, 1.5]


def test_uniform_replay_asks_actors_for_no_priorities() -> None:
    with apex_loop(algo_kwargs={"prioritized": False}) as loop:
        ticket = Ticket(0, 0, 0, 0, 0, 2, kind="experience", random=True, reset_at=0)
        delivery = actors_of(loop)[0].collect(ticket)
        assert delivery.content.priorities is None
        for _ in loop:
            pass
        assert loop.learner.updates > 100


def test_a_priority_that_is_not_finite_ends_the_run() -> None:
    from rl_training.errors import NumericalError

    with apex_loop() as loop:
        learner = actors_of(loop)[0]._learner
        learner.priorities = lambda batch: torch.full((len(batch),), float("nan"))
        with pytest.raises(NumericalError, match="replay priorities are not finite"):
            loop.round()


def test_a_vector_env_that_is_made_already_is_refused(tmp_path: Path) -> None:
    import gymnasium as gym

    from rl_training.errors import ConfigError

    envs = gym.make_vec("CartPole-v1", num_envs=4)
    config = load_config("apex_dqn/cartpole", {"output_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"runtime.actors: a vector environment"):
        train(config, env=envs, show=False)
    envs.close()
