"""What models with an LSTM or GRU share: the cells, their first weights, and their memory as one array per env."""

from __future__ import annotations

import os

import numpy as np
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.layers.initialization import initialize_weight

Recurrence = nn.LSTM | nn.GRU
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
MOST_KERNELS = 64  # image networks need about 30


def check_recurrence(cell: str, memory_size: int, memory_layers: int) -> None:
    """Refuse settings that no recurrent network can have, and prepare torch for an LSTM."""
    if cell not in CELLS:
        raise ConfigError(f"cell: {cell!r} is not valid, expected one of {', '.join(CELLS)}")
    for name, value in (("memory_size", memory_size), ("memory_layers", memory_layers)):
        if value < 1:
            raise ConfigError(f"{name}: {value} is not valid, expected integer >= 1")
    if cell == "lstm":
        limit_kernels()


def torch_state(network: Recurrence, parts: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """The memory [B, parts, H] of one network in torch's layout: [layers, B, H], twice for an LSTM."""
    parts = parts.transpose(0, 1)
    if isinstance(network, nn.GRU):
        return parts.contiguous()
    return parts[0::2].contiguous(), parts[1::2].contiguous()


def store_state(state: Tensor | tuple[Tensor, Tensor], parts: Tensor) -> None:
    """Write torch's state into the memory [B, parts, H]."""
    parts = parts.transpose(0, 1)
    if isinstance(state, tuple):
        parts[0::2], parts[1::2] = state
    else:
        parts[:] = state


def checked_memory(
    shape: tuple[int, ...], count: int, memory: np.ndarray | None, episode_starts: np.ndarray | None
) -> np.ndarray:
    """The memory of `count` envs before a step, empty where an episode starts; None is the empty memory."""
    if memory is None:
        return np.zeros((count, *shape), np.float32)
    if not isinstance(memory, np.ndarray) or memory.shape != (count, *shape):
        found = getattr(memory, "shape", type(memory).__name__)
        raise ConfigError(
            f"state: {found} is not valid for {count} observations; pass the state that the last call returned, "
            f"{(count, *shape)}, or None at the start of an episode"
        )
    if episode_starts is None or not np.any(episode_starts):
        return memory
    # Not in place: the caller may store the array from before the step.
    return np.where(np.reshape(episode_starts, (-1, 1, 1)), np.float32(0), memory)


def limit_kernels() -> None:
    """Keep at most `MOST_KERNELS` kernels of oneDNN, with which torch runs an LSTM on the CPU.

    oneDNN builds a kernel for each shape and keeps 1,024 of them, but minibatches of whole sequences nearly always
    have a new shape. So memory would grow for a million steps: by 80 MB with a memory of 64 units, by 240 MB within
    20,000 steps with 256 units. To build a kernel takes 0.2 ms. oneDNN reads the setting when a process uses it for
    the first time. A setting of the user has priority.
    """
    if "DNNL_PRIMITIVE_CACHE_CAPACITY" not in os.environ:
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(MOST_KERNELS))


def initialize_recurrence(network: Recurrence, method: str) -> None:
    """Set the weights of each gate, and zero biases; `torch` leaves them as they are."""
    for name, parameter in network.named_parameters() if method != "torch" else ():
        if name.startswith("bias"):
            nn.init.zeros_(parameter)
            continue
        for gate in parameter.detach().split(network.hidden_size):
            initialize_weight(gate, method, 1.0)
