"""Compiled gradient steps: loss, backward pass, clipping and optimizer as one function.

A learner passes its `_gradient_step`, which does tensor work only, and calls the `CompiledStep` in its place. Nothing
else about the algorithm changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence, Sized
from operator import attrgetter
from typing import Any, TypeAlias

from torch import Tensor

from rl_training.algorithms.common.compile.compiler import compile_graph
from rl_training.algorithms.common.compile.layer_norms import store_deviations
from rl_training.algorithms.common.compile.products import has_fast_products, turn_thin_products, use_fast_products
from rl_training.algorithms.common.compile.trace import Trace, rebuild, tensor_fields, tensors_in, trace
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.text import describe_error

# The run stands still meanwhile, so it says why. A step with switches has a graph for each of them.
COMPILING = "compiling the gradient step (up to 20 seconds the first time)"
COMPILING_ANOTHER = "compiling another variant of the gradient step"

# A number in an uncompiled step, a tensor without dimensions in a compiled one: the graph would keep the value that a
# Python number has when the graph is made.
Scalar: TypeAlias = Any


class CompiledStep:
    """`step(batch, ...)`, compiled for batches of exactly `rows` rows. Other batches use the uncompiled step.

    The choice depends only on the batch size. If every new size were compiled, the arithmetic would depend on the
    sizes seen before, and a resumed run would differ in the last bits from one that never stopped.

    The graph works on the tensors that the learner has when the graph is made: their contents may change, but no
    other tensor may take their place. Arguments other than tensors are switches, true or false, and every combination
    of them has its own graph. With `fast_products`, wide matrix products are those of oneDNN, where torch has it.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        rows: int,
        note: Callable[[str], None] | None = None,
        *,
        fast_products: bool = False,
    ):
        self.rows = rows
        self.fast_products = fast_products and has_fast_products()
        self._note = note
        self._uncompiled = step
        self._graphs: dict[tuple[Any, ...], Callable[..., Any]] = {}

    @property
    def was_used(self) -> bool:
        return bool(self._graphs)

    def __call__(self, batch: Sized, *rest: Any) -> Any:
        if len(batch) != self.rows:
            return self._uncompiled(batch, *rest)
        switches = tuple(None if isinstance(value, Tensor) else value for value in rest)
        graph = self._graphs.get(switches)
        if graph is None:
            _check_switches(rest)
            if self._note is not None:
                self._note(COMPILING_ANOTHER if self._graphs else COMPILING)
            graph = self._graphs[switches] = self._compiled(batch, *rest)
        return graph(batch, *rest)

    def _compiled(self, *arguments: Any) -> Callable[..., Any]:
        if self.fast_products:
            try:
                traced = trace(self._uncompiled, arguments)
                use_fast_products(traced.graph)
                return _compile(traced, arguments)
            except (RLTrainingError, MemoryError):
                raise
            except Exception:  # another version of torch may compile them differently
                self.fast_products = False
        try:
            return _compile(trace(self._uncompiled, arguments), arguments)
        except (RLTrainingError, MemoryError):
            raise
        except Exception as error:  # a network of the user's own may do what a graph cannot
            raise ConfigError(
                f"compile: the gradient step cannot be compiled ({describe_error(error)}); set compile=off",
                key="compile",
            ) from error


def _check_switches(rest: tuple[Any, ...]) -> None:
    """Refuse numbers: each value would compile another graph, and a schedule has thousands of values."""
    for place, value in enumerate(rest, start=2):
        if not isinstance(value, (Tensor, bool)):
            raise TypeError(
                f"argument {place} of a compiled step is a {type(value).__name__} ({value!r}): a switch must be a "
                "bool, pass numbers as tensors"
            )


def _compile(traced: Trace, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    state, result = traced.state, traced.result
    turn_thin_products(traced.graph)
    store_deviations(traced.graph)
    compiled = compile_graph(traced.graph, [*state, *tensors_in(arguments)])
    columns = _tensors_getter(arguments[0])

    def call(batch: Any, *rest: Any) -> Any:
        inputs = [value for value in rest if isinstance(value, Tensor)]
        return rebuild(result, compiled([*state, *columns(batch), *inputs]))

    return call


def _tensors_getter(batch: Any) -> Callable[[Any], Sequence[Tensor]]:
    """A function that returns the tensors of batches like this one, in order; every step calls it."""
    names = tensor_fields(batch)
    # For a single name, `attrgetter` returns the tensor itself, and its rows would pass for the batch's tensors.
    return attrgetter(*names) if len(names) > 1 else lambda other: tensors_in([other])


def can_compile() -> bool:
    """Whether torch can call a C++ compiler here."""
    return any(shutil.which(name) for name in ("g++", "c++", "clang++"))
