"""What must hold after every case, whatever it did."""

from __future__ import annotations

import os
import unicodedata
from typing import Any

from fuzz_cases import Case
from fuzz_commands import READING, TRAINING, name_of
from fuzz_runner import Outcome
from fuzz_tree import WORK, changes_between
from rl_training import errors

MOST_SECONDS, MOST_SECONDS_WITH_ENVS = 2.0, 12.0  # of processor time
MOST_MEGABYTES = 200.0
MOST_LINES, MOST_CHARACTERS = 3, 4_000
MAY_EXIT_WITH_1 = ("check", "diff", "doctor", "zoo run")
ANSWERS_WITH_1 = ("diff",)  # its answer is on stdout
SAVED_BY_CTRL_C = ("train", "resume")
PROGRESS = "wrote "  # a line for each file of a report
ERRORS = range(1, 6)  # exit codes with a line that explains them
EXPLAINED = ("error: ", "warning: the run is trained and saved, but its last evaluation failed: ")
NAMES_OUTPUT = ("--write", "--gif", "--mp4", "--logdir", "--output", "--export")
BIDIRECTIONAL = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def exit_codes() -> set[int]:
    """The documented exit codes."""
    kinds = [errors.RLTrainingError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__ == errors.__name__]
    return {0, errors.EXIT_RESUMABLE, errors.EXIT_INTERRUPTED, *(kind.exit_code for kind in ours)}


def violations(case: Case, outcome: Outcome, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each broken invariant; `before` and `after` are the facts of all files of the case."""
    name = name_of(case.arguments)
    problems = []
    if outcome.stuck:
        problems.append(f"did not end after {outcome.seconds:.1f} s of processor time")
    elif outcome.code not in exit_codes():
        problems.append(f"exit code {outcome.code}")
    elif outcome.code == errors.RLTrainingError.exit_code and name not in MAY_EXIT_WITH_1 and case.stdout == "file":
        problems.append("exit code 1, which is for other commands")
    if outcome.asked and name in SAVED_BY_CTRL_C and outcome.code != errors.EXIT_RESUMABLE:
        problems.append(f"not training after {outcome.seconds:.1f} s of processor time")
    if case.must_fail and outcome.code == 0:
        problems.append("exit code 0 although it failed")
    if case.code not in (None, outcome.code):
        problems.append(f"exit code {outcome.code} instead of {case.code}")
    if case.says not in outcome.err:
        problems.append(f"stderr does not say {case.says!r}")
    problems += _printed(case, outcome, name)
    # A refusal is quick, whatever the command would have done.
    is_refusal = outcome.code in (errors.ConfigError.exit_code, errors.CheckpointError.exit_code)
    most = MOST_SECONDS if is_reading(name) or is_refusal else MOST_SECONDS_WITH_ENVS
    if outcome.seconds > most and not outcome.stuck:
        problems.append(f"{outcome.seconds:.1f} s of processor time")
    if outcome.megabytes > MOST_MEGABYTES:
        problems.append(f"{outcome.megabytes:.0f} MB of memory")
    if outcome.left:
        problems.append(f"left {outcome.left} processes behind")
    allowed, kept = (tuple(map(_below_the_root, each)) for each in (may_change(case, name), case.keeps))
    changes = changes_between(before, after)
    return problems + [each for each in changes if each.startswith(kept) or not each.startswith(allowed)]


def _below_the_root(path: str) -> str:
    path = os.path.normpath(os.path.join(WORK, path))
    return "" if path == os.curdir else path


def is_reading(name: str) -> bool:
    """Whether a command only reads files: then its time is bounded, whatever is in them."""
    return name.startswith(READING) or not name


def _printed(case: Case, outcome: Outcome, name: str) -> list[str]:
    problems = []
    for stream, text in (("stdout", outcome.out), ("stderr", outcome.err)):
        odd = {character for character in set(text) - {"\n"} if _is_control(character)}
        if odd:
            problems.append(f"control characters on {stream}: {''.join(sorted(odd))!a}")
    # The traceback of the env is what `reproduce` is for.
    of_env = name == "reproduce" and outcome.code == errors.EnvError.exit_code
    if "Traceback (most recent call last)" in outcome.err + outcome.out and not of_env:
        problems.append(f"traceback: {outcome.err.strip().splitlines()[-1][:300]}")
    elif outcome.code and not of_env and (name not in TRAINING or "--quiet" in case.arguments):
        lines = [line for line in outcome.err.splitlines() if line.strip() and not line.startswith(PROGRESS)]
        if len(lines) > MOST_LINES:
            problems.append(f"{len(lines)} lines on stderr")
        elif len(outcome.err) > MOST_CHARACTERS:
            problems.append(f"{len(outcome.err)} characters on stderr")
        answered = name in ANSWERS_WITH_1 and outcome.code == errors.RLTrainingError.exit_code
        silent = answered or outcome.code == errors.EXIT_INTERRUPTED or case.stdout == "pipe nobody reads"
        if not lines and not silent:
            problems.append(f"exit code {outcome.code} without a word")
        elif lines and outcome.code in ERRORS and not any(line.startswith(EXPLAINED) for line in lines):
            problems.append(f"no line on stderr is an error: {lines[-1][:200]}")
    return problems


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in BIDIRECTIONAL


def may_change(case: Case, name: str) -> list[str]:
    """What a command may change, below the working directory: its run, and what its options name."""
    allowed = {"train": ["runs/"], "resume": ["runs/"], "play": ["runs/"], "check": ["runs/"]}.get(name, [])
    pairs = list(zip(case.arguments, case.arguments[1:], strict=False))
    allowed += [value for option, value in pairs if option in NAMES_OUTPUT and value.strip()]
    if name in TRAINING:
        allowed += [value for option, value in pairs if option == "--output-dir" and value.strip()]
    return allowed
