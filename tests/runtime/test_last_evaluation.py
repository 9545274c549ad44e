"""What the last evaluation does cannot take a trained agent away: the run is finished, saved and in hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from cli_helpers import call, tiny_config, write_config
from rl_training.errors import EnvError, NumericalError
from rl_training.runtime.workflows import agent_of, evaluate_checkpoint, resume, train
from rl_training.storage.checkpoints import latest_checkpoint
from rl_training.storage.run_directory import run_status
from rl_training.storage.state_tree import state_hash
from rl_training.telemetry.recorder import read_metrics
from run_cases import CASES
from tiny_runs import Blocks, managed

A2C = CASES["a2c, one env"]
SPACES = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)


class BlocksThatMayFail(Blocks):
    """Episodes of five steps; raises in a step or reset, where it is told to."""

    def __init__(self, fail_in: str = "") -> None:
        super().__init__(*SPACES)
        self.fail_in = fail_in

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.fail_in == "reset":
            raise ZeroDivisionError("the wheel came off")
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.fail_in == "step":
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


@pytest.fixture
def env_id() -> Iterator[str]:
    gym.register("BlocksThatMayFail-v0", BlocksThatMayFail)
    yield "BlocksThatMayFail-v0"
    del gym.registry["BlocksThatMayFail-v0"]


def broken_maker() -> gym.Env[Any, Any]:
    raise OSError("no licence server")


@pytest.mark.parametrize("eval_every", [0, 32, 48], ids=["at the end only", "at the last step", "not at the last step"])
@pytest.mark.parametrize("fail_in", ["step", "reset", "constructor"])
def test_learn_keeps_the_trained_agent(
    eval_every: int, fail_in: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = managed("ppo", tmp_path, BlocksThatMayFail, eval_every=eval_every)
    works = {"left": {0: 0, 32: 1, 48: 1}[eval_every]}  # evaluations that succeed before the last one

    def eval_env() -> gym.Env[Any, Any]:
        works["left"] -= 1
        if works["left"] >= 0:
            return BlocksThatMayFail()
        return broken_maker() if fail_in == "constructor" else BlocksThatMayFail(fail_in)

    agent._eval_env = eval_env
    untrained = agent.agent
    assert agent.learn(show=False) is agent
    result = agent.result
    assert agent.agent is not untrained and agent.env_steps == 64 and agent.run_dir == result.run_dir.absolute()
    assert (result.evaluation, result.interrupted) == (None, False)
    assert isinstance(result.evaluation_error, EnvError)
    assert run_status(agent.run_dir) == "finished"
    # The agent in hand is the one on the disk, and it is not the untrained network.
    observation = np.full((7, 4), 0.3, np.float32)
    stored = agent_of(agent.run_dir)
    assert latest_checkpoint(agent.run_dir).env_steps == 64
    trained, saved, before = (state_hash(one.learner.state_dict()) for one in (agent.agent, stored, untrained))
    assert trained == saved != before
    assert np.array_equal(agent.predict(observation)[0], stored.predict(observation)[0])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(lines) == 1 and "trained and saved" in lines[0]
    assert "the wheel came off" in lines[0] or "no licence server" in lines[0]
    assert (agent.run_dir / "crash").is_dir() == (fail_in != "constructor")


def test_a_run_whose_last_evaluation_failed_can_be_evaluated_and_extended(tmp_path: Path) -> None:
    agent = managed("dqn", tmp_path, BlocksThatMayFail, eval_env=lambda: BlocksThatMayFail("step"))
    agent.learn(show=False)
    assert evaluate_checkpoint(agent.run_dir, episodes=2, env=BlocksThatMayFail).returns == (5.0, 5.0)
    longer = resume(agent.run_dir, total_timesteps=96, env=BlocksThatMayFail, eval_env=BlocksThatMayFail, show=False)
    assert longer.evaluation is not None and longer.evaluation_error is None and longer.env_steps == 96


def test_an_evaluation_that_fails_in_the_middle_of_a_run_still_ends_it(tmp_path: Path) -> None:
    config = A2C.config(tmp_path, env_id="callable:Blocks", eval_every=40)
    with pytest.raises(EnvError, match="wheel"):
        train(config, env=BlocksThatMayFail, eval_env=lambda: BlocksThatMayFail("step"), show=False)
    assert run_status(tmp_path / "run") == "failed"


def test_diverged_training_is_not_excused_as_a_failed_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverged(*arguments: Any) -> None:
        raise NumericalError("loss is not finite")

    monkeypatch.setattr("rl_training.runtime.output.metric_window.check_metrics", diverged)
    with pytest.raises(NumericalError):
        train(A2C.config(tmp_path, eval_every=160, log_every=1000, checkpoint_every=0), show=False)
    assert run_status(tmp_path / "run") == "failed"


@pytest.mark.parametrize("command", ["train", "resume"])
def test_the_command_line_reports_the_error_and_keeps_the_run(command: str, env_id: str, tmp_path: Path) -> None:
    broken = {"eval_env_kwargs": {"fail_in": "step"}}
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", env_id=env_id, env_kwargs={}, **broken))
    ended = call("train", config, "--output-dir", tmp_path / "runs", "--json", "--quiet")
    if command == "resume":
        run = ended.json["run_dir"]
        ended = call("resume", run, "--total-timesteps", 192, "--json", "--quiet")
    assert ended.code == 3
    assert ended.json["eval"] is None and "the wheel came off" in ended.json["eval_error"]
    assert ended.json["env_steps"] == (192 if command == "resume" else 96)
    assert len(ended.err.splitlines()) == 1 and "the wheel came off" in ended.err and "Traceback" not in ended.err
    run = Path(ended.json["run_dir"])
    assert run_status(run) == "finished"
    assert latest_checkpoint(run).env_steps == ended.json["env_steps"]
    assert not any(line["kind"] == "eval" for line in read_metrics(run))


def test_the_other_seeds_are_trained_too(env_id: str, tmp_path: Path) -> None:
    broken = {"eval_env_kwargs": {"fail_in": "reset"}}
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", env_id=env_id, env_kwargs={}, **broken))
    ended = call("train", config, "--seeds", "0,1", "--output-dir", tmp_path / "runs", "--quiet")
    assert ended.code == 3
    assert [run_status(path) for path in sorted((tmp_path / "runs").iterdir())] == ["finished", "finished"]
    assert ended.out.count("the last evaluation failed") == 2


def test_a_bug_in_an_evaluation_keeps_its_traceback(
    env_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*arguments: Any, **options: Any) -> None:
        raise KeyError("a bug of the library")

    monkeypatch.setattr("rl_training.runtime.session.evaluate", buggy)
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", env_id=env_id, env_kwargs={}))
    with pytest.raises(KeyError, match="a bug"):
        call("train", config, "--output-dir", tmp_path / "runs", "--quiet")
    (run,) = (tmp_path / "runs").iterdir()
    assert run_status(run) == "finished"


def test_the_result_says_which_of_two_scores_at_one_step_it_is(tmp_path: Path) -> None:
    during = {"eval_every": 48}
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", **during))
    ended = call("train", config, "--output-dir", tmp_path / "runs")
    assert ended.code == 0
    assert "of the final evaluation, on episodes that no evaluation during training uses" in ended.out
    (note,) = [line for line in ended.err.splitlines() if line.startswith("final evaluation: ")]
    assert "(seeds 10000 to 10001)" in note and "use other seeds" in note
    lines = [line for line in read_metrics(next((tmp_path / "runs").iterdir())) if line["kind"] == "eval"]
    assert [line["env_steps"] for line in lines][-2:] == [96, 96]
    assert lines[-1]["eval_seed"] == 10_000 != lines[-2]["eval_seed"]
    alone = call("train", config, "--set", "eval_every=0", "--output-dir", tmp_path / "alone")
    assert "final evaluation" not in alone.out + alone.err
