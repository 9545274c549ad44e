"""The settings of one training run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import (
    Field,
    JsonValue,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import PydanticCustomError

from rl_training.config.algorithm_table import get_config_class
from rl_training.config.base import AlgorithmConfig, PositiveInteger, StrictModel
from rl_training.config.messages import as_config_error
from rl_training.config.pixels import pixel_options
from rl_training.errors import ConfigError


class ModelConfig(StrictModel):
    """The networks."""

    hidden_sizes: tuple[PositiveInteger, ...] = Field(
        (64, 64), description="Width of each hidden layer, behind the encoder if there is one."
    )
    activation: Literal["tanh", "relu"] = Field("tanh", description="Nonlinearity after each hidden layer.")
    encoder: Literal["auto", "mlp", "nature", "impala"] = Field(
        "auto", description="What observations go through first; auto is mlp for vectors, nature for images."
    )
    encoder_size: PositiveInteger | None = Field(
        None, description="Features that an image encoder gives; null is 512 for nature, 256 for impala."
    )
    normalize_observations: bool = Field(
        False, description="Shift and scale observations by their running mean and deviation."
    )
    observation_clip: float = Field(10.0, gt=0, description="Normalised observations are clipped to this.")
    orthogonal_init: bool = Field(True, description="Start from orthogonal weights and zero biases.")
    initial_log_std: float = Field(0.0, description="Logarithm of a Gaussian policy's first deviation.")


class TrainConfig(StrictModel):
    """One run, whole. Env steps are counted over all envs together."""

    algo: str = Field(description="Name of the algorithm, such as ppo.")
    env_id: str = Field(min_length=1, description="Gymnasium id, or module:EnvId for an env of your own.")
    env_kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keywords to make the env with; atari and image prepare what it shows."
    )
    eval_env_kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keywords that evaluation and play add to env_kwargs, or have instead."
    )
    vector_backend: Literal["auto", "native", "batched", "sync", "async"] = Field(
        "auto", description="How several envs are stepped together; async is a supervised process for each."
    )
    env_timeout: float = Field(
        60.0, gt=0, description="Seconds for a step or reset of an async env, before its process is replaced."
    )
    seed: int = Field(0, ge=0, description="Every random choice of the run follows from it.")
    total_timesteps: int = Field(100_000, ge=1, description="Env steps of the whole run.")
    num_envs: int = Field(1, ge=1, description="Envs stepped side by side.")
    device: Literal["cpu", "cuda", "auto"] = Field("cpu", description="Where the networks live.")
    threads: Literal["auto"] | PositiveInteger = Field(
        "auto", description="CPU threads of the learner; auto goes by the size of the work."
    )
    compile: Literal["auto", "on", "off"] = Field(
        "auto", description="Compile the gradient step: quicker steps after seconds of compiling; auto if it pays."
    )
    output_dir: str = Field("runs", min_length=1, description="Directory that run directories are made in.")
    # A leading dot or dash would make a hidden directory, a parent directory or a command line option.
    run_name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$",
        description="Name of the run directory; null makes one up.",
    )
    log_every: int = Field(1000, ge=1, description="Env steps between two lines of metrics.")
    eval_every: int = Field(0, ge=0, description="Env steps between evaluations; 0 is only at the end.")
    eval_episodes: int = Field(10, ge=1, description="Episodes of one evaluation.")
    checkpoint_every: int = Field(0, ge=0, description="Env steps between checkpoints; 0 is only at the end.")
    keep_checkpoints: int = Field(2, ge=1, description="Newest checkpoints that are kept.")
    tensorboard: bool = Field(False, description="Write TensorBoard event files too.")
    wandb_project: str | None = Field(
        None, min_length=1, description="Weights & Biases project to log to as well; null logs nowhere else."
    )
    model: ModelConfig = Field(default_factory=ModelConfig, description="The networks.")
    # Any subclass must be dumped with its own fields, not with those of the base.
    algo_kwargs: SerializeAsAny[AlgorithmConfig] = Field(
        default_factory=dict, validate_default=True, description="The algorithm's own settings."
    )

    @field_validator("algo_kwargs", mode="before")
    @classmethod
    def _by_algorithm(cls, value: Any, info: ValidationInfo) -> AlgorithmConfig:
        if "algo" not in info.data:
            raise PydanticCustomError("no_algo", "cannot be checked without a valid algo")
        config_class = get_config_class(info.data["algo"])
        if isinstance(value, AlgorithmConfig) and type(value) is not config_class:
            raise PydanticCustomError("wrong_algorithm", "settings of another algorithm")
        return config_class.model_validate(value)

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_line(cls, value: Any, handler: ModelWrapValidatorHandler[TrainConfig]) -> TrainConfig:
        try:
            config = handler(value)
        except ValidationError as error:
            algo = value.get("algo") if isinstance(value, Mapping) else None
            raise as_config_error(error, cls, algo) from None
        pixel_options(config.env_kwargs)
        try:
            pixel_options(config.evaluation_kwargs)
        except ConfigError as error:
            raise ConfigError(f"eval_env_kwargs: {error}", key="eval_env_kwargs") from None
        config.algo_kwargs.check(config)
        return config

    @property
    def evaluation_kwargs(self) -> dict[str, JsonValue]:
        """What evaluation and play make their envs with. The overlay is shallow: a key is replaced as a whole."""
        return self.env_kwargs | self.eval_env_kwargs
