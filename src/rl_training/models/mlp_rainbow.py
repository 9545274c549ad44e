"""Return distributions over fixed atoms from noisy layers, plain or dueling: the network of Rainbow."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import expected_return
from rl_training.models.encoders.encoder import VectorEncoder, build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.noisy import NoisyMLP


class MLPRainbowNetwork(NormalizingModel):
    """Logits of Z(s, a) on the support: V + A - mean of A for each atom if dueling, all linear layers noisy.

    Every method takes the noise as an argument, [noise_size] or [B, noise_size]; None means no noise.
    """

    support: Tensor

    def __init__(
        self, spaces: Spaces, config: ModelConfig, *, support: Tensor, dueling: bool = True, initial_sigma: float = 0.5
    ):
        super().__init__()
        self.mask_size = spaces.mask_size
        self.encoder = build_encoder(spaces, config)
        self.normalizer = make_normalizer(spaces, config)
        size, self.num_actions, self.num_atoms = self.encoder.output_size, spaces.action_sizes[0], len(support)
        self.advantage = NoisyMLP(size, self.num_actions * self.num_atoms, config, initial_sigma=initial_sigma)
        self.state_value = NoisyMLP(size, self.num_atoms, config, initial_sigma=initial_sigma) if dueling else None
        self.noise_size = self.advantage.noise_size + (0 if self.state_value is None else self.state_value.noise_size)
        self.register_buffer("support", support)
        self._acting: ActingStreams | None = None

    def forward(self, obs: Tensor) -> Tensor:
        return self.distribution_logits(obs)

    def distribution_logits(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        """Logits [B, actions, atoms]."""
        inputs: Tensor = self.encoder(self._normalized(obs))
        own = self.advantage.noise_size
        first, second = (None, None) if noise is None else (noise[..., :own], noise[..., own:])
        advantage: Tensor = self.advantage(inputs, first).unflatten(1, (self.num_actions, self.num_atoms))
        if self.state_value is None:
            return advantage
        state_value: Tensor = self.state_value(inputs, second)
        return state_value[:, None] + advantage - advantage.mean(1, keepdim=True)

    def q_values(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        """Expected returns [B, actions]; -inf for actions that are not allowed."""
        return self.masked(expected_return(self.distribution_logits(obs, noise), self.support), obs)

    def greedy_actions(self, obs: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """The allowed action with the largest expected return in each row; noise [B, noise_size], or none."""
        actions: np.ndarray = self.q_values_numpy(obs, noise).argmax(1)
        return actions

    def q_values_numpy(self, obs: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """`q_values` for acting: NumPy in and out, no autograd."""
        if not isinstance(self.encoder, VectorEncoder) or self.support.device.type != "cpu":
            return self._torch_q_values(obs, noise)
        inputs, own = self._normalized_numpy(obs), self.advantage.noise_size
        if self._acting is None:
            self._acting = ActingStreams(self.advantage, self.state_value)
        first, second = (None, None) if noise is None else (noise[:, :own], noise[:, own:])
        logits = self._acting.advantage(inputs, first).reshape(len(obs), self.num_actions, self.num_atoms)
        if self._acting.state_value is not None:
            logits = self._acting.state_value(inputs, second)[:, None] + logits - logits.mean(1, keepdims=True)
        mass = np.exp(logits - logits.max(-1, keepdims=True))
        return self.masked_numpy((mass @ self.support.numpy()) / mass.sum(-1), obs)

    def _torch_q_values(self, obs: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        device = self.support.device
        with torch.inference_mode():
            rows = torch.from_numpy(obs).to(device)
            return self.q_values(rows, None if noise is None else torch.from_numpy(noise).to(device)).cpu().numpy()


class ActingStreams:
    """Both streams in NumPy, on the weights of one model. Like `ActingForward`, its copy and its pickle are None."""

    def __init__(self, advantage: NoisyMLP, state_value: NoisyMLP | None):
        self.advantage = advantage.numpy_forward()
        self.state_value = None if state_value is None else state_value.numpy_forward()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()
