"""The convolutional network of DQN: Mnih et al. (2015), Nature 518, methods."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.models.cnn.image_input import check_image_shape, initialize, scaled_pixels
from rl_training.models.layers.precision import ImageNetwork


class NatureCNN(ImageNetwork):
    """Three convolutions and one hidden layer, each followed by ReLU: [B, C, H, W] uint8 to [B, output_size]."""

    def __init__(
        self, input_shape: tuple[int, ...] = (4, 84, 84), output_size: int = 512, config: ModelConfig | None = None
    ):
        super().__init__()
        self.input_shape = check_image_shape(tuple(input_shape), "nature")
        self.output_size = output_size
        self.convolutions = nn.Sequential(
            nn.Conv2d(self.input_shape[0], 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            flat_size = self.convolutions(torch.zeros(1, *self.input_shape)).shape[1]
        self.hidden = nn.Sequential(nn.Linear(flat_size, output_size), nn.ReLU())
        initialize(self, config)

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.hidden(self.convolutions(scaled_pixels(images, self.input_shape)))
        return features
