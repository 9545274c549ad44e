"""Gradient steps on one flat vector: clipping is one norm, Adam one pass.

The parameters of a module become views of one tensor. For a network of a few thousand weights, most of an ordinary
optimizer step is the overhead of one call per parameter; a flat vector has it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn


def flatten_parameters(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Give `parameters` one contiguous storage, in order, and return it.

    Parameters that are contiguous already stay where they are. So two optimizers can share parameters, or one of them
    can use only the first few, if the one with more parameters is created first.
    """
    parameters = list(parameters)
    if (shared := _common_vector(parameters)) is not None:
        return shared
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    offset = 0
    for parameter in parameters:
        parameter.data = flat[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()
    return flat


def _common_vector(parameters: Sequence[nn.Parameter]) -> Tensor | None:
    """The vector that `parameters` are consecutive views of, or None."""
    start = expected = parameters[0].storage_offset()
    storage = parameters[0].untyped_storage().data_ptr()
    for parameter in parameters:
        placed = parameter.storage_offset() == expected and parameter.is_contiguous()
        if not placed or parameter.untyped_storage().data_ptr() != storage:
            return None
        expected += parameter.numel()
    return vector_on(parameters[0].detach(), int(start), int(expected - start))


def vectors_of(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """The same storage as `parameters` in as few vectors as possible: neighbors are one vector."""
    vectors: list[Tensor] = []
    ends: list[tuple[int, int]] = []  # of each vector: its storage, and where it ends in it
    for parameter in parameters:
        place = (parameter.untyped_storage().data_ptr(), int(parameter.storage_offset()))
        if not parameter.is_contiguous():
            vectors.append(parameter.detach())
            ends.append((-1, -1))
            continue
        end = (place[0], place[1] + parameter.numel())
        if ends and ends[-1] == place:
            size = vectors[-1].numel() + parameter.numel()
            vectors[-1] = vector_on(vectors[-1], int(vectors[-1].storage_offset()), size)
            ends[-1] = end
        else:
            vectors.append(vector_on(parameter.detach(), place[1], parameter.numel()))
            ends.append(end)
    return vectors


def vector_on(tensor: Tensor, start: int, size: int) -> Tensor:
    """`size` entries of the storage of `tensor`. It is not a view, so autograd does not track its changes."""
    vector = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return vector.set_(tensor.untyped_storage(), start, (size,), (1,))


class OptimizerChoice(Protocol):
    """Settings that choose between Adam and RMSprop."""

    @property
    def optimizer(self) -> Literal["adam", "rmsprop"]: ...
    @property
    def optimizer_epsilon(self) -> float: ...
    @property
    def rmsprop_decay(self) -> float: ...


def chosen_optimizer(config: OptimizerChoice) -> dict[str, Any]:
    """The keywords of `Optimizer` for these settings."""
    return {"kind": config.optimizer, "epsilon": config.optimizer_epsilon, "decay": config.rmsprop_decay}


def trained(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters that learn: those that are not frozen, as parts of an encoder of the user's own may be."""
    return [parameter for parameter in parameters if parameter.requires_grad]


class Optimizer:
    """Adam, RAdam or RMSprop over the given parameters, with global-norm clipping. Frozen parameters are left out.

    Adam is arXiv:1412.6980, algorithm 1; with `weight_decay` it is AdamW (arXiv:1711.05101, algorithm 2): weights
    shrink by learning rate times decay, apart from the gradient. RAdam is arXiv:1908.03265, algorithm 2, with PyTorch's
    threshold: it adapts where rho is above 5, and is momentum without adaptation before. RMSprop has the form of
    TensorFlow, which the published settings of A2C assume: epsilon inside the square root, and a second moment that
    starts at one.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        kind: Literal["adam", "radam", "rmsprop"] = "adam",
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.99,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = None,
    ):
        self.parameters: Sequence[nn.Parameter] = trained(parameters)
        self.vector = flatten_parameters(self.parameters)
        self.kind, self.epsilon, self.decay, self.max_grad_norm = kind, epsilon, decay, max_grad_norm
        self.betas, self.weight_decay = betas, weight_decay
        # Rounded: 1 - 0.9 is not the float 0.1.
        self._shares = round(1 - betas[0], 12), round(1 - betas[1], 12)
        # Tensors, not floats: as inputs of a compiled step they follow a schedule. One entry each, as in checkpoints.
        self.learning_rate = torch.zeros(1, dtype=torch.float64)
        self.steps = torch.zeros(1, dtype=torch.float64)
        # beta^steps of both betas as running products: compiled code would compute a power of `steps` again for every
        # few weights, which takes longer than the rest of Adam.
        self.powers = torch.ones(2, dtype=torch.float64)
        self._decays = torch.tensor(betas, dtype=torch.float64)
        self.first_moment = torch.zeros_like(self.vector)
        self.second_moment = torch.full_like(self.vector, 1.0 if kind == "rmsprop" else 0.0)

    def set_learning_rate(self, value: float) -> None:
        self.learning_rate.numpy()[0] = value  # takes a quarter of the time of `fill_`

    def step(self, loss: Tensor) -> Tensor:
        """One step down the gradient of `loss`; returns the gradient's norm before clipping.

        Autograd does not notice that the parameters change. Compute a loss after all earlier steps on the parameters
        that it depends on.
        """
        gradients = torch.autograd.grad(loss, self.parameters)
        return self.apply(torch.cat([g.reshape(-1) for g in gradients]))

    @torch.no_grad()
    def apply(self, gradient: Tensor) -> Tensor:
        """One step down a flat gradient; returns its norm before clipping."""
        norm: Tensor = torch.linalg.vector_norm(gradient)
        learning_rate = self.learning_rate.squeeze()
        if self.max_grad_norm is not None:
            gradient = gradient * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        if self.weight_decay:
            self.vector.mul_(1 - learning_rate * self.weight_decay)
        if self.kind != "rmsprop":
            self.steps.add_(1)
            self.powers.mul_(self._decays)
            first_share, second_share = 1 - self.powers
            self.first_moment.lerp_(gradient, self._shares[0])
            self.second_moment.mul_(self.betas[1]).addcmul_(gradient, gradient, value=self._shares[1])
            if self.kind == "radam":
                self.vector.sub_((learning_rate / first_share) * self.first_moment * self._rectified(second_share))
                return norm
            root = (self.second_moment / second_share).sqrt_().add_(self.epsilon)
            self.vector.sub_((learning_rate / first_share) * (self.first_moment / root))
        else:
            self.second_moment.mul_(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
            self.vector.sub_(learning_rate * gradient / (self.second_moment + self.epsilon).sqrt_())
        return norm

    def _rectified(self, second_share: Tensor) -> Tensor:
        """RAdam's factor of the momentum: r / (sqrt(v) + epsilon) once rho is above 5, and 1 before."""
        most = 2 / self._shares[1] - 1
        rho = most - 2 * self.steps.squeeze() * (1 - second_share) / second_share
        late = rho.clamp(min=5)
        variance_share = (late - 4) * (late - 2) * most / ((most - 4) * (most - 2) * late)
        adaptive = (variance_share * second_share).sqrt() / (self.second_moment.sqrt() + self.epsilon)
        return torch.where(rho > 5, adaptive, torch.ones_like(adaptive))

    def state_dict(self) -> dict[str, Any]:
        names = ("learning_rate", "steps", "powers", "first_moment", "second_moment")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "powers" not in state:  # an old checkpoint, which does not store them
            state = state | {"powers": self._decays ** state["steps"]}
        if not (state["steps"].isfinite() & (state["steps"] >= 0)).all():
            raise ValueError("optimizer steps are negative or not finite")
        for name, current in self.state_dict().items():
            if state[name].shape != current.shape:
                raise ValueError(f"optimizer {name} has {state[name].shape}, this model needs {current.shape}")
            current.copy_(state[name])
