"""Layer norms in compiled graphs: written out with a stored deviation, they and their gradients stay what they were."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.common.compile.layer_norms import FEWEST, store_deviations


def forward_and_gradients(layer: nn.LayerNorm, x: Tensor) -> tuple[Tensor, ...]:
    def step(rows: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        tensors = [tensor.detach().requires_grad_() for tensor in (rows, weight, bias)]
        outputs = nn.functional.layer_norm(tensors[0], (6,), tensors[1], tensors[2], layer.eps)
        return (outputs, *torch.autograd.grad(outputs.square().sum(), tensors))

    arguments = (x, layer.weight.detach(), layer.bias.detach())
    graph = make_fx(step, tracing_mode="real")(*arguments)
    for node in graph.graph.nodes:
        if "val" not in node.meta and isinstance(
            node.meta.get("tensor_meta"), torch.fx.passes.shape_prop.TensorMetadata
        ):
            node.meta["val"] = torch.empty(node.meta["tensor_meta"].shape)
    written = store_deviations(graph)
    assert written == (1 if len(x) >= FEWEST else 0)
    return tuple(graph(*arguments))


@pytest.mark.parametrize("count", [FEWEST - 1, FEWEST + 5])
def test_a_layer_norm_with_a_stored_deviation_has_the_same_outputs_and_gradients(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = nn.LayerNorm(6, eps=0.3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.rand(6, generator=generator))
    x = torch.randn(count, 6, generator=generator)
    found = forward_and_gradients(layer, x)
    tensors = [x.clone().requires_grad_(), layer.weight, layer.bias]
    outputs = nn.functional.layer_norm(tensors[0], (6,), layer.weight, layer.bias, layer.eps)
    expected = (outputs, *torch.autograd.grad(outputs.square().sum(), tensors))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-5, atol=1e-5)
