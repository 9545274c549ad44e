"""Action distributions as functions of one parameter tensor.

There are no torch distribution objects: they would take more time than the networks. Losses use the torch methods,
acting uses the NumPy methods. `draws` and `choose` are `sample` in two parts: the random numbers of many steps at once,
and actions from them in torch, for rollouts that are compiled. Parameters are [B, P]: logits for categoricals, mean and
log-std for Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Categorical:
    """Independent categorical choices: one for Discrete, several for MultiDiscrete and MultiBinary.

    If `masked`, some logits may be -inf: these actions have probability 0. Each choice needs one finite logit.
    """

    def __init__(self, sizes: Sequence[int], *, scalar: bool, masked: bool = False):
        self.sizes = tuple(sizes)
        self.masked = masked
        self.scalar = scalar  # actions are [B] for Discrete, [B, k] otherwise
        self.parameter_size = sum(self.sizes)
        self._ends = np.cumsum(self.sizes).tolist()
        self.most_entropy = sum(math.log(size) for size in self.sizes)  # of uniform choices

    def _log_softmax(self, logits: Tensor) -> list[Tensor]:
        if len(self.sizes) == 1:
            return [F.log_softmax(logits, -1)]
        return [F.log_softmax(part, -1) for part in logits.split(self.sizes, -1)]

    def log_prob(self, logits: Tensor, actions: Tensor) -> Tensor:
        columns = actions[:, None] if self.scalar else actions
        parts = [p.gather(1, columns[:, i : i + 1]).squeeze(1) for i, p in enumerate(self._log_softmax(logits))]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)

    def entropy(self, logits: Tensor) -> Tensor:
        parts = [-(p.exp() * self._finite(p)).sum(-1) for p in self._log_softmax(logits)]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old || new) per row."""
        pairs = zip(self._log_softmax(old), self._log_softmax(new), strict=True)
        return torch.stack([(p.exp() * (self._finite(p) - self._finite(q))).sum(-1) for p, q in pairs]).sum(0)

    def _finite(self, log_probs: Tensor) -> Tensor:
        """0 in place of -inf, so that a probability of 0 times it is 0 and not NaN, in gradients too."""
        return log_probs.masked_fill(log_probs == -torch.inf, 0.0) if self.masked else log_probs

    def most_entropy_of(self, masks: Tensor) -> Tensor:
        """The mean entropy of uniform choices among the actions that `masks` [B, P] allow."""
        counts = [part.sum(-1) for part in (masks != 0).split(self.sizes, -1)]
        return torch.stack([count.clamp(min=1).log() for count in counts]).sum(0).mean()

    def sample(self, logits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Actions and their log-probabilities, from one uniform number per choice (inverse transform sampling)."""
        uniforms = rng.random((len(self.sizes), len(logits)), dtype=np.float32)
        if len(self.sizes) == 1:
            actions, log_probs = _choose(logits, uniforms[0])
            return (actions if self.scalar else actions[:, None]), log_probs
        parts = [
            _choose(logits[:, end - size : end], uniform)
            for end, size, uniform in zip(self._ends, self.sizes, uniforms, strict=True)
        ]
        return np.stack([actions for actions, _ in parts], 1), np.sum([log_probs for _, log_probs in parts], 0)

    def draws(self, rng: np.random.Generator, steps: int, rows: int) -> np.ndarray:
        """The numbers that `steps` calls of `sample` draw, [steps, choices, rows]."""
        return rng.random((steps, len(self.sizes), rows), dtype=np.float32)

    def choose(self, logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """`sample` of numbers that are drawn already: actions and their log-probabilities in torch."""
        columns = []
        for log_probs, uniform in zip(self._log_softmax(logits), uniforms, strict=True):
            # The last column is left out, so that rounding can never produce an action out of range.
            below = log_probs.exp()[:, :-1]
            cumulative = below if below.shape[1] == 1 else below.cumsum(1)
            columns.append((cumulative <= uniform[:, None]).sum(1))
        actions = columns[0] if self.scalar else torch.stack(columns, 1)
        return actions, self.log_prob(logits, actions)

    def mode(self, logits: np.ndarray) -> np.ndarray:
        parts = [logits[:, e - s : e].argmax(1) for e, s in zip(self._ends, self.sizes, strict=True)]
        return parts[0] if self.scalar else np.stack(parts, 1)


def _choose(logits: np.ndarray, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One choice per row and its log-probability.

    For a few rows each NumPy call takes about a microsecond. Reductions are ufunc calls, because the methods of an
    array take half as long again.
    """
    shifted = logits - np.maximum.reduce(logits, 1, keepdims=True)
    cumulative = np.add.accumulate(np.exp(shifted), 1)
    total = cumulative[:, -1]
    # The last column is left out, so that rounding can never produce an action out of range.
    chosen = np.add.reduce(cumulative[:, :-1] <= (uniforms * total)[:, None], 1)
    return chosen, shifted[np.arange(len(logits)), chosen] - np.log(total)


class DiagonalGaussian:
    """Independent normal distributions without bounds; actions are clipped only for the environment."""

    def __init__(self, size: int):
        self.size = size
        self.parameter_size = 2 * size

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = parameters.split(self.size, -1)
        scaled = (actions - mean) * (-log_std).exp()
        log_probs: Tensor = (-0.5 * scaled.square() - log_std - LOG_SQRT_2PI).sum(-1)
        return log_probs

    def entropy(self, parameters: Tensor) -> Tensor:
        log_std = parameters[:, self.size :]
        return (log_std + 0.5 + LOG_SQRT_2PI).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old || new) per row."""
        old_mean, old_log_std = old.split(self.size, -1)
        new_mean, new_log_std = new.split(self.size, -1)
        ratio = (2 * (old_log_std - new_log_std)).exp()
        distance = (old_mean - new_mean).square() * (-2 * new_log_std).exp()
        divergence: Tensor = (new_log_std - old_log_std + 0.5 * (ratio + distance - 1)).sum(-1)
        return divergence

    def sample(self, parameters: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        mean, log_std = parameters[:, : self.size], parameters[:, self.size :]
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        log_probs = (-0.5 * noise**2 - log_std - np.float32(LOG_SQRT_2PI)).sum(1)
        return mean + np.exp(log_std) * noise, log_probs

    def draws(self, rng: np.random.Generator, steps: int, rows: int) -> np.ndarray:
        """The numbers that `steps` calls of `sample` draw, [steps, rows, size]."""
        return rng.standard_normal((steps, rows, self.size), dtype=np.float32)

    def choose(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """`sample` of numbers that are drawn already: actions and their log-probabilities in torch."""
        mean, log_std = parameters.split(self.size, -1)
        return mean + log_std.exp() * noise, (-0.5 * noise.square() - log_std - LOG_SQRT_2PI).sum(-1)

    def shifted(self, parameters: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mean + noise [B, A] and its log-probability, for noise that was drawn elsewhere."""
        mean, log_std = parameters[:, : self.size], parameters[:, self.size :]
        scaled = noise * np.exp(-log_std)
        return mean + noise, (-0.5 * scaled**2 - log_std - np.float32(LOG_SQRT_2PI)).sum(1)

    def mode(self, parameters: np.ndarray) -> np.ndarray:
        return parameters[:, : self.size].copy()


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """a = tanh(u), u = mean + std * noise, and log pi(a) = log N(u) - sum log(1 - tanh(u)^2).

    The correction uses log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which is exact even if tanh saturates.
    """
    pre_tanh = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - LOG_SQRT_2PI
    correction = 2 * (math.log(2) - pre_tanh - F.softplus(-2 * pre_tanh))
    return torch.tanh(pre_tanh), (log_normal - correction).sum(-1)


def expected_return(logits: Tensor, support: Tensor) -> Tensor:
    """E[Z] of a return distribution over atoms: logits [..., atoms], support [atoms]."""
    return logits.softmax(-1) @ support


def bellman_atoms(rewards: Tensor, discounts: Tensor, support: Tensor) -> Tensor:
    """The atoms r + d z_j of the next state's return, discounted to the state before it [B, atoms]."""
    return rewards[:, None] + discounts[:, None] * support
