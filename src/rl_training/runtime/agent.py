"""An agent: a learner with the spaces and the config that it was built for. It acts on raw observations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms import get_learner
from rl_training.algorithms.common.learner import Learner, device_is_here
from rl_training.algorithms.common.streams import Streams
from rl_training.config.own_classes import handed_over, is_allowed
from rl_training.config.own_classes import trust as trust_modules
from rl_training.config.train_config import TrainConfig
from rl_training.envs.action_mask import with_mask
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, ConfigError, EnvError, NumericalError, RLTrainingError
from rl_training.models.encoders.own_encoder import not_trusted
from rl_training.models.encoders.stored_encoder import check_class, check_tensors, or_other_class
from rl_training.models.parameter_limit import parameter_limit
from rl_training.runtime.auto_settings import limited_threads
from rl_training.runtime.collection.info_numbers import InfoNumbers
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult, evaluate
from rl_training.runtime.setup.run_envs import single_env_maker
from rl_training.storage.checkpoints import Checkpoint
from rl_training.telemetry.metric_lines import warn
from rl_training.text import one_line


@dataclass
class Agent:
    """`act` is the one way to play an agent: evaluation, playback and `predict` all go through it."""

    learner: Learner
    spaces: Spaces
    config: TrainConfig

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, *, encoder: type[Any] | None = None, trust: str | Sequence[str] = ()
    ) -> Agent:
        """Rebuild the agent from the content of a checkpoint alone; no environment is needed.

        An encoder that is not of this package is code: pass its class as `encoder`, or its module in `trust`.
        """
        config = stored_config(checkpoint, encoder, trust)
        with handed_over(config.model.encoder, encoder):
            return cls._load(checkpoint, config)

    @classmethod
    def _load(cls, checkpoint: Checkpoint, config: TrainConfig) -> Agent:
        if not device_is_here(config.device):
            config = config.model_copy(update={"device": "cpu"})
        try:
            spaces = Spaces.from_json(checkpoint.state["spaces"], action_bound=config.action_bound)
            with no_larger_than(checkpoint):
                learner: Learner = get_learner(checkpoint.algorithm)(spaces, config, Streams(config.seed))
            restore_learner(learner, checkpoint)
            # Exploration schedules read it: an agent that samples actions explores as it did when it was saved.
            learner.clock.env_steps = checkpoint.env_steps
        except ConfigError as error:
            raise _not_valid_here(checkpoint, error) from None
        except RLTrainingError:
            raise
        except Exception as error:  # a forged file can lead to anything
            raise CheckpointError(
                f"{checkpoint.path}: does not fit {checkpoint.algorithm}: {one_line(error) or type(error).__name__}"
            ) from None
        check_finite_weights(checkpoint)
        return cls(learner, spaces, config)

    def act(
        self,
        observations: Any,
        memory: Any = None,
        episode_starts: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """Actions for a batch of raw observations, in the units of the environment, and the next memory.

        `memory` is what the call before returned, None for the first one. Rows with `episode_starts` begin with an
        empty memory. Algorithms without memory ignore both and return None. NaN or infinity in an observation or in an
        action is a NumericalError.
        """
        return self._act(self._encode(observations), memory, episode_starts, deterministic)

    def predict(
        self,
        observation: Any,
        *,
        deterministic: bool = True,
        state: Any = None,
        episode_start: np.ndarray | None = None,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """`act` for one raw observation or a batch of them; NumericalError if one of them is not finite.

        `action_masks` are the masks of an env that does not have them in its observations.
        """
        if action_masks is not None:
            observation = with_mask(observation, action_masks, self.spaces.observation_space)
        elif self.spaces.mask_size and not _has_masks(observation):
            raise ConfigError(
                "action_masks: missing, call predict(observation, action_masks=...) with those allowed now"
            )
        batched = self.spaces.is_batched(observation)
        encoded = self._encode(observation if batched else [observation])
        starts = None if episode_start is None else np.asarray(episode_start, bool)
        if starts is not None and starts.shape not in ((), (1,), (len(encoded),)):
            raise ConfigError(
                f"episode_start: shape {starts.shape} is not valid for {len(encoded)} observations, expected true, "
                f"false, or one of them for each"
            )
        starts = None if starts is None else np.broadcast_to(starts, len(encoded))
        actions, memory = self._act(encoded, state, starts, deterministic)
        return (actions if batched else actions[0]), memory

    def predict_episode(self, observations: Any, *, deterministic: bool = True) -> np.ndarray:
        """Actions for the raw observations of one episode, in their order; the memory is carried along."""
        actions, memory = [], None
        for step, row in enumerate(self._encode(observations)):
            action, memory = self._act(np.ascontiguousarray(row[None]), memory, np.array([step == 0]), deterministic)
            actions.append(action[0])
        return np.stack(actions)

    def evaluate(
        self,
        *,
        episodes: int = 10,
        seed: int = DEFAULT_SEED,
        deterministic: bool = True,
        max_steps: int | None = None,
        env: str | EnvMaker | None = None,
    ) -> EvalResult:
        """Play whole episodes on one thread; episode i is reset with `seed` + i and cut after `max_steps` steps."""
        numbers = InfoNumbers(self.config.log_info)
        with limited_threads(1):
            result = evaluate(
                self,
                self.env_maker(env),
                episodes=episodes,
                seed=seed,
                deterministic=deterministic,
                max_steps=self.config.eval_max_steps if max_steps is None else max_steps,
                numbers=numbers,
            )
        assert result is not None  # only `stopped` cuts an evaluation short
        numbers.report_missing()
        for problem in [*numbers.take_problems(), *([] if result.finding is None else [result.finding])]:
            warn(problem)
        return result

    def choose_policy(self, policy: str) -> None:
        """Play one of the policies that the algorithm distinguishes; ConfigError if it has no such policy."""
        known = self.learner.policies
        if policy not in known:
            offered = f"expected one of {', '.join(known)}" if known else "which has one policy, leave it out"
            raise ConfigError(f"policy: {policy!r} is not a policy of {self.config.algo}, {offered}")
        self.learner.evaluated_policy = policy

    def env_maker(
        self, env: str | EnvMaker | None = None, *, render_mode: str | None = None
    ) -> Callable[[], gym.Env[Any, Any]]:
        """Makes single environments for evaluation and play: the run's own, or `env` with the same spaces."""
        return single_env_maker(self.config, env, render_mode=render_mode)

    def _encode(self, observations: Any) -> np.ndarray:
        if self.spaces.observation_dtype == np.uint8 and not self.spaces.images:
            # As bytes, NaN would be a black pixel.
            observations = np.asarray(observations)
            if observations.dtype.kind == "f":
                _check_finite("observation", observations)
        with np.errstate(over="ignore"):  # a double that is too large for float32 is found below
            # The memory layout of the caller's array must not decide about the last bits of a product.
            encoded = np.ascontiguousarray(self.spaces.encode(observations))
        _check_finite("observation", self.spaces.numbers_of(encoded))
        if self.spaces.mask_size and len(stuck := self.spaces.rows_without_action(encoded)):
            where = f"observation {stuck[0]} of {len(encoded)}" if len(encoded) > 1 else "the observation"
            raise EnvError(f"{where} allows no action: its action mask is all false, fix the env or the caller")
        return encoded

    def _act(
        self, encoded: np.ndarray, memory: Any, episode_starts: np.ndarray | None, deterministic: bool
    ) -> tuple[np.ndarray, Any]:
        action = self.learner.act(encoded, explore=not deterministic, episode_starts=episode_starts, memory=memory)
        _check_finite("action", np.asarray(action.actions))
        return self.spaces.to_env_actions(action.actions), action.memory


def _has_masks(observations: Any) -> bool:
    """Whether this is a Dict observation, a batch of them in one Dict, or a sequence of them."""
    each = [observations] if isinstance(observations, Mapping) else observations
    return isinstance(each, (list, tuple)) and all(isinstance(one, Mapping) for one in each)


def _check_finite(name: str, values: np.ndarray) -> None:
    """NumericalError that names the first row with NaN or infinity."""
    # A sum of squares is finite only if every entry is; if it merely overflows, the second test clears it.
    if values.dtype.kind != "f" or math.isfinite(np.vdot(values, values)) or np.isfinite(values).all():
        return
    row, *place = (int(index) for index in np.argwhere(~np.isfinite(values))[0])
    where = f"{name} {row} of {len(values)}" if len(values) > 1 else f"the {name}"
    remedy = "fix the env or the caller" if name == "observation" else "use an earlier checkpoint"
    raise NumericalError(
        f"{where} is not finite, it has {values[(row, *place)]} at position {place or 0}: {remedy}",
        field=name,
        env_index=row,
        evidence={name: values},
    )


def stored_config(
    checkpoint: Checkpoint, encoder: type[Any] | None = None, trust: str | Sequence[str] = ()
) -> TrainConfig:
    """The config of a checkpoint. If it is not valid, that is the checkpoint's fault, not the user's.

    An encoder of the user's own is refused unless its class is given as `encoder` or its module is in `trust`. The
    caller hands the class over.
    """
    try:
        config = TrainConfig.model_validate(checkpoint.config)
    except ConfigError as error:
        raise _not_valid_here(checkpoint, error) from None
    if config.algo != checkpoint.algorithm:
        raise CheckpointError(f"{checkpoint.path}: says {checkpoint.algorithm}, but its config is for {config.algo}")
    trust_modules(trust)
    if encoder is not None:
        if not config.model.has_own_encoder:
            raise ConfigError(f"encoder: {checkpoint.path} has the encoder {config.model.encoder}, leave it out")
        check_class(encoder, config.model.encoder)
    elif config.model.has_own_encoder and not is_allowed(config.model.encoder):
        raise CheckpointError(f"{checkpoint.path}: its encoder {not_trusted(config.model.encoder)}")
    return config


def _not_valid_here(checkpoint: Checkpoint, error: ConfigError) -> CheckpointError:
    return CheckpointError(f"{checkpoint.path}: its config is not valid here: {error}")


def no_larger_than(checkpoint: Checkpoint, learners: int = 1) -> AbstractContextManager[None]:
    """Refuse, before it is initialized, a network for which the checkpoint does not hold enough numbers.

    A few changed bytes of the config can ask for any size. The tensors of the checkpoint have a size that was paid for.
    Actors in this process have a learner each, so the size counts for `learners` of them.
    """
    sizes = [math.prod(tensor.shape) for _, tensor in stored_tensors(checkpoint.state.get("learner"))]
    refusal = CheckpointError(
        f"{checkpoint.path}: does not fit {checkpoint.algorithm}: the config describes a larger model than the "
        f"{sum(sizes):,} numbers in the checkpoint{or_other_class(checkpoint.config)}"
    )
    return parameter_limit(learners * sum(sizes), learners * len(sizes), refusal)


def stored_tensors(state: Any, path: str = "learner") -> Iterator[tuple[str, Any]]:
    """Every array and tensor of a saved state, with its place."""
    if isinstance(state, Mapping):
        for name, item in state.items():
            yield from stored_tensors(item, f"{path}.{name}")
    elif isinstance(state, list):
        for index, item in enumerate(state):
            yield from stored_tensors(item, f"{path}[{index}]")
    elif hasattr(state, "dtype") and hasattr(state, "shape"):
        yield path, state


def check_finite_weights(checkpoint: Checkpoint) -> None:
    """CheckpointError if a stored weight is not finite: the agent would act, but its actions would mean nothing."""
    for path, tensor in stored_tensors(checkpoint.state.get("learner")):
        finite = torch.isfinite(tensor) if isinstance(tensor, torch.Tensor) else np.isfinite(tensor)
        if not finite.all():
            raise CheckpointError(
                f"{checkpoint.path}: {one_line(path, 200)} has values that are not finite; use an earlier checkpoint"
            )


def restore_learner(learner: Learner, checkpoint: Checkpoint) -> None:
    """Load the state of a learner; a model of another shape is one clear line."""
    try:
        check_tensors(checkpoint.path, checkpoint.state["learner"]["parts"].get("model", {}), learner.model)
        check_dtypes(checkpoint.state["learner"], learner.state_dict())
        learner.load_state_dict(checkpoint.state["learner"])
    except RLTrainingError:
        raise
    except Exception as error:
        reason = one_line(error)[:200] or type(error).__name__
        raise CheckpointError(f"{checkpoint.path}: does not fit this {checkpoint.algorithm}: {reason}") from None


def check_dtypes(saved: Any, current: Any, path: str = "learner") -> None:
    """ValueError where an array has another type than it should: copying would convert it silently."""
    if isinstance(current, Mapping) and isinstance(saved, Mapping):
        for name in current.keys() & saved.keys():
            check_dtypes(saved[name], current[name], f"{path}.{name}")
    elif hasattr(current, "dtype") and getattr(saved, "dtype", None) != current.dtype:
        raise ValueError(f"{path} is {getattr(saved, 'dtype', 'not an array')}, it should be {current.dtype}")
