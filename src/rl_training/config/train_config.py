"""The settings of one training run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import PydanticCustomError

from rl_training.config.algorithm_table import get_config_class
from rl_training.config.base import AlgorithmConfig, NonNegativeInteger, StrictModel
from rl_training.config.evaluation_protocol import LONGEST_EPISODE, MOST_EPISODES
from rl_training.config.hook_settings import (
    MOST_CALLBACKS,
    MOST_INFO_NAMES,
    MOST_WRAPPERS,
    checked_callbacks,
    checked_info_names,
    checked_wrappers,
)
from rl_training.config.messages import as_config_error
from rl_training.config.model_config import ModelConfig as ModelConfig
from rl_training.config.pixels import pixel_options
from rl_training.config.runtime_settings import RuntimeConfig
from rl_training.config.sink_settings import MOST_SINKS, checked_sinks
from rl_training.errors import ConfigError
from rl_training.telemetry.sink_entries import sinks_of

MOST_ENV_PROCESSES = 1024
# More threads than a machine has cores are of no use, and 100,000 of them end the process without a message.
ThreadCount = Annotated[int, Field(ge=1, le=1024)]


class TrainConfig(StrictModel):
    """All settings of one run. Environment steps are counted over all environments together."""

    algo: str = Field(description="Name of the algorithm, such as ppo.")
    env_id: str = Field(
        min_length=1,
        max_length=500,
        description="Gymnasium id of the environment, or module:EnvId for your own environment.",
    )
    defaults: Literal["fixed", "env"] = Field(
        "fixed",
        description="Values of settings that are not given: the listed ones (fixed), or by kind of env (env).",
    )
    env_kwargs: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Keyword arguments of the environment; atari and image preprocess its observations.",
    )
    eval_env_kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keyword arguments that override env_kwargs in evaluation and play."
    )
    wrappers: tuple[str | dict[str, JsonValue], ...] = Field(
        (),
        max_length=MOST_WRAPPERS,
        description="Wrappers of every environment, innermost first: module:Class, or a mapping with the key wrapper.",
    )
    vector_backend: Literal["auto", "native", "batched", "sync", "async", "envpool"] = Field(
        "auto", description="How to step several environments; async runs each one in a supervised process."
    )
    env_timeout: float = Field(
        60.0,
        gt=0,
        le=1_000_000,
        description="Seconds that an async environment may take per step or reset before it is restarted.",
    )
    action_bound: float | None = Field(
        None, gt=0, description="Plus or minus this number bounds Box actions where the environment has no bound."
    )
    seed: int = Field(0, ge=0, description="Seed of every random choice in the run.")
    total_timesteps: int = Field(100_000, ge=1, description="Environment steps of the whole run.")
    num_envs: int = Field(1, ge=1, le=65_536, description="Number of environments to step in parallel.")
    device: str = Field(
        "cpu",
        pattern=r"^(cpu|cuda|cuda:\d{1,3}|mps|auto)$",
        description="Device of the networks: cpu, cuda, one of several as cuda:1, mps, or auto: cuda if there is one.",
    )
    threads: Literal["auto"] | ThreadCount = Field(
        "auto", description="CPU threads of the learner; auto depends on the size of networks and batches."
    )
    compile: Literal["auto", "on", "off"] = Field(
        "auto", description="Compile the gradient step for speed, at the cost of some seconds; auto if it pays off."
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "float32",
        description="Products of convolutions and wide layers in an update; auto is bfloat16 if it is faster here.",
    )
    output_dir: str = Field("runs", min_length=1, description="Directory that contains the run directories.")
    # A name with a leading dot or dash could be a hidden directory, the parent directory or a command-line option.
    run_name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$",
        description="Name of the run directory; null generates one.",
    )
    log_every: int = Field(1000, ge=1, description="Environment steps between metric lines.")
    eval_every: int = Field(0, ge=0, description="Environment steps between evaluations; 0 evaluates only at the end.")
    eval_episodes: int = Field(10, ge=1, le=MOST_EPISODES, description="Episodes per evaluation.")
    eval_max_steps: int = Field(
        LONGEST_EPISODE,
        ge=1,
        description="Steps after which an evaluation episode is cut; it then counts with its return so far.",
    )
    log_info: tuple[str, ...] = Field(
        (),
        max_length=MOST_INFO_NAMES,
        description="Numbers in the last info of an episode to log as info_<name>; is_success is always logged.",
    )
    stop_at_return: float | None = Field(
        None,
        description="Stop when an evaluation during training has this mean return; if eval_every is 0, 20 are made.",
    )
    patience: int = Field(
        0,
        ge=0,
        description="Stop after this many evaluations without a better one; if eval_every is 0, 20 are made; 0 is off.",
    )
    record_every: int = Field(
        0, ge=0, description="Environment steps between GIFs of an episode in videos/; 0 disables them."
    )
    callbacks: tuple[str | dict[str, JsonValue], ...] = Field(
        (),
        max_length=MOST_CALLBACKS,
        description="Callbacks of your own as module:Class, or {callback: module:Class, and its keyword arguments}.",
    )
    checkpoint_every: Literal["auto"] | NonNegativeInteger = Field(
        "auto",
        description="Environment steps between checkpoints; auto depends on the kind of run, 0 saves at start and end.",
    )
    keep_checkpoints: int = Field(2, ge=1, description="Number of recent checkpoints to keep.")
    sinks: tuple[str | dict[str, JsonValue], ...] = Field(
        (),
        max_length=MOST_SINKS,
        description="Also log to tensorboard, wandb, mlflow, trackio or your own sink; options: {sink: NAME, ...}.",
    )
    tensorboard: bool = Field(False, description="Also write TensorBoard event files; the same as a sink tensorboard.")
    wandb_project: str | None = Field(
        None, min_length=1, description="Weights & Biases project to log to; the same as {sink: wandb, project: ...}."
    )
    runtime: RuntimeConfig = Field(
        default_factory=RuntimeConfig, description="Who steps the environments: the learner's process, or actors."
    )
    model: ModelConfig = Field(default_factory=ModelConfig, description="Settings of the networks.")
    # Dump the fields of the subclass, not only those of the annotated base class.
    algo_kwargs: SerializeAsAny[AlgorithmConfig] = Field(
        default_factory=dict, validate_default=True, description="Settings of the algorithm."
    )

    @field_validator("log_info", mode="before")
    @classmethod
    def _names_of_numbers(cls, value: Any) -> Any:
        return checked_info_names(value)

    @field_validator("callbacks", mode="before")
    @classmethod
    def _names_of_classes(cls, value: Any) -> Any:
        return checked_callbacks(value)

    @field_validator("sinks", mode="before")
    @classmethod
    def _names_of_sinks(cls, value: Any) -> Any:
        return checked_sinks(value)

    @field_validator("wrappers", mode="before")
    @classmethod
    def _wrapper_entries(cls, value: Any) -> Any:
        return checked_wrappers(value)

    @field_validator("algo_kwargs", mode="before")
    @classmethod
    def _by_algorithm(cls, value: Any, info: ValidationInfo) -> AlgorithmConfig:
        if "algo" not in info.data:
            raise PydanticCustomError("no_algo", "needs a valid algo to be checked")
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
        config._check_env_processes()
        sinks_of(config)
        if config.defaults == "fixed":  # otherwise the other values are not known yet
            config.algo_kwargs.check(config)
            config.model.check(config.algo_kwargs.separate_critic, config.algo)
            config.runtime.check(config)
        return config

    @model_serializer(mode="wrap")
    def _only_what_is_known(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A complete config needs no word about its defaults. Of another one, only the given settings are known."""
        dumped: dict[str, Any] = serialize(self)
        if self.defaults == "fixed":
            return {name: value for name, value in dumped.items() if name != "defaults"}
        given = {name: value for name, value in dumped.items() if name in self.model_fields_set}
        for section in ("runtime", "model", "algo_kwargs"):
            if section in given:
                names = getattr(self, section).model_fields_set
                given[section] = {name: value for name, value in given[section].items() if name in names}
        return given

    def _check_env_processes(self) -> None:
        if self.vector_backend == "async" and self.num_envs > MOST_ENV_PROCESSES:
            raise ConfigError(
                f"num_envs: {self.num_envs} environments need a process each with vector_backend async, which allows "
                f"at most {MOST_ENV_PROCESSES:,}; use fewer, or another vector_backend",
                key="num_envs",
            )

    @property
    def stops_by_evaluation(self) -> bool:
        """Whether a setting ends the run after an evaluation."""
        return self.stop_at_return is not None or self.patience > 0

    @property
    def training_kwargs(self) -> dict[str, JsonValue]:
        """The keyword arguments of the training environments, with the wrappers."""
        return self.env_kwargs | self._wrapping

    @property
    def evaluation_kwargs(self) -> dict[str, JsonValue]:
        """The keyword arguments of evaluation and play. A key of `eval_env_kwargs` replaces the whole value."""
        return self.env_kwargs | self._wrapping | self.eval_env_kwargs

    @property
    def _wrapping(self) -> dict[str, JsonValue]:
        return {"wrappers": list(self.wrappers)} if self.wrappers else {}
