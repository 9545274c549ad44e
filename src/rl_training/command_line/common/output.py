"""What commands print: one line of JSON, or tables and panels to read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from rl_training import terminal
from rl_training.command_line.common import interrupts
from rl_training.config.own_classes import trust_option
from rl_training.errors import EXIT_RESUMABLE, CheckpointError, RLTrainingError
from rl_training.program import call
from rl_training.text import clean_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from rl_training.experiment.seed_runs import SeedResult
    from rl_training.runtime.episode_video import Recording
    from rl_training.runtime.evaluation import EvalResult
    from rl_training.runtime.workflows import TrainResult

OFF_SCHEDULE = (
    "this checkpoint is off schedule (checkpoint_every) and cut the current episodes, so the resumed curve is not bit "
    "for bit that of an uninterrupted run; from a checkpoint on schedule it is"
)


def print_json(value: Any, *, keep: bool = False) -> None:
    """Print one line of strict JSON in ASCII; a non-finite number becomes null. `keep` as in `terminal.print_out`."""
    terminal.print_out(json.dumps(_strict(value), allow_nan=False), keep=keep)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def stdout_reserved(reserved: bool = True) -> Iterator[None]:
    """Redirect stdout to stderr, so that the JSON that follows is alone on stdout.

    Environments, their C libraries and their worker processes print too, so the file descriptor is redirected as well.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupts.clean_up())
        if not reserved:
            yield
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            original = os.dup(1)
            stack.callback(os.close, original)
            os.dup2(2, 1)
            stack.callback(os.dup2, original, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def print_text(*lines: str) -> None:
    terminal.print_out(*lines)


def show(*renderables: RenderableType) -> None:
    terminal.show(*renderables)


def facts(rows: Sequence[tuple[str, Any]], title: str | None = None) -> RenderableType:
    """Names on the left, values on the right; with a title, in a panel."""
    from rich import box
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), value if isinstance(value, Text) else _cell(value))
    if title is None:
        return grid
    heading = Text(clean_text(title, None), "bold")
    return Panel(grid, title=heading, title_align="left", box=box.ROUNDED, expand=False, padding=(0, 1))


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[str] = ()) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        justify: Literal["left", "right"] = "right" if header in numeric else "left"
        # Users copy the first column into their next command, so it is never wrapped.
        result.add_column(header, justify=justify, overflow="fold", no_wrap=number == 0 or header in numeric)
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else _cell(cell) for cell in row))
    return result


def _cell(value: Any) -> Text:
    """A value on one line: a line break in a name must not look like another row."""
    from rich.text import Text

    return Text(clean_text(str(value), None))


def status_text(status: str) -> Text:
    from rich.text import Text

    colors = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "red"}
    return Text(status, colors.get(status, ""))


def show_commands(commands: Sequence[tuple[str, str]]) -> None:
    """Print commands to copy, one per line and never wrapped."""
    width = max(len(label) for label, _ in commands)
    for label, command in commands:
        terminal.print_out(f"  {label:<{width}}  {command}", keep=True)


def command(word: str, target: Path | str, *rest: str) -> str:
    return call(word, target, *rest)


def return_text(evaluation: EvalResult | None) -> str:
    if evaluation is None:
        return "not evaluated"
    return f"{evaluation.mean_return:,.1f} \N{PLUS-MINUS SIGN} {evaluation.std_return:,.1f}"


def report_result(result: TrainResult, as_json: bool) -> None:
    """Print the result of a run, on stderr if stdout fails. A run stopped by a signal ends with EXIT_RESUMABLE."""
    if as_json:
        print_json(result.summary(), keep=True)
    else:
        show_result(result)
    if result.interrupted:
        resume_command = command("resume", result.run_dir, *_trust(result))
        terminal.print_error(f"stopped after {result.env_steps:,} steps and saved; continue with: {resume_command}")
        if not _is_exact(result.checkpoint):
            terminal.print_error(OFF_SCHEDULE)
        raise typer.Exit(EXIT_RESUMABLE)


def exit_if_evaluation_failed(results: Sequence[TrainResult]) -> None:
    """End the command with the exit code of the first last evaluation that failed. Its line is on stderr already."""
    for result in results:
        if isinstance(result.evaluation_error, RLTrainingError):
            raise typer.Exit(result.evaluation_error.exit_code)
        if result.evaluation_error is not None:
            raise result.evaluation_error  # a bug keeps its traceback


def _is_exact(checkpoint: Path) -> bool:
    from rl_training.storage.checkpoints import read_manifest

    try:
        return read_manifest(checkpoint).exact
    except CheckpointError:  # the run is over, and its result must be printed
        return False


def show_result(result: TrainResult) -> None:
    """Print how a run ended and which commands come next."""
    config, evaluation = result.agent.config, result.evaluation
    state = "stopped" if result.interrupted else "finished"
    steps = f"{result.env_steps:,}"
    if result.interrupted or result.unused_steps or result.stop_reason is not None:
        steps += f" of {config.total_timesteps:,}"
    rows = [
        ("steps", f"{steps} in {_duration(result.wall_seconds)}, {result.steps_per_second:,.0f} per second"),
        ("run", result.run_dir),
        ("checkpoint", result.checkpoint.name),
    ]
    if result.stop_reason is not None:
        rows.append(("stopped", result.stop_reason))
    rows += [("callback", line) for line in result.callback_failures]
    if result.unused_steps:
        rows.append(("not used", f"{result.unused_steps:,} steps, {result.unused}"))
    if result.failed_saves:
        rows.append(("failed saves", f"{result.failed_saves}, check the disk"))
    rows += [("finding", f"{finding.text} (step {finding.env_steps:,})") for finding in result.findings]
    if evaluation is not None:
        rows.insert(0, ("mean return", f"{return_text(evaluation)} over {len(evaluation.returns)} episodes"))
        if config.eval_every > 0:
            rows.insert(1, ("", "of the final evaluation, on episodes that no evaluation during training uses"))
        rows += _info_rows(evaluation)
    elif result.evaluation_error is not None:
        rows.insert(0, ("mean return", "unknown, the last evaluation failed"))
    terminal.show(facts(rows, f"{config.algo} on {config.env_id}, seed {config.seed}: {state}"), keep=True)
    run = result.run_dir
    if result.interrupted:  # `report_result` prints how to continue
        show_commands([("evaluate", command("eval", run, *_trust(result)))])
        return
    show_commands(
        [
            ("evaluate", command("eval", run, "--episodes", "100", *_trust(result))),
            ("watch", command("play", run, *_trust(result))),
            ("train longer", longer_command(result)),
        ]
    )


def longer_command(result: TrainResult) -> str:
    if result.stop_reason is not None:  # it has steps left
        return command("resume", result.run_dir, *_trust(result))
    steps = str(2 * result.agent.config.total_timesteps)
    return command("resume", result.run_dir, "--total-timesteps", steps, *_trust(result))


def _trust(result: TrainResult) -> tuple[str, ...]:
    return trust_option(result.agent.config.model.encoder)


def show_seeds(results: Sequence[TrainResult | SeedResult]) -> None:
    rows = [
        (
            result.seed,
            f"{result.env_steps:,}",
            return_text(result.evaluation),
            _duration(result.wall_seconds),
            result.run_dir,
        )
        for result in results
    ]
    headers = ["seed", "steps", "mean return", "time", "run"]
    terminal.show(table(headers, rows, headers[:-1]), keep=True)


def show_evaluation(result: EvalResult, name: str) -> None:
    lengths = result.lengths
    rows = [
        ("mean return", return_text(result)),
        ("range", f"{min(result.returns):,.1f} to {max(result.returns):,.1f}"),
        ("episodes", f"{len(lengths)}, {sum(lengths) / len(lengths):,.0f} steps on average"),
    ]
    rows += _info_rows(result)
    if result.cut_episodes:
        rows.append(("cut", f"{result.cut_episodes} of them did not end and count with their return so far"))
    show(facts(rows, name))


def _info_rows(result: EvalResult) -> list[tuple[str, str]]:
    """The numbers of the env, as means over the episodes."""
    return [(name.removeprefix("info_"), f"{mean:,.4g} on average") for name, mean in result.info_means.items()]


def recording_summary(recording: Recording) -> dict[str, Any]:
    return {
        "file": None if recording.path is None else str(recording.path),
        "episodes": len(recording.returns),
        "returns": list(recording.returns),
        "lengths": list(recording.lengths),
        "pictures": recording.pictures,
        "speed": recording.speed,
    }


def show_recording(recording: Recording) -> None:
    for number, (value, length) in enumerate(zip(recording.returns, recording.lengths, strict=True), 1):
        print_text(f"episode {number}: return {value:,.1f} in {length:,} steps")
    if recording.path is not None:
        size = recording.path.stat().st_size / 1e6
        faster = f", {recording.speed:.3g}x speed" if recording.speed > 1 else ""
        print_text(f"wrote {recording.path} ({recording.pictures} frames, {size:.1f} MB{faster})")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
