"""Numbers of the env: which info counts, in every kind of vector env, and what is told about the others."""

from __future__ import annotations

import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from collector_helpers import Scripted, collector_of
from reporting_env import LENGTH, Counting, Reporting, user_vector
from rl_training import PPO
from rl_training.config.loading import load_config
from rl_training.envs.factory import make_vector_env
from rl_training.runtime.collection.info_numbers import PATIENCE_EPISODES, InfoNumbers, as_number, means
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.loops import Progress
from rl_training.runtime.output.metric_window import RECENT_EPISODES, MetricWindow
from rl_training.runtime.workflows import train
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.recorder import read_metrics

SETTINGS = {
    "algo": "ppo",
    "env_id": "callable:Reporting",
    "num_envs": 2,
    "total_timesteps": 64,
    "log_every": 16,
    "eval_episodes": 4,
    "log_info": ["score", "place"],
    "run_name": "run",
    "model": {"hidden_sizes": [8]},
    "algo_kwargs": {"num_steps": 8, "minibatch_size": 8},
}


def finished(envs: Any, steps: int = 2 * LENGTH + 1) -> list[Episode]:
    collector, _ = collector_of(envs)
    collector.info_numbers = InfoNumbers(["score"])
    return [episode for _ in range(steps) for episode in collector.step().episodes]


@pytest.mark.parametrize("kind", ["same-step", "next-step", "processes", "dicts", "sync", "async"])
def test_the_last_info_of_an_episode_counts_in_every_kind_of_vector_env(kind: str) -> None:
    envs = make_vector_env(Reporting, 2, backend=kind) if kind in ("sync", "async") else user_vector(kind)
    try:
        episodes = finished(envs)
    finally:
        envs.close()
    # Arrays of gymnasium are of the type of the first value. Our own vector envs keep each number as it is.
    expected = [{"is_success": 0.0, "score": 1.0}] * 2 + [{"is_success": 1.0, "score": 2.5}] * 2
    assert [dict(episode.info) for episode in episodes] == expected


def test_our_vector_envs_do_not_cut_fractions() -> None:
    class Uneven(Reporting):
        def __init__(self) -> None:
            super().__init__()
            Uneven.made = self.number = getattr(Uneven, "made", 0) + 1  # type: ignore[attr-defined]

        def step(self, action: Any) -> Any:
            obs, reward, over, cut, info = super().step(action)
            info["score"] = 1 if self.number % 2 else 0.5
            return obs, reward, over, cut, info

    Uneven.made = 0  # type: ignore[attr-defined]
    envs = make_vector_env(Uneven, 2, backend="sync")
    assert sorted(episode.info["score"] for episode in finished(envs)[:2]) == [0.5, 1.0]
    envs.close()


def outcome(done: list[bool], infos: dict[str, Any]) -> Any:
    obs = np.ones((2, 1), np.float32)
    return obs, [1.0, 1.0], done, [False, False], {"final_obs": obs.copy(), **infos}


def test_masks_decide_which_rows_have_a_number() -> None:
    envs = Scripted()
    masked = {"final_info": {"score": np.array([5.0, 9.0]), "_score": np.array([True, False])}}
    envs.outcomes = [outcome([True, True], masked)]
    collector, _ = collector_of(envs)
    collector.info_numbers = InfoNumbers(["score"])
    assert [dict(episode.info) for episode in collector.step().episodes] == [{"score": 5.0}, {}]


def test_infos_beside_the_final_ones_belong_to_the_next_episode() -> None:
    envs = Scripted()
    envs.outcomes = [outcome([True, False], {"score": np.array([3.0, 4.0])})]
    collector, _ = collector_of(envs)
    collector.info_numbers = InfoNumbers(["score"])
    assert [dict(episode.info) for episode in collector.step().episodes] == [{}]


def test_a_lost_life_is_not_the_end_of_a_game() -> None:
    envs = Scripted()
    infos = {"final_info": {"score": np.array([5.0, 9.0])}, "life_lost": np.array([True, False])}
    envs.outcomes = [outcome([True, True], infos)]
    collector, _ = collector_of(envs)
    collector.info_numbers = InfoNumbers(["score"])
    assert [dict(episode.info) for episode in collector.step().episodes] == [{"score": 9.0}]


def test_a_broken_env_contributes_nothing() -> None:
    from rl_training.envs.failures import RESTARTED

    envs = Scripted(AutoresetMode.NEXT_STEP)
    envs.outcomes = [
        outcome([False, True], {"score": np.array([5.0, 9.0]), RESTARTED: np.array([True, False])}),
    ]
    collector, _ = collector_of(envs)
    collector.info_numbers = InfoNumbers(["score"])
    assert [dict(episode.info) for episode in collector.step().episodes] == [{"score": 9.0}]


@pytest.mark.parametrize("values", [[1.0], {"a": 1}, 3.0, np.ones((1, 2)), None], ids=repr)
def test_infos_of_a_strange_form_are_passed_over(values: Any) -> None:
    envs = Scripted(AutoresetMode.NEXT_STEP)
    envs.outcomes = [outcome([False, True], {"score": values})]
    collector, _ = collector_of(envs)
    collector.info_numbers = InfoNumbers(["score"])
    assert [dict(episode.info) for episode in collector.step().episodes] == [{}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, 1.0), (np.False_, 0.0), (3, 3.0), (np.int8(-2), -2.0), (np.float32(0.5), 0.5), (np.array(4), 4.0)]
    + [(torch.tensor(2.5), 2.5), ("3", None), ([1], None), (np.ones(1), None), (1j, None), (10**400, None)],
)
def test_what_a_number_is(value: Any, expected: float | None) -> None:
    assert as_number(value) == expected


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ({"score": "high"}, r"^log_info: score of an episode is 'high', not a number; such values are left out$"),
        ({"score": math.nan}, r"^log_info: score of an episode is nan, not finite; "),
        ({"score": np.inf}, r"^log_info: score of an episode is inf, not finite; "),
        ({"is_success": "\x1b[31m"}, r"^log_info: is_success of an episode is '\[31m', not a number; "),
    ],
    ids=str,
)
def test_a_value_that_is_no_number_is_left_out_and_told_once(info: dict[str, Any], problem: str) -> None:
    numbers = InfoNumbers(["score"])
    assert numbers.read({"is_success": True, "score": 1.0, **info}) != {}
    (told,) = numbers.take_problems()
    assert re.search(problem, told)
    numbers.read(info)
    assert numbers.take_problems() == []


def test_a_name_that_is_never_seen_is_told_once_with_what_is_there() -> None:
    numbers = InfoNumbers(["scor", "unlike"])
    for _ in range(PATIENCE_EPISODES - 1):
        numbers.read({"score": 1.0, "text": "x"})
    assert numbers.take_problems() == []
    numbers.read({"score": 1.0})
    assert numbers.take_problems() == [
        "log_info: the env has no scor in the last info of an episode: did you mean score?",
        "log_info: the env has no unlike in the last info of an episode: its numbers there are score",
    ]
    for _ in range(30):
        numbers.read({})
    numbers.report_missing()
    assert numbers.take_problems() == []


def test_the_end_of_a_short_run_tells_too_but_no_episode_proves_nothing() -> None:
    numbers = InfoNumbers(["score"])
    numbers.report_missing()
    assert numbers.take_problems() == []
    numbers.read({})
    numbers.report_missing()
    assert numbers.take_problems() == [
        "log_info: the env has no score in the last info of an episode: there are no numbers in it"
    ]


def test_means_are_over_the_episodes_that_have_the_number() -> None:
    assert means([{"a": 1.0}, {}, {"a": 2.0}], ["b", "a"]) == {"info_a": 1.5}


def test_the_window_has_the_last_hundred_episodes_and_survives_a_checkpoint() -> None:
    window = MetricWindow(["score"])
    episodes = [Episode(0.0, 1, {"score": float(number)}) for number in range(RECENT_EPISODES + 50)]
    window.add(Progress(10, 1, [], episodes))
    restored = MetricWindow(["score"])
    restored.load_state_dict(window.state_dict())
    assert window.line()["info_score"] == 99.5
    for each in (window, restored):
        each.add(Progress(20, 2, [], [Episode(0.0, 1, {"score": 1000.0})]))
    assert window.line() == restored.line()
    old = MetricWindow(["score"])
    old.load_state_dict({"episodes": 3, "recent": [[1.0, 2]] * 3})  # of a version without such numbers
    old.add(Progress(20, 2, [], [Episode(0.0, 1, {"score": 8.0})]))
    assert old.line()["info_score"] == 8.0 and "infos" not in MetricWindow().state_dict()


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_run_logs_them_everywhere(backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = load_config(SETTINGS, {"output_dir": str(tmp_path), "vector_backend": backend, "eval_every": 32})
    result = train(config, env=Reporting, show=False)
    lines = read_metrics(result.run_dir)
    for line in lines:
        prefix = "eval_" if line["kind"] == "eval" else ""
        assert {f"{prefix}info_{name}" for name in ("is_success", "score", "place")} <= set(line)
    # Two envs with eight episodes of four steps each.
    last = [line for line in lines if line["kind"] == "train"][-1]
    assert (last["info_is_success"], last["info_score"]) == (0.5, (1 + 2.5 + 3 + 4.5 + 5 + 6.5 + 7 + 8.5) / 8)
    assert result.evaluation is not None and result.evaluation.summary()["info_is_success"] == 0.0
    assert [dict(info)["score"] for info in result.evaluation.infos] == [1.0] * 4
    header, *rows = (result.run_dir / "metrics.csv").read_text().splitlines()
    assert {"info_is_success", "eval_info_score"} <= set(header.split(",")) and len(rows) == len(lines)
    assert capfd.readouterr().err == ""


def test_success_needs_no_setting_and_other_numbers_do(tmp_path: Path) -> None:
    config = load_config(SETTINGS, {"output_dir": str(tmp_path), "log_info": []})
    result = train(config, env=Reporting, show=False)
    names = {name for line in read_metrics(result.run_dir) for name in line if "info_" in name}
    assert names == {"info_is_success", "eval_info_is_success"}


def test_an_env_without_success_has_no_such_metric(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", num_envs=2, num_steps=32, output_dir=str(tmp_path)).learn(128, show=False)
    assert not any("info_" in name for line in read_metrics(agent.run_dir) for name in line)


def test_a_wrong_name_is_one_line_on_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = load_config(SETTINGS, {"output_dir": str(tmp_path), "log_info": ["scores"]})
    train(config, env=Reporting, show=False)
    told = capfd.readouterr().err
    assert told == "warning: log_info: the env has no scores in the last info of an episode: did you mean score?\n"


def test_every_sink_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard is read by its own reader; W&B is a stand-in that keeps what it is given."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged: list[dict[str, Any]] = []
    wandb_run = types.SimpleNamespace(
        id="one",
        define_metric=lambda *a, **k: None,
        log=lambda line, **k: logged.append(line),
        finish=lambda **k: None,
    )
    wandb = types.ModuleType("wandb")
    monkeypatch.setattr(wandb, "init", lambda **options: wandb_run, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    settings = {"output_dir": str(tmp_path), "tensorboard": True, "wandb_project": "mine", "eval_every": 32}
    shown: list[Any] = []
    monkeypatch.setattr(ConsoleDisplay, "update", lambda self, env_steps, line=None: shown.append(line))
    result = train(load_config(SETTINGS, settings), env=Reporting, callback=Counting(), show=False)
    lines = read_metrics(result.run_dir)
    events = EventAccumulator(str(result.run_dir / "tensorboard"))
    events.Reload()
    for kind, name in (("train", "info_score"), ("train", "total"), ("eval", "info_score"), ("eval", "total")):
        key = name if kind == "train" else f"eval_{name}"
        expected = [line[key] for line in lines if line["kind"] == kind]
        assert len(expected) >= 3
        assert [event.value for event in events.Scalars(f"{kind}/{name}")] == pytest.approx(expected)
        assert [line[f"{kind}/{name}"] for line in logged if f"{kind}/{name}" in line] == expected
        assert [line[key] for line in shown if line is not None and key in line] == expected
