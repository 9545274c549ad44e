"""Exploration: epsilon-greedy for discrete actions, additive noise for continuous ones, random warm-up for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rl_training.envs.spaces import Spaces

FEW = 64  # rows; up to here a step of `epsilon_greedy` spends its time on calls, not on numbers


def random_actions(spaces: Spaces, count: int, rng: np.random.Generator, masks: np.ndarray | None = None) -> np.ndarray:
    """Uniform actions on the policy's scale: categories, or [-1, 1] per dimension.

    With `masks` [count, ...] (`Spaces.action_masks`) they are uniform among the allowed actions.
    """
    if masks is not None:
        parts = np.split(masks, np.cumsum(spaces.action_sizes)[:-1], axis=1)
        choices = [uniform_allowed(part, rng) for part in parts]
        return choices[0] if spaces.action_kind == "discrete" else np.stack(choices, 1)
    if spaces.action_kind == "box":
        return rng.uniform(-1.0, 1.0, (count, spaces.action_dim)).astype(np.float32)
    if spaces.action_kind == "discrete":
        return rng.integers(spaces.action_sizes[0], size=count)
    return rng.integers(spaces.action_sizes, size=(count, len(spaces.action_sizes)))


def uniform_allowed(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A uniform one of the allowed actions of each row: masks [N, actions] of bool, each row with at least one."""
    number = rng.integers(np.count_nonzero(masks, axis=1))
    chosen: np.ndarray = (np.add.accumulate(masks, 1, dtype=np.int64) > number[:, None]).argmax(1)
    return chosen


def allowed_rows(spaces: Spaces, masks: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The rows of `actions` that `masks` allow, as a mask [N]."""
    columns = actions.reshape(len(actions), -1) + spaces.choice_starts
    allowed: np.ndarray = np.logical_and.reduce(np.take_along_axis(masks, columns, 1), axis=1)
    return allowed


def epsilon_greedy(
    greedy: Callable[[np.ndarray], np.ndarray],
    obs: np.ndarray,
    num_actions: int,
    epsilon: float,
    rng: np.random.Generator,
    masks: np.ndarray | None = None,
) -> np.ndarray:
    """`greedy(obs)`, where each row is replaced by a uniform action with probability epsilon.

    Greedy actions are computed only if at least one row needs them. With `masks`, uniform actions are allowed ones.
    """
    if masks is not None:
        explore = rng.random(len(obs)) < epsilon
        return np.where(explore, uniform_allowed(masks, rng), greedy(obs))
    if len(obs) == 1:  # draws the same numbers as below, without arrays
        return np.array([rng.integers(num_actions)]) if rng.random() < epsilon else greedy(obs)
    explore = rng.random(len(obs)) < epsilon
    num_exploring = np.count_nonzero(explore)
    if num_exploring == 0:
        return greedy(obs)
    uniform = rng.integers(num_actions, size=len(obs))
    return uniform if num_exploring == len(obs) else np.where(explore, uniform, greedy(obs))


def uniform_or_greedy(num_actions: int, epsilon: float, rng: np.random.Generator, steps: int, rows: int) -> np.ndarray:
    """What `steps` calls of `epsilon_greedy` for `rows` rows decide before they ask for greedy actions [steps, rows].

    These are uniform actions, and -1 in the place of greedy ones. It draws the numbers that the calls draw.
    """
    decided = _decided_at_once(num_actions, epsilon, rng, steps, rows) if rows <= FEW else None
    if decided is not None:
        return decided
    later = np.full(rows, -1)
    return np.stack([epsilon_greedy(lambda _: later, later, num_actions, epsilon, rng) for _ in range(steps)])


def _decided_at_once(
    num_actions: int, epsilon: float, rng: np.random.Generator, steps: int, rows: int
) -> np.ndarray | None:
    """`uniform_or_greedy` without calls in every step, which for a few rows take as long as the rest of a rollout.

    A step takes one number of the generator per row, and half of one more if any row explores: an action takes 32 of
    its 64 bits. So all numbers are drawn twice from the same position, as decisions and as actions, and each step finds
    its own among them. None, with nothing drawn, where actions take another share: for odd rows, or when NumPy rejects
    a number because the actions do not divide 2^32.
    """
    bits = rng.bit_generator
    assert isinstance(bits, np.random.PCG64)
    before, most = bits.state, steps * (rows + rows // 2)
    explore = rng.random(most) < epsilon
    after, bits.state = bits.state, before
    actions = rng.integers(num_actions, size=2 * most)
    is_aligned = not (rows % 2 or before["has_uint32"]) and bits.state["state"] == after["state"]
    bits.state = before
    if not is_aligned:
        return None
    # Whether a step would explore that starts at a number, for every number.
    explores = np.convolve(explore, np.ones(rows, bool), "valid").tolist()
    places, used = [], 0
    for _ in range(steps):
        places.append(used)
        used += rows + rows // 2 if explores[used] else rows
    bits.advance(used)
    starts, columns = np.array(places)[:, None], np.arange(rows)
    decided: np.ndarray = np.where(explore[starts + columns], actions[2 * (starts + rows) + columns], -1)
    return decided


class GaussianNoise:
    """a + N(0, sigma) per dimension, clipped to [-1, 1]; sigma is in units of half the action range."""

    def __init__(self, sigma: float):
        self.sigma = sigma

    def apply(
        self, actions: np.ndarray, rng: np.random.Generator, episode_starts: np.ndarray | None = None
    ) -> np.ndarray:
        noise = rng.standard_normal(actions.shape, dtype=np.float32) * np.float32(self.sigma)
        explored: np.ndarray = np.clip(actions + noise, -1.0, 1.0)
        return explored


class OrnsteinUhlenbeckNoise:
    """x <- x - theta x + sigma N(0, 1): correlated noise, for tasks where independent noise averages out.

    Parameters are those of arXiv:1509.02971 (theta 0.15). The state of an env is zero when an episode starts.
    """

    def __init__(self, sigma: float, theta: float = 0.15):
        self.sigma, self.theta = sigma, theta
        self.state: np.ndarray = np.zeros((0, 0), np.float32)

    def apply(
        self, actions: np.ndarray, rng: np.random.Generator, episode_starts: np.ndarray | None = None
    ) -> np.ndarray:
        if self.state.shape != actions.shape:
            self.state = np.zeros_like(actions, dtype=np.float32)
        if episode_starts is not None:
            self.state[episode_starts] = 0.0
        noise = rng.standard_normal(actions.shape, dtype=np.float32)
        self.state += np.float32(self.sigma) * noise - np.float32(self.theta) * self.state
        explored: np.ndarray = np.clip(actions + self.state, -1.0, 1.0)
        return explored

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = np.array(state["state"])


def exploration_ladder(actors: int, base: float = 0.4, exponent: float = 7.0) -> list[float]:
    """base ** (1 + exponent * i / (N - 1)) for each of N actors: the first explores most, the last hardly at all.

    arXiv:1803.00933, section 4.1, with epsilon 0.4 and alpha 7.
    """
    return [base ** (1 + exponent * actor / (actors - 1)) for actor in range(actors)]


def precision_noise(factors: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """sigma P^(-1/2) z for P = L L^T: noise of covariance sigma^2 P^-1, wide along directions that matter little.

    `factors` are the lower triangular L [N, A, A]. The noise [N, A] solves L^T x = sigma z.
    """
    draws = rng.standard_normal(factors.shape[:2], dtype=np.float32)[..., None]
    return np.float32(sigma) * np.linalg.solve(np.swapaxes(factors, 1, 2), draws)[..., 0]


def make_action_noise(kind: str, sigma: float) -> GaussianNoise | OrnsteinUhlenbeckNoise:
    """The noise of a `noise_type` setting."""
    if kind == "gaussian":
        return GaussianNoise(sigma)
    if kind == "ou":
        return OrnsteinUhlenbeckNoise(sigma)
    raise ValueError(f"{kind!r} is not a kind of action noise: use gaussian or ou")
