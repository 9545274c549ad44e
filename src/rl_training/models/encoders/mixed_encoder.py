"""The encoder of a Dict or Tuple with images: each image through its own CNN, beside the numbers of all other parts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.config.model_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.cnn.image_input import SMALLEST_SIDES, scaled_pixels
from rl_training.models.cnn.impala_resnet import ImpalaResNet
from rl_training.models.cnn.nature import NatureCNN
from rl_training.models.encoders.observation_views import numbers_in

MOST_CHANNELS = 4  # of an image whose last dimension is its colors


class ChannelsFirst(nn.Module):
    """An image or a stack of images as [B, channels, height, width].

    (height, width, colors) is told from (channels, height, width) by a last dimension of at most four.
    """

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        *_, height, width, colors = (1, *shape)
        self.colors_last = colors <= MOST_CHANNELS < min(height, width)
        channels, height, width = (colors, height, width) if self.colors_last else shape[-3:]
        self.image = (channels * (shape[0] if len(shape) == 4 else 1), height, width)

    def forward(self, images: Tensor) -> Tensor:
        if self.colors_last:
            images = images.movedim(-1, -3)
        return images.reshape(-1, *self.image)


class FlatImage(nn.Module):
    """An image that is too small for a CNN, as one vector of scaled pixels."""

    def __init__(self, shape: tuple[int, int, int]):
        super().__init__()
        self.shape, self.output_size = shape, shape[0] * shape[1] * shape[2]

    def forward(self, images: Tensor) -> Tensor:
        return scaled_pixels(images, self.shape).flatten(1)


class MixedEncoder(nn.Module):
    """Numbers as they are, then the features of each image: rows of bytes to [B, output_size]."""

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__()
        self.mask_size = spaces.mask_size
        self._numbers = spaces.vector_size
        self._places = [(image.start, image.stop, image.shape) for image in spaces.images]
        layouts = [ChannelsFirst(image.shape) for image in spaces.images]
        encoders = [_encoder(layout.image, config) for layout in layouts]
        self.layouts, self.encoders = nn.ModuleList(layouts), nn.ModuleList(encoders)
        self.output_size = self._numbers + sum(encoder.output_size for encoder in encoders)

    def forward(self, rows: Tensor) -> Tensor:
        features = [numbers_in(rows, self._numbers)] if self._numbers else []
        for (start, stop, shape), layout, encoder in zip(self._places, self.layouts, self.encoders, strict=True):
            features.append(encoder(layout(rows[:, start:stop].reshape(-1, *shape))))
        return torch.cat(features, 1)


def _encoder(shape: tuple[int, int, int], config: ModelConfig) -> NatureCNN | ImpalaResNet | FlatImage:
    """What `model.encoder` names; `auto` is the CNN that takes the size of the image."""
    side = min(shape[1:])
    kind = config.encoder
    if kind == "auto":
        kind = next((name for name, least in SMALLEST_SIDES.items() if side >= least), "mlp")
    if kind == "nature":
        return NatureCNN(shape, config.encoder_size or 512, config)
    return ImpalaResNet(shape, config.encoder_size or 256, config) if kind == "impala" else FlatImage(shape)
