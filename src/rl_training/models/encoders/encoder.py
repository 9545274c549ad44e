"""Encoders from observations to features: the part of a network that depends on the observation space.

A model starts with `build_encoder(spaces, config)` and puts its heads on `encoder.output_size` features. Algorithms
do not need to know whether observations are images.
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
from rl_training.models.encoders.mixed_encoder import MixedEncoder
from rl_training.models.encoders.own_encoder import OwnEncoder


class VectorEncoder(nn.Module):
    """The identity, without parameters: vectors are features.

    `mask_size` is the number of columns that a model drops from an observation before it gets here.
    """

    def __init__(self, size: int, mask_size: int = 0):
        super().__init__()
        self.output_size, self.mask_size = size, mask_size

    def forward(self, obs: Tensor) -> Tensor:
        return obs

    def __call__(self, obs: Tensor) -> Tensor:
        # Torch's own looks for hooks first. In five calls per update that is 1 % of an update of small networks.
        return obs


class FlatPixels(nn.Module):
    """An image as one vector of scaled pixels, for an MLP. Useful only for very small images."""

    def __init__(self, input_shape: tuple[int, ...]):
        super().__init__()
        channels, height, width = input_shape
        self.input_shape = (channels, height, width)
        self.output_size = math.prod(input_shape)

    def forward(self, images: Tensor) -> Tensor:
        return scaled_pixels(images, self.input_shape).flatten(1)


# Names that only the parameters of this encoder have.
_PREFIXES = {"nature": "encoder.convolutions.", "impala": "encoder.stages.", "a class of its own": "encoder.network."}

Encoder = VectorEncoder | FlatPixels | NatureCNN | ImpalaResNet | MixedEncoder | OwnEncoder


def build_encoder(spaces: Spaces, config: ModelConfig) -> Encoder:
    """The encoder that `model.encoder` names; `auto` depends on the shape of the observations."""
    shape = spaces.feature_shape
    if ":" in config.encoder:
        return OwnEncoder(spaces, config)
    if spaces.images:
        return MixedEncoder(spaces, config)
    if config.encoder == "nature" or (config.encoder == "auto" and len(shape) == 3):
        return NatureCNN(shape, config.encoder_size or 512, config)
    if config.encoder == "impala":
        return ImpalaResNet(shape, config.encoder_size or 256, config)
    if len(shape) == 3:
        return FlatPixels(shape)
    return VectorEncoder(math.prod(shape), spaces.mask_size)


def check_same_encoder(saved: Iterable[str], own: Iterable[str]) -> None:
    """Refuse the parameters, given by name, of a model with another encoder. Torch would list them one by one."""
    saved_encoder, own_encoder = (
        next(
            (
                kind
                for kind, prefix in _PREFIXES.items()
                if any(name.removeprefix("embedding.").startswith(prefix) for name in names)
            ),
            "mlp",
        )
        for names in (list(saved), list(own))
    )
    if saved_encoder != own_encoder:
        raise ValueError(
            f"its encoder is {saved_encoder}, but this model has {own_encoder}: set model.encoder to {saved_encoder}"
        )
