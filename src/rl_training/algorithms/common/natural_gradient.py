"""Natural gradients without the Fisher matrix: its products with vectors, and conjugate gradient to invert it.

All vectors are flat: the entries of all parameters, in the order of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Product = Callable[[Tensor], Tensor]


def twice_differentiable() -> AbstractContextManager[None]:
    """Within this context, attention is made of operations with a second derivative, which its fast form has not."""
    context: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH)
    return context


def flat_gradient(output: Tensor, parameters: Sequence[nn.Parameter], *, differentiable: bool = False) -> Tensor:
    """The gradient of a scalar as one vector; `differentiable` keeps the graph for a second derivative."""
    gradients = torch.autograd.grad(output, parameters, create_graph=differentiable)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def fisher_product(mean_kl: Tensor, parameters: Sequence[nn.Parameter]) -> Product:
    """v -> F v, where F is the Fisher matrix of the policy, averaged over states.

    `mean_kl` is KL(old || new) at new = old, with old a constant. There its gradient is zero and its Hessian is F
    (arXiv:1502.05477, appendix C), so F v is the gradient of (gradient of KL) . v.
    """
    gradient = flat_gradient(mean_kl, parameters, differentiable=True)

    def product(vector: Tensor) -> Tensor:
        parts = torch.autograd.grad(gradient @ vector, parameters, retain_graph=True)
        return torch.cat([part.reshape(-1) for part in parts])

    return product


def conjugate_gradient(product: Product, target: Tensor, steps: int, tolerance: float = 1e-10) -> Tensor:
    """x with A x = `target`, for a positive definite A that is given as `product`: v -> A v.

    Stops after `steps` products, when the squared residual is below `tolerance` times that of x = 0, or when rounding
    errors leave no direction of positive curvature.
    """
    solution = torch.zeros_like(target)
    residual = target.clone()
    direction = target.clone()
    squared = residual @ residual
    limit = tolerance * float(squared)
    for _ in range(steps):
        if not float(squared) > limit:
            break
        image = product(direction)
        curvature = direction @ image
        if not float(curvature) > 0:
            break
        length = squared / curvature
        solution += length * direction
        residual -= length * image
        squared, before = residual @ residual, squared
        direction = residual + (squared / before) * direction
    return solution
