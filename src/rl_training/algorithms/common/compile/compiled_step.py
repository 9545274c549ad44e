"""Compiled gradient steps: loss, backward pass, clipping and optimizer as one function.

An ordinary step of a small network is a hundred calls of a few microseconds of arithmetic each. Compiled into one
graph it costs a third of that. A learner hands over its `_gradient_step`, which is tensor work only, and calls what
it gets back; nothing else about the algorithm changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence, Sized
from operator import attrgetter
from typing import Any, TypeAlias

from torch import Tensor

from rl_training.algorithms.common.compile.trace import Trace, rebuild, tensor_fields, tensors_in, trace

# What a small network spends its time on, other than products: calls from Python for every buffer and kernel (a graph
# that is C++ as a whole saves a fifth of a step, gives the same bits, and is compiled sooner, being one file), and tanh
# (by way of exp a third of the time, right to 1e-7).
OPTIONS = {
    "compile_threads": 1,  # in this process: a pool of compiler workers would outlive its use for the rest of the run
    "cpp_wrapper": True,
    "size_asserts": False,  # a batch of another size takes the plain way, and the tensors of the state stay
    "cpp.use_decompose_tanh": True,
}

# A number where the step is plain, a tensor without dimensions where it is compiled: a Python number is written into
# the graph as it was when the graph was made.
Scalar: TypeAlias = Any


class CompiledStep:
    """`step(batch, ...)`, compiled for batches of exactly `rows` rows. Others take the plain way.

    Which way a batch goes depends on nothing but its size. Were sizes compiled as they come, the arithmetic would
    depend on the ones seen before, and a resumed run would differ from one that never stopped in the last bits.

    The graph works on the tensors that the learner had when it was made: they may change, but not be replaced.
    Arguments other than tensors are switches, true or false: each of their values has a graph of its own.
    """

    def __init__(self, step: Callable[..., Any], rows: int):
        self.rows = rows
        self._plain = step
        self._graphs: dict[tuple[Any, ...], Callable[..., Any]] = {}

    @property
    def was_used(self) -> bool:
        return bool(self._graphs)

    def __call__(self, batch: Sized, *rest: Any) -> Any:
        if len(batch) != self.rows:
            return self._plain(batch, *rest)
        switches = tuple(None if isinstance(value, Tensor) else value for value in rest)
        graph = self._graphs.get(switches)
        if graph is None:
            _check_switches(rest)
            graph = self._graphs[switches] = _compile(trace(self._plain, (batch, *rest)), (batch, *rest))
        return graph(batch, *rest)


def _check_switches(rest: tuple[Any, ...]) -> None:
    """A number would compile a graph for each of its values, and a schedule has thousands."""
    for place, value in enumerate(rest, start=2):
        if not isinstance(value, (Tensor, bool)):
            raise TypeError(
                f"argument {place} of a compiled step is a {type(value).__name__} ({value!r}): only a bool can be a "
                "switch, hand numbers over as tensors"
            )


def _compile(traced: Trace, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """Not before it is needed: an agent that is only loaded to act should not wait for the compiler's import."""
    import torch._inductor

    state, result = traced.state, traced.result
    with torch.no_grad(), torch._inductor.config.patch(OPTIONS):
        compiled = torch._inductor.compile(traced.graph, [*state, *tensors_in(arguments)])

    columns = _tensors_getter(arguments[0])

    def call(batch: Any, *rest: Any) -> Any:
        inputs = [value for value in rest if isinstance(value, Tensor)]
        with torch.no_grad():
            return rebuild(result, compiled(*state, *columns(batch), *inputs))

    return call


def _tensors_getter(batch: Any) -> Callable[[Any], Sequence[Tensor]]:
    """The tensors of batches like this one, in order. It is called in every step."""
    names = tensor_fields(batch)
    # Of a single name `attrgetter` gives the tensor itself, and its rows would be taken for the batch's tensors.
    return attrgetter(*names) if len(names) > 1 else lambda other: tensors_in([other])


def can_compile() -> bool:
    """Whether there is a C++ compiler for torch to call."""
    return any(shutil.which(name) for name in ("g++", "c++", "clang++"))
