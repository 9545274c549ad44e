"""bfloat16 for the layers in which a gradient step spends its time: convolutions and wide hidden layers.

A bfloat16 has the range of a float32 and 8 bits of precision. Processors with AVX-512 BF16 multiply such matrices two
to four times as fast. What a network computes stays the same function of float32 weights: only the products of
these layers are rounded, forward and backward, and summed in float32. Observations of a vector, output layers, losses,
optimizers and everything that acts keep float32.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Narrower layers spend more time on the conversion than they save.
NARROWEST = 128
# A processor must be this much faster with bfloat16 before `auto` takes it.
LEAST_GAIN = 1.2
_TRIAL_SIZE, _TRIAL_SECONDS = 256, 0.05
EMULATED = (
    "precision: this processor has no bfloat16 instructions and emulates them, about ten times slower; start runs with "
    "precision=float32, or resume this one with --set precision=float32, which is not bit for bit"
)


class HiddenLinear(nn.Linear):
    """A linear layer between hidden layers. With `low_precision` its product is one of bfloat16 numbers."""

    low_precision = False

    def forward(self, x: Tensor) -> Tensor:
        if not (self.low_precision and is_learning()):
            return super().forward(x)
        kind = torch.bfloat16
        return F.linear(x.to(kind), self.weight.to(kind), self.bias.to(kind)).to(x.dtype)


class ImageNetwork(nn.Module):
    """Base of the convolutional encoders. With `low_precision`, `features` computes in bfloat16."""

    low_precision = False

    def features(self, images: Tensor) -> Tensor:
        """Features [B, output_size] of images [B, C, H, W]."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        if not (self.low_precision and is_learning()):
            return self.features(images)
        # Without a cache of converted weights: it would outlive the step that a graph is made of.
        with torch.autocast(images.device.type, torch.bfloat16, cache_enabled=False):
            return self.features(images).float()


def is_learning() -> bool:
    """Whether a forward pass belongs to an update. Acting runs in torch's inference mode, or in NumPy."""
    return not torch.is_inference_mode_enabled()


def use_low_precision(network: nn.Module) -> None:
    """Let the convolutions and wide hidden layers of `network` compute in bfloat16."""
    for module in network.modules():
        if isinstance(module, ImageNetwork) or (isinstance(module, HiddenLinear) and _is_wide(module)):
            module.low_precision = True


def _is_wide(layer: nn.Linear) -> bool:
    return min(layer.in_features, layer.out_features) >= NARROWEST


def has_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16. Without them it is emulated, about ten times slower."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def bfloat16_pays() -> bool:
    """Whether products in bfloat16 are faster here: by the processor's instructions and by a short measurement."""
    return has_bfloat16() and _product_seconds(torch.float32) > LEAST_GAIN * _product_seconds(torch.bfloat16)


def _product_seconds(kind: torch.dtype) -> float:
    """Processor time of one product, with the conversion of its inputs."""
    left, right = torch.ones(2, _TRIAL_SIZE, _TRIAL_SIZE)
    (left.to(kind) @ right.to(kind)).float()
    count, started = 0, time.thread_time()
    while (spent := time.thread_time() - started) < _TRIAL_SECONDS:
        (left.to(kind) @ right.to(kind)).float()
        count += 1
    return spent / count
