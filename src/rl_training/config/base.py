"""The strict base of all settings, schedules, and the fields that whole families of algorithms share."""

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

NUMBER_TEXT = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
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
    """Numbers written as text, numpy scalars and whole floats become plain numbers; the rest is untouched."""
    if isinstance(value, (list, tuple)):
        return [_plain_number(item, whole) for item in value]
    if isinstance(value, bool):
        raise PydanticCustomError("bool_for_number", "true and false are not numbers")
    if isinstance(value, str) and NUMBER_TEXT.fullmatch(value.strip()):
        # Straight to float would lose digits of a large integer.
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
    """Frozen; unknown keys are refused; no bool passes as a number, nor a number or text as a bool."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_lookalikes(cls, value: Any, info: ValidationInfo) -> Any:
        accepted = leaf_types(cls.model_fields[str(info.field_name)].annotation)
        if bool in accepted:
            if not isinstance(value, bool):
                raise PydanticCustomError("not_bool", "expected true or false")
        elif accepted & {int, float}:
            return _plain_number(value, whole=float not in accepted)
        return value


class Schedule(StrictModel):
    """A value over the run: linear from `start` to `end` during the first `over` env steps, then constant.

    >>> schedule = Schedule(start=1.0, end=0.0, over=100)
    >>> [schedule.at(step, total=1000) for step in (0, 25, 100, 999)]
    [1.0, 0.75, 0.0, 0.0]
    """

    start: float = Field(description="Value at env step 0.")
    end: float = Field(description="Value once `over` env steps have passed.")
    over: int | None = Field(None, ge=1, description="Env steps from start to end; null is the whole run.")

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
        """Value at env step `step` of a run of `total` env steps."""
        over = total if self.over is None else self.over
        # Beyond the end it must be exactly `end`: interpolating there could overshoot by rounding.
        if step >= over:
            return self.end
        return self.start + (self.end - self.start) * (max(step, 0) / over)


def constant(value: float) -> Schedule:
    """A schedule that never changes."""
    return Schedule(start=value, end=value)


@dataclass(frozen=True)
class Within:
    """Bounds that both ends of a schedule must keep."""

    low: float
    high: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, schedule: Schedule) -> Schedule:
        for value in (schedule.start, schedule.end):
            if value < self.low or (self.high is not None and value > self.high):
                raise PydanticCustomError("schedule_bounds", "the schedule leaves its bounds")
        return schedule


# Types with their bounds, for use inside unions, where a Field() bound would also hit the other members.
PositiveInteger = Annotated[int, Field(ge=1)]
PositiveNumber = Annotated[float, Field(gt=0)]
NonNegativeSchedule = Annotated[Schedule, Within(0.0)]
UnitSchedule = Annotated[Schedule, Within(0.0, 1.0)]

# Fields whose default differs between algorithms: explained and bounded once, here.
MaxGradNorm = Annotated[
    PositiveNumber | None, Field(description="Gradients are scaled down to this norm; null turns it off.")
]
NumSteps = Annotated[int, Field(ge=1, description="Steps of each env in one rollout.")]
GaeLambda = Annotated[
    float, Field(ge=0, le=1, description="Trade of bias (0) against variance (1) in advantage estimates.")
]
LearningRate = Annotated[NonNegativeSchedule, Field(description="Step size of the optimizer.")]
MinibatchSize = Annotated[int, Field(ge=1, description="Transitions of a rollout in one gradient step.")]
UpdateEpochs = Annotated[int, Field(ge=1, description="Passes over each rollout.")]
NormalizeAdvantages = Annotated[bool, Field(description="Give the advantages of a minibatch mean 0 and deviation 1.")]
BatchSize = Annotated[int, Field(ge=1, description="Transitions sampled for one gradient step.")]
TrainFrequency = Annotated[int, Field(ge=1, description="Env steps, all envs together, between two rounds of updates.")]
NStep = Annotated[int, Field(ge=1, description="Rewards summed before the bootstrapped value.")]
ActorLearningRate = Annotated[NonNegativeSchedule, Field(description="Step size of the actor's optimizer.")]
CriticLearningRate = Annotated[NonNegativeSchedule, Field(description="Step size of the critic's optimizer.")]
Tau = Annotated[
    float, Field(gt=0, le=1, description="Share of the way targets move to the networks per gradient step.")
]
ExplorationNoise = Annotated[
    float, Field(ge=0, description="Deviation of the noise added to actions, which span -1 to 1.")
]
NoiseType = Annotated[
    Literal["gaussian", "ou"],
    Field(description="Independent noise, or correlated over time (Ornstein-Uhlenbeck)."),
]


class AlgorithmConfig(StrictModel):
    """What every algorithm has."""

    compilable: ClassVar[bool] = True  # has a gradient step that `compile` can make one function of

    gamma: float = Field(0.99, gt=0, le=1, description="Discount of future rewards, per env step.")
    max_grad_norm: MaxGradNorm = None
    reward_scale: float = Field(1.0, gt=0, description="Rewards are multiplied by this before learning.")
    reward_clip: float | None = Field(
        None, gt=0, description="Scaled rewards are clipped to plus or minus this; null turns it off."
    )

    def check(self, train: TrainConfig) -> None:
        """Refuse values that are impossible together with the rest of the run."""

    def why_not_compilable(self) -> str | None:
        """What leaves `compile` nothing to do with these settings, to be read after the algorithm's name, or None."""
        return None if self.compilable else "has no step to compile"


class OnPolicyConfig(AlgorithmConfig):
    """What algorithms that learn from fresh rollouts share."""

    num_steps: NumSteps
    gae_lambda: GaeLambda = 0.95
    learning_rate: LearningRate = constant(3e-4)
    entropy_coef: NonNegativeSchedule = Field(
        constant(0.0), description="Weight of the entropy bonus, which keeps the policy exploring."
    )
    value_coef: float = Field(0.5, ge=0, description="Weight of the value loss.")
    max_grad_norm: MaxGradNorm = 0.5
    normalize_rewards: bool = Field(
        False, description="Divide rewards by the running deviation of the discounted return."
    )
    normalize_advantages: NormalizeAdvantages


def check_minibatch(minibatch_size: int, num_steps: int, num_envs: int) -> None:
    """Refuse minibatches of more transitions than one rollout has."""
    rollout = num_steps * num_envs
    if minibatch_size > rollout:
        raise ConfigError(
            f"algo_kwargs.minibatch_size: {minibatch_size} is more than one rollout holds, "
            f"num_steps * num_envs = {num_steps} * {num_envs} = {rollout}",
            key="algo_kwargs.minibatch_size",
        )


class ReplayConfig(AlgorithmConfig):
    """What algorithms that learn from a replay buffer share."""

    buffer_size: int = Field(1_000_000, ge=1, description="Transitions the replay buffer holds.")
    batch_size: BatchSize = 256
    learning_starts: int = Field(100, ge=0, description="Env steps with random actions before learning.")
    warm_up_repeat: int = Field(
        1, ge=1, description="Steps for which each random action before `learning_starts` is held."
    )
    train_frequency: TrainFrequency = 1
    gradient_steps: Literal[-1] | PositiveInteger = Field(
        1, description="Updates per round; -1 is as many as env steps since the last round."
    )
    n_step: NStep = 1
    prioritized: bool = Field(False, description="Sample transitions in proportion to their error.")
    priority_exponent: float = Field(
        0.6, ge=0, le=1, description="How strongly priorities skew sampling; 0 is uniform."
    )
    importance_exponent: UnitSchedule = Field(
        constant(0.4), description="How far importance weights correct prioritised sampling; 1 is fully."
    )
    priority_epsilon: float = Field(
        1e-6, gt=0, description="Added to every priority, so that no transition is lost from sight."
    )
    max_grad_norm: MaxGradNorm = None

    def check(self, train: TrainConfig) -> None:
        if self.learning_starts >= train.total_timesteps:
            raise ConfigError(
                f"algo_kwargs.learning_starts: {self.learning_starts} must be below total_timesteps "
                f"({train.total_timesteps}), or nothing would be learned",
                key="algo_kwargs.learning_starts",
            )
        needed = max(self.batch_size, self.n_step * train.num_envs)
        if self.buffer_size < needed:
            reason = "batch_size" if needed == self.batch_size else "n_step * num_envs"
            raise ConfigError(
                f"algo_kwargs.buffer_size: {self.buffer_size} must be at least {reason} ({needed})",
                key="algo_kwargs.buffer_size",
            )
