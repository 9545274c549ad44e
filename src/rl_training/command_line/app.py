"""The app: its commands, and one exit code per kind of error.

Each command is a module in `command_line/` and imports heavy packages only when it runs.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rl_training import terminal
from rl_training._version import __version__
from rl_training.command_line.check import check
from rl_training.command_line.check_env import check_env
from rl_training.command_line.common import interrupts
from rl_training.command_line.common.usage import UsageError, usage_lines
from rl_training.command_line.compare import compare
from rl_training.command_line.dashboard import dashboard
from rl_training.command_line.diagnose import diagnose
from rl_training.command_line.diff import diff
from rl_training.command_line.doctor import doctor
from rl_training.command_line.eval import evaluate
from rl_training.command_line.inspect import inspect
from rl_training.command_line.list import lists
from rl_training.command_line.play import play
from rl_training.command_line.plot import plot
from rl_training.command_line.predict import predict
from rl_training.command_line.reproduce import reproduce
from rl_training.command_line.resume import resume
from rl_training.command_line.tensorboard import tensorboard
from rl_training.command_line.train import train
from rl_training.command_line.watch import watch
from rl_training.command_line.zoo import zoo
from rl_training.errors import EXIT_INTERRUPTED, ConfigError, RLTrainingError
from rl_training.program import NAME, program
from rl_training.text import describe_error, one_line

LONGEST_ERROR = 1000
PROGRAM_IN_TEXT = re.compile(rf"(?<![^\s`]){NAME}(?= )")
COLOR = re.compile(r"\x1b\[[0-9;]*m")

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "play": play,
    "predict": predict,
    "inspect": inspect,
    "check": check,
    "check-env": check_env,
    "doctor": doctor,
    "reproduce": reproduce,
    "watch": watch,
    "diagnose": diagnose,
    "plot": plot,
    "compare": compare,
    "diff": diff,
    "dashboard": dashboard,
    "tensorboard": tensorboard,
}
GROUPS = {"list": lists, "zoo": zoo}


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    """Keep `<bool>` out of the help: a flag takes no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _show_help(ctx: Any, parameter: Any, requested: bool) -> None:
    """As the option parser does it, but a reader that leaves early, such as `head`, is not an error."""
    if requested and not ctx.resilient_parsing:
        terminal.print_out(*ctx.get_help().splitlines())  # with Rich there are none: `format_help` has printed them
        ctx.exit()


class _Help:
    """The help of a command or group: flags without a type, and output that survives a lost stdout."""

    help: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))  # type: ignore[misc]

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.callback = _show_help
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if self.help:  # the docstring of a command cannot know how the program was started
            self.help = PROGRAM_IN_TEXT.sub(program(), self.help)
        with terminal.gathered():
            super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_Help, TyperCommand):
    pass


class Group(_Help, TyperGroup):
    pass


def make_app() -> typer.Typer:
    app = typer.Typer(
        cls=Group,
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
        terminal.print_out(f"rl_training {__version__}")
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


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. A bug keeps its traceback."""
    terminal.start()
    if arguments is None:  # a program that calls `main` itself keeps its own way to show warnings
        warnings.showwarning = _show_warning
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _exit_code(words)
    except Exception:
        if arguments is not None:
            raise
        terminal.print_error(*traceback.format_exc().splitlines())
        code = RLTrainingError.exit_code
    problem = terminal.finish()
    if problem:
        # Also after another code: 1 of `diff` says that runs differ, but nothing has said in what.
        terminal.print_error(f"error: stdout: cannot be written ({problem}); send the output to another file or pipe")
        code = code or RLTrainingError.exit_code
    return code


def _show_warning(message: Warning | str, *place: Any, **more: Any) -> None:
    """One clean line for the warning of a library, without its colors and the place in its source."""
    terminal.print_error("warning: " + one_line(COLOR.sub("", str(message))))


def _exit_code(words: list[str]) -> int:
    """The exit code of a command. An expected error is one line on stderr, wrong usage at most two."""
    try:
        return app(args=words, prog_name=program(), standalone_mode=False) or 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if interrupts.received():
            return EXIT_INTERRUPTED
        lines, code = _expected_error(error, words)
        if code is None:
            raise
        for line in lines:
            terminal.print_error(line)
        return code
    except SystemExit as end:
        # The code of envs cannot get here. A library chooses its exit code without ours in mind.
        terminal.print_error(f"error: a library called sys.exit({one_line(repr(end.code))}); remove that call")
        return RLTrainingError.exit_code


def _expected_error(error: Exception, words: list[str]) -> tuple[list[str], int | None]:
    """What to print for an error, and its exit code; None for a bug."""
    if isinstance(error, UsageError):
        return usage_lines(error, words, program(), GROUPS), ConfigError.exit_code
    if isinstance(error, RLTrainingError):
        return ["error: " + one_line(error, LONGEST_ERROR)], error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        # A path of the user, such as a name that is too long. Files of runs are reported where they are opened.
        reason = one_line(error.strerror or describe_error(error))
        return [f"error: {one_line(error.filename)}: {reason}; check the path"], ConfigError.exit_code
    return [], None
