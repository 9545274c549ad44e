"""The agent's view of an environment: one observation array, and actions on the policy's scale.

Observations: a uint8 Box with three dimensions is an image and stays as it is; everything else becomes one flat
float32 vector. Discrete parts are one-hot; Dict and Tuple are the concatenation of their parts in the order of the
space, at any depth. Values are not rescaled.

Images inside a Dict or Tuple: the agent's array has one row of bytes for each observation, so that images stay uint8.
First come the numbers of all other parts, four bytes each, then the images one after the other (`images`), then the
action mask, one byte each. `numbers_of` reads the numbers.

Action masks: the key `action_mask` of a Dict says which discrete actions are allowed. It is the last `mask_size`
columns of the agent's array, so it is stored, sampled and saved with the observation. Networks see only the columns
before it (`feature_shape`).

Actions: an agent stores integer categories counted from zero, or a flat float vector in which every bounded dimension
is in [-1, 1]. A Box dimension without two bounds is not scaled: its stored number is the action, clipped only to the
one bound that it may have. With `action_bound` it is bounded like any other, at plus or minus that number.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.envs.observation_parts import (
    ImagePart,
    ObservationPart,
    as_batch,
    flat_picture,
    is_image,
    leaves_of,
    space_text,
)
from rl_training.envs.space_json import MOST_ACTIONS, check_size, space_from_json, space_to_json
from rl_training.errors import EnvError

Array = NDArray[Any]
ActionKind = Literal["discrete", "multi_discrete", "multi_binary", "box"]
MASK_KEY = "action_mask"


class Spaces:
    """The observation and action space of ONE environment, and the conversions to and from the agent's arrays.

    `action_bound` stands in for the bounds that a Box of actions lacks. It belongs to the agent and not to the
    environment: JSON and equality leave it out.
    """

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, action_bound: float | None = None
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        # The mask of the actions comes last.
        leaves = sorted(leaves_of(observation_space, ()), key=lambda leaf: leaf[0] == (MASK_KEY,))
        self._parts = [ObservationPart(keys, space) for keys, space in leaves]
        self.images: tuple[ImagePart, ...] = ()  # images inside a Dict or Tuple
        self._whole_box = observation_space if isinstance(observation_space, gym.spaces.Box) else None
        self.observation_shape: tuple[int, ...] = (sum(part.width for part in self._parts),)
        self.observation_dtype: np.dtype[Any] = np.dtype(np.float32)
        if self._whole_box is not None and is_image(self._whole_box):
            self.observation_shape, self.observation_dtype = self._whole_box.shape, np.dtype(np.uint8)
        elif self._whole_box is None and any(part.is_image for part in self._parts):
            self._lay_out_bytes()
        if 0 in self.observation_shape:
            raise EnvError(f"observation space {space_text(observation_space)} is empty: it needs at least one number")
        self._set_up_actions(action_bound)
        self.mask_size = self._checked_mask_size()

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of what a network sees: the observation without the mask of its actions."""
        if not self.mask_size:
            return self.observation_shape
        return (self.observation_shape[0] - self.mask_size,)

    def action_masks(self, encoded: Array) -> Array | None:
        """Which actions are allowed [N, mask_size], from encoded observations; None if the env has no masks.

        The columns of several choices stand side by side, in the order of `action_sizes`.
        """
        return encoded[:, -self.mask_size :] != 0 if self.mask_size else None

    def rows_without_action(self, encoded: Array) -> Array:
        """The rows of encoded observations, which have masks, in which a choice has no allowed action."""
        masks = encoded[:, -self.mask_size :] != 0
        if len(self.action_sizes) == 1:
            return np.flatnonzero(~masks.any(1))
        return np.flatnonzero(~np.logical_or.reduceat(masks, self.choice_starts, axis=1).all(1))

    @property
    def choice_starts(self) -> Array:
        """The column of a mask where each choice begins."""
        return np.cumsum((0, *self.action_sizes[:-1]))

    def columns_of(self, key: str) -> slice:
        """The columns of the encoded observation that a key of the Dict fills."""
        start = 0
        for part in self._parts:
            if part.keys == (key,):
                return slice(start, start + part.width)
            start += part.width
        raise KeyError(key)

    def encode(self, observations: Any) -> Array:
        """The agent's array [N, *observation_shape] for the output of a VectorEnv, or for a list of samples.

        The result may share memory with the input: copy it before the env writes there again.
        """
        if self._whole_box is not None:
            if self._is_encoded(observations):
                as_given: Array = observations
                return as_given
            array = as_batch(observations, self._whole_box.shape, "observation")
            array = array.reshape(len(array), *self.observation_shape)
            return array.astype(self.observation_dtype, copy=False)
        batches = [part.pull(observations, self.observation_space) for part in self._parts]
        encoded = np.zeros((len(batches[0]), *self.observation_shape), self.observation_dtype)
        numbers = encoded if not self.images else np.zeros((len(encoded), self.vector_size), np.float32)
        start = 0
        for part, batch in zip(self._parts, batches, strict=True):
            if len(batch) != len(encoded):
                raise EnvError(
                    f"{part.name} has {len(batch)} samples but {self._parts[0].name} has {len(encoded)}: "
                    "batch all parts alike"
                )
            if self.images and part.keys in self._byte_places:
                first, last = self._byte_places[part.keys]
                part.write(batch if part.is_image else batch != 0, encoded[:, first:last])
                continue
            part.write(batch, numbers[:, start : start + part.width])
            start += part.width
        if self.images:
            encoded[:, : 4 * self.vector_size] = numbers.view(np.uint8)
        return encoded

    def numbers_of(self, encoded: Array) -> Array:
        """What may be NaN or infinite in encoded observations: the numbers beside images, or the whole array."""
        if not self.images:
            return encoded
        numbers: Array = np.ascontiguousarray(encoded[:, : 4 * self.vector_size]).view(np.float32)
        return numbers

    def flat_pictures(self) -> list[str]:
        """What looks like a picture but is read as numbers: one sentence each, with the way to make it an image."""
        found = []
        for keys, space in leaves_of(self.observation_space, ()):
            if (advice := flat_picture(space)) is not None:
                seen = f"{ObservationPart(keys, space).name} {space.shape} of {space.dtype}"
                found.append(f"{seen} is read as numbers, without a CNN; to make it an image, {advice}")
        return found

    @property
    def vector_size(self) -> int:
        """The numbers of an observation that a network sees, beside its images."""
        return sum(part.width for part in self._parts if not part.is_image and part.keys != (MASK_KEY,))

    def _lay_out_bytes(self) -> None:
        """Give images and the action mask their places in rows of bytes."""
        place, images = 4 * self.vector_size, []
        self._byte_places: dict[tuple[Any, ...], tuple[int, int]] = {}
        for part in self._parts:
            if part.is_image or part.keys == (MASK_KEY,):
                self._byte_places[part.keys] = (place, place + part.width)
                if part.is_image:
                    images.append(ImagePart(part.keys, part.name, part.shape, place, place + part.width))
                place += part.width
        self.images, self.observation_shape, self.observation_dtype = tuple(images), (place,), np.dtype(np.uint8)

    def parts(self) -> list[tuple[tuple[Any, ...], tuple[int, ...], slice, bool]]:
        """(keys, shape, columns, is image) of what a network sees of a Dict or Tuple: the columns of numbers count
        numbers, those of images count bytes. A Discrete part has the shape of its one-hot code.
        """
        found, start = [], 0
        for part in self._parts:
            if part.keys == (MASK_KEY,):
                continue
            if self.images and part.is_image:
                found.append((part.keys, part.shape, slice(*self._byte_places[part.keys]), True))
                continue
            shape = part.shape if part.sizes is None else (part.width,)
            found.append((part.keys, shape, slice(start, start + part.width), False))
            start += part.width
        return found

    def _is_encoded(self, observations: Any) -> bool:
        """Whether the observations of a Box already have the agent's form: true for most envs, in every step."""
        if type(observations) is not np.ndarray or observations.dtype != self.observation_dtype:
            return False
        assert self._whole_box is not None
        return bool(observations.shape[1:] == self.observation_shape == self._whole_box.shape)

    def encode_one(self, observation: Any) -> Array:
        """The agent's array for a single observation, shape `observation_shape`."""
        encoded: Array = self.encode([observation])[0]
        return encoded

    def is_batched(self, observations: Any) -> bool:
        """Whether these are many observations rather than one. Anything else raises EnvError."""
        answers = {part.is_batched(observations, self.observation_space) for part in self._parts}
        if len(answers) > 1:
            raise EnvError("only some parts of the observation are batched: pass one or N of each part")
        return answers.pop()

    def to_env_actions(self, actions: Any) -> Array:
        """The input of `vector_env.step` for stored actions [N, *action_shape]; a Box is clipped to its bounds."""
        stored = np.asarray(actions)
        if self._stored_as_env_actions and stored.shape[1:] == self.action_shape and stored.dtype == self._action_dtype:
            return stored
        stored = stored.reshape(len(stored), *self.action_shape)
        if self.action_kind == "box":
            # minimum and maximum are np.clip without its overhead, which matters in every step of a small env.
            # An action beyond a bound must be the one at the bound, which rounding may leave just inside of it.
            inside = np.minimum(np.maximum(stored, self._lowest_stored), self._highest_stored)
            # The second pair corrects rounding beyond the bounds.
            env_actions = np.minimum(np.maximum(inside * self._half_range + self._center, self._low), self._high)
        else:
            env_actions = stored + self._first_category if self._shifted else stored
        shaped: Array = env_actions.reshape(len(env_actions), *self._env_action_shape)
        return shaped.astype(self._action_dtype, copy=False)

    @property
    def action_bounds(self) -> list[Array]:
        """What `to_env_actions` needs of a Box: stored bounds, scale and bounds of the env; else empty."""
        if self.action_kind != "box":
            return []
        stored = [self._lowest_stored, self._highest_stored]
        return [*stored, self._half_range, self._center, self._low, self._high]

    @property
    def row_bytes(self) -> int:
        """The least memory of one stored step: an observation, an action and four more numbers."""
        numbers = math.prod(self.observation_shape)
        return numbers * self.observation_dtype.itemsize + 4 * self.action_dim + 16

    def to_json(self) -> dict[str, Any]:
        """Both spaces as plain JSON values; EnvError for spaces that `from_json` would refuse as too large."""
        observation, action = space_to_json(self.observation_space), space_to_json(self.action_space)
        try:
            check_size(observation)
            check_size(action, most_numbers=MOST_ACTIONS)
        except ValueError as error:
            raise EnvError(f"{error}: wrap the env so that it has fewer numbers") from None
        return {"observation": observation, "action": action}

    @classmethod
    def from_json(cls, document: Any, *, action_bound: float | None = None) -> Spaces:
        """The spaces of a `to_json` document; anything else raises ValueError."""
        if not isinstance(document, dict) or set(document) != {"observation", "action"}:
            raise ValueError("spaces must be an object with the keys 'observation' and 'action'")
        try:
            observation = space_from_json(document["observation"])
            action = space_from_json(document["action"], most_numbers=MOST_ACTIONS)
            return cls(observation, action, action_bound=action_bound)
        except EnvError as error:
            raise ValueError(str(error)) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spaces) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Spaces({self.observation_space}, {self.action_space})"

    def _set_up_actions(self, action_bound: float | None) -> None:
        space = self.action_space
        self.action_kind: ActionKind
        self.action_sizes: tuple[int, ...] = ()
        self.unbounded_actions: list[str] = []  # such as "action[1] (0.0 to inf)"
        self._first_category: Any = 0
        if isinstance(space, gym.spaces.Discrete):
            self.action_kind, self.action_sizes = "discrete", (int(space.n),)
            self._first_category = int(space.start)
        elif isinstance(space, gym.spaces.MultiDiscrete):
            self.action_kind, self.action_sizes = "multi_discrete", tuple(int(n) for n in space.nvec.flat)
            self._first_category = space.start.ravel()
        elif isinstance(space, gym.spaces.MultiBinary):
            self.action_kind, self.action_sizes = "multi_binary", (2,) * math.prod(space.shape)
        elif isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
            self.action_kind = "box"
            self._set_up_scaling(space, action_bound)
        else:
            raise EnvError(
                f"action space {space_text(space)} is not supported: wrap the env so that it has Discrete, "
                "MultiDiscrete, MultiBinary or a Box of floats"
            )
        self._env_action_shape: tuple[int, ...] = space.shape or ()
        self._action_dtype = space.dtype
        self._shifted = bool(np.any(self._first_category))
        self._stored_as_env_actions = self.action_kind == "discrete" and not self._shifted
        self.action_dim = len(self.action_sizes)
        if self.action_kind == "box":
            self.action_dim = math.prod(self._env_action_shape)
        self.action_shape: tuple[int, ...] = () if self.action_kind == "discrete" else (self.action_dim,)
        if self.action_dim == 0:
            raise EnvError(f"action space {space_text(space)} is empty: it needs at least one action")

    def _checked_mask_size(self) -> int:
        """The columns of the mask, 0 without one; EnvError if it does not fit the actions."""
        part = self._parts[-1]
        if part.keys != (MASK_KEY,):
            return 0
        way_out = "rename the key, or leave it out with env_kwargs.action_masks=off"
        if self.action_kind == "box":
            raise EnvError(
                f"{part.name} needs discrete actions, but the env has {space_text(self.action_space)}: {way_out}"
            )
        if part.width != sum(self.action_sizes) or part.sizes is not None:
            raise EnvError(
                f"{part.name} has {part.width} entries, but the action space {space_text(self.action_space)} needs a "
                f"MultiBinary or Box of {sum(self.action_sizes)}: correct it, or {way_out}"
            )
        if len(self._parts) == 1:
            raise EnvError(f"the observation is only {part.name}: add the key of what the agent sees")
        return part.width

    def _set_up_scaling(self, space: gym.spaces.Box, action_bound: float | None) -> None:
        self._low = space.low.astype(np.float64).ravel()
        self._high = space.high.astype(np.float64).ravel()
        bounded = np.isfinite(self._low) & np.isfinite(self._high)
        if action_bound is not None and not bounded.all():
            self._bound_actions(action_bound, space)
            bounded[:] = True
        self.unbounded_actions = [self._action_text(space, index) for index in np.flatnonzero(~bounded)]
        low, high = (np.where(bounded, bound, 0.0) for bound in (self._low, self._high))
        # Halved before adding: the sum of two bounds near the largest float would overflow.
        self._center = low / 2 + high / 2
        self._half_range = np.where(bounded, high / 2 - low / 2, 1.0)
        # A dimension without two bounds is not scaled, but the one bound it may have still applies.
        self._lowest_stored = np.where(bounded, -1.0, self._low)
        self._highest_stored = np.where(bounded, 1.0, self._high)

    def _bound_actions(self, bound: float, space: gym.spaces.Box) -> None:
        """Put plus or minus `bound` in place of infinite bounds."""
        self._low = np.where(np.isfinite(self._low), self._low, -bound)
        self._high = np.where(np.isfinite(self._high), self._high, bound)
        dtype: Any = space.dtype
        if bound > float(np.finfo(dtype).max):
            raise EnvError(f"action_bound: {bound} is too large for actions of type {dtype}: use a smaller one")
        for index in np.flatnonzero(self._low >= self._high):
            if not np.isfinite(space.low.flat[index]) or not np.isfinite(space.high.flat[index]):
                raise EnvError(
                    f"action_bound: {bound} leaves nothing of {self._action_text(space, index)}: use a larger one"
                )

    @staticmethod
    def _action_text(space: gym.spaces.Box, index: Any) -> str:
        place = ", ".join(str(part) for part in np.unravel_index(index, space.shape))
        return f"action[{place}] ({space.low.flat[index]} to {space.high.flat[index]})"
