"""Munchausen Q-learning (arXiv:2007.14430): the agent's own log-policy in the reward, and soft values.

    target = r + alpha * clip(T log pi(a|s), l0, 0) + d * sum_b pi(b|s') * (Q'(s', b) - T log pi(b|s'))

pi = softmax(Q' / T), and Q' is the target network, both in s and in s'. Actions with Q' = -inf have pi = 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.config.algorithms.common.munchausen import MunchausenConfig


def scaled_log_policy(q: Tensor, temperature: float) -> Tensor:
    """T log softmax(Q / T) of every action, computed by subtracting the maximum.   [B, A]"""
    return temperature * torch.log_softmax(q / temperature, 1)


def munchausen_reward(q: Tensor, actions: Tensor, config: MunchausenConfig) -> Tensor:
    """alpha * clip(T log pi(a|s), l0, 0) of the actions taken: never positive.   [B]"""
    taken = scaled_log_policy(q, config.munchausen_temperature).gather(1, actions[:, None]).squeeze(1)
    return config.munchausen_scale * taken.clamp(config.munchausen_floor, 0.0)


def soft_expectation(values: Tensor, next_q: Tensor, temperature: float) -> Tensor:
    """sum_b pi(b|s') * (values_b - T log pi(b|s')) for pi = softmax(Q' / T).   `values` [B, A, ...] -> [B, ...]"""
    log_policy = scaled_log_policy(next_q, temperature)
    policy = torch.softmax(next_q / temperature, 1)
    further = (1,) * (values.ndim - 2)
    policy, log_policy = (rows.reshape(*rows.shape, *further) for rows in (policy, log_policy))
    # 0 * -inf is not a number: an action that is never chosen adds nothing.
    return torch.where(policy > 0, policy * (values - log_policy), torch.zeros_like(values)).sum(1)
