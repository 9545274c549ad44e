"""Classes of the user that a config names as `module:Class`, and which of them this process may use.

A config is data. A checkpoint from a stranger must not choose code, so a name in it is followed only if the caller
handed the class over or named its module as trusted. A config that the user trains with is obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rl_training.errors import ConfigError
from rl_training.text import one_line

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_LONGEST_NAME = 300
# What the caller gave to this process by name, and what it may import by name.
_given: dict[str, type[Any]] = {}
_allowed: set[str] = set()
_trusted: set[str] = set()


def is_class_name(name: str) -> bool:
    """Whether this is `module:Class`."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def name_of_class(given: type[Any]) -> str:
    """The name that a config stores for a class. This process may use the class from now on."""
    name = f"{given.__module__}:{given.__name__}"
    _given[name] = given
    return name


def hand_over(name: str, given: type[Any]) -> None:
    """Use `given` wherever a config names `name`, whatever its own name is."""
    _given[name] = given


@contextmanager
def handed_over(name: str, given: type[Any] | None) -> Iterator[None]:
    """`hand_over`, but if what is done with the class fails, it is forgotten: it may be the wrong one for this name."""
    before = _given.get(name)
    if given is not None:
        hand_over(name, given)
    try:
        yield
    except BaseException:
        if given is not None and _given.get(name) is given:  # another thread may have handed over its own
            _given.pop(name, None)
            if before is not None:
                _given[name] = before
        raise


def allow(name: str) -> None:
    """Allow the class with this name: the user trains with a config that names it."""
    _allowed.add(name)


def trust(modules: str | Iterable[str]) -> None:
    """Allow classes of these modules, and of the modules inside them, in checkpoints that this process loads."""
    for module in [modules] if isinstance(modules, str) else modules:
        if not isinstance(module, str) or not is_class_name(f"{module}:x"):
            raise ConfigError(f"trust: {one_line(module, 60)} is not the name of a module, such as my_package.nets")
        _trusted.add(module)


def trust_option(encoder: str) -> tuple[str, ...]:
    """The option without which a command refuses a run with this `model.encoder`; nothing for those of the package."""
    return ("--trust", encoder.partition(":")[0]) if is_class_name(encoder) else ()


def is_allowed(name: str) -> bool:
    """Whether this process may use the class: it was handed over or allowed, or its module is trusted."""
    parts = name.partition(":")[0].split(".")
    modules = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return name in _given or name in _allowed or not _trusted.isdisjoint(modules)


def given_class(name: str) -> type[Any] | None:
    """The class that was handed over under this name."""
    return _given.get(name)
