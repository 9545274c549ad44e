"""From observations to features: the part of a network that depends on what an env shows.

Every model starts with `build_encoder(spaces, config)` and puts its heads on `encoder.output_size` features, so
images are a property of the env and the model, never of an algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.cnn.image_input import scaled_pixels
from rl_training.models.cnn.impala_resnet import ImpalaResNet
from rl_training.models.cnn.nature import NatureCNN


class VectorEncoder(nn.Module):
    """Vectors are features already. It has no parameters."""

    def __init__(self, size: int):
        super().__init__()
        self.output_size = size

    def forward(self, obs: Tensor) -> Tensor:
        return obs


class FlatPixels(nn.Module):
    """An image as one vector of scaled pixels, for an MLP; worth it for very small images only."""

    def __init__(self, input_shape: tuple[int, ...]):
        super().__init__()
        channels, height, width = input_shape
        self.input_shape = (channels, height, width)
        self.output_size = math.prod(input_shape)

    def forward(self, images: Tensor) -> Tensor:
        return scaled_pixels(images, self.input_shape).flatten(1)


# By what only its own parameters are called.
_MARKS = {"nature": "encoder.convolutions.", "impala": "encoder.stages."}

Encoder = VectorEncoder | FlatPixels | NatureCNN | ImpalaResNet


def build_encoder(spaces: Spaces, config: ModelConfig) -> Encoder:
    """The encoder that `model.encoder` names; `auto` goes by the observations."""
    shape = spaces.observation_shape
    if config.encoder == "nature" or (config.encoder == "auto" and len(shape) == 3):
        return NatureCNN(shape, config.encoder_size or 512, config)
    if config.encoder == "impala":
        return ImpalaResNet(shape, config.encoder_size or 256, config)
    if len(shape) == 3:
        return FlatPixels(shape)
    return VectorEncoder(math.prod(shape))


def check_same_encoder(saved: Iterable[str], own: Iterable[str]) -> None:
    """Refuse the parameters (by their names) of a model with another encoder, before torch lists them one by one."""
    theirs, ours = (
        next((kind for kind, mark in _MARKS.items() if any(name.startswith(mark) for name in names)), "mlp")
        for names in (list(saved), list(own))
    )
    if theirs != ours:
        raise ValueError(f"its encoder is {theirs}, and this model's is {ours}: set model.encoder to {theirs}")
