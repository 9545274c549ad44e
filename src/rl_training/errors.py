"""Expected errors. Each message is one line that names the setting, file or environment and how to fix it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.program import pip_install

# Exit codes of the command line that belong to no error below.
EXIT_RESUMABLE = 75  # stopped by a signal and saved: `rl-training resume` continues the run
EXIT_INTERRUPTED = 130  # Ctrl-C outside training, or a second signal during it


def install_hint(extra: str) -> str:
    """How to install an optional dependency, for the end of an error message."""
    return f"install the extra `{extra}` ({pip_install(extra)})"


class RLTrainingError(Exception):
    """Base class of all expected errors; the command line exits with `exit_code`."""

    exit_code = 1


class ConfigError(RLTrainingError):
    """A setting is unknown, has the wrong type, is out of range or conflicts with another setting."""

    exit_code = 2

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class EnvError(RLTrainingError):
    """An environment is missing, misbehaves, or has spaces that the algorithm does not support."""

    exit_code = 3


class NumericalError(RLTrainingError):
    """A loss, gradient, action, observation or reward is not a finite number.

    `evidence` contains the arrays with the bad numbers, or a batch of such arrays. A run saves them in its directory.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        env_index: int | None = None,
        env_step: int | None = None,
        evidence: Any = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(message)
        self.field, self.env_index, self.env_step = field, env_index, env_step
        self.evidence, self.metrics = evidence, dict(metrics or {})


class CheckpointError(RLTrainingError):
    """A checkpoint is missing, damaged, written by another program, or of an unknown version."""

    exit_code = 5


def raise_interrupts(error: BaseException) -> None:
    """Raise Ctrl-C again; anything else that the code of an env or of a callback raises is a failure of that code.

    That includes SystemExit, which must not end a run with an exit code that the env chooses, and the exceptions of
    other languages: a panic in Rust is not an `Exception`.
    """
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        raise error
