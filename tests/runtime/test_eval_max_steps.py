"""An evaluation episode that does not end is cut, counted and explained. It never fails a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, tiny_config, write_config
from endless_env import EndlessEnv
from env_versions import newest_env_id
from rl_training import PPO, evaluate_checkpoint
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.runtime.evaluation import EvalResult, evaluate
from rl_training.storage.run_directory import run_status
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.recorder import read_metrics
from tiny_runs import managed

ENDLESS = newest_env_id("CliffWalking")  # an untrained policy never reaches its end, and it has no time limit
WAYS_OUT = ("eval_max_steps", "env_kwargs.max_episode_steps", "TimeLimit")


class Countdown(EndlessEnv):
    """Ends by itself after as many steps as its seed says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.left = seed or 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.left == 0, False, info


def test_an_episode_is_cut_at_the_limit_and_counts_with_its_return_so_far() -> None:
    agent = PPO(Countdown, hidden_sizes=(8,)).agent
    # Episode i lasts 48 + i steps. The third one ends exactly at the limit and is whole.
    result = evaluate(agent, Countdown, episodes=5, seed=48, max_steps=50)
    assert result is not None
    assert (result.lengths, result.returns, result.cut_episodes) == (
        (48, 49, 50, 50, 50),
        (48.0, 49.0, 50.0, 50.0, 50.0),
        2,
    )
    assert result.summary()["cut_episodes"] == 2
    assert "2 of 5" in str(result.finding) and all(way in str(result.finding) for way in WAYS_OUT)


def test_cut_slots_play_the_episodes_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.runtime.evaluation.MOST_ENVS_AT_ONCE", 2)
    agent = PPO(Countdown, hidden_sizes=(8,)).agent
    result = evaluate(agent, Countdown, episodes=6, seed=3, max_steps=5)
    assert result is not None and result.lengths == (3, 4, 5, 5, 5, 5) and result.cut_episodes == 3


def test_a_result_without_cut_episodes_says_nothing_about_them() -> None:
    result = EvalResult((1.0,), (1,))
    assert result.finding is None and "cut_episodes" not in result.summary()


def test_the_default_is_beyond_every_episode_of_the_presets() -> None:
    # A game of Atari is the longest: 108,000 frames.
    assert load_config({"algo": "ppo", "env_id": "CartPole-v1"}).eval_max_steps == 200_000


def test_python_learns_on_an_env_without_a_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = managed("ppo", tmp_path, ENDLESS, eval_max_steps=20, eval_every=32).learn(show=False)
    assert agent.result.evaluation.cut_episodes == 1 and agent.result.evaluation.lengths == (20,)
    assert agent.result.evaluation_error is None and run_status(agent.run_dir) == "finished"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and all(way in lines[0] for way in WAYS_OUT)
    assert [line["eval_cut_episodes"] for line in read_metrics(agent.run_dir) if line["kind"] == "eval"] == [1, 1, 1]


def test_cut_episodes_during_a_run_are_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr(ConsoleDisplay, "note", lambda self, text: notes.append(text))
    agent = managed("ppo", tmp_path, ENDLESS, eval_max_steps=5, eval_every=16).learn(show=False)
    assert len([line for line in read_metrics(agent.run_dir) if "eval_cut_episodes" in line]) == 5
    assert len([note for note in notes if "did not end" in note]) == 1


def test_the_option_of_evaluate_overrides_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = managed("ppo", tmp_path, ENDLESS, eval_max_steps=20)
    path = agent.save(tmp_path / "agent")
    assert agent.evaluate(2).lengths == (20, 20)
    assert agent.evaluate(2, max_steps=7).lengths == (7, 7)
    assert agent.evaluate(2, max_steps=31).lengths == (31, 31)
    assert evaluate_checkpoint(path, episodes=2, max_steps=9).lengths == (9, 9)
    assert evaluate_checkpoint(path, episodes=2).lengths == (20, 20)
    assert len(capsys.readouterr().err.splitlines()) == 5


@pytest.mark.parametrize("by", ["yaml", "set"])
def test_the_command_line_trains_and_evaluates_an_env_without_a_time_limit(by: str, tmp_path: Path) -> None:
    limit = {"eval_max_steps": 15}
    settings = tiny_config("ppo", env_id=ENDLESS, **(limit if by == "yaml" else {}))
    config = write_config(tmp_path / "endless.yaml", settings)
    options = ["--set", "eval_max_steps=15"] if by == "set" else []
    trained = call("train", config, *options, "--output-dir", tmp_path / "runs", "--json", "--quiet")
    assert trained.code == 0
    assert trained.json["eval"]["cut_episodes"] == 2
    assert len(trained.err.splitlines()) == 1 and all(way in trained.err for way in WAYS_OUT)
    run = Path(trained.json["run_dir"])
    assert run_status(run) == "finished" and load_config(run / "config.yaml").eval_max_steps == 15
    scored = call("eval", run, "--episodes", 3, "--max-steps", 11, "--json")
    assert (scored.code, scored.json["cut_episodes"], scored.json["episodes"]) == (0, 3, 3)
    assert call("eval", run, "--episodes", 3, "--json").json["cut_episodes"] == 3
    shown = call("eval", run, "--episodes", 3, "--max-steps", 11)
    assert "3 of them did not end" in shown.out


def test_a_run_whose_episodes_end_writes_no_field(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    trained = call("train", config, "--output-dir", tmp_path / "runs", "--json", "--quiet")
    assert trained.err == "" and "cut_episodes" not in json.dumps(trained.json)
    assert not any("eval_cut_episodes" in line for line in read_metrics(trained.json["run_dir"]))


@pytest.mark.parametrize(
    "options",
    [
        {"episodes": True},
        {"episodes": 0},
        {"episodes": -3},
        {"episodes": 2.5},
        {"episodes": "3"},
        {"episodes": 10**12},
        {"episodes": None},
        {"seed": -1},
        {"seed": True},
        {"seed": 2**63},
        {"seed": 2**63 - 1},  # the seed of the second episode would be too large
        {"max_steps": 0},
        {"max_steps": True},
        {"max_steps": float("nan")},
    ],
    ids=str,
)
def test_a_number_that_makes_no_sense_is_refused_in_one_line(options: dict[str, Any]) -> None:
    agent = PPO(EndlessEnv, hidden_sizes=(8,))
    with pytest.raises(ConfigError) as caught:
        agent.evaluate(**{"max_steps": 5, **options})
    name = next(iter(options))
    assert str(caught.value).startswith(f"{name}: ") and "expected integer >= " in str(caught.value)
    assert str(caught.value).isprintable()
