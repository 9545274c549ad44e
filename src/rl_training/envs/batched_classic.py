"""The `batched` backend: classic control, many envs at once. Gymnasium's dynamics on whole arrays, one call per step.

Spaces, rewards, limits and physics are those of the registered single envs (a test steps both side by side). Episodes
restart within the step that ends them (SAME_STEP), with the true last observation in `final_obs`. All envs draw their
initial states from one generator.

The physics are written once, for arrays of NumPy and tensors of torch: `xp` is the module. A compiled rollout
(`runtime/collection/compiled_rollout.py`) traces them with torch.
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
    """Limits, resets and spaces; a subclass adds the physics. `state` is [variables, N] in float64.

    The arrays of `dynamics`, `observation` and `start` are of NumPy or of torch. Torch has no rule that int64 times a
    number is float64, so discrete actions arrive there as float64.
    """

    env_id: str
    variables: int
    draws: tuple[tuple[float, float], ...]  # the uniform numbers of an initial state: from, to

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
    def dynamics(self, xp: Any, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        """The next state, rewards and terminations of states [variables, N] and actions of the env."""

    def observation(self, xp: Any, state: Any) -> Any:
        """Observations [N, D] in float32."""
        return _single(xp, state.T)

    def start(self, xp: Any, drawn: Any) -> Any:
        """Initial states [variables, count] from uniform numbers [draws, count]."""
        return drawn

    def starts(self, count: int) -> Array:
        """`count` initial states, [variables, count]."""
        lows, highs = (np.array(bounds)[:, None] for bounds in zip(*self.draws, strict=True))
        states: Array = self.start(np, self.np_random.uniform(lows, highs, (len(self.draws), count)))
        return states

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Advance `state` by one step; returns rewards and terminations, each [N]."""
        self.state, rewards, terminated = self.dynamics(np, self.state, actions)
        return rewards, terminated

    def observe(self) -> Array:
        observations: Array = self.observation(np, self.state)
        return observations

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


def _single(xp: Any, values: Any) -> Any:
    """The values in float32."""
    return values.astype(np.float32) if xp is np else values.to(xp.float32)


def _double(xp: Any, values: Any) -> Any:
    """The values in float64."""
    return values.astype(np.float64) if xp is np else values.to(xp.float64)


class CartPoleVector(BatchedVector):
    env_id, variables = "CartPole-v1", 4
    draws = ((-0.05, 0.05),) * 4
    FEW = 10  # envs; up to here floats are faster than arrays, at a microsecond per array operation
    FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360  # of position and angle

    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.ones = np.ones(num_envs, np.float32)
        self.ones.flags.writeable = False  # every step returns the same array

    def starts(self, count: int) -> Array:
        return self.np_random.uniform(*self.draws[0], (4, count))  # faster with numbers than with arrays of them

    def advance(self, actions: Array) -> tuple[Array, Array]:
        if self.num_envs > self.FEW:
            return super().advance(actions)
        _, speed, angle, spin = self.state
        each = zip(speed.tolist(), angle.tolist(), spin.tolist(), actions.tolist(), strict=True)
        rates = np.array([_cart_pole_rates(math, *variables) for variables in each]).T
        self.state, rewards, fallen = self._moved(np, self.state, rates)
        return rewards, fallen

    def dynamics(self, xp: Any, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        _, speed, angle, spin = state
        return self._moved(xp, state, xp.stack(_cart_pole_rates(xp, speed, angle, spin, actions)))

    def _moved(self, xp: Any, state: Any, rates: Any) -> tuple[Any, Any, Any]:
        # Explicit Euler: positions move by the old velocities.
        state = state + rates * SECONDS
        fallen = (xp.abs(state[0]) > self.FARTHEST) | (xp.abs(state[2]) > self.STEEPEST)
        return state, self.ones if xp is np else xp.ones(self.num_envs), fallen


class PendulumVector(BatchedVector):
    env_id, variables = "Pendulum-v1", 2
    draws = ((-math.pi, math.pi), (-1.0, 1.0))
    GRAVITY, SECONDS, FASTEST, STRONGEST = 10.0, 0.05, 8.0, 2.0

    def dynamics(self, xp: Any, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        angle, spin = state
        torque = xp.clip(actions[:, 0], -self.STRONGEST, self.STRONGEST)
        from_upright = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = from_upright**2 + 0.1 * spin**2 + 0.001 * torque**2
        spin = spin + (1.5 * self.GRAVITY * xp.sin(angle) + 3.0 * torque) * self.SECONDS
        spin = xp.clip(spin, -self.FASTEST, self.FASTEST)
        return xp.stack([angle + spin * self.SECONDS, spin]), -cost, xp.zeros(self.num_envs, dtype=bool)

    def observation(self, xp: Any, state: Any) -> Any:
        angle, spin = state
        return _single(xp, xp.stack([xp.cos(angle), xp.sin(angle), spin], 1))


class MountainCarVector(BatchedVector):
    env_id, variables = "MountainCar-v0", 2
    draws = ((-0.6, -0.4),)
    FORCE, GRAVITY, FASTEST, LEFT, RIGHT, GOAL = 0.001, 0.0025, 0.07, -1.2, 0.6, 0.5

    def start(self, xp: Any, drawn: Any) -> Any:
        return xp.stack([drawn[0], xp.zeros_like(drawn[0])])

    def pushes(self, xp: Any, actions: Any) -> Any:
        return (actions - 1) * self.FORCE

    def dynamics(self, xp: Any, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        position, speed = state
        speed = speed + self.pushes(xp, actions) - self.GRAVITY * xp.cos(3 * position)
        speed = xp.clip(speed, -self.FASTEST, self.FASTEST)
        position = xp.clip(position + speed, self.LEFT, self.RIGHT)
        # The wall on the left stops the car.
        speed = xp.where((position == self.LEFT) & (speed < 0), 0.0, speed)
        arrived = (position >= self.GOAL) & (speed >= 0)
        return xp.stack([position, speed]), self.rewards(xp, actions, arrived), arrived

    def rewards(self, xp: Any, actions: Any, arrived: Any) -> Any:
        return xp.zeros(self.num_envs, dtype=xp.float64) - 1.0


class MountainCarContinuousVector(MountainCarVector):
    env_id, GOAL = "MountainCarContinuous-v0", 0.45
    POWER = 0.0015

    def pushes(self, xp: Any, actions: Any) -> Any:
        return xp.clip(actions[:, 0], -1.0, 1.0) * self.POWER

    def dynamics(self, xp: Any, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        state, rewards, arrived = super().dynamics(xp, state, actions)
        # The single env keeps its state in float32; without the same rounding the two would diverge.
        return _double(xp, _single(xp, state)), rewards, arrived

    def rewards(self, xp: Any, actions: Any, arrived: Any) -> Any:
        return 100.0 * arrived - 0.1 * _double(xp, actions[:, 0]) ** 2


class AcrobotVector(BatchedVector):
    """Two links of length and mass 1 with a motor between them; equations of motion from Sutton and Barto's book."""

    env_id, variables = "Acrobot-v1", 4
    draws = ((-0.1, 0.1),) * 4
    GRAVITY, SECONDS, FASTEST = 9.8, 0.2, (4 * math.pi, 9 * math.pi)

    def start(self, xp: Any, drawn: Any) -> Any:
        return _double(xp, _single(xp, drawn))

    def derivative(self, xp: Any, state: Any, torque: Any) -> Any:
        angle1, angle2, spin1, spin2 = state
        cosine2, sine2 = xp.cos(angle2), xp.sin(angle2)
        d1, d2 = 3.5 + cosine2, 1.25 + 0.5 * cosine2
        phi2 = 0.5 * self.GRAVITY * xp.cos(angle1 + angle2 - math.pi / 2)
        phi1 = -0.5 * spin2**2 * sine2 - spin2 * spin1 * sine2
        phi1 = phi1 + 1.5 * self.GRAVITY * xp.cos(angle1 - math.pi / 2) + phi2
        rate2 = (torque + d2 / d1 * phi1 - 0.5 * spin1**2 * sine2 - phi2) / (1.25 - d2**2 / d1)
        return xp.stack([spin1, spin2, -(d2 * rate2 + phi1) / d1, rate2])

    def dynamics(self, xp: Any, state: Any, actions: Any) -> tuple[Any, Any, Any]:
        torque, h = actions - 1.0, self.SECONDS
        k1 = self.derivative(xp, state, torque)
        k2 = self.derivative(xp, state + h / 2 * k1, torque)
        k3 = self.derivative(xp, state + h / 2 * k2, torque)
        k4 = self.derivative(xp, state + h * k3, torque)
        angle1, angle2, spin1, spin2 = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angle1, angle2 = ((angle + math.pi) % (2 * math.pi) - math.pi for angle in (angle1, angle2))
        fastest1, fastest2 = self.FASTEST
        spin1, spin2 = xp.clip(spin1, -fastest1, fastest1), xp.clip(spin2, -fastest2, fastest2)
        swung_up = -xp.cos(angle1) - xp.cos(angle2 + angle1) > 1.0
        return xp.stack([angle1, angle2, spin1, spin2]), xp.where(swung_up, 0.0, -1.0), swung_up

    def observation(self, xp: Any, state: Any) -> Any:
        angle1, angle2, spin1, spin2 = state
        parts = [xp.cos(angle1), xp.sin(angle1), xp.cos(angle2), xp.sin(angle2), spin1, spin2]
        return _single(xp, xp.stack(parts, 1))


BATCHED_ENVS: dict[str, type[BatchedVector]] = {
    kind.env_id: kind
    for kind in (CartPoleVector, PendulumVector, AcrobotVector, MountainCarVector, MountainCarContinuousVector)
}
