"""Stable-Baselines3's distribution of state-dependent exploration (gSDE). Used by record_oracles.py.

The features are a leaf, so that the gradient shows whether the noise trains them (`learn_features`). A squashed case
records the sampled action and its log-probability for a given noise matrix, as SAC's actor loss uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.distributions import StateDependentNoiseDistribution

ROWS, FEATURES, ACTIONS = 5, 4, 2


def leaf(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float32)).requires_grad_()


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for learn_features in (False, True):
        for squashed in (False, True):
            rng = np.random.default_rng(10 + 2 * learn_features + squashed)
            features, log_std = (
                leaf(rng.normal(size=(ROWS, FEATURES))),
                leaf(0.3 * rng.normal(size=(FEATURES, ACTIONS)) - 1.5),
            )
            # Small means: where tanh saturates, theirs loses digits to the 1e-6 that it adds to the derivative.
            weight, bias = leaf(0.3 * rng.normal(size=(ACTIONS, FEATURES))), leaf(0.3 * rng.normal(size=ACTIONS))
            matrix = rng.normal(size=(FEATURES, ACTIONS)).astype(np.float32)
            distribution = StateDependentNoiseDistribution(
                ACTIONS, squash_output=squashed, learn_features=learn_features
            )
            distribution.proba_distribution_net(latent_dim=FEATURES, log_std_init=0.0)
            mean = torch.nn.functional.linear(features, weight, bias)
            distribution = distribution.proba_distribution(mean, log_std, features)
            distribution.exploration_mat = torch.from_numpy(matrix) * log_std.exp()
            inputs = {
                "learn_features": learn_features,
                "squashed": squashed,
                "features": features.detach(),
                "weight": weight.detach(),
                "bias": bias.detach(),
                "log_std": log_std.detach(),
                "matrix": matrix,
            }
            actions = distribution.sample()
            outputs: dict[str, Any] = {"actions": actions.detach(), "mode": distribution.mode().detach()}
            if squashed:
                log_probs = distribution.log_prob(actions)
                log_probs.sum().backward()
            else:
                log_probs = distribution.log_prob(actions.detach())
                entropy = distribution.entropy()
                assert entropy is not None
                outputs["entropy"] = entropy.detach()
                (log_probs.sum() + 0.3 * entropy.sum()).backward()
            leaves = {"features": features, "weight": weight, "bias": bias, "log_std": log_std}
            outputs["log_probs"] = log_probs.detach()
            outputs["gradients"] = {name: part.grad for name, part in leaves.items()}
            yield "stable_baselines3 StateDependentNoiseDistribution", inputs, outputs
