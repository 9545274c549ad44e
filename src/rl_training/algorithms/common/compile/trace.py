"""From a learner's step to a graph: one function of plain tensors that the compiler can take as a whole.

A step reads and changes tensors that it does not get as arguments: weights, moments, targets, statistics. `trace`
finds them by watching one call, then records the step with all of them as inputs. The graph contains no Python and
needs no checks when it is called, so a call costs little more than its arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from rl_training.algorithms.common.optimizer import vector_on


@dataclass(frozen=True, slots=True)
class Trace:
    """`graph(*state, *inputs)` changes `state` as the step does, and returns the tensors of the step's result."""

    graph: torch.fx.GraphModule
    state: list[Tensor]
    result: Any  # the step's result, with the position of a returned tensor in the place of each tensor


def tensors_in(arguments: Sequence[Any]) -> list[Tensor]:
    """The tensors among the arguments, and those that are fields of a batch."""
    tensors: list[Tensor] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            tensors.append(argument)
        elif names := tensor_fields(argument):
            tensors += [getattr(argument, name) for name in names]
    return tensors


def tensor_fields(argument: Any) -> list[str]:
    if not is_dataclass(argument):
        return []
    return [f.name for f in fields(argument) if isinstance(getattr(argument, f.name), Tensor)]


def with_tensors(arguments: Sequence[Any], tensors: Iterable[Tensor]) -> list[Any]:
    """`arguments` with `tensors` in the places that `tensors_in` reads."""
    rest = iter(tensors)
    replaced: list[Any] = []
    for argument in arguments:
        if is_dataclass(argument) and not isinstance(argument, type):
            replaced.append(replace(argument, **{name: next(rest) for name in tensor_fields(argument)}))
        else:
            replaced.append(next(rest) if isinstance(argument, Tensor) else argument)
    return replaced


def rebuild(result: Any, leaves: Sequence[Any]) -> Any:
    """The result of a step from the tensors that its graph returns."""
    if isinstance(result, int):
        return leaves[result]
    if isinstance(result, dict):
        return {name: rebuild(part, leaves) for name, part in result.items()}
    return tuple([rebuild(part, leaves) for part in result])


@functools.cache
def start_autograd() -> None:
    """Let autograd count the devices before fake tensors come.

    They bring a stand-in for a GPU if torch is a build for GPUs on a machine without one. If autograd counted it, it
    would start threads for it, and no process that is forked later (actors) could compute gradients.
    """
    with torch.enable_grad():
        torch.ones((), requires_grad=True).backward()


def trace(step: Callable[..., Any], arguments: Sequence[Any]) -> Trace:
    """Record what `step(*arguments)` does to tensors. The state stays as it was.

    >>> weights = torch.tensor([1.0, 2.0])  # state of the step: not an argument
    >>> def step(rows: Tensor) -> dict[str, Tensor]:
    ...     loss = (rows @ weights).square().mean()
    ...     weights.sub_(0.5 * rows.mean(0))
    ...     return {"loss": loss}
    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> traced = trace(step, [rows])
    >>> traced.state, traced.result  # the weights are as they were; the loss is the graph's tensor 0
    ([tensor([1., 2.])], {'loss': 0})
    >>> traced.graph(*traced.state, rows), weights  # the graph returns the loss and changes the weights
    ([tensor(2.5000)], tensor([0.7500, 1.7500]))
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    start_autograd()
    inputs = tensors_in(arguments)
    used = _tensors_used(step, arguments, inputs)
    vectors = _Vectors(used)
    result: list[Any] = []

    def on_plain_tensors(*tensors: Tensor) -> list[Tensor]:
        state, batch = tensors[: len(vectors.state)], tensors[len(vectors.state) :]
        with _Substitution(used, vectors.views(state)), torch.enable_grad():
            leaves, spec = pytree.tree_flatten(step(*with_tensors(arguments, batch)))
        result.append(pytree.tree_unflatten(range(len(leaves)), spec))
        return leaves

    with torch.no_grad():
        graph = make_fx(on_plain_tensors, tracing_mode="fake")(*vectors.state, *inputs)
    return Trace(graph, vectors.state, result[-1])


def _tensors_used(step: Callable[..., Any], arguments: Sequence[Any], inputs: Sequence[Tensor]) -> list[Tensor]:
    with _Watch(inputs) as watch:
        step(*arguments)
    for vector, before in watch.contents.values():
        vector.copy_(before)
    return list(watch.tensors.values())


class _Watch(TorchFunctionMode):
    """Notes every tensor that a computation uses, is not one of its `inputs`, and was not made by the computation.

    `contents` has a copy of each storage from its first use. A copy per tensor would not do: a view may appear after
    the data it shows has changed.
    """

    def __init__(self, inputs: Iterable[Tensor]):
        super().__init__()
        self.tensors: dict[int, Tensor] = {}
        self.contents: dict[int, tuple[Tensor, Tensor]] = {}
        # Tensors, not only ids: Python reuses the id of an object that is gone.
        self._own = {id(tensor): tensor for tensor in inputs}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and id(leaf) not in self.tensors and id(leaf) not in self._own:
                self.tensors[id(leaf)] = leaf
                if (place := leaf.untyped_storage().data_ptr()) not in self.contents:
                    whole = _whole_storage(leaf)
                    self.contents[place] = whole, whole.clone()
        result = function(*args, **(kwargs or {}))
        self._own.update((id(leaf), leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
        return result


class _Substitution(TorchFunctionMode):
    """Passes `new` tensors to every function that is called with `old` ones."""

    def __init__(self, old: Sequence[Tensor], new: Sequence[Tensor]):
        super().__init__()
        self._new = {id(tensor): other for tensor, other in zip(old, new, strict=True)}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map(
            lambda leaf: self._new.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf, (args, kwargs or {})
        )
        return function(*args, **kwargs)


def _whole_storage(tensor: Tensor) -> Tensor:
    """The whole memory block that `tensor` lies in, as one vector."""
    return vector_on(tensor, 0, tensor.untyped_storage().nbytes() // tensor.element_size())


class _Vectors:
    """One vector for all tensors that share a storage.

    Weights are views of the vector that the optimizer changes. As separate inputs of the graph they would not change
    with it; as views that the graph itself makes, they do.
    """

    def __init__(self, tensors: Sequence[Tensor]):
        self.tensors = tensors
        self.state: list[Tensor] = []
        self._place: dict[int, int] = {}
        for tensor in tensors:
            if (place := tensor.untyped_storage().data_ptr()) not in self._place:
                self._place[place] = len(self.state)
                self.state.append(_whole_storage(tensor))

    def views(self, state: Sequence[Tensor]) -> list[Tensor]:
        """`tensors`, as views of the vectors `state`."""
        views = []
        for tensor in self.tensors:
            vector = state[self._place[tensor.untyped_storage().data_ptr()]]
            if tensor.is_contiguous():
                offset = tensor.storage_offset()
                view = vector[offset : offset + tensor.numel()].view(tensor.shape)
            else:
                view = vector.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            views.append(view.detach().requires_grad_() if tensor.requires_grad else view)
        return views
