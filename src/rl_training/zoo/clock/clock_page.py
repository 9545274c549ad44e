"""The page of the clock: tables of every packaged board, how it was measured, pictures, and the results themselves."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rl_training.errors import ConfigError
from rl_training.storage.durable_files import atomic_write_text, make_directory
from rl_training.zoo.clock.board import OURS, Board, Task, list_boards, load_board
from rl_training.zoo.clock.clock_picture import draw_board
from rl_training.zoo.clock.clock_results import find_result, result_path
from rl_training.zoo.clock.clock_table import (
    SOLVED_COLUMNS,
    Line,
    clock_lines,
    remarks,
    score_cells,
    score_columns,
    solved_cells,
)
from rl_training.zoo.manifest import CLOCK
from rl_training.zoo.report import RESULTS_FOLDER

HEAD = """# The clock that users feel

How long you wait for an agent, from the command on. `rl-training zoo clock BOARD --write docs/benchmarks` measures what
is missing of a board and writes this page; run it on a machine that does nothing else.

- **The clock** starts before the process does. The start of Python, imports, making environments and compiling are part
  of it. Each run is a process of its own with an empty cache for compiled code. Files may be in the memory of the
  machine: each library is started once before the first run.
- **Evaluations stop it**, on every side: how often to evaluate is the choice of this page, not of a library. The column
  "with evaluations" has the time with them.
- **One rule for all**: the policy of a library without exploration, whole episodes reset with seeds from 10000 on, raw
  returns on the environment that the table names, after the first round of training at or past each multiple of a
  number of env steps. A library's own evaluations, logs to the screen and trackers are off; CleanRL's programs run
  unchanged, with their TensorBoard files.
- **Solved** is the first evaluation whose mean over all episodes is at the threshold. The first episodes are a sieve:
  the others are played only if the mean of these is at the threshold.
- **Not solved** counts as infinitely long, in a median too. No run is left out.
- **Turns**: one run at a time. For each seed every side has its turn, and each seed begins with another side.
- **Other programs**: their processor time during each run is measured and stored. A run is repeated if they took more
  than a tenth of a core, and marked (\N{DAGGER}) if they did again.
- **Threads**: the variables of the shell that limit threads are removed. Where a board names a number for a side, its
  runs have that number; the others choose by themselves.
"""
COLUMNS_TEXT = """Seconds are medians over the seeds; "/ ours" divides them by those of the fastest side of
rl_training. "again" is the median of second runs, which find the compiled code of the first (`--warm`); sides that keep
none on disk have no second run.
"""


def stored_results(report: Path | None, results: Path | None = None) -> list[Path]:
    """Where the results of earlier reports are."""
    places = [results, None if report is None else report / RESULTS_FOLDER]
    return [place / CLOCK for place in places if place is not None]


def write_clock(board: Board, folder: Path, output_dir: Path) -> list[Path]:
    """Write the page, a picture per board and the results; return the written paths."""
    packaged = board.name in list_boards() and load_board(board.name) == board
    boards = [load_board(name) for name in list_boards()] if packaged else [board]
    results = folder / RESULTS_FOLDER / CLOCK
    try:
        written = _copy_results(board, output_dir, results)
        pictures = {}
        for each in boards:
            lines = clock_lines(each.tasks, range(each.seeds), [results])
            picture = draw_board(each, lines, [results], folder / f"clock-{each.name}.png")
            pictures[each.name] = picture
        page = folder / ("clock.md" if packaged else f"clock-{board.name}.md")
        make_directory(folder)
        atomic_write_text(page, clock_page(boards, results))
    except OSError as error:
        raise ConfigError(f"--write {folder}: cannot write ({error.strerror})") from None
    return [page, *(path for path in pictures.values() if path is not None), *written]


def _copy_results(board: Board, output_dir: Path, results: Path) -> list[Path]:
    written = []
    for task in board.tasks:
        for side in task.sides:
            for seed in range(board.seeds):
                for warm in (False, True):
                    if find_result([output_dir], task, side, seed, warm) is not None:
                        target = result_path(results, task, side, seed, warm)
                        make_directory(target.parent)
                        shutil.copyfile(result_path(output_dir, task, side, seed, warm), target)
                        written.append(target)
    return written


def clock_page(boards: Sequence[Board], results: Path) -> str:
    parts = [HEAD]
    for board in boards:
        lines = clock_lines(board.tasks, range(board.seeds), [results])
        parts += [f"## {board.title}", board.about, _state(board, lines)]
        if not any(line["seeds"] for line in lines):
            parts.append("\n".join(_planned(task) for task in board.tasks))
            continue
        parts.append(f"![{board.title}](clock-{board.name}.png)")
        if not board.minutes:
            parts.append(COLUMNS_TEXT)
        for task in board.tasks:
            parts += _task_parts(task, [line for line in lines if line["task"] == task.name])
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _state(board: Board, lines: Sequence[Line]) -> str:
    """How much is measured, where, and on how many tasks our fastest side is ahead."""
    command = f"`rl-training zoo clock {board.name}`"
    runs, of_runs = sum(line["seeds"] for line in lines), sum(line["of_seeds"] for line in lines)
    if not runs:
        return f"**Nothing of this board has been measured yet.** {command} does it, with {board.seeds} seeds per side."
    text = f"{runs} of {of_runs} runs, {board.seeds} seeds per side, by {command}."
    if not board.minutes:
        ahead, compared = _ahead(board, lines)
        text += f" Of {compared} tasks with all seeds, ours is ahead of every other side that was measured on {ahead}."
    machines = Counter(machine for line in lines for machine in line["machines"])
    versions = dict.fromkeys(version for line in lines for version in line["versions"])
    return "\n".join([text, f"Machine: {'; '.join(machines)}. Versions: {'; '.join(versions)}."])


def _ahead(board: Board, lines: Sequence[Line]) -> tuple[int, int]:
    ahead = compared = 0
    for task in board.tasks:
        whole = [line for line in lines if line["task"] == task.name and line["seeds"] == line["of_seeds"]]
        ours = [_seconds(line) for line in whole if line["library"] == OURS]
        theirs = [_seconds(line) for line in whole if line["library"] != OURS]
        if ours and theirs:
            compared += 1
            ahead += min(ours) < min(theirs)
    return ahead, compared


def _seconds(line: Line) -> float:
    return math.inf if line["median"] is None else float(line["median"])


def _planned(task: Task) -> str:
    """A task that nobody has measured yet, with its sides and what is to be known about them."""
    minutes = ", ".join(f"{each:g}" for each in task.minutes)
    goal = f"after {minutes} minutes" if minutes else f"at {task.text.threshold:g}, within {task.limit:,.0f} s"
    sides = ", ".join(side.title for side in task.sides)
    return f"- **{task.text.env}** {goal}: {sides}. {task.text.note.strip()}".strip()


def _task_parts(task: Task, lines: Sequence[Line]) -> list[str]:
    if task.minutes:
        heading = f"### {task.text.env}"
        columns, rows = score_columns(task), [score_cells(line) for line in lines]
        rule = f"Mean return over {task.rule['episodes']} episodes: mean of the seeds (lowest .. highest)."
    else:
        heading = f"### {task.text.env} at {task.text.threshold:g}"
        columns, rows = list(SOLVED_COLUMNS), [solved_cells(line) for line in lines]
        first = task.rule["first_episodes"]
        episodes = f"{task.rule['episodes']} episodes" + (f", {first} of them first" if first else "")
        rule = f"Every {task.text.every:,} env steps {episodes}; not solved after {task.limit:,.0f} s."
    cells = [columns, ["---"] * len(columns), *rows]
    table = "\n".join("| " + " | ".join(text.replace("|", "/") for text in row) + " |" for row in cells)
    return [heading, rule, table, *remarks(lines), task.text.note]
