"""The strict base class of all settings, schedules, and the fields that families of algorithms share."""

from __future__ import annotations

import numbers
import re
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig

# The dot separates the two runs of digits: without it they could share the digits in many ways, which takes long.
NUMBER_TEXT = re.compile(r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
LONGEST_NUMBER_TEXT = 400
LARGEST_INTEGER = 2**63 - 1


def leaf_types(annotation: Any) -> set[Any]:
    """The plain types inside an annotation: `Literal["auto"] | int` gives {str, int}."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return leaf_types(get_args(annotation)[0])
    if origin in (Union, types.UnionType, tuple):
        return set().union(*(leaf_types(part) for part in get_args(annotation) if part is not Ellipsis))
    if origin is Literal:
        return {type(value) for value in get_args(annotation)}
    return {origin or annotation}


def _plain_number(value: Any, whole: bool) -> Any:
    """Convert numbers in text, numpy scalars and whole floats to plain numbers; return anything else unchanged."""
    if isinstance(value, (list, tuple)):
        return [_plain_number(item, whole) for item in value]
    if isinstance(value, bool):
        raise PydanticCustomError("bool_for_number", "true and false are not numbers")
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER_TEXT and NUMBER_TEXT.fullmatch(value.strip()):
        # Converting to float first would lose digits of a large integer.
        text = value.strip()
        value = int(text) if whole and re.fullmatch(r"[-+]?[\d_]{1,30}", text) else float(text)
    if isinstance(value, numbers.Integral):
        value = int(value)
    elif isinstance(value, numbers.Real):
        value = float(value)
        if whole and value.is_integer():
            value = int(value)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise PydanticCustomError("number_too_large", "the number is too large")
    return value


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys, booleans for numbers, and numbers or text for booleans."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_lookalikes(cls, value: Any, info: ValidationInfo) -> Any:
        accepted = leaf_types(cls.model_fields[str(info.field_name)].annotation)
        if bool in accepted:
            if not isinstance(value, bool) and not (value is None and type(None) in accepted):
                raise PydanticCustomError("not_bool", "expected true or false")
        elif accepted & {int, float}:
            return _plain_number(value, whole=float not in accepted)
        return value


class Schedule(StrictModel):
    """A value that changes linearly from `start` to `end` over the first `over` environment steps, then stays.

    >>> Schedule(start=1.0, end=0.0, over=100).at(25, total=1000)
    0.75
    >>> Schedule(start=1.0, end=0.0, over=0.1).at(25, total=1000)
    0.75
    """

    start: float = Field(description="Value at environment step 0.")
    end: float = Field(description="Value after `over` environment steps.")
    over: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="Environment steps from start to end; below 1 a fraction of the run; null means the whole run.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, (str, numbers.Real)):
            number = _plain_number(value, whole=False)
            if not isinstance(number, str):
                return {"start": number, "end": number}
        return value

    @model_serializer(mode="wrap")
    def _to_number(self, serialize: SerializerFunctionWrapHandler) -> Any:
        return self.start if self.is_constant else serialize(self)

    @property
    def is_constant(self) -> bool:
        return self.start == self.end

    def at(self, step: int, total: int) -> float:
        """The value at environment step `step` of a run of `total` environment steps."""
        over = total if self.over is None else self.over if self.over >= 1 else self.over * total
        # After `over` steps the value is exactly `end`; interpolation could overshoot by rounding.
        if step >= over:
            return self.end
        return self.start + (self.end - self.start) * (max(step, 0) / over)


def constant(value: float) -> Schedule:
    """A schedule that never changes."""
    return Schedule(start=value, end=value)


@dataclass(frozen=True)
class Within:
    """Bounds for both ends of a schedule."""

    low: float
    high: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, schedule: Schedule) -> Schedule:
        for value in (schedule.start, schedule.end):
            if value < self.low or (self.high is not None and value > self.high):
                raise PydanticCustomError("schedule_bounds", "the schedule leaves its bounds")
        return schedule


# Types with bounds for use in unions: a bound in Field() would also apply to the other members of the union.
PositiveInteger = Annotated[int, Field(ge=1)]
NonNegativeInteger = Annotated[int, Field(ge=0)]
LayerSize = Annotated[int, Field(ge=1, le=65_536)]
PositiveNumber = Annotated[float, Field(gt=0)]
NonNegativeSchedule = Annotated[Schedule, Within(0.0)]
UnitSchedule = Annotated[Schedule, Within(0.0, 1.0)]

# Fields whose default differs between algorithms. Their bounds and descriptions are defined once, here.
MaxGradNorm = Annotated[
    PositiveNumber | None, Field(description="Scale gradients down to at most this norm; null disables the clipping.")
]
NumSteps = Annotated[int, Field(ge=1, description="Steps per environment in each rollout.")]
GaeLambda = Annotated[
    float, Field(ge=0, le=1, description="Lambda of GAE: trades bias (0) for variance (1) in the advantages.")
]
LearningRate = Annotated[NonNegativeSchedule, Field(description="Learning rate of the optimizer.")]
UpdateEpochs = Annotated[int, Field(ge=1, description="Number of passes over each rollout.")]
NormalizeAdvantages = Annotated[
    bool, Field(description="Normalize the advantages of each minibatch to mean 0 and standard deviation 1.")
]
NormalizeRolloutAdvantages = Annotated[
    bool, Field(description="Normalize the advantages of each rollout to mean 0 and standard deviation 1.")
]
ClipRange = Annotated[
    NonNegativeSchedule,
    Field(description="How far the probability ratio may move from 1 before its gradient is clipped."),
]
AdamEpsilon = Annotated[float, Field(gt=0, description="Epsilon of Adam: keeps its denominator above zero.")]
BatchSize = Annotated[int, Field(ge=1, description="Transitions sampled from the replay buffer per gradient step.")]
TrainFrequency = Annotated[
    int, Field(ge=1, description="Environment steps between two rounds of updates, summed over all environments.")
]
NStep = Annotated[int, Field(ge=1, description="Number of rewards to sum before the bootstrapped value.")]
Tau = Annotated[
    float, Field(gt=0, le=1, description="Fraction by which target networks move to the online ones per gradient step.")
]


class AlgorithmConfig(StrictModel):
    """The settings that every algorithm has."""

    compilable: ClassVar[bool] = True  # `compile` can turn the gradient step into one function
    separate_critic: ClassVar[bool] = True  # the critic is a network of its own, with the settings `model.critic`
    pushes_gradients: ClassVar[bool] = False  # actors send gradients, one per update, instead of rollouts
    refused: ClassVar[frozenset[str]] = frozenset()  # inherited settings that must keep their defaults

    gamma: float = Field(0.99, gt=0, le=1, description="Discount factor per environment step.")
    max_grad_norm: MaxGradNorm = None
    reward_scale: float = Field(1.0, gt=0, description="Factor applied to rewards before learning.")
    reward_clip: float | None = Field(
        None, gt=0, description="Clip scaled rewards to plus or minus this value; null disables the clipping."
    )

    def check(self, train: TrainConfig) -> None:
        """Refuse values that conflict with the rest of the run's settings."""

    def without_effect(self) -> frozenset[str]:
        """The settings that change nothing together with the values of the others."""
        return frozenset()

    def why_not_compilable(self) -> str | None:
        """Why `compile` has nothing to do with these settings, as text that follows the algorithm's name, or None."""
        return None if self.compilable else "has no step to compile"


class RolloutConfig(AlgorithmConfig):
    """The settings of algorithms that learn from fresh rollouts."""

    num_steps: NumSteps
    learning_rate: LearningRate = constant(3e-4)
    max_grad_norm: MaxGradNorm = 0.5
    normalize_rewards: bool = Field(
        False, description="Divide rewards by the running standard deviation of the discounted return."
    )


class RolloutReplayConfig(RolloutConfig):
    """The settings of algorithms that learn from fresh rollouts and then from windows of older ones."""

    buffer_size: int = Field(50_000, ge=1, description="Capacity of the replay of rollouts, in transitions.")
    replay_ratio: float = Field(
        4.0, ge=0, le=1000, description="Mean number of replayed updates after each rollout (Poisson); 0 replays none."
    )
    replay_starts: int = Field(1_000, ge=0, description="Environment steps before the first replayed update.")

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        needed = self.num_steps * train.num_envs
        if self.buffer_size < needed:
            raise ConfigError(
                f"algo_kwargs.buffer_size: {self.buffer_size} must be at least num_steps * num_envs ({needed})",
                key="algo_kwargs.buffer_size",
            )


class OnPolicyConfig(RolloutConfig):
    """The settings of those among them that have a policy and a value function."""

    gae_lambda: GaeLambda = 0.95
    entropy_coef: NonNegativeSchedule = Field(
        constant(0.0), description="Weight of the entropy bonus, which encourages exploration."
    )
    value_coef: float = Field(0.5, ge=0, description="Weight of the value loss.")
    normalize_advantages: NormalizeAdvantages


class ReplayConfig(AlgorithmConfig):
    """The settings of algorithms that learn from a replay buffer."""

    buffer_size: int = Field(1_000_000, ge=1, description="Capacity of the replay buffer, in transitions.")
    batch_size: BatchSize = 256
    learning_starts: int = Field(100, ge=0, description="Environment steps with random actions before learning starts.")
    warm_up_repeat: int = Field(1, ge=1, description="How many steps to repeat each random warm-up action.")
    train_frequency: TrainFrequency = 1
    gradient_steps: Literal[-1] | PositiveInteger = Field(
        1, description="Gradient steps per round; -1 means one per environment step since the last round."
    )
    n_step: NStep = 1
    prioritized: bool = Field(
        False, description="Sample transitions in proportion to their error (prioritized replay)."
    )
    priority_exponent: float = Field(
        0.6, ge=0, le=1, description="How strongly priorities affect sampling; 0 samples uniformly."
    )
    importance_exponent: UnitSchedule = Field(
        Schedule(start=0.4, end=1.0),
        description="How far importance weights correct prioritized sampling; 1 corrects it fully.",
    )
    priority_epsilon: float = Field(
        1e-6, gt=0, description="Added to every priority, so that every transition can be sampled."
    )
    priority_floor: float = Field(
        0.0,
        ge=0,
        description="Errors below this count as this in the priorities (LAP); 0 adds priority_epsilon instead.",
    )
    priority_refresh: int = Field(
        0,
        ge=0,
        description="Updates after which new transitions get the highest priority still stored; 0 means highest ever.",
    )
    hindsight: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of sampled transitions that get a goal reached later in their episode (HER); 0 disables.",
    )
    max_grad_norm: MaxGradNorm = None

    @property
    def window(self) -> tuple[int, int] | None:
        """Steps to learn from and burn-in of the windows to replay; None replays single transitions."""
        return None

    def without_effect(self) -> frozenset[str]:
        if self.prioritized:
            return super().without_effect() | ({"priority_epsilon"} if self.priority_floor else frozenset())
        return super().without_effect() | {
            "priority_exponent",
            "importance_exponent",
            "priority_epsilon",
            "priority_floor",
            "priority_refresh",
        }

    def check(self, train: TrainConfig) -> None:
        if self.learning_starts >= train.total_timesteps:
            raise ConfigError(
                f"algo_kwargs.learning_starts: {self.learning_starts} must be below total_timesteps "
                f"({train.total_timesteps}), otherwise the run learns nothing",
                key="algo_kwargs.learning_starts",
            )
        needed = max(self.batch_size, self.n_step * train.num_envs)
        if self.buffer_size < needed:
            minimum = "batch_size" if needed == self.batch_size else "n_step * num_envs"
            raise ConfigError(
                f"algo_kwargs.buffer_size: {self.buffer_size} must be at least {minimum} ({needed})",
                key="algo_kwargs.buffer_size",
            )
