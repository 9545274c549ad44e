"""Errors a user can cause. Each message is one line that names the culprit and the way out."""

from __future__ import annotations


class RLTrainingError(Exception):
    """Base of every expected failure; `exit_code` is what the command line ends with."""

    exit_code = 1


class ConfigError(RLTrainingError):
    """A setting is unknown, mistyped, out of range or impossible together with another one."""

    exit_code = 2

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class EnvironmentProblem(RLTrainingError):
    """An environment is missing, misbehaves, or has spaces that the algorithm does not take."""

    exit_code = 3


class NumericalError(RLTrainingError):
    """A loss, gradient, observation or reward stopped being a finite number."""

    exit_code = 4


class CheckpointError(RLTrainingError):
    """A checkpoint is missing, damaged, foreign, or of an unknown version."""

    exit_code = 5
