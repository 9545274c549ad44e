"""The callbacks of a session: those of the caller, those that the config names, and the ready ones of the settings.

A config can name any class on the Python path, and `resume` of a stored run creates it, as it creates the environment.
Only a subclass of `Callback` is ever called, so a config cannot call `os.system`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_training.config.hook_settings import CALLBACK_KEY
from rl_training.config.messages import printable
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_specs import import_user_module
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.errors import ConfigError, EnvError, raise_interrupts
from rl_training.runtime.callbacks.callback import Callback, Hooks
from rl_training.runtime.callbacks.callback_entry import HOOKS
from rl_training.runtime.callbacks.stop_rules import StopAtReturn, StopWithoutImprovement
from rl_training.runtime.callbacks.video_callback import RecordVideo
from rl_training.runtime.episode_video import check_rendering
from rl_training.runtime.loops import Progress
from rl_training.runtime.setup.run_envs import eval_env_maker
from rl_training.text import clean_text, describe_error

ProgressFunction = Callable[[Progress], bool | None]
CallbackArgument = Callback | ProgressFunction | Sequence[Callback | ProgressFunction]


def open_hooks(config: TrainConfig, argument: Any, tell: Callable[[str], None]) -> Hooks:
    """The hooks of a session; ConfigError if one of its callbacks cannot be used. `tell` prints one line."""
    items = list(argument) if isinstance(argument, (list, tuple)) else [] if argument is None else [argument]
    callbacks: list[Any] = []
    functions: list[ProgressFunction] = []
    for item in items:
        (callbacks if _is_callback(item) else functions).append(item)
    rules: list[tuple[str, Any]] = []
    if config.stop_at_return is not None:
        rules.append(("stop_at_return", StopAtReturn(config.stop_at_return)))
    if config.patience:
        rules.append(("patience", StopWithoutImprovement(config.patience)))
    if config.record_every:
        rules.append(("record_every", RecordVideo(config.record_every)))
    named = [_named(entry) for entry in config.callbacks]
    taken = [name for name, _ in rules]
    return Hooks([*rules, *_with_names([*named, *callbacks], taken)], functions, tell)


def _with_names(callbacks: Sequence[Any], taken: Sequence[str]) -> list[tuple[str, Any]]:
    """Each callback with the name of its class, and a number from the second of a class on."""
    counts = dict.fromkeys(taken, 1)
    named = []
    for callback in callbacks:
        name = clean_text(type(callback).__name__, 100)
        counts[name] = counts.get(name, 0) + 1
        named.append((name if counts[name] == 1 else f"{name}-{counts[name]}", callback))
    return named


def _is_callback(item: Any) -> bool:
    """Whether an object has hooks; False for a plain function of the progress. ConfigError if it is neither."""
    if isinstance(item, type):
        raise ConfigError(f"callback: {item.__name__} is a class, pass an instance: {item.__name__}()")
    hooks = [hook for hook in HOOKS if callable(getattr(item, hook, None))]
    if not hooks and callable(item):
        return False
    if not hooks:
        raise ConfigError(
            f"callback: {printable(item)} has no hooks and is not a function; pass a rl_training.Callback, a function "
            "of the progress, or a list of them"
        )
    _check_hooks(item)
    return True


def _check_hooks(callback: Any) -> None:
    """ConfigError for a hook with a wrong name or with wrong arguments: neither would ever be noticed."""
    name = type(callback).__name__
    if isinstance(callback, Callback):
        for word in dir(type(callback)):
            if word.startswith("on_") and word not in HOOKS:
                close = difflib.get_close_matches(word, HOOKS, n=1)
                hint = f"did you mean {close[0]}?" if close else f"the hooks are {', '.join(HOOKS)}"
                raise ConfigError(f"callback {name}: {clean_text(word, 60)} is not a hook, {hint}")
        if all(getattr(type(callback), hook) is getattr(Callback, hook) for hook in HOOKS):
            raise ConfigError(f"callback {name}: overrides no hook, the hooks are {', '.join(HOOKS)}")
    for hook in HOOKS:
        method = getattr(callback, hook, None)
        if callable(method):
            try:
                inspect.signature(method).bind(None)
            except TypeError:
                raise ConfigError(f"callback {name}: {hook} must take one argument, the context") from None
            except ValueError:  # a builtin without a signature
                pass


def _named(entry: str | Mapping[str, Any]) -> Any:
    """A callback that the config names: its module is imported, and its class is called with the keyword arguments."""
    options = {} if isinstance(entry, str) else {key: value for key, value in entry.items() if key != CALLBACK_KEY}
    where = entry if isinstance(entry, str) else str(entry[CALLBACK_KEY])
    shown = f"callbacks: {printable(where)}"
    module_name, _, name = where.partition(":")
    try:
        module = import_user_module(module_name)
    except BaseException as error:
        raise_interrupts(error)
        raise ConfigError(
            f"{shown}: importing {module_name} failed with {describe_error(error)}: fix it, install it, or add its "
            "directory to PYTHONPATH",
            key="callbacks",
        ) from error
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Callback):
        problem = "has no such name" if kind is None else "it is not a subclass of rl_training.Callback"
        close = difflib.get_close_matches(name, vars(module), n=1) if kind is None else []
        hint = f", did you mean {close[0]}?" if close else ""
        raise ConfigError(f"{shown}: {problem}{hint}", key="callbacks")
    try:
        callback = kind(**options)
    except BaseException as error:
        raise_interrupts(error)
        raise ConfigError(f"{shown}: it cannot be created: {describe_error(error)}", key="callbacks") from error
    _check_hooks(callback)
    return callback


def check_hook_settings(config: TrainConfig, env: EnvSource | None, eval_env: str | EnvMaker | None) -> None:
    """Refuse settings that need an evaluation environment, or one that draws, before a run is made."""
    names = ("stop_at_return", "patience", "record_every")
    used = [name for name in names if getattr(config, name) not in (None, 0)]
    if config.stop_at_return == 0:  # a return, not a switch
        used.insert(0, "stop_at_return")
    if not used:
        return
    make_drawing_env = eval_env_maker(config, env, eval_env, render_mode="rgb_array")
    if make_drawing_env is None:
        raise ConfigError(f"{used[0]}: there is no environment to evaluate on, pass eval_env", key=used[0])
    if config.record_every:
        try:
            check_rendering(make_drawing_env)
        except ConfigError as error:
            raise ConfigError(f"record_every: {error}", key="record_every") from None
        except EnvError as error:
            remedy = "; a recorded env must take render_mode='rgb_array'" if "render_mode" in str(error) else ""
            raise EnvError(f"record_every: {error}{remedy}") from None
