"""One callback of a session: its name, the hooks that it overrides, its state, and what its answers mean."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config.messages import printable
from rl_training.errors import ConfigError, raise_interrupts
from rl_training.storage.state_tree import flatten_state
from rl_training.text import clean_text, describe_error

HOOKS = ("on_start", "on_round", "on_episode", "on_evaluation", "on_checkpoint", "on_end")
LARGEST_STATE = 1_000_000  # characters of JSON, beside arrays


class CallbackEntry:
    """A callback with a name that is unique in its run. Only the hooks that it overrides are called."""

    def __init__(self, name: str, callback: Any):
        self.name, self.callback = name, callback
        self.is_off = False
        self.last_state: Any = None
        methods = {hook: getattr(callback, hook, None) for hook in HOOKS}
        self.hooks: dict[str, Callable[[Any], Any]] = {
            hook: method for hook, method in methods.items() if callable(method) and not _is_empty(method)
        }

    def state(self) -> Any:
        """The state to save. Of a callback that is off, it is the last one that was saved or restored."""
        read = getattr(self.callback, "state_dict", None)
        if self.is_off or not callable(read):
            return self.last_state
        state = read()
        tree, _ = flatten_state(state)  # TypeError if it cannot be stored
        if len(json.dumps(tree)) > LARGEST_STATE:
            raise ValueError(f"the state has more than {LARGEST_STATE:,} characters; keep large data in NumPy arrays")
        self.last_state = state
        return state

    def restore(self, state: Any) -> None:
        self.last_state = state
        load = getattr(self.callback, "load_state_dict", None)
        if not callable(load):
            return
        try:
            load(state)
        except BaseException as error:
            raise_interrupts(error)
            raise ConfigError(
                f"callback {self.name}: load_state_dict failed{self.place_of(error)}: {describe_error(error)}"
            ) from error

    def place_of(self, error: BaseException) -> str:
        """The file and line of the callback where the error came from, as text to add to a message."""
        frames = traceback.extract_tb(error.__traceback__)
        outside = [frame for frame in frames if "rl_training/runtime" not in Path(frame.filename).as_posix()]
        if not outside:
            return ""
        return f" ({clean_text(Path(outside[0].filename).name, 60)}, line {outside[0].lineno})"


def _is_empty(method: Any) -> bool:
    """Whether it is the hook of the base class, which does nothing."""
    return getattr(getattr(method, "__func__", None), "__module__", None) == "rl_training.runtime.callbacks.callback"


def answers_false(answer: Any) -> bool:
    """Whether an answer of a hook asks to stop: False. None and True continue; anything else is a TypeError."""
    if answer is None or isinstance(answer, (bool, np.bool_)):
        return answer is not None and not answer
    if getattr(answer, "shape", None) == () and str(getattr(answer, "dtype", "")).endswith("bool"):
        return not bool(answer)  # an array or a tensor with one truth value
    raise TypeError(f"returned {printable(answer)}, expected None or True to continue, or False to stop")
