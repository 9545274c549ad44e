"""The `batched` backend: classic control, many envs at once. Gymnasium's dynamics on whole arrays, one call per step.

Spaces, rewards, limits and physics are those of the registered single envs (a test steps both side by side). Episodes
restart within the step that ends them (SAME_STEP), with the true last observation in `final_obs`. All envs draw their
initial states from one generator.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

Array = np.ndarray


class BatchedVector(VectorEnv[Array, Array, Array]):
    """Limits, resets and spaces; a subclass adds the physics. `state` is [variables, N] in float64."""

    env_id: str
    variables: int

    def __init__(self, num_envs: int):
        single = gym.make(self.env_id, disable_env_checker=True)
        self.spec = single.spec
        assert self.spec is not None and self.spec.max_episode_steps is not None
        self.limit = self.spec.max_episode_steps
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {**single.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.state: Array = np.zeros((self.variables, num_envs))
        self.elapsed = np.zeros(num_envs, np.int64)

    @abstractmethod
    def starts(self, count: int) -> Array:
        """`count` initial states, [variables, count]."""

    @abstractmethod
    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Advance `state` by one step; returns rewards and terminations, each [N]."""

    def observe(self) -> Array:
        return self.state.T.astype(np.float32)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self.state = self.starts(self.num_envs)
        self.elapsed[:] = 0
        return self.observe(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        rewards, terminated = self.advance(actions)
        self.elapsed += 1
        truncated = self.elapsed >= self.limit
        observations = self.observe()
        done = terminated | truncated
        if not np.count_nonzero(done):
            return observations, rewards, terminated, truncated, {}
        infos = {"final_obs": observations, "_final_obs": done}
        self.state[:, done] = self.starts(int(done.sum()))
        self.elapsed[done] = 0
        return self.observe(), rewards, terminated, truncated, infos


# Constants of CartPole. Globals, because reading an attribute costs as much as an operation on floats.
GRAVITY, POLE_MASS, TOTAL_MASS, HALF_LENGTH, FORCE, SECONDS = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
MOMENT = POLE_MASS * HALF_LENGTH


def _cart_pole_rates(functions: Any, speed: Any, angle: Any, spin: Any, action: Any) -> tuple[Any, Any, Any, Any]:
    """Time derivatives of the variables: of all envs as arrays (`functions` is numpy), or of one as floats (math)."""
    sine, cosine = functions.sin(angle), functions.cos(angle)
    push = action * (2 * FORCE) - FORCE
    shared = (push + MOMENT * (spin * spin) * sine) / TOTAL_MASS
    inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * (cosine * cosine) / TOTAL_MASS)
    spin_rate = (GRAVITY * sine - cosine * shared) / inertia
    return speed, shared - MOMENT * spin_rate * cosine / TOTAL_MASS, spin, spin_rate


class CartPoleVector(BatchedVector):
    env_id, variables = "CartPole-v1", 4
    FEW = 10  # envs; up to here floats are faster than arrays, at a microsecond per array operation
    LIMITS = np.array([[2.4], [12 * 2 * np.pi / 360]])  # of position and angle

    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.ones = np.ones(num_envs, np.float32)
        self.ones.flags.writeable = False  # every step returns the same array

    def starts(self, count: int) -> Array:
        return self.np_random.uniform(-0.05, 0.05, (4, count))

    def advance(self, actions: Array) -> tuple[Array, Array]:
        _, speed, angle, spin = self.state
        if self.num_envs > self.FEW:
            rates = np.array(_cart_pole_rates(np, speed, angle, spin, actions))
        else:
            each = zip(speed.tolist(), angle.tolist(), spin.tolist(), actions.tolist(), strict=True)
            rates = np.array([_cart_pole_rates(math, *variables) for variables in each]).T
        # Explicit Euler: positions move by the old velocities.
        rates *= SECONDS
        self.state += rates
        fallen = np.logical_or.reduce(np.abs(self.state[::2]) > self.LIMITS)
        return self.ones, fallen


class PendulumVector(BatchedVector):
    env_id, variables = "Pendulum-v1", 2
    GRAVITY, SECONDS, FASTEST, STRONGEST = 10.0, 0.05, 8.0, 2.0

    def starts(self, count: int) -> Array:
        return self.np_random.uniform([[-np.pi], [-1.0]], [[np.pi], [1.0]], (2, count))

    def advance(self, actions: Array) -> tuple[Array, Array]:
        angle, spin = self.state
        torque = np.clip(actions[:, 0], -self.STRONGEST, self.STRONGEST)
        from_upright = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = from_upright**2 + 0.1 * spin**2 + 0.001 * torque**2
        spin = spin + (1.5 * self.GRAVITY * np.sin(angle) + 3.0 * torque) * self.SECONDS
        spin = np.clip(spin, -self.FASTEST, self.FASTEST)
        self.state = np.stack([angle + spin * self.SECONDS, spin])
        return -cost, np.zeros(self.num_envs, bool)

    def observe(self) -> Array:
        angle, spin = self.state
        return np.stack([np.cos(angle), np.sin(angle), spin], 1).astype(np.float32)


class MountainCarVector(BatchedVector):
    env_id, variables = "MountainCar-v0", 2
    FORCE, GRAVITY, FASTEST, LEFT, RIGHT, GOAL = 0.001, 0.0025, 0.07, -1.2, 0.6, 0.5

    def starts(self, count: int) -> Array:
        return np.stack([self.np_random.uniform(-0.6, -0.4, count), np.zeros(count)])

    def pushes(self, actions: Array) -> Array:
        return (actions - 1) * self.FORCE

    def advance(self, actions: Array) -> tuple[Array, Array]:
        position, speed = self.state
        speed = speed + self.pushes(actions) - self.GRAVITY * np.cos(3 * position)
        speed = np.clip(speed, -self.FASTEST, self.FASTEST)
        position = np.clip(position + speed, self.LEFT, self.RIGHT)
        speed[(position == self.LEFT) & (speed < 0)] = 0.0  # the wall on the left stops the car
        self.state = np.stack([position, speed])
        return self.rewards(actions, arrived := (position >= self.GOAL) & (speed >= 0)), arrived

    def rewards(self, actions: Array, arrived: Array) -> Array:
        return np.full(self.num_envs, -1.0)


class MountainCarContinuousVector(MountainCarVector):
    env_id, GOAL = "MountainCarContinuous-v0", 0.45
    POWER = 0.0015

    def pushes(self, actions: Array) -> Array:
        pushes: np.ndarray = np.clip(actions[:, 0], -1.0, 1.0) * self.POWER
        return pushes

    def advance(self, actions: Array) -> tuple[Array, Array]:
        result = super().advance(actions)
        # The single env keeps its state in float32; without the same rounding the two would diverge.
        self.state = self.state.astype(np.float32).astype(np.float64)
        return result

    def rewards(self, actions: Array, arrived: Array) -> Array:
        return 100.0 * arrived - 0.1 * actions[:, 0].astype(np.float64) ** 2


class AcrobotVector(BatchedVector):
    """Two links of length and mass 1 with a motor between them; equations of motion from Sutton and Barto's book."""

    env_id, variables = "Acrobot-v1", 4
    GRAVITY, SECONDS, FASTEST = 9.8, 0.2, (4 * np.pi, 9 * np.pi)

    def starts(self, count: int) -> Array:
        return self.np_random.uniform(-0.1, 0.1, (4, count)).astype(np.float32).astype(np.float64)

    def derivative(self, state: Array, torque: Array) -> Array:
        angle1, angle2, spin1, spin2 = state
        cosine2, sine2 = np.cos(angle2), np.sin(angle2)
        d1, d2 = 3.5 + cosine2, 1.25 + 0.5 * cosine2
        phi2 = 0.5 * self.GRAVITY * np.cos(angle1 + angle2 - np.pi / 2)
        phi1 = -0.5 * spin2**2 * sine2 - spin2 * spin1 * sine2 + 1.5 * self.GRAVITY * np.cos(angle1 - np.pi / 2) + phi2
        rate2 = (torque + d2 / d1 * phi1 - 0.5 * spin1**2 * sine2 - phi2) / (1.25 - d2**2 / d1)
        return np.stack([spin1, spin2, -(d2 * rate2 + phi1) / d1, rate2])

    def advance(self, actions: Array) -> tuple[Array, Array]:
        torque, h = actions - 1.0, self.SECONDS
        k1 = self.derivative(self.state, torque)
        k2 = self.derivative(self.state + h / 2 * k1, torque)
        k3 = self.derivative(self.state + h / 2 * k2, torque)
        k4 = self.derivative(self.state + h * k3, torque)
        state = self.state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        state[:2] = (state[:2] + np.pi) % (2 * np.pi) - np.pi
        for row, fastest in zip((2, 3), self.FASTEST, strict=True):
            state[row] = np.clip(state[row], -fastest, fastest)
        self.state = state
        swung_up = -np.cos(state[0]) - np.cos(state[1] + state[0]) > 1.0
        return np.where(swung_up, 0.0, -1.0), swung_up

    def observe(self) -> Array:
        angle1, angle2, spin1, spin2 = self.state
        parts = [np.cos(angle1), np.sin(angle1), np.cos(angle2), np.sin(angle2), spin1, spin2]
        return np.stack(parts, 1).astype(np.float32)


BATCHED_ENVS: dict[str, type[BatchedVector]] = {
    kind.env_id: kind
    for kind in (CartPoleVector, PendulumVector, AcrobotVector, MountainCarVector, MountainCarContinuousVector)
}
