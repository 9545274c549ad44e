"""Compiled gradient steps: loss, backward pass, clipping and optimizer as one function.

An ordinary step of a small network is a hundred calls of a few microseconds of arithmetic each. Compiled into one
graph it costs a third to a half. A learner hands over its `_gradient_step`, which is tensor work only, and calls what
it gets back; nothing else about the algorithm changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sized
from typing import Any, TypeAlias

# A number where the step is plain, a tensor without dimensions where it is compiled: a Python number that changes
# would make it compile again.
Scalar: TypeAlias = Any


class CompiledStep:
    """`step(batch, ...)`, compiled for batches of exactly `rows` rows. Others take the plain way.

    Which way a batch goes depends on nothing but its size. Were sizes compiled as they come, the arithmetic would
    depend on the ones seen before, and a resumed run would differ from one that never stopped in the last bits.
    """

    def __init__(self, step: Callable[..., Any], rows: int):
        self.rows = rows
        self._plain = step
        self._compiled: Callable[..., Any] | None = None

    @property
    def was_used(self) -> bool:
        return self._compiled is not None

    def __call__(self, batch: Sized, *rest: Any) -> Any:
        if len(batch) != self.rows:
            return self._plain(batch, *rest)
        if self._compiled is None:
            self._compiled = _compile(self._plain)
        return self._compiled(batch, *rest)


def _compile(step: Callable[..., Any]) -> Callable[..., Any]:
    """Not before it is needed: an agent that is only loaded to act should not wait for the compiler's import."""
    import torch._dynamo.config
    import torch._inductor.config

    # The whole step in one graph needs autograd.grad to be traced like anything else.
    torch._dynamo.config.trace_autograd_ops = True
    # In this process: a pool of compiler workers would outlive its use for the rest of the run.
    torch._inductor.config.compile_threads = 1
    return torch.compile(step, fullgraph=True, dynamic=False)


def can_compile() -> bool:
    """Whether there is a C++ compiler for torch to call."""
    return any(shutil.which(name) for name in ("g++", "c++", "clang++"))
