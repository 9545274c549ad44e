"""K-FAC: natural gradients layer by layer, from the Kronecker factors of each layer's Fisher matrix.

Martens and Grosse (2015), arXiv:1503.05671; convolutions as in Grosse and Martens (2016), arXiv:1602.01407. The Fisher
matrix of a layer with inputs a (and a 1 for its bias) and outputs s is approximated by A (x) S, with A = E[a a^T] and
S = E[g g^T], where g is the gradient in s of the log-probability of an output that the MODEL samples. In the bases of
their eigenvectors, the inverse of A (x) S + damping I is a division.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.common.optimizer import Optimizer, trained
from rl_training.errors import ConfigError

Layer = nn.Linear | nn.Conv2d


def kronecker_layers(model: nn.Module, known: Mapping[nn.Parameter, float]) -> list[Layer]:
    """The linear and convolutional layers of `model` that learn. Any other layer that learns raises ConfigError.

    `known` are parameters outside of these layers whose Fisher matrix is this number times the identity.
    """
    layers: list[Layer] = []
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        unknown = [parameter for parameter in trained(own) if parameter not in known]
        if not unknown:
            continue
        if not (isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and _is_plain(module))):
            raise ConfigError(
                f"model: K-FAC knows linear and convolutional layers, but not {type(module).__name__}; use a network "
                "without it, freeze it with requires_grad_(False), or use another algorithm"
            )
        if len(unknown) < len(own):
            raise ConfigError(
                f"model: K-FAC cannot train a part of {type(module).__name__}; freeze all of its parameters, or none"
            )
        layers.append(module)
    if len({layer.weight for layer in layers}) < len(layers):
        raise ConfigError("model: K-FAC cannot train a weight that two layers share; call one layer twice instead")
    return layers


def _is_plain(layer: nn.Conv2d) -> bool:
    """Whether every output sees every input channel at the place that its number says."""
    return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors. In float32, LAPACK gives up on some factors of wide layers that have few rows."""
    try:
        values, basis = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, basis = torch.linalg.eigh(matrix.cpu().double())
    return values.to(matrix), basis.to(matrix)


class KroneckerFactors:
    """The running factors of one layer, and the eigenvectors that its gradients are divided in."""

    def __init__(self, layer: Layer):
        self.layer = layer
        device, rows = layer.weight.device, layer.weight.shape[0]
        columns = layer.weight[0].numel() + (layer.bias is not None)
        self.inputs = torch.zeros(columns, columns, device=device)  # A
        self.outputs = torch.zeros(rows, rows, device=device)  # S
        self.input_basis, self.output_basis = torch.eye(columns, device=device), torch.eye(rows, device=device)
        self.input_values, self.output_values = torch.zeros(columns, device=device), torch.zeros(rows, device=device)

    def observe(self, calls: list[tuple[Tensor, Tensor]], share: float) -> None:
        """Move the factors by `share` towards those of one batch: inputs of the layer, and gradients in its outputs.

        A gradient is that of a sum over the batch, not of a mean. The Fisher matrices of several calls add up.
        """
        moments = [self._moments(*call) for call in calls]
        self.inputs.lerp_(torch.stack([inputs for inputs, _ in moments]).mean(0), share)
        self.outputs.lerp_(torch.stack([outputs for _, outputs in moments]).sum(0), share)

    def _moments(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
        count = len(inputs)
        places = 1
        if isinstance(self.layer, nn.Conv2d):
            layer = self.layer
            assert not isinstance(layer.padding, str)
            patches = F.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
            places = patches.shape[2]
            inputs = patches.transpose(1, 2).flatten(0, 1)
            gradients = gradients.flatten(2).transpose(1, 2).flatten(0, 1)
        elif inputs.ndim > 2:  # a layer on each part of a sequence
            inputs, gradients = inputs.flatten(0, -2), gradients.flatten(0, -2)
            places = len(inputs) // count
        if self.layer.bias is not None:
            inputs = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], 1)
        # A place of an image or sequence is one use of the weights. A sums over them, S averages: the product has T^1.
        return inputs.T @ inputs / count, gradients.T @ gradients / (count * places)

    def decompose(self) -> None:
        """Take the eigenvectors of the factors as they are now; factors that are not finite keep the old ones."""
        if not (self.inputs.isfinite().all() and self.outputs.isfinite().all()):
            return  # the loss or its gradient is not finite either, which the run reports
        for name in ("input", "output"):
            values, basis = eigenvectors(getattr(self, f"{name}s"))
            getattr(self, f"{name}_values").copy_(values.clamp(min=0.0))
            getattr(self, f"{name}_basis").copy_(basis)

    def natural(self, gradient: Tensor, damping: float) -> tuple[Tensor, Tensor]:
        """x = (A (x) S + damping I)^-1 gradient, as a matrix [outputs, inputs + bias], and x^T (A (x) S) x.

        The bases may be some updates old; the curvature is that of the factors as they are now. Where they grow fast,
        as at the start of a run, it keeps the step within its bound.
        """
        eigenvalues = self.output_values[:, None] * self.input_values
        rotated = self.output_basis.T @ gradient @ self.input_basis / (eigenvalues + damping)
        direction = self.output_basis @ rotated @ self.input_basis.T
        return direction, ((self.outputs @ direction @ self.inputs) * direction).sum()

    def state_dict(self) -> dict[str, Tensor]:
        names = ("inputs", "outputs", "input_basis", "output_basis", "input_values", "output_values")
        return {name: getattr(self, name) for name in names}


class KFACOptimizer(Optimizer):
    """Steps along the natural gradient, as long as a bound on the KL divergence of the model's outputs allows.

    step = eta (F + damping I)^-1 gradient,  eta = min(learning rate, sqrt(2 max_kl / (x^T F x)))
    with x the direction, and momentum over the steps. `known` as in `kronecker_layers`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        known: Mapping[nn.Parameter, float],
        damping: float,
        momentum: float,
        statistics_decay: float,
        inverse_every: int,
        max_grad_norm: float | None = None,
    ):
        self.factors = [KroneckerFactors(layer) for layer in kronecker_layers(model, known)]
        super().__init__(model.parameters(), betas=(momentum, 0.0), max_grad_norm=max_grad_norm)
        self.known = dict(known)
        self.damping, self.statistics_decay, self.inverse_every = damping, statistics_decay, inverse_every
        self.max_kl = torch.zeros(1)
        self._seen: dict[Layer, list[tuple[Tensor, Tensor]]] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, calls of the model's layers are kept for `observe`."""
        seen: dict[Layer, list[tuple[Tensor, Tensor]]] = {factors.layer: [] for factors in self.factors}
        self._seen = seen

        def keep(layer: Any, inputs: tuple[Tensor, ...], named: dict[str, Tensor], outputs: Tensor) -> None:
            seen[layer].append(((*inputs, *named.values())[0].detach(), outputs))

        handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in seen]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def observe(self, sampled_loss: Tensor) -> None:
        """Update the factors by -log p of outputs that the model sampled: a SUM over the rows of the batch.

        The graph of the model is kept: the gradient of the loss itself is taken from it afterwards.
        """
        assert self._seen is not None, "the layers were not watched"
        if missing := [layer for layer, calls in self._seen.items() if not calls]:
            raise ConfigError(
                f"model: K-FAC has seen no call of {missing[0]}; call the layer itself, not a function with its weights"
            )
        calls = [(factors, call) for factors in self.factors for call in self._seen[factors.layer]]
        gradients = torch.autograd.grad(
            sampled_loss, [outputs for _, (_, outputs) in calls], retain_graph=True, allow_unused=True
        )
        count = int(self.steps)
        # A mean over all batches at first, and later over about 1 / (1 - decay) of them.
        share = max(1.0 - self.statistics_decay, 1.0 / (count + 1))
        found: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for (factors, (inputs, _)), gradient in zip(calls, gradients, strict=True):
            if gradient is not None:
                found.setdefault(id(factors), []).append((inputs, gradient))
        for factors in self.factors:
            if id(factors) in found:
                factors.observe(found[id(factors)], share)
        # At first the factors change with every update.
        if count < self.inverse_every or count % self.inverse_every == 0:
            for factors in self.factors:
                factors.decompose()
        self._seen = None

    @torch.no_grad()
    def apply(self, gradient: Tensor) -> Tensor:
        """One step for a flat gradient; returns its norm before clipping."""
        norm: Tensor = torch.linalg.vector_norm(gradient)
        if self.max_grad_norm is not None:
            gradient = gradient * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        direction, curvature = self.natural(gradient)
        limits = [limit.squeeze().to(curvature) for limit in (self.learning_rate, self.max_kl)]
        # Without curvature nothing bounds the step but the learning rate.
        rate = torch.minimum(limits[0], (2.0 * limits[1] / curvature.clamp(min=1e-30)).sqrt())
        self.predicted_kl = 0.5 * rate.square() * curvature
        self.rate = rate
        self.steps.add_(1)
        self.first_moment.lerp_(rate * direction, 1.0 - self.betas[0])
        self.vector.sub_(self.first_moment)
        return norm

    def natural(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """(F + damping I)^-1 gradient, flat, and its product with F from both sides."""
        sizes = [parameter.numel() for parameter in self.parameters]
        pieces = gradient.split(sizes)
        parts: dict[Tensor, Tensor] = {
            parameter: part.view_as(parameter) for parameter, part in zip(self.parameters, pieces, strict=True)
        }
        natural: dict[Tensor, Tensor] = {}
        curvature = gradient.new_zeros(())
        for factors in self.factors:
            weight, bias = factors.layer.weight, factors.layer.bias
            matrix = parts[weight].flatten(1)
            if bias is not None:
                matrix = torch.cat([matrix, parts[bias][:, None]], 1)
            matrix, amount = factors.natural(matrix, self.damping)
            curvature = curvature + amount
            if bias is not None:
                matrix, natural[bias] = matrix[:, :-1], matrix[:, -1]
            natural[weight] = matrix.reshape(weight.shape)
        for parameter, fisher in self.known.items():
            natural[parameter] = parts[parameter] / (fisher + self.damping)
            curvature = curvature + fisher * natural[parameter].square().sum()
        return torch.cat([natural[parameter].reshape(-1) for parameter in self.parameters]), curvature

    def state_dict(self) -> dict[str, Any]:
        # The bases lag behind the factors, so both are state.
        layers = {
            f"layer_{number}_{name}": value
            for number, factors in enumerate(self.factors)
            for name, value in factors.state_dict().items()
        }
        return super().state_dict() | {"max_kl": self.max_kl, **layers}
