"""Settings of image observations: the keys of `env_kwargs.atari` and `env_kwargs.image`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from rl_training.config.base import StrictModel
from rl_training.config.messages import describe_field, printable
from rl_training.errors import ConfigError

PIXEL_KEYS = ("atari", "image")


ImageSide = Annotated[int, Field(ge=1, le=4096)]


class AtariOptions(StrictModel):
    """The protocol of an Atari run. Results are comparable only if all of these settings are equal."""

    sticky_actions: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Probability of repeating the last action; null is the id's default (v5 0.25, v4 0).",
    )
    frame_skip: int = Field(4, ge=1, le=1000, description="Emulator frames per environment step.")
    stack: int = Field(4, ge=1, le=100, description="Number of recent frames in one observation.")
    noop_max: int = Field(30, ge=0, le=10_000, description="Upper limit on random no-op frames at the start of a game.")
    fire_reset: bool = Field(True, description="Press FIRE at the start of a game, if the game has that action.")
    episodic_life: bool = Field(False, description="End the episode when a life is lost, in training only.")
    full_action_space: bool = Field(False, description="Offer all 18 actions instead of only those that the game uses.")
    image_size: ImageSide | tuple[ImageSide, ImageSide] = Field(
        84, description="Side of the square image, or [height, width]."
    )
    color: bool = Field(False, description="Keep three color channels per frame instead of one gray channel.")
    max_frames: int = Field(108_000, ge=1, description="Emulator frames after which a game is truncated.")

    @property
    def height_and_width(self) -> tuple[int, int]:
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size


class ImageOptions(StrictModel):
    """Preprocessing of uint8 image observations, applied in this order."""

    grayscale: bool = Field(False, description="Convert images to one gray channel.")
    resize: ImageSide | tuple[ImageSide, ImageSide] | None = Field(
        None, description="Side of the square image, or [height, width]; null keeps the size."
    )
    channel_first: bool = Field(True, description="Order images as (channels, height, width), as the encoders expect.")
    stack: int = Field(1, ge=1, le=100, description="Number of recent images in one observation.")

    @property
    def height_and_width(self) -> tuple[int, int] | None:
        return (self.resize, self.resize) if isinstance(self.resize, int) else self.resize


Options = TypeVar("Options", AtariOptions, ImageOptions)


def pixel_options(env_kwargs: Mapping[str, Any]) -> AtariOptions | ImageOptions | None:
    """The preprocessing that `env_kwargs` requests; None if observations stay as they are."""
    atari = _validated(AtariOptions, "atari", env_kwargs.get("atari", False))
    image = _validated(ImageOptions, "image", env_kwargs.get("image", False))
    if atari is not None and image is not None:
        raise ConfigError(
            "env_kwargs.image: env_kwargs.atari includes this preprocessing; remove one of the two", key="env_kwargs"
        )
    return atari or image


def kept_for_another_env(env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments to keep when the environment id changes: those that this library handles itself."""
    return {name: value for name, value in env_kwargs.items() if name in (*PIXEL_KEYS, "action_masks", "wrappers")}


def frame_stack(env_kwargs: Mapping[str, Any]) -> int:
    """The number of frames that the settings stack into one observation."""
    options = pixel_options(env_kwargs)
    return 1 if options is None else options.stack


def _validated(kind: type[Options], name: str, value: Any) -> Options | None:
    if value is False:
        return None
    if value is True:
        return kind()
    key = f"env_kwargs.{name}"
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key}: {printable(value)} is not valid, expected true or a mapping of settings", key=key)
    try:
        return kind.model_validate(dict(value))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        field = str(problem["loc"][0])
        if field not in kind.model_fields:
            text = f"unknown key, {key} accepts {', '.join(kind.model_fields)}"
        else:
            text = f"{printable(problem['input'])} is not valid, expected {describe_field(kind.model_fields[field])}"
        raise ConfigError(f"{key}.{printable(field, quoted=False)}: {text}", key=f"{key}.{field}") from None
