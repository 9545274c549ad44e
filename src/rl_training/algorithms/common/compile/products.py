"""Matrix products of a graph: wide ones by oneDNN, which torch has beside its usual library; thin ones turned.

Which library is faster depends on the processor: on AMD's with AVX-512, torch's usual one (MKL) leaves half of the
arithmetic unused. Both compute in float32 and differ in the order of their sums, so in the last bits. A learner chooses
by `fast_products`. The choice is never made by a measurement: a resumed run must choose the same.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NARROWEST = 64  # narrower products spend more time on oneDNN's preparations than they save


THIN = 16  # columns; a product with so few is faster the other way round


def turn_thin_products(graph: torch.fx.GraphModule) -> int:
    """Compute a product with few columns as (right.T @ left.T).T; returns how many.

    Such a product is the gradient of the first layer of a network with few inputs. MKL needs five times as long for
    64 x 256 times 256 x 4 as for 4 x 256 times 256 x 64, which is the same arithmetic.
    """
    mm, transpose, turned = torch.ops.aten.mm.default, torch.ops.aten.t.default, 0
    for node in list(graph.graph.nodes):
        if node.target is not mm:
            continue
        rows, columns = node.meta["val"].shape
        if not 1 < columns <= THIN < rows:
            continue
        with graph.graph.inserting_before(node):
            left, right = (graph.graph.call_function(transpose, (argument,)) for argument in node.args)
            product = graph.graph.call_function(transpose, (graph.graph.call_function(mm, (right, left)),))
            # A copy of a few numbers: what follows may need them in rows.
            rows_of: dict[str, Any] = {"memory_format": torch.contiguous_format}
            node.replace_all_uses_with(graph.graph.call_function(torch.ops.aten.clone.default, (product,), rows_of))
        graph.graph.erase_node(node)
        turned += 1
    graph.recompile()
    return turned


def has_fast_products() -> bool:
    """Whether torch has oneDNN for this processor."""
    return platform.machine().lower() in ("x86_64", "amd64") and torch.backends.mkldnn.is_available()


def fast_product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right.T by oneDNN.   [B, K], [N, K] -> [B, N]"""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
    return product


def use_fast_products(graph: torch.fx.GraphModule) -> int:
    """Replace the wide float32 products of `graph`; returns how many."""
    operator, replaced = _operator(), 0
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.mm.default:
            bias, (left, right) = None, node.args
        elif node.target is torch.ops.aten.addmm.default and not node.kwargs:
            bias, left, right = node.args
        else:
            continue
        shapes = [*left.meta["val"].shape, *right.meta["val"].shape]
        is_row = bias is None or bias.meta["val"].ndim == 1
        if min(shapes) < NARROWEST or node.meta["val"].dtype != torch.float32 or not is_row:
            continue
        with graph.graph.inserting_before(node):
            transposed = graph.graph.call_function(torch.ops.aten.t.default, (right,))
            node.replace_all_uses_with(graph.graph.call_function(operator, (left, transposed, bias)))
        graph.graph.erase_node(node)
        replaced += 1
    graph.recompile()
    return replaced


@functools.cache
def _operator() -> Callable[..., Any]:
    """`rl_training::wide_product(left, right, bias)`: torch's own `mkldnn::_linear_pointwise`, for any weights.

    The lowering of that operator takes only constant weights, so ours has one of its own (`prepare_lowering`).
    """
    torch.library.define("rl_training::wide_product", "(Tensor left, Tensor right, Tensor? bias) -> Tensor")

    @torch.library.impl("rl_training::wide_product", "CPU")
    def product(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
        return result

    def shape_of_product(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
        return left.new_empty(left.shape[0], right.shape[0])

    torch.library.register_fake("rl_training::wide_product", shape_of_product)
    operator: Callable[..., Any] = torch.ops.rl_training.wide_product.default
    return operator


@functools.cache
def prepare_lowering() -> None:
    """Tell TorchInductor how to lower wide products: to one call of oneDNN."""
    if not has_fast_products():
        return
    _operator()
    from torch._inductor.ir import FixedLayout, TensorBox
    from torch._inductor.lowering import register_lowering
    from torch._inductor.mkldnn_ir import LinearUnary

    def dense(matrix: Any) -> Any:
        """The matrix, or a copy if its rows have gaps between them: oneDNN would take a thousand times as long."""
        matrix = LinearUnary.realize_input(matrix)
        matrix.freeze_layout()  # otherwise the matrix may later become a part of a larger one
        rows, columns = matrix.get_size()
        if list(matrix.get_stride()) not in ([columns, 1], [1, rows]):
            matrix = LinearUnary.copy_input(matrix)
            matrix.freeze_layout()
        return matrix

    @register_lowering(torch.ops.rl_training.wide_product, type_promotion_kind=None)
    def lowered(left: Any, right: Any, bias: Any) -> Any:
        size = [left.get_size()[0], right.get_size()[0]]
        layout = FixedLayout(device=left.get_device(), dtype=left.get_dtype(), size=size)
        inputs = [dense(left), dense(right), *([] if bias is None else [LinearUnary.realize_input(bias)])]
        constants = [*([None] if bias is None else []), "none", [-1], ""]
        return TensorBox.create(LinearUnary(layout=layout, inputs=inputs, constant_args=constants))
