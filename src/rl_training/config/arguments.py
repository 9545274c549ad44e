"""Numbers that are passed to functions instead of a config, checked with the same strictness and in one line."""

from __future__ import annotations

import numbers
from typing import Any

from rl_training.config.base import LARGEST_INTEGER
from rl_training.config.messages import printable
from rl_training.errors import ConfigError


def whole_number(name: str, value: Any, *, least: int = 1, most: int = LARGEST_INTEGER) -> int:
    """`value` as an integer within its bounds, otherwise a ConfigError. A whole float such as 1e6 is accepted.

    >>> whole_number("total_timesteps", 1e6)
    1000000
    >>> whole_number("episodes", True)
    Traceback (most recent call last):
        ...
    rl_training.errors.ConfigError: episodes: true is not valid, expected integer >= 1
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_whole = isinstance(value, numbers.Integral) or (is_number and float(value).is_integer())
    if not is_number or not is_whole or not least <= value <= most:
        bounds = f"integer >= {least}" + (f" and <= {most}" if most != LARGEST_INTEGER else "")
        # Python refuses to print an integer of more than 4,300 digits.
        too_large = is_whole and abs(value) > LARGEST_INTEGER
        problem = "the number is too large" if too_large else f"{printable(value)} is not valid"
        raise ConfigError(f"{name}: {problem}, expected {bounds}", key=name)
    return int(value)
