"""Options of `rl-training zoo clock`, and the tasks that they select."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.zoo.clock.board import Board, Task

CLOCK_RUNS = Path("runs/clock")

BoardName = Annotated[
    str,
    typer.Argument(metavar="BOARD", help="Board such as classic or mujoco, or a YAML file.", show_default=False),
]
OnlyTasks = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="TASK", help="Restrict to one task. Repeatable.", show_default=False),
]
Sides = Annotated[
    list[str] | None,
    typer.Option(
        "--side",
        metavar="SIDE",
        help="Restrict to one side, such as sb3-ppo, or to a library: ours, sb3, ... Repeatable.",
        show_default=False,
    ),
]
SeedCount = Annotated[
    int | None,
    typer.Option("--seeds", min=1, max=1000, help="Number of seeds (default: that of the board).", show_default=False),
]
FirstSeed = Annotated[
    int, typer.Option("--first-seed", min=0, max=2**31, help="First seed; seeds from 100 on are for tuning.")
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option(
        "--budget", metavar="SECONDS", help="Another time after which a task counts as not solved.", show_default=False
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option("--minutes", metavar="MINUTES", help="End the runs of a board of scores here.", show_default=False),
]
Warm = Annotated[
    bool, typer.Option("--warm", help="Also run what compiles a second time, with the code that the first run left.")
]
Repeats = Annotated[
    int, typer.Option("--repeats", min=0, max=100, help="How often a run is repeated while other programs are busy.")
]
Checkout = Annotated[
    Path | None,
    typer.Option(
        "--checkout",
        metavar="DIR",
        help="Checkout with the workers of other libraries (default: that of this program).",
        show_default=False,
    ),
]
ClockRunsDir = Annotated[Path, typer.Option("--output-dir", help="Directory for the result of each run.")]


def select_tasks(
    name: str, only: list[str] | None, sides: list[str] | None, budget: float | None, minutes: float | None, long: bool
) -> tuple[Board, tuple[Task, ...]]:
    """The board and its selected tasks. Mistakes in the request are reported before anything heavy is imported."""
    from rl_training.zoo.clock.board import load_board

    board = load_board(name)
    for option, value, fits in (("--budget", budget, not board.minutes), ("--minutes", minutes, bool(board.minutes))):
        if value is not None and not fits:
            other = "--minutes" if board.minutes else "--budget"
            raise ConfigError(f"{option}: {board.name} has {'times' if board.minutes else 'thresholds'}, use {other}")
        if value is not None and not 0 < value < 1e9:
            raise ConfigError(f"{option}: {value:g} is not valid, must be above 0")
    tasks = board.select(only or (), sides or (), long=long)
    if budget is not None:
        tasks = tuple(task.with_budget(budget) for task in tasks)
    if minutes is not None:
        tasks = tuple(task.with_minutes(minutes) for task in tasks)
    return board, tasks
