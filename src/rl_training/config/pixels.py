"""Settings of image observations: what `env_kwargs.atari` and `env_kwargs.image` may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from rl_training.config.base import PositiveInteger, StrictModel
from rl_training.config.messages import describe_field, printable
from rl_training.errors import ConfigError

PIXEL_KEYS = ("atari", "image")


class AtariOptions(StrictModel):
    """The protocol of an Atari run. Results are comparable only where all of it agrees."""

    sticky_actions: float | None = Field(
        None, ge=0, lt=1, description="Chance that the last action is repeated; null is the id's own (v5 0.25, v4 0)."
    )
    frame_skip: int = Field(4, ge=1, description="Emulator frames per env step.")
    stack: int = Field(4, ge=1, description="Newest frames that make one observation.")
    noop_max: int = Field(30, ge=0, description="Random number of idle frames at the start of a game, below this.")
    fire_reset: bool = Field(True, description="Press FIRE at the start of a game, where there is such an action.")
    episodic_life: bool = Field(False, description="In training a lost life ends the episode; never in evaluation.")
    full_action_space: bool = Field(False, description="All 18 actions, not only those the game uses.")
    image_size: PositiveInteger | tuple[PositiveInteger, PositiveInteger] = Field(
        84, description="Side of the square image, or its [height, width]."
    )
    color: bool = Field(False, description="Three channels per frame instead of one.")
    max_frames: int = Field(108_000, ge=1, description="Emulator frames after which a game is cut off.")

    @property
    def height_and_width(self) -> tuple[int, int]:
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size


class ImageOptions(StrictModel):
    """What is done to the images of any env that shows uint8 ones, in this order."""

    grayscale: bool = Field(False, description="One channel of brightness instead of three.")
    resize: PositiveInteger | tuple[PositiveInteger, PositiveInteger] | None = Field(
        None, description="Side of the square image, or its [height, width]; null leaves it."
    )
    channel_first: bool = Field(True, description="Images as (channels, height, width), which the encoders take.")
    stack: int = Field(1, ge=1, description="Newest images that make one observation.")

    @property
    def height_and_width(self) -> tuple[int, int] | None:
        return (self.resize, self.resize) if isinstance(self.resize, int) else self.resize


Options = TypeVar("Options", AtariOptions, ImageOptions)


def pixel_options(env_kwargs: Mapping[str, Any]) -> AtariOptions | ImageOptions | None:
    """What the env's keywords ask for; null when they ask for nothing, and then nothing is done to observations."""
    atari = _validated(AtariOptions, "atari", env_kwargs.get("atari", False))
    image = _validated(ImageOptions, "image", env_kwargs.get("image", False))
    if atari is not None and image is not None:
        raise ConfigError("env_kwargs.image: env_kwargs.atari does all of it already, leave one out", key="env_kwargs")
    return atari or image


def kept_for_another_env(env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Another id does not know the keywords of the old one, but its images are prepared alike."""
    return {name: value for name, value in env_kwargs.items() if name in PIXEL_KEYS}


def frame_stack(env_kwargs: Mapping[str, Any]) -> int:
    """How many frames an observation is made of, as far as the settings say."""
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
            text = f"unknown key, {key} takes {', '.join(kind.model_fields)}"
        else:
            text = f"{printable(problem['input'])} is not valid, expected {describe_field(kind.model_fields[field])}"
        raise ConfigError(f"{key}.{printable(field, quoted=False)}: {text}", key=f"{key}.{field}") from None
