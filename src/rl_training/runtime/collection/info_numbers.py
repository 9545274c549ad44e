"""The numbers that an env reports about an episode: those in the last info of the episode, by name.

`is_success` is read from every env that has it. Other names come from the setting `log_info`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.config.hook_settings import is_info_name
from rl_training.config.messages import printable
from rl_training.telemetry.metric_lines import INFO_PREFIX

SUCCESS = "is_success"
# Episodes without a named number before the user is told. An env may report some numbers only now and then.
PATIENCE_EPISODES = 10
_MOST_SHOWN = 8


class InfoNumbers:
    """Reads the numbers of episodes, and says what is wrong with them, once for each name."""

    def __init__(self, log_info: Sequence[str] = ()):
        self.names = tuple(dict.fromkeys((SUCCESS, *log_info)))
        self._named = tuple(log_info)
        self._episodes = 0
        self._seen: set[str] = set()
        self._told: set[str] = set()
        self._others: dict[str, None] = {}  # numbers that the env reports under other names
        self._problems: list[str] = []

    def read(self, info: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of one episode, from its last info. A name that is missing or is None is left out."""
        self._episodes += 1
        numbers = {}
        for name in self.names:
            value = info.get(name)
            if value is None:
                continue
            self._seen.add(name)
            number = as_number(value)
            if number is not None and math.isfinite(number):
                numbers[name] = number
            elif name not in self._told:
                self._told.add(name)
                problem = "not a number" if number is None else "not finite"
                self._problems.append(
                    f"log_info: {name} of an episode is {printable(value)}, {problem}; such values are left out"
                )
        if self._named:
            self._look_for_missing(info)
        return numbers

    def _look_for_missing(self, info: Mapping[str, Any]) -> None:
        if self._episodes <= PATIENCE_EPISODES:
            for name, value in info.items():
                if name not in self.names and is_info_name(name) and as_number(value) is not None:
                    self._others[name] = None
        if self._episodes == PATIENCE_EPISODES:
            self.report_missing()

    def report_missing(self) -> None:
        """Note each name that no episode so far has had. Without any episode there is nothing to say."""
        if not self._episodes:
            return
        for name in self._named:
            if name in self._seen or name in self._told:
                continue
            self._told.add(name)
            others = [*(known for known in self.names if known in self._seen), *self._others]
            close = difflib.get_close_matches(name, others, n=1)
            there = f"did you mean {close[0]}?" if close else f"its numbers there are {', '.join(others[:_MOST_SHOWN])}"
            hint = there if close or others else "there are no numbers in it"
            self._problems.append(f"log_info: the env has no {name} in the last info of an episode: {hint}")

    def tell(self, problem: str) -> None:
        """Add a problem with the infos, once."""
        if problem not in self._told:
            self._told.add(problem)
            self._problems.append(problem)

    def take_problems(self) -> list[str]:
        """The problems since the last call, one line each."""
        problems, self._problems = self._problems, []
        return problems


def as_number(value: Any) -> float | None:
    """A truth value, a number, or a NumPy or torch scalar as a float; None if it is something else."""
    if not isinstance(value, (bool, int, float)):
        try:
            value = value.item() if getattr(value, "shape", None) == () else None
        except Exception:  # a class of the env that only looks like a scalar
            return None
        if not isinstance(value, (bool, int, float)):
            return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of floats
        return None


def means(episodes: Sequence[Mapping[str, float | None]], names: Sequence[str]) -> dict[str, float]:
    """The mean of each number over the episodes that have it, as `info_<name>`; absent if none has it."""
    result = {}
    for name in names:
        values = [value for episode in episodes if (value := episode.get(name)) is not None]
        if values:
            result[INFO_PREFIX + name] = sum(values) / len(values)
    return result


def info_of_row(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    """The info of one env in the infos of a vector env: arrays, and masks `_name` of the rows that have a value."""
    info = {}
    for name, values in infos.items():
        if name.startswith("_"):
            continue
        mask = infos.get(f"_{name}")
        try:
            if mask is not None and not mask[env]:
                continue
            info[name] = values if isinstance(values, Mapping) else values[env]
        except (IndexError, KeyError, TypeError):  # not one value per env
            continue
    return info
