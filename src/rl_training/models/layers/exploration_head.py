"""The last layer of a Gaussian policy whose noise is a function of the state (gSDE, arXiv:2005.05719).

    a = W z + b + theta^T z,    theta_ij ~ N(0, sigma_ij^2),    z = features of s

While theta stays the same, equal states get equal noise, so an episode is explored smoothly. For a random theta the
action is Gaussian with variance sum_i z_i^2 sigma_ij^2 (eq. 9), which is all that a loss needs to know.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

EPSILON = 1e-6  # keeps the variance above zero where all features are zero


class StateNoiseHead(nn.Module):
    """From features z [B, F] to mean and log-std of the action, [B, 2 A].

    Without `learn_features`, the noise does not train the features: a policy gradient would shrink them to lower the
    noise, and change the mean with it.
    """

    def __init__(self, mean: nn.Linear, initial_log_std: float, *, learn_features: bool):
        super().__init__()
        self.mean = mean
        self.learn_features = learn_features
        self.log_std = nn.Parameter(torch.full((mean.in_features, mean.out_features), float(initial_log_std)))

    def forward(self, features: Tensor) -> Tensor:
        source = features if self.learn_features else features.detach()
        variance = source.square() @ (2 * self.log_std).exp()
        return torch.cat([self.mean(features), 0.5 * (variance + EPSILON).log()], -1)

    def numpy(self, features: np.ndarray) -> np.ndarray:
        """`forward` for acting: NumPy in and out."""
        weight, bias, log_std = (
            array.detach().cpu().numpy() for array in (self.mean.weight, self.mean.bias, self.log_std)
        )
        variance = np.square(features).dot(np.exp(2 * log_std))
        variance += np.float32(EPSILON)
        return np.concatenate([features.dot(weight.T) + bias, np.float32(0.5) * np.log(variance)], 1)

    def noise_numpy(self, features: np.ndarray, matrices: np.ndarray) -> np.ndarray:
        """theta^T z [B, A]. `matrices` [B, F, A] are standard normal numbers, scaled here by the sigma of now."""
        theta = matrices * np.exp(self.log_std.detach().cpu().numpy())
        noise: np.ndarray = np.matmul(features[:, None, :], theta)[:, 0]
        return noise


def with_state_noise(network: nn.Sequential, initial_log_std: float, *, learn_features: bool) -> nn.Sequential:
    """The network of a policy's means with a last layer that has state-dependent noise."""
    *hidden, output = network
    assert isinstance(output, nn.Linear)
    return nn.Sequential(*hidden, StateNoiseHead(output, initial_log_std, learn_features=learn_features))


def noise_head(network: nn.Sequential) -> StateNoiseHead:
    """The last layer of a network that `with_state_noise` made."""
    head = network[-1]
    assert isinstance(head, StateNoiseHead)
    return head
