"""Compiled loops: one call of a function that makes many steps, such as all minibatches of an update.

A compiled step still returns to Python between two steps. For small networks that, and the tensors that are made for
it, are a good part of the time. `CompiledLoop` traces one step, as `CompiledStep` does, and compiles a loop around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.common.compile.compiler import compile_graph
from rl_training.algorithms.common.compile.layer_norms import store_deviations
from rl_training.algorithms.common.compile.products import turn_thin_products
from rl_training.algorithms.common.compile.trace import rebuild, tensors_in, trace
from rl_training.errors import RLTrainingError
from rl_training.text import describe_error

COMPILING_STEPS = "compiling the gradient steps of an update (up to 20 seconds the first time)"


class CompiledLoop:
    """`step(carry, row, fixed)` for every row, with what it returns for the next one, as one function.

    `step(*carry, *row, *fixed)` returns the next carry and its outputs: two sequences or mappings of tensors. The loop
    returns the last carry, and the outputs of all rows stacked. Tensors of the learner that the step uses are found by
    watching it. With `learns`, the step changes them. All shapes are those of the arguments the loop was made with.
    """

    def __init__(
        self,
        step: Callable[..., tuple[Any, Any]],
        carry: Sequence[Tensor],
        rows: Sequence[Tensor],
        fixed: Sequence[Tensor],
        *,
        learns: bool,
    ):
        from torch.fx.experimental.proxy_tensor import make_fx

        traced = trace(step, [*carry, *(row[0] for row in rows), *fixed])
        turn_thin_products(traced.graph)
        store_deviations(traced.graph)
        self._state, self._result = traced.state, traced.result
        found, carried, per_row = len(traced.state), len(carry), len(rows)

        def body(*tensors: Tensor) -> list[Tensor]:
            """A step from (carry, row, fixed); the learner's tensors belong to the carry if the step changes them."""
            if learns:
                # A loop must not change its inputs. The compiler leaves these copies out again.
                state, rest = [tensor.clone() for tensor in tensors[:found]], tensors[found:]
                changed = state
            else:
                state, rest = list(tensors[len(tensors) - found :]), tensors[: len(tensors) - found]
                changed = []
            return [*changed, *(output.clone() for output in traced.graph(*state, *rest))]

        def loop(*tensors: Tensor) -> list[Tensor]:
            state, inputs = list(tensors[:found]), list(tensors[found:])
            start, each, same = inputs[:carried], inputs[carried : carried + per_row], inputs[carried + per_row :]
            if not learns:
                results: list[Tensor] = torch.ops.higher_order.scan(body, start, each, (*same, *state))
                return list(results)
            results = list(torch.ops.higher_order.scan(body, [*state, *start], each, tuple(same)))
            for tensor, final in zip(state, results, strict=False):
                tensor.copy_(final)
            return results[found:]

        inputs: list[Any] = [*self._state, *carry, *rows, *fixed]
        with torch.no_grad():
            graph = make_fx(loop, tracing_mode="fake")(*inputs)
        self._compiled = compile_graph(graph, inputs)

    def __call__(self, carry: Sequence[Tensor], rows: Sequence[Tensor], fixed: Sequence[Tensor]) -> tuple[Any, Any]:
        leaves = self._compiled([*self._state, *carry, *rows, *fixed])
        last, outputs = rebuild(self._result, leaves)
        return last, outputs


class CompiledEpochs:
    """All gradient steps on one rollout as one function: `step(batch.select(rows), ...)` for the rows of each step."""

    def __init__(self, step: Callable[..., Any], rows: int, note: Callable[[str], None]):
        self.rows = rows
        self._step, self._note = step, note
        self._loop: CompiledLoop | None = None
        self._failed = False

    def __call__(self, batch: Any, orders: Tensor, *rest: Tensor) -> dict[str, Tensor]:
        """The mean of each metric over the steps, for a batch of `rows`. `orders` [steps, n] are the rows of each."""
        assert self._loop is not None
        _, metrics = self._loop((), [orders], [*tensors_in([batch]), *rest])
        return {name: values.mean() for name, values in metrics.items()}

    @property
    def was_used(self) -> bool:
        return self._loop is not None

    def can_take(self, batch: Any, orders: Tensor, *rest: Tensor) -> bool:
        """Whether the function can be made; the first call makes it, and learns nothing yet."""
        if self._loop is not None or self._failed:
            return not self._failed
        self._note(COMPILING_STEPS)
        kind, columns = type(batch), tensors_in([batch])

        def step(rows: Tensor, *tensors: Tensor) -> tuple[tuple[()], Any]:
            return (), self._step(kind(*tensors[: len(columns)]).select(rows), *tensors[len(columns) :])

        try:
            self._loop = CompiledLoop(step, (), [orders], [*columns, *rest], learns=True)
        except (RLTrainingError, MemoryError):
            raise
        except Exception as error:  # another version of torch may not have these loops
            self._failed = True
            self._note(f"the gradient steps of an update stay one by one ({describe_error(error)})")
        return not self._failed
