"""Wrappers of environments by name: the setting `wrappers`, in the order in which they are applied.

An entry is `module:Class`, or a mapping with the key `wrapper` and keyword arguments of the class. A wrapper is a
subclass of `gymnasium.Wrapper`: nothing else that a name may point to is called.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from rl_training.config.hook_settings import WRAPPER_KEY, checked_wrappers
from rl_training.envs.env_specs import import_user_module
from rl_training.errors import EnvError
from rl_training.text import describe_error, one_line

WRAPPERS_OPTION = "wrappers"
Entry = tuple[str, type[gym.Wrapper[Any, Any, Any, Any]], dict[str, Any]]


def wrapper_entries(env_kwargs: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The wrappers that `env_kwargs` name, imported: name, class and keyword arguments of each."""
    given = env_kwargs.get(WRAPPERS_OPTION) or ()
    try:
        entries = checked_wrappers(given)
    except ValueError as error:
        raise EnvError(f"{WRAPPERS_OPTION}: {one_line(error, 300)}") from None
    if not isinstance(entries, (list, tuple)):
        raise EnvError(f"{WRAPPERS_OPTION}: {one_line(given, 100)} is not valid, expected a list of module:Class")
    return tuple(_entry(index, entry) for index, entry in enumerate(entries))


def wrapped(env: gym.Env[Any, Any], entries: Sequence[Entry]) -> gym.Env[Any, Any]:
    """`env` in all wrappers, the first one innermost."""
    for name, wrapper, options in entries:
        try:
            env = wrapper(env, **options)
        except Exception as error:
            raise EnvError(f"{WRAPPERS_OPTION}: {name} cannot wrap the env: {describe_error(error, 300)}") from error
    return env


def _entry(index: int, entry: str | Mapping[str, Any]) -> Entry:
    named = {WRAPPER_KEY: entry} if isinstance(entry, str) else dict(entry)
    name = str(named.pop(WRAPPER_KEY))
    where = f"{WRAPPERS_OPTION}[{index}]: {one_line(name, 200)}"
    module_name, _, attribute = name.partition(":")
    try:
        module = import_user_module(module_name)
    except Exception as error:
        raise EnvError(f"{where} cannot be imported: {describe_error(error, 300)}") from error
    wrapper = getattr(module, attribute, None)
    if wrapper is None:
        close = difflib.get_close_matches(attribute, dir(module), n=1)
        hint = f"did you mean {close[0]}?" if close else "check the name"
        raise EnvError(f"{where} is not there: {hint}")
    if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
        raise EnvError(f"{where} is not a subclass of gymnasium.Wrapper: name a wrapper class")
    return name, wrapper, named
