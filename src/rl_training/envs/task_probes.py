"""Small tasks with a known best return, which can be learned only with the feature that they are named after.

======================= ====================================== =================================================
task                    best return                            exposes
======================= ====================================== =================================================
ForbiddenActionsProbe   `length`, the longest episode          action masks that are lost or belong elsewhere
BitFlipProbe            at most 0, success within `bits` steps goals that are relabeled wrongly, or not at all
PointGoalProbe          success at the end of every episode    the same, with continuous actions
DeepSeaProbe            0.99                                   exploration that tries what it did before
DotProbe                0                                      images that do not reach a continuous action
======================= ====================================== =================================================
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from rl_training.envs.goals import ACHIEVED, DESIRED
from rl_training.envs.spaces import MASK_KEY

MaskPlace = Literal["key", "info", "method", "none"]


class ForbiddenActionsProbe(gym.Env[Any, Any]):
    """The observation names, one-hot, the action that pays 1. In every step, `forbidden` other actions are masked.

    After `length` steps a time limit ends the episode, so the best return is `length`. A policy that guesses among the
    allowed actions gets `length / (actions - forbidden)`. To learn each action by its name takes `actions` as many
    examples, so within a few thousand steps only masks make the task easy. `invalid_actions` counts the masked actions
    that were taken since the env was made; `info` has it too. `masks` says where the env shows its mask: as a key of
    the observation, in `info`, by the method `action_masks`, or nowhere.
    """

    def __init__(self, actions: int = 70, forbidden: int = 55, length: int = 100, *, masks: MaskPlace = "key") -> None:
        if not 0 <= forbidden < actions:
            raise ValueError(f"forbidden must be at least 0 and less than actions, got {forbidden} of {actions}")
        self.actions, self.forbidden, self.length, self.masks = actions, forbidden, length, masks
        self.invalid_actions = self.elapsed = 0
        self.action_space = gym.spaces.Discrete(actions)
        shown: gym.Space[Any] = gym.spaces.Box(0.0, 1.0, (actions,), np.float32)
        self.observation_space = shown
        if masks == "key":
            self.observation_space = gym.spaces.Dict({"shown": shown, MASK_KEY: gym.spaces.MultiBinary(actions)})
        if masks == "method":
            self.action_masks = lambda: self.mask.copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return self._next_state()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        self.invalid_actions += int(not self.mask[action])
        reward = float(action == self.named)
        observation, info = self._next_state()
        return observation, reward, False, self.elapsed >= self.length, info

    def _next_state(self) -> tuple[Any, dict[str, Any]]:
        self.named = int(self.np_random.integers(self.actions))
        others = np.delete(np.arange(self.actions), self.named)
        self.mask = np.ones(self.actions, np.int8)
        self.mask[self.np_random.choice(others, self.forbidden, replace=False)] = 0
        shown = np.zeros(self.actions, np.float32)
        shown[self.named] = 1.0
        info: dict[str, Any] = {"invalid_actions": self.invalid_actions}
        if self.masks == "info":
            info[MASK_KEY] = self.mask.copy()
        return ({"shown": shown, MASK_KEY: self.mask.copy()} if self.masks == "key" else shown), info


class _GoalProbe(gym.Env[Any, Any]):
    """A state is the achieved goal. A step pays 0 where the goal is reached and -1 elsewhere."""

    goal_space: gym.Space[Any]
    length: int
    ends_at_goal = True

    def _set_up(self) -> None:
        goals = {ACHIEVED: self.goal_space, DESIRED: self.goal_space}
        self.observation_space = gym.spaces.Dict({"observation": self.goal_space, **goals})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        self.state, self.goal = self.draw(), self.draw()
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        self.state = self.moved(action)
        reward = float(self.compute_reward(self.state, self.goal, {}))
        terminated = bool(self.compute_terminated(self.state, self.goal, {}))
        info = {"is_success": reward == 0.0}
        return self._seen(), reward, terminated, self.elapsed >= self.length, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 where the goal is reached and -1 elsewhere, for one goal or for a batch."""
        return self.reached(np.asarray(achieved_goal), np.asarray(desired_goal)).astype(np.float32) - 1.0

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Whether the goal ends an episode, for one goal or for a batch."""
        return self.reached(np.asarray(achieved_goal), np.asarray(desired_goal)) & self.ends_at_goal

    def _seen(self) -> dict[str, Any]:
        return {"observation": self.state.copy(), ACHIEVED: self.state.copy(), DESIRED: self.goal.copy()}

    def draw(self) -> Any:
        """A random state."""
        raise NotImplementedError

    def moved(self, action: Any) -> Any:
        """The state after an action."""
        raise NotImplementedError

    def reached(self, achieved: Any, desired: Any) -> Any:
        raise NotImplementedError


class BitFlipProbe(_GoalProbe):
    """An action flips one of `bits` bits; the goal is a setting of all of them (arXiv:1707.01495, section 3.1).

    Every step pays -1, except the one that reaches the goal and ends the episode. A time limit of `bits` steps ends the
    others. With 15 bits, a policy that does not know the goal reaches one of 32,768 states by chance: without hindsight
    there is nothing to learn from.
    """

    def __init__(self, bits: int = 15) -> None:
        self.length = bits
        self.goal_space = gym.spaces.MultiBinary(bits)
        self.action_space = gym.spaces.Discrete(bits)
        self._set_up()

    def draw(self) -> Any:
        return self.np_random.integers(2, size=self.length, dtype=np.int8)

    def moved(self, action: Any) -> Any:
        state = self.state.copy()
        state[action] = 1 - state[action]
        return state

    def reached(self, achieved: Any, desired: Any) -> Any:
        return (achieved == desired).all(axis=-1)


class PointGoalProbe(_GoalProbe):
    """A point in a square moves by at most 0.1 per step and coordinate; the goal is another point, to within 0.1.

    Like the tasks of gymnasium-robotics, an episode always has `length` steps: the goal must be held.
    """

    ends_at_goal = False

    def __init__(self, length: int = 30) -> None:
        self.length = length
        self.goal_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._set_up()

    def draw(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def moved(self, action: Any) -> Any:
        return np.clip(self.state + np.float32(0.1) * np.asarray(action, np.float32), -1.0, 1.0)

    def reached(self, achieved: Any, desired: Any) -> Any:
        return np.linalg.norm(achieved - desired, axis=-1) <= 0.1


class DeepSeaProbe(gym.Env[Any, Any]):
    """Dive to the far corner of a grid: bsuite's deep sea, in which only one of 2^size sequences of actions pays.

    An episode has `size` steps. Each goes one row down and one column to the left or to the right. Which action means
    right differs from cell to cell, by a table that depends on `layout` alone. A step to the right costs 0.01 / size;
    the one out of the last column of the last row also pays 1. So the best return is 0.99, and a policy that is not
    looking for anything learns to go left. An observation is one-hot in the cell, and all zero at the bottom.
    """

    def __init__(self, size: int = 20, layout: int = 42) -> None:
        if size < 2:
            raise ValueError(f"size must be at least 2, got {size}")
        self.size = size
        self.observation_space = gym.spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.right_actions = np.random.default_rng(layout).integers(2, size=(size, size))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.row = self.column = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, last = 0.0, self.size - 1
        if int(action) == self.right_actions[self.row, self.column]:
            reward = float(self.row == last and self.column == last) - 0.01 / self.size
            self.column = min(self.column + 1, last)
        else:
            self.column = max(self.column - 1, 0)
        self.row += 1
        return self._seen(), reward, self.row == self.size, False, {}

    def _seen(self) -> np.ndarray:
        cells = np.zeros((self.size, self.size), np.float32)
        if self.row < self.size:
            cells[self.row, self.column] = 1.0
        return cells.reshape(-1)


class DotProbe(gym.Env[Any, Any]):
    """Point at a dot in an image: a continuous action that only pixels can tell.

    An image of `side` x `side` pixels shows a bright dot. The action in [-1, 1] names its column, from the left to the
    right edge, and a step pays minus the squared distance. Then the dot jumps. Episodes have `length` steps. The best
    return is 0; an action that does not depend on the image gets about `-length / 3` at most.
    """

    def __init__(self, side: int = 16, length: int = 10) -> None:
        self.side, self.length = side, length
        self.observation_space = gym.spaces.Box(0, 255, (1, side, side), np.uint8)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return self._jumped(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        reward = -((float(action[0]) - self.place) ** 2)
        return self._jumped(), reward, False, self.elapsed >= self.length, {}

    def _jumped(self) -> np.ndarray:
        row, column = self.np_random.integers(0, self.side - 1, size=2)
        self.place = 2.0 * column / (self.side - 2) - 1.0
        image = np.zeros((1, self.side, self.side), np.uint8)
        image[0, row : row + 2, column : column + 2] = 255
        return image


class PendulumPixelsProbe(gym.Env[Any, Any]):
    """Gymnasium's Pendulum-v1, seen through a camera: only pixels, and speed only in how the rod moves.

    An observation is the two newest pictures of `side` x `side` pixels, drawn from the angle. Dynamics, rewards and the
    200 steps of an episode are those of Pendulum-v1: the best return is about -140, a policy that does not swing up has
    -1000 and less.
    """

    def __init__(self, side: int = 36, length: int = 200) -> None:
        self.pendulum: Any = gym.make("Pendulum-v1").unwrapped
        self.side, self.length = side, length
        self.observation_space = gym.spaces.Box(0, 255, (2, side, side), np.uint8)
        self.action_space = self.pendulum.action_space
        places = np.linspace(-1.2, 1.2, side)
        self.columns, self.rows = np.meshgrid(places, -places)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.pendulum.reset(seed=seed)
        self.elapsed, self.pictures = 0, [self._picture()] * 2
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        _, reward, _, _, _ = self.pendulum.step(action)
        self.elapsed += 1
        self.pictures = [self.pictures[-1], self._picture()]
        return self._seen(), float(reward), False, self.elapsed >= self.length, {}

    def _picture(self) -> np.ndarray:
        """A rod from the center, as bright as a pixel is close to it."""
        angle = self.pendulum.state[0]
        right, up = -np.sin(angle), np.cos(angle)
        along = np.clip(self.columns * right + self.rows * up, 0.0, 1.0)
        distance = np.hypot(self.columns - along * right, self.rows - along * up)
        picture: np.ndarray = (255 * np.clip(1.5 - distance / 0.1, 0.0, 1.0)).astype(np.uint8)
        return picture

    def _seen(self) -> np.ndarray:
        return np.stack(self.pictures)
