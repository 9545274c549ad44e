"""The command line: the app, its commands, and one exit code per kind of error.

Each command is a module in `command_line/` and imports heavy packages only when it runs.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rl_training._version import __version__
from rl_training.command_line.check import check
from rl_training.command_line.eval import evaluate
from rl_training.command_line.inspect import inspect
from rl_training.command_line.list import lists
from rl_training.command_line.output import print_text
from rl_training.command_line.play import play
from rl_training.command_line.predict import predict
from rl_training.command_line.reproduce import reproduce
from rl_training.command_line.resume import resume
from rl_training.command_line.train import train
from rl_training.command_line.zoo import zoo
from rl_training.errors import EXIT_INTERRUPTED, RLTrainingError

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "play": play,
    "predict": predict,
    "inspect": inspect,
    "check": check,
    "reproduce": reproduce,
}
GROUPS = {"list": lists, "zoo": zoo}


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    """Keep `<bool>` out of the help: a flag takes no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class ExitCodeGroup(Group):
    """Turns an expected error into one line on stderr and its exit code; a bug keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RLTrainingError as error:
            typer.echo("error: " + " ".join(str(error).splitlines()), err=True)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None


def make_app() -> typer.Typer:
    app = typer.Typer(
        cls=ExitCodeGroup,
        callback=_root,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, command in COMMANDS.items():
        app.command(name, cls=Command)(command)
    for name, group in GROUPS.items():
        for command_info in group.registered_commands:
            command_info.cls = Command
        app.add_typer(group, name=name, cls=Group)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        print_text(f"rl_training {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train, evaluate, watch and resume reinforcement-learning agents.

    Get started: rl-training train ppo/cartpole
    """


app = make_app()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An ASCII-only terminal shows question marks instead of a traceback.
            stream.reconfigure(errors="replace")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="rl-training")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
