"""What the convolutional encoders share: how pixels become numbers, and what is said about images that do not fit."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.errors import ConfigError


def scaled_pixels(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """uint8 [B, C, H, W] to floats in [0, 1]; floats are taken to be scaled already, so nothing is scaled twice.

    Channels last in memory: the convolutions here take about two thirds of the time that way.
    """
    if images.ndim != 4 or tuple(images.shape[1:]) != shape:
        raise ValueError(f"expected images (batch, {', '.join(map(str, shape))}), got {tuple(images.shape)}")
    images = images.contiguous(memory_format=torch.channels_last)
    return images.float().mul_(1 / 255) if images.dtype == torch.uint8 else images


def check_image_shape(shape: tuple[int, ...], encoder: str, least: int) -> tuple[int, int, int]:
    """The shape itself, if it is (channels, height, width) with sides of at least `least` pixels."""
    if len(shape) != 3:
        raise ConfigError(
            f"model.encoder: {encoder} takes images (channels, height, width), the observations here have shape "
            f"{shape}: use auto",
            key="model.encoder",
        )
    channels, height, width = shape
    if width <= 4 < min(channels, height):
        raise ConfigError(
            f"model.encoder: {encoder} takes images (channels, height, width), {shape} looks like (height, width, "
            f"channels): set env_kwargs.image.channel_first=true",
            key="model.encoder",
        )
    if min(height, width) < least:
        raise ConfigError(
            f"model.encoder: {encoder} takes images of at least {least} x {least} pixels, these are "
            f"{height} x {width}: use model.encoder=impala or mlp, or set env_kwargs.image.resize=84",
            key="model.encoder",
        )
    return channels, height, width


def initialize(network: nn.Module, config: ModelConfig | None) -> None:
    """Orthogonal weights with the gain of a ReLU and zero biases, unless the config says otherwise."""
    if config is not None and not config.orthogonal_init:
        return
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.orthogonal_(module.weight, math.sqrt(2))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
