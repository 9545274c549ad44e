"""Wrong usage in words: what is wrong with an option or argument, what is expected, and where to read more."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, get_args, get_type_hints

import typer

from rl_training.text import clean_text, one_line

# Typer exports only this subclass, and not every version of it is based on the package `click`.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

LONGEST_VALUE = 60
# What to do instead of one more argument, by command.
EXTRA_ARGUMENTS = {"compare": "; compare takes two groups, use plot for more"}


def usage_lines(error: Any, words: Sequence[str], program: str, groups: Collection[str]) -> list[str]:
    """Two lines: the error, and how the command is used; or the help, where it is not printed already."""
    kind = type(error).__name__
    if kind == "NoArgsIsHelpError":
        return str(error.message).splitlines()
    context = getattr(error, "ctx", None)
    command = program if context is None else context.command_path
    if context is None:  # the option parser does not say which command it was; the words before the first option do
        command = " ".join([program, *_leading_commands(words, groups)])
    more = f"`{command} --help` shows the options"
    lines = [f"error: {_problem(error, kind, words)} ({more})"]
    if context is not None:
        lines.append(one_line(context.get_usage()).translate({ord("{"): None, ord("}"): None}))
    return lines


def _problem(error: Any, kind: str, words: Sequence[str]) -> str:
    if kind == "NoSuchOption":
        return _unknown_option(error)
    if kind == "MissingParameter":
        return f"{_name(error.param)}: missing, pass a value"
    if kind == "BadParameter" and error.param is not None:
        name = _name(error.param)
        given = _given(name, words)
        shown = "the value" if given is None else repr(clean_text(given, LONGEST_VALUE))
        expected = _expected(error.ctx, error.param.name)
        return f"{name}: {shown} is not valid" + (f", expected {expected}" if expected else "")
    if kind == "BadOptionUsage":
        name = clean_text(str(error.option_name), LONGEST_VALUE)
        takes_none = any(word.startswith(f"{name}=") for word in words)
        return f"{name}: " + ("is a flag and takes no value" if takes_none else "needs a value")
    message = one_line(error.format_message().rstrip("."), 200)
    commands = getattr(getattr(error.ctx, "command", None), "commands", None)
    if commands is not None and "No such command" in message:
        return _unknown_command(words, commands)
    extra = re.search(r"extra arguments?(?:\(s\))? \((.*)\)", message)
    if extra is None:
        return message
    hint = EXTRA_ARGUMENTS.get(getattr(error.ctx, "info_name", None) or "", "")
    return f"unexpected argument {clean_text(extra[1], LONGEST_VALUE)!r}{hint}"


def _unknown_command(words: Sequence[str], commands: Collection[str]) -> str:
    groups_and_names = [word for word in words[:2] if not word.startswith("-")]
    name = groups_and_names[-1] if groups_and_names else ""
    close = difflib.get_close_matches(name, commands, n=1)
    return f"{clean_text(name, LONGEST_VALUE)!r}: unknown command" + (f", did you mean {close[0]}?" if close else "")


def _unknown_option(error: Any) -> str:
    name = clean_text(str(error.option_name), LONGEST_VALUE)
    known = [] if error.ctx is None else [option for p in error.ctx.command.get_params(error.ctx) for option in p.opts]
    close = difflib.get_close_matches(name, known, n=1)
    return f"{name}: unknown option" + (f", did you mean {close[0]}?" if close else "")


def _name(parameter: Any) -> str:
    """`--episodes`, or the metavar of an argument."""
    options = [option for option in parameter.opts if option.startswith("--")]
    return options[0] if options else str(parameter.metavar or parameter.name)


def _given(name: str, words: Sequence[str]) -> str | None:
    """The last value of an option, in both of its spellings."""
    value = None
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word[len(name) + 1 :]
    return value


def _expected(context: Any, name: str) -> str:
    """What an option accepts, from the annotation of the function that is the command."""
    function = inspect.unwrap(context.command.callback)
    annotation = get_type_hints(function, include_extras=True).get(name)
    kinds, options = _flattened(annotation)
    kind = next((kind for kind in kinds if kind is not type(None)), None)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(member.value) for member in kind)
    noun = {int: "an integer", float: "a number"}.get(kind, "") if isinstance(kind, type) else ""
    limits = [(">=", getattr(options, "min", None)), ("<=", getattr(options, "max", None))]
    bounds = [f"{sign} {limit:,}" for sign, limit in limits if limit is not None]
    return f"{noun} {' and '.join(bounds)}".strip() if noun else ""


def _flattened(annotation: Any) -> tuple[list[Any], Any]:
    """The types in an annotation such as `Annotated[int | None, Option(...)]`, and its Option."""
    kinds: list[Any] = []
    options = None
    metadata = getattr(annotation, "__metadata__", ())
    if metadata:
        options = metadata[0]
        annotation = annotation.__origin__
    kinds = list(get_args(annotation)) or [annotation]
    for position, kind in enumerate(kinds):
        if getattr(kind, "__metadata__", ()):  # `Annotated` inside a union
            kinds[position], options = kind.__origin__, kind.__metadata__[0]
    return kinds, options


def _leading_commands(words: Sequence[str], groups: Collection[str]) -> list[str]:
    """The command and, in a group, its subcommand."""
    found: list[str] = []
    for word in words[:2]:
        if not word.isidentifier() or (found and found[0] not in groups):
            break
        found.append(word)
    return found
