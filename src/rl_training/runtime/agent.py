"""An agent: a learner with the spaces and the config it was made for, ready to act on raw observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.pixels import kept_for_another_env
from rl_training.config.train_config import TrainConfig
from rl_training.envs.factory import make_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, ConfigError, EnvError, RLTrainingError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult, evaluate
from rl_training.storage.checkpoints import Checkpoint
from rl_training.storage.durable_files import one_line

CALLABLE_PREFIX = "callable:"


@dataclass
class Agent:
    learner: Learner
    spaces: Spaces
    config: TrainConfig

    def env_maker(self, env: str | Callable[[], gym.Env[Any, Any]] | None = None) -> Callable[[], gym.Env[Any, Any]]:
        """Makes single envs for evaluation and play: the run's own, or another one with the same spaces."""
        source = self.config.env_id if env is None else env
        if isinstance(source, str) and source.startswith(CALLABLE_PREFIX):
            raise EnvError(
                f"{source.removeprefix(CALLABLE_PREFIX)} was given as a Python object and cannot be made again "
                f"from its name: pass env="
            )
        return lambda: make_env(source, self.env_kwargs(env))

    def env_kwargs(self, env: Any = None) -> dict[str, Any]:
        """Keywords for the run's own env, for another id, or for a callable, which has its own already."""
        if env is None:
            return self.config.evaluation_kwargs
        return kept_for_another_env(self.config.evaluation_kwargs) if isinstance(env, str) else {}


def keywords_for_another_env(config: TrainConfig) -> dict[str, dict[str, Any]]:
    """The settings of `config` that have to change with its env id."""
    return {name: kept_for_another_env(getattr(config, name)) for name in ("env_kwargs", "eval_env_kwargs")}


def load_agent(checkpoint: Checkpoint) -> Agent:
    """Rebuild the learner from what the checkpoint holds. Needs no env and no second file."""
    config = stored_config(checkpoint)
    if config.device == "cuda" and not torch.cuda.is_available():
        config = config.model_copy(update={"device": "cpu"})
    try:
        spaces = Spaces.from_json(checkpoint.state["spaces"])
        learner = get_spec(checkpoint.algorithm).learner(spaces, config, Streams(config.seed))
        restore_learner(learner, checkpoint)
        # Exploration schedules go by it: an agent asked for random actions explores as it did when it was saved.
        learner.clock.env_steps = checkpoint.env_steps
    except RLTrainingError:
        raise
    except Exception as error:  # whatever a forged file may lead to
        raise CheckpointError(
            f"{checkpoint.path}: does not fit {checkpoint.algorithm}: {one_line(error) or type(error).__name__}"
        ) from None
    return Agent(learner, spaces, config)


def stored_config(checkpoint: Checkpoint) -> TrainConfig:
    """The config that a checkpoint was made with; what does not fit is the checkpoint's fault, not the user's."""
    try:
        config = TrainConfig.model_validate(checkpoint.config)
    except ConfigError as error:
        raise CheckpointError(f"{checkpoint.path}: its config is not valid here: {error}") from None
    if config.algo != checkpoint.algorithm:
        raise CheckpointError(f"{checkpoint.path}: says {checkpoint.algorithm}, but its config is of {config.algo}")
    return config


def restore_learner(learner: Learner, checkpoint: Checkpoint) -> None:
    """Load a learner's state; a model of another shape is one clear line."""
    try:
        check_dtypes(checkpoint.state["learner"], learner.state_dict())
        learner.load_state_dict(checkpoint.state["learner"])
    except RLTrainingError:
        raise
    except Exception as error:
        reason = one_line(error)[:200] or type(error).__name__
        raise CheckpointError(f"{checkpoint.path}: does not fit this {checkpoint.algorithm}: {reason}") from None


def check_dtypes(saved: Any, current: Any, path: str = "learner") -> None:
    """ValueError where an array has another type than it should: copying would convert it without a word."""
    if isinstance(current, Mapping) and isinstance(saved, Mapping):
        for name in current.keys() & saved.keys():
            check_dtypes(saved[name], current[name], f"{path}.{name}")
    elif hasattr(current, "dtype") and getattr(saved, "dtype", None) != current.dtype:
        raise ValueError(f"{path} is {getattr(saved, 'dtype', 'no array')}, it should be {current.dtype}")


def evaluate_agent(
    agent: Agent,
    *,
    episodes: int = 10,
    seed: int = DEFAULT_SEED,
    deterministic: bool = True,
    env: str | Callable[[], gym.Env[Any, Any]] | None = None,
) -> EvalResult:
    maker = agent.env_maker(env)
    result = evaluate(agent.learner, agent.spaces, maker, episodes=episodes, seed=seed, deterministic=deterministic)
    assert result is not None  # nobody stopped it
    return result


def predict(
    agent: Agent,
    observation: Any,
    *,
    deterministic: bool = True,
    state: Any = None,
    episode_start: np.ndarray | None = None,
) -> tuple[Any, Any]:
    """Actions in the env's own units for one raw observation or a batch of them, and the next memory."""
    batched = agent.spaces.is_batched(observation)
    encoded = np.ascontiguousarray(agent.spaces.encode(observation if batched else [observation]))
    starts = None if episode_start is None else np.asarray(episode_start, bool)
    if starts is not None and starts.shape not in ((), (1,), (len(encoded),)):
        raise ConfigError(
            f"episode_start: shape {starts.shape} is not valid for {len(encoded)} observations, expected true, false, "
            f"or one of them for each"
        )
    starts = None if starts is None else np.broadcast_to(starts, len(encoded))
    action = agent.learner.act(encoded, explore=not deterministic, episode_starts=starts, memory=state)
    env_actions = agent.spaces.to_env_actions(action.actions)
    return (env_actions if batched else env_actions[0]), action.memory


def predict_episode(agent: Agent, observations: Any, *, deterministic: bool = True) -> np.ndarray:
    """Actions for raw observations that follow each other, from the first of an episode; memory is carried along."""
    encoded, actions, memory = agent.spaces.encode(observations), [], None
    for step, row in enumerate(encoded):
        action = agent.learner.act(
            np.ascontiguousarray(row[None]),
            explore=not deterministic,
            episode_starts=np.array([step == 0]),
            memory=memory,
        )
        memory = action.memory
        actions.append(agent.spaces.to_env_actions(action.actions)[0])
    return np.stack(actions)
