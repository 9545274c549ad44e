"""What a board shows: medians with runs that never solved, remarks about sittings, the page and its picture."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from clock_helpers import board, side, task, write_board
from rl_training.zoo.clock.board import Board, Side, Task, list_boards, load_board
from rl_training.zoo.clock.clock_page import clock_page, write_clock
from rl_training.zoo.clock.clock_results import Origin, find_result, result_path, save_result
from rl_training.zoo.clock.clock_table import clock_lines, remarks, score_cells, solved_cells
from rl_training.zoo.clock.worker_process import Measured
from rl_training.zoo.report import RESULTS_FOLDER

FIRST = Origin("2030-01-01T00:00:00+00:00", "a machine", "fake 1.0")
SECOND = Origin("2030-01-02T00:00:00+00:00", "a machine", "fake 1.0")


def keep(
    folder: Path, task: Task, side: Side, seed: int, seconds: float, *, load: float = 0.0, origin: Origin = FIRST,
    scores: dict[float, float] | None = None, warm: bool = False,
) -> None:  # fmt: skip
    """A result that was solved after these seconds; infinity: it never was. Or one with scores by minute."""
    solved = seconds < math.inf and scores is None
    last = seconds if solved else 60.0
    points = [{"env_steps": 100, "seconds": last, "mean": 51.0, "episodes": 4}]
    if scores is not None:
        points = [{"env_steps": 100, "seconds": 60.0 * at, "mean": mean, "episodes": 4} for at, mean in scores.items()]
    end = "minutes" if scores else "solved" if solved else "budget"
    measured = Measured(end, 100, last, last + 5, last, load, points)
    save_result(result_path(folder, task, side, seed, warm), task, side, measured, origin, compiled=True)


@pytest.fixture
def tiny(tmp_path: Path) -> Board:
    sides = {"ours": {"title": "rl_training PPO", "config": "ppo.yaml"}, "peer": {**side(), "title": "Peer | PPO"}}
    return load_board(write_board(tmp_path, board(tasks={"count": task(sides=sides, note="A remark.")}, seeds=3)))


def cells(lines: list[dict[str, Any]]) -> list[list[str]]:
    return [solved_cells(line) for line in lines]


def test_medians_count_runs_that_never_solved_as_infinite(tiny: Board, tmp_path: Path) -> None:
    (one,) = tiny.tasks
    ours, peer = one.sides
    for seed, (mine, theirs) in enumerate([(2.0, 8.0), (3.0, math.inf), (math.inf, math.inf)]):
        keep(tmp_path, one, ours, seed, mine)
        keep(tmp_path, one, peer, seed, theirs)
        keep(tmp_path, one, ours, seed, mine / 2, warm=True)
    lines = clock_lines(tiny.tasks, range(3), [tmp_path])
    assert cells(lines) == [
        ["rl_training PPO", "2 of 3", "3.0", "2.0 .. not solved", "1.00", "8.0", "100", "1.5"],
        ["Peer | PPO", "1 of 3", "not solved in 60 s", "8.0 .. not solved", "-", "-", "-", "-"],
    ]
    assert [line["median"] for line in lines] == [3.0, None] and lines[1]["each"] == [8.0, None, None]


def test_a_ratio_is_in_the_seconds_of_ours_and_missing_seeds_are_said(tiny: Board, tmp_path: Path) -> None:
    (one,) = tiny.tasks
    ours, peer = one.sides
    for seed in range(3):
        keep(tmp_path, one, ours, seed, 2.0)
    keep(tmp_path, one, peer, 1, 7.0)
    failures = {"count seed 2 peer": "out of memory"}
    lines = clock_lines(tiny.tasks, range(3), [tmp_path], failures)
    assert cells(lines)[1][2:5] == ["7.0 (1 of 3 seeds)", "7.0 .. 7.0", "3.50"]
    assert "peer seed 2 failed: out of memory." in list(remarks(lines))
    assert cells(clock_lines(tiny.tasks, range(3), [tmp_path / "nowhere"]))[0][1:4] == ["-", "not run", "-"]


def test_a_result_of_a_longer_time_than_the_budget_is_not_solved_within_it(tiny: Board, tmp_path: Path) -> None:
    (one,) = tiny.tasks
    keep(tmp_path, one, one.sides[0], 0, 40.0)
    short = one.with_budget(30.0)
    assert clock_lines([short], [0], [tmp_path])[0]["solved"] == 0
    assert clock_lines([one], [0], [tmp_path])[0]["solved"] == 1
    keep(tmp_path, one, one.sides[0], 1, math.inf)
    assert find_result([tmp_path], one.with_budget(61.0), one.sides[0], 1) is None, "it may have solved it later"


def test_other_sittings_and_busy_machines_are_told(tiny: Board, tmp_path: Path) -> None:
    (one,) = tiny.tasks
    ours, peer = one.sides
    for seed in range(2):
        keep(tmp_path, one, ours, seed, 2.0, load=0.3 * seed)
    keep(tmp_path, one, peer, 0, 2.0, origin=SECOND)
    assert list(remarks(clock_lines(tiny.tasks, range(3), [tmp_path]))) == [
        "Measured in 2 sittings: 2030-01-01T00:00:00+00:00 (ours seeds 0 1); 2030-01-02T00:00:00+00:00 (peer seed 0).",
        "\N{DAGGER} Other programs took more than a tenth of a core: ours seed 1.",
    ]


def test_scores_have_a_mean_and_a_range_at_each_time_that_runs_have_reached(tmp_path: Path) -> None:
    content = board(minutes=[10, 30], first_episodes=None, tasks={"run": {"env": "x", "sides": {"a": side()}}})
    loaded = load_board(write_board(tmp_path, content))
    (one,) = loaded.tasks
    keep(tmp_path, one, one.sides[0], 0, 0.0, scores={10: 5.0, 30: 10.0})
    keep(tmp_path, one, one.sides[0], 1, 0.0, scores={10.1: 7.0, 30: 20.0})
    line = clock_lines(loaded.tasks, range(2), [tmp_path])[0]
    assert score_cells(line) == ["Fake one", "6.0 (5.0 .. 7.0)", "15.0 (10.0 .. 20.0)", "100"]
    short = one.with_minutes(10)
    assert short.minutes == (10,) and one.with_minutes(20).minutes == (10, 20)
    keep(tmp_path, one, one.sides[0], 2, 0.0, scores={10: 9.0})
    assert find_result([tmp_path], one, one.sides[0], 2) is None
    assert find_result([tmp_path], short, one.sides[0], 2) is not None


def test_a_report_has_page_picture_and_results_and_can_be_made_again_from_these(tiny: Board, tmp_path: Path) -> None:
    (one,) = tiny.tasks
    for seed in range(3):
        keep(tmp_path / "runs", one, one.sides[0], seed, 2.0)
        keep(tmp_path / "runs", one, one.sides[1], seed, 4.0 if seed else math.inf)
    written = write_clock(tiny, tmp_path / "docs", tmp_path / "runs")
    names = {path.relative_to(tmp_path / "docs").as_posix() for path in written}
    assert {"clock-tiny.md", "clock-tiny.png", "results/clock/tiny/count/ours-seed2.json"} <= names
    assert (tmp_path / "docs" / "clock-tiny.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "docs" / "clock-tiny.md").read_text()
    for part in (
        "## Tiny", "6 of 6 runs, 3 seeds per side", "ours is ahead of every other side that was measured on 1.",
        "![Tiny](clock-tiny.png)", "| Peer / PPO | 2 of 3 | 4.0 | 4.0 .. not solved | 2.00 |", "A remark.",
        "Every 20 env steps 4 episodes, 2 of them first; not solved after 60 s.",
        "Machine: a machine. Versions: fake 1.0.",
    ):  # fmt: skip
        assert part in page, part
    write_clock(tiny, tmp_path / "docs", tmp_path / "no-runs-here")
    assert (tmp_path / "docs" / "clock-tiny.md").read_text() == page


def test_a_board_without_results_says_so_and_has_no_picture(tiny: Board, tmp_path: Path) -> None:
    page = clock_page([tiny], tmp_path)
    assert "**Nothing of this board has been measured yet.** `rl-training zoo clock tiny` does it" in page
    assert "- **Count-v0** at 50, within 60 s: rl_training PPO, Peer | PPO. A remark." in page
    assert "| side |" not in page and ".png" not in page
    assert not [path for path in write_clock(tiny, tmp_path / "docs", tmp_path) if path.suffix == ".png"]


def test_scores_are_drawn(tmp_path: Path) -> None:
    sides = {"ours-sac": side(), "peer-sac": side()}
    content = board(minutes=[10, 30], first_episodes=None, tasks={"run": {"env": "x", "sides": sides}})
    loaded = load_board(write_board(tmp_path, content))
    for one in loaded.tasks[0].sides:
        keep(tmp_path, loaded.tasks[0], one, 0, 0.0, scores={10: 5.0, 30: 10.0})
    written = write_clock(loaded, tmp_path / "docs", tmp_path)
    assert tmp_path / "docs" / "clock-tiny.png" in written


def test_the_committed_page_shows_the_committed_results(project_root: Path) -> None:
    folder = project_root / "docs" / "benchmarks"
    results = folder / RESULTS_FOLDER / "clock"
    boards = [load_board(name) for name in list_boards()]
    page = (folder / "clock.md").read_text(encoding="utf-8")
    assert page == clock_page(boards, results), "run: rl-training zoo clock classic --table --write docs/benchmarks"
    for loaded in boards:
        for path in sorted(results.glob(f"{loaded.name}/*/*.json")):
            assert json.loads(path.read_text())["sitting"] in page or f"clock-{loaded.name}.png" in page
