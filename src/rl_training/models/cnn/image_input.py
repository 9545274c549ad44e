"""Functions that the convolutional encoders share: scaling of pixels, checks of image shapes, initialization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.errors import ConfigError
from rl_training.models.layers.initialization import initialize_layer

# The shortest side of an image that an encoder takes, in pixels.
SMALLEST_SIDES = {"nature": 36, "impala": 8}


def scaled_pixels(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Convert uint8 [B, C, H, W] to floats in [0, 1]. Floats count as already scaled.

    With channels last in memory, the convolutions take about two thirds of the time.
    """
    if images.ndim != 4 or tuple(images.shape[1:]) != shape:
        raise ValueError(f"expected images (batch, {', '.join(map(str, shape))}), got {tuple(images.shape)}")
    images = images.contiguous(memory_format=torch.channels_last)
    return images.float().mul_(1 / 255) if images.dtype == torch.uint8 else images


def check_image_shape(shape: tuple[int, ...], encoder: str) -> tuple[int, int, int]:
    """Return the shape if it is (channels, height, width) with sides that are long enough for the encoder."""
    if len(shape) != 3:
        raise ConfigError(
            f"model.encoder: {encoder} needs images (channels, height, width), but observations have the shape "
            f"{shape}; use auto",
            key="model.encoder",
        )
    channels, height, width = shape
    if width <= 4 < min(channels, height):
        raise ConfigError(
            f"model.encoder: {encoder} needs images (channels, height, width), but {shape} looks like (height, width, "
            f"channels); set env_kwargs.image.channel_first=true",
            key="model.encoder",
        )
    side, least = min(height, width), SMALLEST_SIDES[encoder]
    if side < least:
        fitting = [name for name, smallest in SMALLEST_SIDES.items() if smallest <= side]
        raise ConfigError(
            f"model.encoder: {encoder} needs images of at least {least} x {least} pixels, but these have "
            f"{height} x {width}; use model.encoder={' or '.join([*fitting, 'mlp'])}, "
            f"or set env_kwargs.image.resize=84",
            key="model.encoder",
        )
    return channels, height, width


def initialize(network: nn.Module, config: ModelConfig | None) -> None:
    """Set the weights by `config.initialization`, orthogonal without a config, with the gain of a ReLU."""
    method = "orthogonal" if config is None else config.initialization
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            initialize_layer(module, method)
