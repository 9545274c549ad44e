"""The settings of the networks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rl_training.config.base import LayerSize, StrictModel
from rl_training.config.own_classes import is_class_name, name_of_class
from rl_training.errors import ConfigError

Activation = Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu", "mish"]
Blocks = Literal["mlp", "simba"]
ENCODERS = ("auto", "mlp", "nature", "impala")


def with_new_names(model: Any) -> Any:
    """Settings of the networks in which `orthogonal_init` of older versions has its new name, `initialization`."""
    if not isinstance(model, dict) or not isinstance(model.get("orthogonal_init"), bool):
        return model
    if "initialization" in model:
        raise ConfigError(
            "model.orthogonal_init: is the old name of model.initialization, which is given too; remove one of them",
            key="model.orthogonal_init",
        )
    renamed = {name: value for name, value in model.items() if name != "orthogonal_init"}
    return renamed | {"initialization": "orthogonal" if model["orthogonal_init"] else "torch"}


class CriticConfig(StrictModel):
    """The settings of a critic's network that differ from those of the actor. Null means the same as the actor."""

    hidden_sizes: tuple[LayerSize, ...] | None = Field(
        None, max_length=100, description="Width of each hidden layer of the critic; null means that of the actor."
    )
    activation: Activation | None = Field(
        None, description="Activation function of the critic; null means that of the actor."
    )
    layer_norm: bool | None = Field(
        None, description="Layer norm before each activation of the critic; null means as in the actor."
    )
    blocks: Blocks | None = Field(None, description="Kind of hidden layers of the critic; null means as in the actor.")


class ModelConfig(StrictModel):
    """The settings of the networks."""

    hidden_sizes: tuple[LayerSize, ...] = Field(
        (64, 64), max_length=100, description="Width of each hidden layer, after the encoder if there is one."
    )
    activation: Activation = Field("tanh", description="Activation function of the hidden layers.")
    layer_norm: bool = Field(False, description="Layer norm before each activation of the hidden layers.")
    blocks: Blocks = Field(
        "mlp", description="Kind of hidden layers: linear layers (mlp), or residual blocks with layer norm (simba)."
    )
    critic: CriticConfig | None = Field(
        None, description="Settings of the critic where they differ from those above; null means the same."
    )
    encoder: str = Field(
        "auto",
        description="Network that encodes observations: auto, mlp, nature, impala, or your own as module:Class.",
    )
    encoder_kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keyword arguments of an encoder of your own."
    )
    encoder_size: LayerSize | None = Field(
        None, description="Output size of an image encoder; null means 512 for nature and 256 for impala."
    )
    normalize_observations: bool = Field(
        False, description="Normalize observations by their running mean and standard deviation."
    )
    observation_clip: float = Field(10.0, gt=0, description="Clip normalized observations to plus or minus this value.")
    initialization: Literal["orthogonal", "torch", "xavier", "kaiming"] = Field(
        "orthogonal", description="First weights; biases are zero. torch leaves both as PyTorch initializes them."
    )
    initial_log_std: float = Field(0.0, description="Initial logarithm of a Gaussian policy's standard deviation.")

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, value: Any) -> Any:
        return with_new_names(value)

    @field_validator("encoder", mode="before")
    @classmethod
    def _name_of_encoder(cls, value: Any) -> Any:
        if isinstance(value, type):  # handed over in Python
            return name_of_class(value)
        if isinstance(value, str) and value not in ENCODERS and not is_class_name(value):
            raise PydanticCustomError(
                "encoder_name", "expected one of auto, mlp, nature, impala, or module:Class for an encoder of your own"
            )
        if callable(value):  # an object of the class, or a function
            raise PydanticCustomError(
                "encoder_name", "expected the class itself, whose arguments go into model.encoder_kwargs"
            )
        return value

    @property
    def has_own_encoder(self) -> bool:
        """Whether the encoder is a class that this package does not know."""
        return self.encoder not in ENCODERS

    def for_critic(self) -> ModelConfig:
        """These settings with those of `critic` in their place."""
        own = {} if self.critic is None else {name: value for name, value in self.critic if value is not None}
        return self.model_copy(update={**own, "critic": None})

    def check(self, separate_critic: bool, algo: str) -> None:
        """Refuse blocks that the networks cannot have, and settings of a critic that does not exist."""
        if self.critic is not None and not separate_critic:
            raise ConfigError(
                f"model.critic: {algo} has one network for values and actions; set model.hidden_sizes and the others "
                "of model instead",
                key="model.critic",
            )
        if not self.has_own_encoder and self.encoder_kwargs:
            raise ConfigError(
                f"model.encoder_kwargs: {self.encoder} takes none; they are for an encoder of your own (module:Class)",
                key="model.encoder_kwargs",
            )
        if self.has_own_encoder and self.encoder_size is not None:
            raise ConfigError(
                "model.encoder_size: an encoder of your own says its size with out_features; use encoder_kwargs",
                key="model.encoder_size",
            )
        for place, config in (("model", self), ("model.critic", self.for_critic())):
            if config.blocks != "simba":
                continue
            if len(set(config.hidden_sizes)) != 1:
                raise ConfigError(
                    f"{place}.hidden_sizes: simba blocks need one width, such as [128, 128] for two blocks of 128 "
                    f"units, and these are {list(config.hidden_sizes)}",
                    key=f"{place}.hidden_sizes",
                )
            if config.layer_norm:
                raise ConfigError(
                    f"{place}.layer_norm: simba blocks have layer norm already; set {place}.layer_norm=false",
                    key=f"{place}.layer_norm",
                )
