"""A limit on the parameters of networks, enforced while they are built: before memory is filled or time is spent.

Torch reserves the memory of a parameter, registers the parameter with its module and only then initializes it. The
limit acts at the registration, so a network that is too large costs next to nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from rl_training.data.replay_memory import LARGEST_SHARE, available_bytes, ran_out_of_memory
from rl_training.errors import ConfigError

# Weights and target weights, gradients, the two moments of Adam, and a copy while they are joined: float32 each.
TRAINING_BYTES = 6 * 4


@contextmanager
def parameter_limit(values: int, tensors: int, refusal: Exception) -> Iterator[None]:
    """Raise `refusal` once the networks built here have more than `values` numbers or `tensors` parameters."""
    builder, seen = threading.get_ident(), [0, 0]

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        # The hook belongs to the whole process, and another thread may build a network of its own.
        if parameter is None or threading.get_ident() != builder:
            return
        # A lazy layer gets its shape in its first forward pass, after its registration. Only user code has such layers.
        seen[0] += 0 if is_lazy(parameter) else parameter.numel()
        seen[1] += 1
        if seen[0] > values or seen[1] > tensors:
            raise refusal

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def networks_within_memory() -> Iterator[None]:
    """ConfigError if the networks built here, with gradients and optimizers, would not fit into the free memory."""
    available = available_bytes()
    share = 2**62 if available is None else int(LARGEST_SHARE * available)
    refusal = ConfigError(
        f"model: networks with these settings do not fit into the {share / 1e9:.1f} GB of memory that may be used "
        f"here; use smaller layers (hidden_sizes)",
        key="model",
    )
    try:
        with parameter_limit(share // TRAINING_BYTES, sys.maxsize, refusal):
            yield
    except (MemoryError, RuntimeError) as error:
        if ran_out_of_memory(error):
            raise refusal from error
        raise
