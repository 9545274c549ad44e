"""One step of an `nn.LSTM` or `nn.GRU` in NumPy, for acting on a few rows without autograd.

The arrays are views of the parameters, as in `models.mlp.numpy_forward`, so they follow every optimizer step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import nn

# (inputs [N, I], memory [N, parts, H], next memory to write to) -> outputs [N, H]
NumpyStep = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def numpy_step(network: nn.LSTM | nn.GRU) -> NumpyStep:
    """One step of all layers of `network`. The memory contains (h, c) or (h) of each layer in turn."""
    cells = [_cell(network, layer) for layer in range(network.num_layers)]
    parts = memory_parts(network)

    def step(inputs: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        for layer, cell in enumerate(cells):
            own = slice(layer * parts, (layer + 1) * parts)
            inputs = cell(inputs, before[:, own], after[:, own])
        return inputs

    return step


def memory_parts(network: nn.LSTM | nn.GRU) -> int:
    """The number of vectors in the memory of one layer: hidden state, and cell state for an LSTM."""
    return 2 if isinstance(network, nn.LSTM) else 1


def _cell(network: nn.LSTM | nn.GRU, layer: int) -> NumpyStep:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    views = [getattr(network, f"{name}_l{layer}").detach().numpy() for name in names]
    arrays = views[0].T, views[1].T, views[2], views[3]
    return _lstm_cell(*arrays) if isinstance(network, nn.LSTM) else _gru_cell(*arrays)


def _lstm_cell(w_input: np.ndarray, w_hidden: np.ndarray, b_input: np.ndarray, b_hidden: np.ndarray) -> NumpyStep:
    size = len(w_hidden)
    # With sigmoid(x) = (1 + tanh(x / 2)) / 2, one tanh computes all gates (input, forget, candidate, output).
    inner = np.full(4 * size, 0.5, np.float32)
    inner[2 * size : 3 * size] = 1.0
    outer = 1.0 - inner

    def cell(inputs: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        gates = inputs @ w_input
        gates += before[:, 0] @ w_hidden
        gates += b_input + b_hidden
        gates *= inner
        np.tanh(gates, gates)
        gates *= inner
        gates += outer
        state = gates[:, size : 2 * size] * before[:, 1]
        state += gates[:, :size] * gates[:, 2 * size : 3 * size]
        after[:, 1] = state
        hidden: np.ndarray = np.tanh(state, state)
        hidden *= gates[:, 3 * size :]
        after[:, 0] = hidden
        return hidden

    return cell


def _gru_cell(w_input: np.ndarray, w_hidden: np.ndarray, b_input: np.ndarray, b_hidden: np.ndarray) -> NumpyStep:
    size = len(w_hidden)

    def cell(inputs: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        from_input = inputs @ w_input
        from_input += b_input
        from_hidden = before[:, 0] @ w_hidden
        from_hidden += b_hidden
        gates = from_input[:, : 2 * size] + from_hidden[:, : 2 * size]
        gates *= 0.5
        np.tanh(gates, gates)
        gates *= 0.5
        gates += 0.5
        reset, update = gates[:, :size], gates[:, size:]
        candidate = np.tanh(from_input[:, 2 * size :] + reset * from_hidden[:, 2 * size :])
        hidden: np.ndarray = candidate + update * (before[:, 0] - candidate)
        after[:, 0] = hidden
        return hidden

    return cell
