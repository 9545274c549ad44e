"""What the installed package requires, read from its metadata, and whether a version satisfies it.

Only the forms that this package uses are understood: `name[extra]>=1,<2; extra == "x"`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata

PACKAGE = "rl_training"
NOT_FOR_USERS = {"dev", "bench", "all"}  # extras for work on the package, and the one that names the others

_REQUIREMENT = re.compile(
    r"""\s* (?P<name>[A-Za-z0-9._-]+) \s* (?:\[(?P<extras>[^\]]*)\])? \s* \(? (?P<range>[^;)]*) \)? \s*
        (?: ; \s* (?:.*\b extra \s* == \s* ["'](?P<extra>[^"']+)["'].*)? )?""",
    re.VERBOSE,
)
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|>|<|~=)\s*([0-9][^\s,]*)\s*")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "~=": operator.ge,  # its upper bound is checked apart
}


@dataclass(frozen=True)
class Requirement:
    """One line of the metadata."""

    name: str  # of the distribution
    range: str = ""  # such as ">=1.1,<2"
    extras: tuple[str, ...] = ()  # of the distribution
    extra: str | None = None  # of this package that needs it; None: always needed

    def allows(self, version: str) -> bool:
        return satisfies(version, self.range)


def parse_requirement(text: str) -> Requirement | None:
    """The requirement that a line of metadata states; None if it has another form."""
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        return None
    extras = tuple(word.strip() for word in (match["extras"] or "").split(",") if word.strip())
    return Requirement(match["name"], match["range"].strip(), extras, match["extra"])


def package_requirements() -> list[Requirement] | None:
    """What this package requires; None if it is not installed (imported from a source tree)."""
    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    return [requirement for line in lines if (requirement := parse_requirement(line)) is not None]


def python_range() -> str:
    """The Python versions that the package requires, such as ">=3.10"; empty if unknown."""
    try:
        return str(metadata.metadata(PACKAGE)["Requires-Python"] or "")
    except metadata.PackageNotFoundError:
        return ""


def tested_pythons() -> list[tuple[int, int]]:
    """The Python versions that the metadata names, the oldest first."""
    try:
        classifiers = metadata.metadata(PACKAGE).get_all("Classifier") or []
    except metadata.PackageNotFoundError:
        return []
    found = (re.fullmatch(r"Programming Language :: Python :: (\d+)\.(\d+)", each) for each in classifiers)
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def installed_version(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a version: (2, 6, 0) of 2.6.0+cpu and of 2.6.0rc1."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(word) for word in match[0].split(".")) if match else ()


def satisfies(version: str, ranges: str) -> bool:
    """Whether a version is inside every clause of a range such as ">=1.1,<2"."""
    clauses = _clauses(ranges)
    return all(_satisfies(release_of(version), sign, bound) for sign, bound in clauses)


def _clauses(ranges: str) -> Iterable[tuple[str, str]]:
    return [(match[1], match[2]) for part in ranges.split(",") if (match := _CLAUSE.fullmatch(part))]


def _satisfies(version: tuple[int, ...], sign: str, bound: str) -> bool:
    if bound.endswith(".*"):
        prefix = release_of(bound)
        return (version[: len(prefix)] == prefix) is (sign != "!=")
    limit = release_of(bound)
    if sign == "~=" and version[: len(limit) - 1] != limit[:-1]:
        return False
    length = max(len(version), len(limit))
    padded, padded_limit = ((*numbers, *(0,) * (length - len(numbers))) for numbers in (version, limit))
    return _COMPARE[sign](padded, padded_limit)
