"""Boards of wall time: the packaged ones are complete, and a mistake in one is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call
from clock_helpers import board, own_side, side, task, write_board
from rl_training.errors import ConfigError
from rl_training.zoo.clock.board import OURS, list_boards, load_board
from rl_training.zoo.manifest import list_single_rows


def test_the_packaged_boards_time_ours_and_others_on_every_task(project_root: Path) -> None:
    assert list_boards() == ["classic", "mujoco"]
    for name in list_boards():
        loaded = load_board(name)
        for each in loaded.tasks:
            libraries = {side.library for side in each.sides}
            assert OURS in libraries and len(libraries) > 1, each.name
        for worker in loaded.workers.values():
            assert (project_root / "benchmarks" / worker.script).is_file()
            target = worker.setup.removeprefix("make ")
            assert f"\n{target}:" in (project_root / "Makefile").read_text(), worker.setup


def test_sides_of_the_packaged_boards_have_settings_that_their_workers_know() -> None:
    known = {
        "clock_sb3.py": {"class", "steps", "envs", "kwargs", "net", "noise", "normalize", "atari"},
        "clock_cleanrl.py": {"file", "arguments"},
        "clock_puffer.py": {"env"},
    }
    for name in list_boards():
        for each in load_board(name).tasks:
            for other in (one for one in each.sides if one.worker is not None):
                assert set(other.text.settings) <= known[other.worker.script], other.name


def test_the_classic_board_has_the_thresholds_of_its_environments() -> None:
    thresholds = {task.text.env: task.text.threshold for task in load_board("classic").tasks}
    assert thresholds == {
        "CartPole-v1": 475,
        "Acrobot-v1": -100,
        "Pendulum-v1": -160,
        "LunarLander-v3": 200,
        "PongNoFrameskip-v4": 18,
    }


def test_the_mujoco_board_has_no_schedule_that_depends_on_the_length_of_a_run() -> None:
    """Its runs end by the clock: a schedule over all steps would never get anywhere."""
    for each in load_board("mujoco").tasks:
        assert each.minutes == (10, 30, 60, 120)
        for own in (one for one in each.sides if one.preset is not None):
            assert own.preset.env_id == each.text.env and own.preset.total_timesteps >= 1_000_000
            settings = own.preset.algo_kwargs.model_dump(mode="json")
            unused = own.preset.algo_kwargs.without_effect()
            schedules = {key: value for key, value in settings.items() if isinstance(value, dict) and key not in unused}
            assert not [key for key, each in schedules.items() if each["start"] != each["end"]], own.name


def test_a_preset_next_to_a_board_and_changed_settings_are_loaded(tmp_path: Path) -> None:
    sides = {
        "ours": own_side(set={"gamma": 0.9}),
        "sb3-ppo": side(),
        "sbx-ppo": {**side(), "settings": {}, "same_as": "sb3-ppo"},
    }
    loaded = load_board(write_board(tmp_path, board(tasks={"count": task(sides=sides)})))
    ours, first, second = loaded.tasks[0].sides
    assert ours.preset is not None and ours.preset.algo_kwargs.gamma == 0.9
    assert first.text.settings == second.text.settings == {"steps": 200}
    assert loaded.tasks[0].limit == 60 and loaded.seeds == 2


def test_tasks_and_sides_are_selected_by_name_and_by_library(tmp_path: Path) -> None:
    tasks = {"count": task(sides={"ours": own_side(), "fast": side()}), "hours": task(long=True)}
    loaded = load_board(write_board(tmp_path, board(tasks=tasks)))

    def chosen(only: list[str], sides: list[str], long: bool = False) -> list[str]:
        found = loaded.select(only, sides, long=long)
        return [f"{each.name} {side.name}" for each in found for side in each.sides]

    assert chosen([], []) == ["count ours", "count fast"]
    assert chosen([], ["fake"], long=True) == ["count fast", "hours fast", "hours never"]
    assert chosen(["hours"], ["never"]) == ["hours never"]
    with pytest.raises(ConfigError, match="--only cuont: no such task in tiny, did you mean count"):
        chosen(["cuont"], [])
    with pytest.raises(ConfigError, match="--only hours --side ours: nothing is left to run, that task does"):
        chosen(["hours"], ["ours"])


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": (board(episode=3), "tiny.yaml: episode: unknown key, did you mean episodes?"),
    "no title": ({key: value for key, value in board().items() if key != "title"}, "tiny.yaml: title: missing"),
    "minutes and a threshold": (board(minutes=[10, 30]), "threshold: does not fit a board with minutes, remove it"),
    "minutes fall": (board(minutes=[30, 10]), "must be above 0 and rise"),
    "no budget": (board(tasks={"count": task(budget=None)}), "task count: budget: missing"),
    "too many first": (board(first_episodes=5), "first_episodes: 5 needs a threshold, and at least as many episodes"),
    "a path as a name": (board(tasks={"../x": task()}), "must be 1 to 40 small letters"),
    "unknown worker": (
        board(tasks={"count": task(sides={"a": {"title": "A", "worker": "sb4"}})}),
        "side a: worker 'sb4' is not defined, workers has fake",
    ),
    "neither": (board(tasks={"count": task(sides={"a": {"title": "A"}})}), "needs either config, a preset of this"),
    "unknown preset": (
        board(tasks={"count": task(sides={"a": {"title": "A", "config": "ppo/cartpool"}})}),
        "no such preset, and no such file next to the board, did you mean ppo/cartpole?",
    ),
    "threads of ours": (
        board(tasks={"count": task(sides={"a": own_side(threads=2)})}),
        "threads: is for workers, a preset of this library has `set`",
    ),
    "a preset of another env": (
        board(tasks={"count": task(sides={"a": {"title": "A", "config": "ppo/acrobot"}})}),
        "task count, side a: env_id: Acrobot-v1 is not zoo_test_env:Vote-v0, choose another preset",
    ),
    "bad setting": (
        board(tasks={"count": task(sides={"a": own_side(set={"gama": 1})})}),
        "task count, side a: config: gama: unknown key",
    ),
    "same as nothing": (
        board(tasks={"count": task(sides={"a": {"title": "A", "worker": "fake", "same_as": "b"}})}),
        "same_as: 'b' must be a side with settings",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_board_is_one_line_with_the_place(mistake: str, tmp_path: Path) -> None:
    content, expected = MISTAKES[mistake]
    outcome = call("zoo", "clock", write_board(tmp_path, content), "--dry-run")
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1, outcome.err
    assert expected in outcome.err


def test_boards_and_benchmarks_are_not_confused() -> None:
    assert not [name for name in list_single_rows() if name.startswith("clock")]
    outcome = call("zoo", "run", "clock/classic")
    assert outcome.code == 2 and "is a board of wall time, use" in outcome.err and "zoo clock classic" in outcome.err
    outcome = call("zoo", "clock", "clasic")
    assert outcome.code == 2 and "clasic: no such board, did you mean classic?" in outcome.err
    assert "Boards of wall time" in call("zoo", "list").out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["classic", "--minutes", "5"], "--minutes: classic has thresholds, use --budget"),
        (["mujoco", "--budget", "5"], "--budget: mujoco has times, use --minutes"),
        (["classic", "--budget", "0"], "--budget: 0 is not valid, must be above 0"),
        (["classic", "--first-seed", "100", "--write", "x"], "--write: the page shows seeds from 0 on"),
        (["classic", "--checkout", "/nowhere"], "--checkout /nowhere: is not a checkout of rl_training"),
    ],
)
def test_options_that_do_not_fit_are_one_line(options: list[str], expected: str, tmp_path: Path) -> None:
    outcome = call("zoo", "clock", *options, "--dry-run", "--output-dir", tmp_path)
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1 and expected in outcome.err
