"""Actors that are killed, freeze, raise or cannot start: the run continues or says why not, and nothing is left."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from faulty_envs import FaultyEnv
from rl_training import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import EnvError, NumericalError
from rl_training.runtime.collection.compiled_rollout import CompiledRollouts
from rl_training.runtime.fleet import actor_collector
from rl_training.runtime.fleet.actor import Actor
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.inline import InlineFleet
from rl_training.runtime.fleet.processes import ProcessFleet
from rl_training.runtime.loops import Loop
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.workflows import train
from rl_training.telemetry.recorder import read_metrics
from run_cases import TwoKnobs
from spawning_env import wait_until_gone
from waiting import wait_until

MODES = ["lockstep", "pipelined", "async"]


def config_of(algo: str = "impala", mode: str = "lockstep", total: int = 400, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"num_steps": 10}
    if algo in ("dqn", "apex_dqn", "apex_td3"):
        settings = {"learning_starts": 20, "batch_size": 8, "buffer_size": 500, "n_step": 3}
    base = {
        "algo": algo,
        "env_id": "Pendulum-v1" if algo == "apex_td3" else "CartPole-v1",
        "num_envs": 4,
        "total_timesteps": total,
        "checkpoint_every": 0,
        "eval_episodes": 1,
        "runtime": {"actors": 2, "backend": "process", "mode": mode, "actor_timeout": 30},
        "model": {"hidden_sizes": [8]},
        "algo_kwargs": settings,
    }
    return load_config({**base, **changes})


def fleet_of(loop: Loop) -> tuple[ActorCollector, ProcessFleet]:
    assert isinstance(loop.collector, ActorCollector)
    assert isinstance(loop.collector.fleet, ProcessFleet)
    return loop.collector, loop.collector.fleet


def processes_of(fleet: ProcessFleet) -> list[int]:
    return [worker.process for _, worker in fleet._workers()]


LOCKSTEP = [(algo, "lockstep") for algo in ("dqn", "a3c", "apex_dqn", "apex_td3")]


def assert_account(crew: ActorCollector, env_steps: int) -> None:
    counts = crew.ledger.counts()
    assert counts["env_steps_learned"] + counts["env_steps_stale"] == env_steps
    parts = ("learned", "stale", "lost", "in_flight")
    assert counts["env_steps_granted"] == sum(counts[f"env_steps_{name}"] for name in parts)


@pytest.mark.parametrize(("algo", "mode"), [*(("impala", mode) for mode in MODES), *LOCKSTEP])
def test_a_killed_actor_is_replaced_and_its_steps_are_made_again(algo: str, mode: str) -> None:
    with open_loop(config_of(algo, mode), None, None, StopSignals()) as loop:
        crew, fleet = fleet_of(loop)
        seen = [*fleet._nursery.processes, *processes_of(fleet)]
        for number, progress in enumerate(loop):
            if number == 2:
                os.kill(processes_of(fleet)[1], signal.SIGKILL)
            assert_account(crew, progress.env_steps)
        assert progress.env_steps == 400
        assert crew.restarts == 1 and crew.ledger.lost > 0
        assert crew.notes == ["replaced actor 1: its process was killed by SIGKILL; its envs start new episodes"]
        assert fleet.alive() == 2
        seen += processes_of(fleet)
    wait_until_gone(seen)


@pytest.mark.parametrize("algo", ["a3c", "apex_dqn", "apex_td3"])
def test_a_killed_actor_costs_an_asynchronous_run_no_step_of_its_budget(algo: str) -> None:
    with open_loop(config_of(algo, "async"), None, None, StopSignals()) as loop:
        crew, fleet = fleet_of(loop)
        for number, progress in enumerate(loop):
            if number == 2:
                os.kill(processes_of(fleet)[1], signal.SIGKILL)
            assert_account(crew, progress.env_steps)
            assert crew.ledger.granted - crew.ledger.lost <= 400
        assert crew.restarts == 1 and progress.env_steps > 395
        assert fleet.alive() == 2


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_a_frozen_actor_is_killed_after_its_deadline_and_replaced(mode: str) -> None:
    config = config_of(mode=mode)
    config = config.model_copy(update={"runtime": config.runtime.model_copy(update={"actor_timeout": 2.0})})
    with open_loop(config, None, None, StopSignals()) as loop:
        crew, fleet = fleet_of(loop)
        for number, _ in enumerate(loop):
            if number == 2:
                frozen = processes_of(fleet)[0]
                os.kill(frozen, signal.SIGSTOP)
        assert loop.env_steps == 400
        assert "replaced actor 0: it gave no answer within 2 s (runtime.actor_timeout)" in crew.notes[0]
    wait_until_gone([frozen])


def test_a_frozen_actor_is_noticed_although_another_one_always_has_something_to_deliver() -> None:
    config = config_of()
    config = config.model_copy(update={"runtime": config.runtime.model_copy(update={"actor_timeout": 0.5})})
    with open_loop(config, None, None, StopSignals()) as loop:
        crew, fleet = fleet_of(loop)
        os.kill(processes_of(fleet)[0], signal.SIGSTOP)
        crew.grant(0, 10, 0)
        busy = dict(fleet._workers())[1].connection
        events: list[Delivery | ActorFailure] = []
        while not any(isinstance(event, ActorFailure) and event.actor == 0 for event in events):
            assert len(events) < 10_000
            crew.ledger.lose(1)
            crew.grant(1, 10, 0)
            wait_until(lambda: bool(select.select([busy], [], [], 0)[0]))
            events += fleet.poll(0.0)
        assert len(events) > 1


def test_a_frozen_actor_gets_no_new_time_with_the_tickets_that_follow_checkpoints() -> None:
    """A checkpoint takes all tickets back, and new ones follow. However many do: its first answer stays due."""
    config = config_of(mode="async", total_timesteps=10_000_000)
    config = config.model_copy(update={"runtime": config.runtime.model_copy(update={"actor_timeout": 2.0})})
    with open_loop(config, None, None, StopSignals()) as loop:
        crew, fleet = fleet_of(loop)
        rounds = iter(loop)
        next(rounds)
        frozen = processes_of(fleet)[0]
        os.kill(frozen, signal.SIGSTOP)
        for _ in range(50_000):  # many times the deadline
            if crew.restarts:
                break
            next(rounds)
            loop.barrier()
        assert crew.restarts == 1
        assert "it gave no answer within 2 s (runtime.actor_timeout)" in crew.notes[0]
        next(rounds)
        assert loop.env_steps == crew.ledger.learned + crew.ledger.stale
    wait_until_gone([frozen])


def test_an_actor_that_answers_has_the_whole_time_for_each_of_its_answers() -> None:
    with open_loop(config_of(mode="async"), None, None, StopSignals()) as loop:
        crew, fleet = fleet_of(loop)
        post = fleet._posts[0]
        crew.grant(0, 10, 0)
        first = post.deadline
        crew.abandon()
        crew.grant(0, 10, 0)
        assert post.deadline == first
        crew.wait()  # for the second answer: the first one counts nowhere
        assert crew.arrived[0].actor == 0 and post.deadline == float("inf")
        crew.abandon()
        crew.grant(0, 10, 0)
        assert post.deadline > first


@pytest.mark.parametrize("actors", [1, 2])
def test_compiling_does_not_count_against_the_timeout_and_run_json_says_how_it_ended(
    actors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_slowly(rollouts: CompiledRollouts) -> None:
        time.sleep(4.0)
        raise RuntimeError("no such operator")

    monkeypatch.setattr(CompiledRollouts, "compile", compile_slowly)  # the processes are forked from this one
    runtime = {"actors": actors, "backend": "process", "mode": "lockstep", "actor_timeout": 2}
    folder = {"output_dir": str(tmp_path), "run_name": "run"}
    compiled = {"compile": "on", "device": "cpu", "precision": "float32"}
    result = train(config_of("a2c", total=200, runtime=runtime, **folder, **compiled), show=False)
    lines = read_metrics(result.run_dir)
    assert [line["actor_restarts"] for line in lines if "actor_restarts" in line][-1] == 0
    reason = "they cannot be compiled (RuntimeError: no such operator)" if actors == 1 else "2 actors share the envs"
    assert json.loads((result.run_dir / "run.json").read_text())["rollouts"] == f"step by step: {reason}"


def test_actors_continue_when_the_process_that_starts_them_is_killed() -> None:
    # Long enough for any machine to notice; it ends soon after that.
    with open_loop(config_of(total_timesteps=10_000_000), None, None, StopSignals()) as loop:
        crew, fleet = fleet_of(loop)
        rounds = enumerate(loop)
        for number, _ in rounds:
            if number == 2:
                os.kill(fleet._nursery.processes[1], signal.SIGKILL)
            if crew.nursery_restarts:
                break
        steps = loop.env_steps
        next(rounds)
        assert loop.env_steps > steps
        assert crew.restarts == 0  # nobody is to blame
        assert crew.nursery_restarts == 1
        assert any("replaced the process that starts the actor processes" in note for note in crew.notes)


def test_an_actor_that_ends_again_and_again_ends_the_run_with_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_collector, "RESTARTS_PER_ACTOR", 1)
    with open_loop(config_of(), None, None, StopSignals()) as loop:
        _, fleet = fleet_of(loop)
        with pytest.raises(EnvError, match=r"actor 0 failed: its process was killed by SIGKILL; it was already") as end:
            for _ in loop:
                os.kill(processes_of(fleet)[0], signal.SIGKILL)
        assert end.value.exit_code == 3


def test_the_break_of_an_actor_that_ends_after_its_delivery_is_in_its_next_step() -> None:
    """Not in the step that it had delivered: the n-step windows of its envs end there, and not one step before."""
    inline = {"actors": 2, "backend": "inline", "mode": "lockstep"}
    with open_loop(config_of("dqn", runtime=inline), None, None, StopSignals()) as loop:
        crew = loop.collector
        assert isinstance(crew, ActorCollector) and isinstance(crew.fleet, InlineFleet)
        fleet, poll = crew.fleet, crew.fleet.poll
        crew.step()

        def replace(actor: int) -> None:
            fleet._actors[actor] = Actor(loop.config, None, actor)
            fleet._actors[actor].equip(loop.config)

        def poll_then_fail(seconds: float) -> list[Delivery | ActorFailure]:
            fleet.poll = poll  # type: ignore[method-assign]
            return [*poll(seconds), ActorFailure(0, "it ended")]

        fleet.replace, fleet.poll = replace, poll_then_fail  # type: ignore[method-assign]
        delivered, after, later = crew.step(), crew.step(), crew.step()
    assert delivered.broken is None and later.broken is None
    assert after.broken is not None and after.broken.tolist() == [True, True, False, False]
    assert after.episode_starts.tolist() == [True, True, False, False]
    assert crew.ledger.lost == 0 and crew.restarts == 1


def test_an_env_that_raises_costs_its_actor_and_leaves_a_crash_file(tmp_path: Path) -> None:
    times = tmp_path / "times"
    times.write_bytes(b"x")

    def make() -> FaultyEnv:
        return FaultyEnv("raise", which=-1, times=str(times))

    config = config_of(env_id="callable:make", output_dir=str(tmp_path), run_name="run", log_every=20)
    result = train(config, env=make, show=False)
    assert result.env_steps == 400
    (path,) = (tmp_path / "run" / "crash").iterdir()
    crash = json.loads(path.read_text())
    assert "the wheel came off" in crash["reason"] and len(crash["actions"]) == 4
    assert path.name.startswith(f"env-{crash['env_index']}-step-") and 0 <= crash["env_index"] < 4
    last = [line for line in read_metrics(tmp_path / "run") if line["kind"] == "train"][-1]
    assert last["actor_restarts"] == last["env_restarts"] == 1


def test_an_env_that_cannot_be_made_is_refused_before_a_run_directory_exists(tmp_path: Path) -> None:
    def make() -> FaultyEnv:
        raise OSError("no such level")

    with pytest.raises(EnvError, match="cannot be made: OSError: no such level"):
        train(config_of(env_id="callable:make", output_dir=str(tmp_path)), env=make, show=False)
    assert not list(tmp_path.iterdir())


class LeftHanded(TwoKnobs):
    """The env with an odd seed returns a reward that is not a number in its third step."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self.odd = seed % 2
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if self.odd and self.elapsed == 3 else reward, *rest


def test_a_number_that_is_not_finite_ends_the_run_with_the_env_of_the_run(tmp_path: Path) -> None:
    config = config_of(env_id="callable:LeftHanded", output_dir=str(tmp_path), run_name="run", vector_backend="sync")
    with pytest.raises(NumericalError, match=r"env [0-3] returned a reward that is not finite") as end:
        train(config, env=LeftHanded, show=False)
    assert end.value.exit_code == 4
    assert (next((tmp_path / "run" / "crash").iterdir()) / "batch.safetensors").is_file()
