"""The training workflow: what goes wrong and how it is told, what a run leaves behind, which agent is best."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.api.algorithms import managed_class
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.probes import AutoresetCanaryProbe, probe_vector_env
from rl_training.errors import CheckpointError, ConfigError, EnvError, NumericalError
from rl_training.runtime.episode_video import record_episode
from rl_training.runtime.loops import Loop
from rl_training.runtime.output import run_saver
from rl_training.runtime.run_clock import RunClock
from rl_training.runtime.workflows import TrainResult, evaluate_checkpoint, resume, train
from rl_training.storage.checkpoints import (
    best_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    verify_checkpoint,
)
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.recorder import WALL_CLOCK_FIELDS, read_metrics
from run_cases import CASES, TwoKnobs, final_hash, saved_state, stop_at

DQN = CASES["dqn, one env, a buffer that overflows"]
A2C = CASES["a2c, one env"]


def run(folder: Path, case: Any = A2C, **changes: Any) -> TrainResult:
    return train(case.config(folder, **changes), show=False)


def info(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())


def steps_of(paths: list[Path]) -> list[int]:
    return [int(path.name.split("-")[1]) for path in paths]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the display was asked to tell."""
    told: list[str] = []
    monkeypatch.setattr(ConsoleDisplay, "note", lambda self, text: told.append(text))
    return told


def failing_saves(monkeypatch: pytest.MonkeyPatch, broken: Callable[[int], bool]) -> list[int]:
    """Saves whose number `broken` picks fail; gives the list of the numbers that failed."""
    failed: list[int] = []
    real, count = run_saver.save_checkpoint, iter(range(10**6))

    def save(*arguments: Any, **options: Any) -> Path:
        number = next(count)
        if broken(number):
            failed.append(number)
            raise CheckpointError("the disk is full")
        return real(*arguments, **options)

    monkeypatch.setattr(run_saver, "save_checkpoint", save)
    return failed


# What is refused


def test_an_env_that_the_algorithm_cannot_take_is_refused_before_a_run_is_made(tmp_path: Path) -> None:
    config = load_config({"algo": "dqn", "env_id": "Pendulum-v1", "output_dir": str(tmp_path / "runs")})
    with pytest.raises(EnvError, match=r"dqn takes Discrete.*Pendulum-v1 has Box: use ppo"):
        train(config, show=False)
    assert not (tmp_path / "runs").exists()


def test_resume_refuses_an_env_with_other_spaces(tmp_path: Path) -> None:
    half = train(A2C.config(tmp_path), callback=stop_at(80), show=False)
    before = final_hash(half.run_dir)
    with pytest.raises(EnvError, match="TwoKnobs has other spaces than the env of "):
        resume(half.run_dir, env=TwoKnobs, show=False)
    assert final_hash(half.run_dir) == before


def test_resume_refuses_an_agent_without_its_run(tmp_path: Path) -> None:
    result = run(tmp_path)
    best = best_checkpoint(result.run_dir)
    assert best.kind == "agent"
    with pytest.raises(CheckpointError, match="holds an agent only"):
        resume(best.path, show=False)


def test_resume_refuses_to_end_before_it_begins(tmp_path: Path) -> None:
    result = run(tmp_path)
    with pytest.raises(ConfigError, match="total_timesteps: 100 is less than the 160 steps already done"):
        resume(result.run_dir, total_timesteps=100, show=False)
    assert info(result.run_dir)["status"] == "finished"


def test_a_run_on_a_python_object_asks_for_it_again(tmp_path: Path) -> None:
    case = CASES["ppo, several knobs"]
    half = train(case.config(tmp_path), env=case.env, callback=stop_at(80), show=False)
    for again in (partial(resume, half.run_dir, show=False), partial(evaluate_checkpoint, half.run_dir)):
        with pytest.raises(EnvError, match=r"TwoKnobs.*pass env="):
            again()
    assert resume(half.run_dir, env=case.env, show=False).evaluation is not None


# Saves that fail


@pytest.mark.parametrize("case", [A2C, DQN], ids=["on-policy", "replay"])
def test_a_failed_save_costs_a_checkpoint_and_not_the_run(
    case: Any, tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole", case)
    expected = saved_state(whole.checkpoint)
    notes.clear()
    # Number 0 is the first save; of the quarters, two in a row fail. Evaluations of DQN save a best agent too.
    monkeypatch.setattr(run_saver.RunSaver, "save_best", lambda self, mean_return: None)
    failed = failing_saves(monkeypatch, lambda number: number in (2, 3))
    shaken = run(tmp_path / "shaken", case)
    assert failed == [2, 3]
    told = [note for note in notes if "could not be saved" in note]
    assert ["failed saves: 1" in told[0], "failed saves: 2" in told[1]] == [True, True]
    assert all("the disk is full" in note and "training continues" in note for note in told)
    assert steps_of(list_checkpoints(shaken.run_dir, "resume")) == [160, 40, 0]
    state = saved_state(shaken.checkpoint)
    for changed in (state, expected):
        del changed["manifest"], changed["best_return"]
    np.testing.assert_equal(_plain(state), _plain(expected))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value


def test_a_run_that_cannot_save_at_all_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_saves(monkeypatch, lambda number: True)
    seen: list[int] = []
    with pytest.raises(CheckpointError, match="disk is full"):
        train(A2C.config(tmp_path), callback=lambda progress: seen.append(progress.env_steps), show=False)
    assert seen == []
    assert info(tmp_path / "run")["status"] == "failed"


def test_a_run_whose_last_save_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_saves(monkeypatch, lambda number: number == 1)
    with pytest.raises(CheckpointError, match="disk is full"):
        run(tmp_path, checkpoint_every=0)
    assert info(tmp_path / "run")["status"] == "failed"


# Numbers that are not finite


class Poisoned(AutoresetCanaryProbe):
    """From its `after`-th step on it returns NaN as reward, observation or last observation."""

    def __init__(self, field: str, after: int = 100) -> None:
        super().__init__(length=4)
        self.field, self.after, self.count = field, after, 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, infos = super().step(action)
        self.count += 1
        if self.count >= self.after:
            if self.field == "reward":
                reward = float("nan")
            elif (self.field == "a final observation") == terminated:
                obs = obs * np.nan
        return obs, reward, terminated, truncated, infos


def poisoned_config(case: Any, folder: Path) -> TrainConfig:
    return load_config(case.config(folder), {"env_id": "callable:Poisoned", "eval_every": 0})


@pytest.mark.parametrize("field", ["reward", "an observation", "a final observation"])
@pytest.mark.parametrize("case", [A2C, DQN], ids=["on-policy", "replay"])
def test_an_env_gone_bad_is_named_and_the_last_checkpoint_stays_good(case: Any, field: str, tmp_path: Path) -> None:
    with pytest.raises(NumericalError, match=rf"env 0 returned .*{field} .*env step \d+") as caught:
        train(poisoned_config(case, tmp_path), env=partial(Poisoned, field), show=False)
    step = int(str(caught.value).split("env step ")[1].split(":")[0])
    assert 90 <= step <= 103
    assert info(tmp_path / "run")["status"] == "failed"
    good = latest_checkpoint(tmp_path / "run")
    assert (good.env_steps, verify_checkpoint(good.path)) == (80, [])
    healthy = partial(AutoresetCanaryProbe, length=4)
    assert resume(tmp_path / "run", env=healthy, show=False).env_steps == case.steps


@pytest.mark.parametrize("eval_every", [0, 1])
@pytest.mark.parametrize("case", [A2C, DQN], ids=["on-policy", "replay"])
def test_a_diverged_learner_is_never_saved(
    case: Any, eval_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Loop.learn

    def learn(loop: Any, batch: Any) -> Any:
        result = real(loop, batch)
        if loop.env_steps >= 100:
            with torch.no_grad():
                for parameter in loop.learner.model.parameters():
                    parameter.fill_(float("nan"))
            result.metrics["loss"] = torch.tensor(float("nan"))
        return result

    monkeypatch.setattr(Loop, "learn", learn)
    with pytest.raises(NumericalError, match=r"loss is nan at env step 1\d\d, update \d+: .*max_grad_norm"):
        run(tmp_path, case, log_every=1000, eval_every=eval_every)
    assert info(tmp_path / "run")["status"] == "failed"
    assert latest_checkpoint(tmp_path / "run").env_steps == 80
    for path in list_checkpoints(tmp_path / "run"):
        assert all(
            torch.isfinite(tensor).all() for tensor in load_checkpoint(path).state["learner"]["parts"]["model"].values()
        )


# What a run leaves behind


def test_the_status_of_a_run_follows_its_fate(tmp_path: Path) -> None:
    during: list[str] = []

    def watch(progress: Any) -> bool:
        during.append(info(tmp_path / "run")["status"])
        return progress.env_steps < 80

    half = train(A2C.config(tmp_path), callback=watch, show=False)
    assert set(during) == {"running"}
    assert half.interrupted
    assert half.evaluation is None
    assert info(half.run_dir)["status"] == "interrupted"
    done = resume(half.run_dir, show=False)
    assert not done.interrupted
    assert info(done.run_dir)["status"] == "finished"
    assert info(done.run_dir)["env_steps"] == 160
    longer = resume(half.run_dir, total_timesteps=200, show=False)
    assert info(longer.run_dir)["total_timesteps"] == 200


def test_an_error_in_a_callback_marks_the_run_as_failed(tmp_path: Path) -> None:
    def fail(progress: Any) -> None:
        raise RuntimeError("the caller's own trouble")

    with pytest.raises(RuntimeError, match="own trouble"):
        train(A2C.config(tmp_path), callback=fail, show=False)
    assert info(tmp_path / "run")["status"] == "failed"


def test_wall_seconds_add_up_over_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A session takes a second, and a hundredth for each step: the real clock is read at two moments.
    monkeypatch.setattr(RunClock, "_elapsed", lambda clock: 1 + (clock._loop.env_steps - clock._steps_before) / 100)
    first = run(tmp_path)
    second = resume(first.run_dir, total_timesteps=320, show=False)
    assert info(first.run_dir)["wall_seconds"] == second.wall_seconds > first.wall_seconds > 0
    assert second.steps_per_second == pytest.approx(160 / (second.wall_seconds - first.wall_seconds), rel=1e-9)
    seconds = [line["wall_seconds"] for line in read_metrics(first.run_dir) if line["kind"] == "train"]
    assert seconds == sorted(seconds)
    assert len(seconds) > 8


def test_lines_come_at_their_cadence_and_time_shares_add_up(tmp_path: Path) -> None:
    result = run(tmp_path, log_every=50, eval_every=60, checkpoint_every=0)
    lines = read_metrics(result.run_dir)
    assert [(line["kind"], line["env_steps"]) for line in lines] == [
        ("train", 50),
        ("eval", 60),
        ("train", 100),
        ("eval", 120),
        ("train", 150),
        ("train", 160),
        ("eval", 160),  # the last agent competes for the best,
        ("eval", 160),  # and the run's result on seeds of its own
    ]
    for line in lines:
        of_actors = {"learner_waits", "actors_wait"}  # this run has none
        assert (set(line) >= WALL_CLOCK_FIELDS - of_actors) == (line["kind"] == "train")
        if line["kind"] == "train":
            shares = [line[name] for name in ("time_env", "time_act", "time_learn", "time_other")]
            assert all(0 <= share <= 1 for share in shares)
            assert sum(shares) == pytest.approx(1.0, abs=1e-6)
            assert line["steps_per_second"] == pytest.approx(line["env_steps"] / line["wall_seconds"], rel=1e-9)


def test_only_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    result = run(tmp_path, DQN, keep_checkpoints=2, checkpoint_every=20)
    assert steps_of(list_checkpoints(result.run_dir, "resume")) == [160, 140]
    assert len(list_checkpoints(result.run_dir, "agent")) <= 2
    kept = [ref.name for path in list_checkpoints(result.run_dir, "resume") for ref in _segments(path)]
    assert sorted(set(kept)) == sorted(path.name for path in (result.run_dir / "replay").iterdir())


def _segments(path: Path) -> list[Any]:
    return load_checkpoint(path).segments


def test_replay_is_saved_in_pieces_that_are_new(tmp_path: Path) -> None:
    result = run(tmp_path, DQN, buffer_size=500, vector_backend="sync")
    intervals = [(ref.start, ref.stop) for ref in _segments(result.checkpoint)]
    assert intervals == [(0, 40), (40, 80), (80, 120), (120, 160)]
    # At every checkpoint the running episode is cut: no sum of rewards may run on into the next one.
    assert saved_state(result.checkpoint)["rows"]["truncated"][39::40].all()


def test_a_resumed_run_writes_no_replay_twice_and_keeps_none_that_is_overwritten(tmp_path: Path) -> None:
    sync = {"vector_backend": "sync"}
    half = train(DQN.config(tmp_path, buffer_size=500, **sync), callback=stop_at(80), show=False)
    whole = resume(half.run_dir, show=False)
    assert [(ref.start, ref.stop) for ref in _segments(whole.checkpoint)] == [(0, 40), (40, 80), (80, 120), (120, 160)]
    small = run(tmp_path / "small", DQN, buffer_size=50, **sync)
    assert [(ref.start, ref.stop) for ref in _segments(small.checkpoint)] == [(80, 120), (120, 160)]


def test_resuming_a_finished_run_saves_nothing_new(tmp_path: Path) -> None:
    done = run(tmp_path)
    before = list_checkpoints(done.run_dir)
    again = resume(done.run_dir, show=False)
    assert (again.checkpoint, again.env_steps) == (done.checkpoint, done.env_steps)
    assert again.evaluation == done.evaluation
    assert list_checkpoints(done.run_dir, "resume") == [path for path in before if path.name.startswith("step")]


def test_a_damaged_checkpoint_is_passed_over_and_told(tmp_path: Path, notes: list[str]) -> None:
    half = train(A2C.config(tmp_path), callback=stop_at(80), show=False)
    (half.checkpoint / "tensors.safetensors").write_bytes(b"damaged")
    assert resume(half.run_dir, show=False).env_steps == 160
    assert any("damaged checkpoint" in note and "step-000000000080" in note for note in notes)


class Endless(TwoKnobs):
    """Ends by its limit only."""

    def __init__(self, limit: int = 1000):
        super().__init__()
        self.limit = limit

    def step(self, action: Any) -> Any:
        observation, reward, _, _, details = super().step(action)
        return observation, reward, False, self.elapsed == self.limit, details


def only_seven(limit: int) -> Endless:
    if limit != 7:
        raise ValueError(f"no limit of {limit}")
    return Endless(limit)


@pytest.mark.parametrize("made_by", [None, Endless], ids=["id", "callable"])
def test_evaluation_and_play_have_keywords_of_their_own(made_by: Any, tmp_path: Path) -> None:
    name = "max_episode_steps" if made_by is None else "limit"
    changes = {"env_id": "Pendulum-v1", "env_kwargs": {name: 7}, "eval_env_kwargs": {name: 11}}
    result = train(A2C.config(tmp_path, eval_episodes=3, **changes), env=made_by, show=False)
    assert {line["mean_length"] for line in read_metrics(result.run_dir) if line.get("episodes")} == {7.0}
    assert result.evaluation is not None and list(result.evaluation.lengths) == [11] * 3
    if made_by is None:
        assert list(evaluate_checkpoint(result.run_dir, episodes=2).lengths) == [11, 11]
        assert list(record_episode(result.agent, tmp_path / "a.gif").lengths) == [11]
        assert list(evaluate_checkpoint(result.run_dir, episodes=1, env="Pendulum-v1").lengths) == [200]


def test_keywords_of_evaluation_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"eval_env_kwargs: .*gravitas"):
        run(tmp_path, env_id="CartPole-v1", eval_env_kwargs={"gravitas": 3})
    with pytest.raises(EnvError, match=r"eval_env_kwargs: .*LunarLander-v3 has other spaces"):
        run(tmp_path, env_id="LunarLander-v3", env_kwargs={"continuous": True}, eval_env_kwargs={"continuous": False})
    with pytest.raises(ConfigError, match=r"eval_env_kwargs: .*image"):
        run(tmp_path, env_id="CartPole-v1", eval_env_kwargs={"image": {"bogus": 3}})
    assert list(tmp_path.iterdir()) == []
    options = {"env_kwargs": {"continuous": True}, "eval_env_kwargs": {"max_episode_steps": 9}}
    assert list(run(tmp_path, env_id="LunarLander-v3", **options).evaluation.lengths) == [9]  # type: ignore[union-attr]


def test_keywords_of_evaluation_are_checked_again_on_resume_and_do_not_follow_to_another_env(tmp_path: Path) -> None:
    options = {"env_kwargs": {"limit": 7}, "eval_env_kwargs": {"limit": 11}}
    first = train(A2C.config(tmp_path, **options), env=Endless, show=False)
    with pytest.raises(EnvError, match=r"eval_env_kwargs: .*no limit of 11"):
        resume(first.run_dir, env=only_seven, total_timesteps=200, show=False)
    again = resume(first.run_dir, env=Endless, total_timesteps=200, show=False)
    assert again.evaluation is not None and list(again.evaluation.lengths) == [11]

    limits = {"env_kwargs": {"max_episode_steps": 9}, "eval_env_kwargs": {"max_episode_steps": 5}}
    poles = run(tmp_path / "poles", env_id="CartPole-v1", **limits)
    assert max(evaluate_checkpoint(poles.run_dir, episodes=3, env="CartPole-v0").lengths) > 5
    moved = resume(poles.run_dir, env="CartPole-v0", total_timesteps=200, show=False)
    assert moved.evaluation is not None and moved.evaluation.lengths[0] > 5
    assert moved.agent.config.eval_env_kwargs == {}


def test_the_managed_api_evaluates_a_callable_with_its_keywords_and_drops_them_for_another_env(tmp_path: Path) -> None:
    options = {"env_kwargs": {"limit": 7}, "eval_env_kwargs": {"limit": 11}, "output_dir": str(tmp_path)}
    agent = managed_class("a2c")(Endless, seed=0, total_timesteps=20, **options).learn(show=False)
    assert list(agent.evaluate(2).lengths) == [11, 11]
    cart = managed_class("a2c")("CartPole-v1", eval_env_kwargs={"max_episode_steps": 5}, total_timesteps=20)
    saved = cart.save(tmp_path / "agent")
    assert managed_class("a2c").load(saved, env="CartPole-v0").evaluate(1).lengths[0] > 5


def test_a_vector_env_of_the_caller_is_used_not_evaluated_and_left_open(tmp_path: Path) -> None:
    envs = probe_vector_env(AutoresetCanaryProbe, 2)
    config = load_config(A2C.config(tmp_path), {"num_envs": 2, "env_id": "callable:canary"})
    result = train(config, env=envs, show=False)
    assert result.evaluation is None
    assert result.summary()["eval"] is None
    envs.reset(seed=0)
    envs.close()
