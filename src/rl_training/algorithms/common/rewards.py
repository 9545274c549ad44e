"""Normalized rewards: divided by the running standard deviation of the discounted return."""

from __future__ import annotations

from typing import Any

import numpy as np

ALL_ENVS = slice(None)


class ReturnNormalizer:
    """Divides rewards by the running standard deviation of the discounted return, so that values stay near 1.

    The return accumulates per env and restarts with each episode. Means are not subtracted: shifting rewards changes
    which policy is optimal. Scaled rewards are clipped to +-10.
    """

    def __init__(self, gamma: float, num_envs: int):
        self.gamma = gamma
        self.running = np.zeros(num_envs)
        self.count, self.mean, self.variance = 0.0, 0.0, 1.0

    def __call__(
        self, rewards: np.ndarray, episode_starts: np.ndarray, valid: np.ndarray, envs: slice = ALL_ENVS
    ) -> np.ndarray:
        """Take the rewards [T, N] of a rollout into the statistics, and return them normalized.

        `envs` are the N envs of the rollout if it does not have all of them.
        """
        returns = np.empty(rewards.shape)
        running = self.running[envs]
        for t in range(len(rewards)):
            # By starts, not by ends: an episode that a checkpoint cut has no end, but the next one has a start.
            running = running * self.gamma * ~episode_starts[t] + rewards[t]
            returns[t] = running
        self.running[envs] = running
        self._merge(returns[valid])
        scale = 1.0 / np.sqrt(self.variance + 1e-8)
        return np.clip(rewards * np.float32(scale), -10.0, 10.0).astype(np.float32)

    def _merge(self, returns: np.ndarray) -> None:
        total = self.count + returns.size
        if total == self.count:
            return
        delta = float(returns.mean()) - self.mean
        spread = self.variance * self.count + float(returns.var()) * returns.size
        self.variance = (spread + delta**2 * self.count * returns.size / total) / total
        self.mean += delta * returns.size / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"running": self.running, "count": self.count, "mean": self.mean, "variance": self.variance}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        running = np.array(state["running"], np.float64)
        count, mean, variance = (float(state[name]) for name in ("count", "mean", "variance"))
        if running.shape != self.running.shape:
            raise ValueError(f"statistics of returns of {running.shape} envs do not fit {self.running.shape}")
        if not (np.isfinite([*running, count, mean, variance]).all() and count >= 0 and variance >= 0):
            raise ValueError("statistics of returns are negative or not finite")
        self.running, self.count, self.mean, self.variance = running, count, mean, variance
