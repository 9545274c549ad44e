"""The networks of TD7: embeddings of states and actions, and an actor and critics that see them beside the state."""

from __future__ import annotations

import copy
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.encoder import Encoder, VectorEncoder, build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.layers.blocks import AvgL1Norm
from rl_training.models.layers.initialization import initialize_layer
from rl_training.models.mlp import ActingForward, mlp, numpy_forward

Network = TypeVar("Network", bound=nn.Module)


class Embedding(nn.Module):
    """zs = f(s), scaled by AvgL1Norm, and zsa = g(zs, a), which predicts the zs of the next state.

    With images, f contains their encoder: nothing but this prediction trains it.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig, size: int):
        super().__init__()
        self.encoder = build_encoder(spaces, config)
        self.state = nn.Sequential(*mlp(self.encoder.output_size, size, config), AvgL1Norm())
        self.state_action = mlp(size + spaces.action_dim, size, config)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, D] and zs [B, size] of normalized observations."""
        features: Tensor = self.encoder(obs)
        return features, self.state(features)

    def predicted(self, zs: Tensor, actions: Tensor) -> Tensor:
        """zsa [B, size]."""
        zsa: Tensor = self.state_action(torch.cat([zs, actions], -1))
        return zsa


class EmbeddedNetwork(nn.Module):
    """A network on its raw inputs, passed through a linear layer and AvgL1Norm, beside embeddings."""

    def __init__(self, inputs: int, embeddings: int, outputs: int, config: ModelConfig, size: int, tanh: bool = False):
        super().__init__()
        linear = nn.Linear(inputs, size)
        initialize_layer(linear, config.initialization, 1.0)
        self.first = nn.Sequential(linear, AvgL1Norm())
        self.body = mlp(size + embeddings, outputs, config, tanh_output=tanh)

    def forward(self, inputs: Tensor, embeddings: Tensor) -> Tensor:
        outputs: Tensor = self.body(torch.cat([self.first(inputs), embeddings], -1))
        return outputs


class MLPTD7Model(NormalizingModel):
    """A deterministic actor and two critics on fixed embeddings, for actions normalized to [-1, 1].

    The embedding here is the fixed one: no loss of this model trains it, and the learner replaces its weights.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig, *, embedding_size: int):
        super().__init__()
        critic = config.for_critic()
        self.normalizer = make_normalizer(spaces, config)
        self.embedding = Embedding(spaces, critic, embedding_size)
        size, actions = self.embedding.encoder.output_size, spaces.action_dim
        self.policy_network = EmbeddedNetwork(size, embedding_size, actions, config, embedding_size, tanh=True)
        self.critics = nn.ModuleList(
            [EmbeddedNetwork(size + actions, 2 * embedding_size, 1, critic, embedding_size) for _ in range(2)]
        )
        self.learned_names = {name for name, part in self.embedding.named_parameters() if part.requires_grad}
        self.embedding.requires_grad_(False)
        self._acting: ActingForward | None = None

    def learning_embedding(self) -> Embedding:
        """A copy of the embedding that learns. What was frozen when it was made stays so."""
        learning = copy.deepcopy(self.embedding)
        for name, parameter in learning.named_parameters():
            parameter.requires_grad_(name in self.learned_names)
        return learning

    @property
    def encoder(self) -> Encoder:
        """The encoder of images, which is part of the embedding."""
        return self.embedding.encoder

    def normalized(self, obs: Tensor) -> Tensor:
        """Observations as an embedding takes them."""
        return self._normalized(obs)

    def embedded(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Features and zs of observations, which `actions_at` and `values_at` take: computed once for both."""
        features, zs = self.embedding(self.normalized(obs))
        return features, zs

    def actions_at(self, features: Tensor, zs: Tensor) -> Tensor:
        """Deterministic actions [B, A] in [-1, 1]."""
        actions: Tensor = self.policy_network(features, zs)
        return actions

    def values_at(self, features: Tensor, zs: Tensor, actions: Tensor) -> Tensor:
        """Values of both critics [2, B]."""
        inputs = torch.cat([features, actions], -1)
        embeddings = torch.cat([self.embedding.predicted(zs, actions), zs], -1)
        return torch.stack([critic(inputs, embeddings).squeeze(-1) for critic in self.critics])

    def actor(self, obs: Tensor) -> Tensor:
        """Deterministic actions [B, A]."""
        return self.actions_at(*self.embedded(obs))

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Values of both critics [2, B]."""
        return self.values_at(*self.embedded(obs), actions)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """`actor` for acting: NumPy in and out, no autograd."""
        if self._acting is None:
            self._acting = self._acting_forward()
        return self._acting(obs)

    def _acting_forward(self) -> ActingForward:
        device = next(self.policy_network.parameters()).device
        if device.type != "cpu" or not isinstance(self.embedding.encoder, VectorEncoder):
            return ActingForward(
                torch.inference_mode()(lambda obs: self.actor(torch.from_numpy(obs).to(device)).cpu().numpy())
            )
        state = numpy_forward(self.embedding.state)
        first, body = numpy_forward(self.policy_network.first), numpy_forward(self.policy_network.body)

        def forward(obs: np.ndarray) -> np.ndarray:
            features = self._normalized_numpy(obs)
            return body(np.concatenate([first(features), state(features)], -1))

        return ActingForward(forward)


def policy_copy(model: MLPTD7Model) -> MLPTD7Model:
    """A frozen copy of what acts, without critics: later changes of `model`, statistics too, do not reach it."""
    frozen = copy.deepcopy(model).requires_grad_(False)
    frozen.critics = nn.ModuleList()
    return frozen


@torch.no_grad()
def copy_weights(target: nn.Module, source: nn.Module) -> None:
    """Fill the tensors of `target`, parameters and statistics, with those of the same name in `source`."""
    theirs = source.state_dict()
    for name, tensor in target.state_dict().items():
        tensor.copy_(theirs[name])
