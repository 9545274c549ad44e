"""The base of the managed API: one object that builds, trains, acts, evaluates, saves and loads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.streams import Streams
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.envs.factory import backend_for_another_env, make_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.experiment.registry import get_entry, get_spec
from rl_training.playback.player import Recording, record_episode
from rl_training.runtime.agent import CALLABLE_PREFIX, Agent, keywords_for_another_env
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult
from rl_training.runtime.threads import limited_threads
from rl_training.runtime.workflows import Callback, TrainResult, resume, train
from rl_training.storage.checkpoints import Checkpoint, load_checkpoint, resolve_checkpoint, save_checkpoint
from rl_training.storage.run_directory import open_run_directory

if TYPE_CHECKING:
    from typing_extensions import Self

Env = EnvSource
Preset = str | Path | Mapping[str, Any] | TrainConfig


class ManagedAlgorithm:
    """Base of `PPO`, `DQN`, ...: `PPO("CartPole-v1", seed=0).learn(50_000).evaluate()`.

    `env` is an id, a callable that makes envs, or a gymnasium VectorEnv; `preset` is a packaged preset, a YAML
    file, a mapping or a whole TrainConfig, and may bring the env with it. Every further keyword is a setting of
    the run, the model or the algorithm by its bare name, and wins over the preset. `eval_env` is evaluated on
    in place of the training env; a VectorEnv needs one to be evaluated at all.
    """

    algorithm: ClassVar[str]
    agent: Agent
    env_steps: int
    run_dir: Path | None
    result: TrainResult | None  # of the last `learn`

    def __init__(
        self,
        env: Env | None = None,
        *,
        preset: Preset | None = None,
        eval_env: str | EnvMaker | None = None,
        **settings: Any,
    ) -> None:
        config = self._configure(env, preset, settings)
        spaces = _spaces_of(config.env_id if env is None else env, config)
        spec = get_spec(self.algorithm)
        spec.check_spaces(spaces, config.env_id)
        agent = Agent(spec.learner(spaces, config, Streams(config.seed)), spaces, config)
        self._set_up(agent, None if isinstance(env, str) else env, eval_env)

    def _set_up(self, agent: Agent, env: Env | None, eval_env: str | EnvMaker | None) -> None:
        self.agent = agent
        self.env_steps = 0
        self.run_dir = self.result = None
        # Only what the config cannot say: the id of an env is in there.
        self._env: Env | None = env
        self._eval_env: str | EnvMaker | None = eval_env
        self._resume_from: Path | None = None
        self._initial_learner: dict[str, Any] | None = None
        self._base_steps = 0

    def learn(
        self, total_timesteps: int | None = None, *, callback: Callback | None = None, show: bool | None = None
    ) -> Self:
        """Train for `total_timesteps` env steps; without a number, to the end of the config's budget.

        `callback` sees every `Progress` and stops the run by returning False; `show` forces the live display on
        or off. Called again, it goes on with the same run in the same run directory: with a number for so many
        steps more (schedules then stretch to the new total), without one to the end of a run that was stopped.
        """
        if total_timesteps is not None and total_timesteps < 1:
            raise ConfigError(f"total_timesteps: {total_timesteps} is not valid, expected integer >= 1")
        total = None if total_timesteps is None else self._base_steps + total_timesteps
        options: dict[str, Any] = {"env": self._env, "eval_env": self._eval_env, "callback": callback, "show": show}
        if self._resume_from is None:
            config = load_config(self.config, {} if total is None else {"total_timesteps": total})
            result = train(config, initial_learner=self._initial_learner, **options)
        else:
            result = resume(self._resume_from, total_timesteps=total, **options)
        self.agent, self.result, self.env_steps = result.agent, result, result.env_steps
        # A random action depends on where its schedule stands: as in an agent that is loaded from the disk.
        self.agent.learner.env_steps = result.env_steps
        self.run_dir = self._resume_from = result.run_dir.absolute()
        # Of a finished run the planned steps count, not the done ones: what was too little for another rollout
        # is not lost, and learn(a).learn(b) is a run of a + b.
        self._base_steps = result.env_steps if result.interrupted else result.agent.config.total_timesteps
        return self

    def predict(
        self,
        observation: Any,
        *,
        deterministic: bool = True,
        state: Any = None,
        episode_start: np.ndarray | None = None,
    ) -> tuple[Any, Any]:
        """(action, state) for one raw observation or a batch of them; the action is in the env's own units.

        `state` is the memory of a recurrent policy, to be handed back with the next observation, and None for
        the others. Before `learn` it is the untrained network that acts.
        """
        action: tuple[Any, Any] = get_spec(self.algorithm).predict(
            self.agent, observation, deterministic=deterministic, state=state, episode_start=episode_start
        )
        return action

    def evaluate(
        self,
        episodes: int = 10,
        *,
        seed: int = DEFAULT_SEED,
        deterministic: bool = True,
        env: str | EnvMaker | None = None,
    ) -> EvalResult:
        """Raw returns of whole episodes; episode i is reset with `seed` + i. Training is not disturbed."""
        if episodes < 1:
            raise ConfigError(f"episodes: {episodes} is not valid, expected integer >= 1")
        with limited_threads(1):
            result: EvalResult = get_spec(self.algorithm).evaluate(
                self.agent,
                episodes=episodes,
                seed=seed,
                deterministic=deterministic,
                env=self._single_env() if env is None else env,
            )
        return result

    def record(
        self,
        path: str | Path,
        *,
        episodes: int = 1,
        seed: int = DEFAULT_SEED,
        fps: float | None = None,
        deterministic: bool = True,
        env: str | EnvMaker | None = None,
    ) -> Recording:
        """Play episodes and write them to a .gif or .mp4; a callable env has to take `render_mode`."""
        return record_episode(
            self.agent,
            path,
            episodes=episodes,
            seed=seed,
            fps=fps,
            deterministic=deterministic,
            env=self._single_env() if env is None else env,
        )

    def save(self, path: str | Path) -> Path:
        """Write the agent as a checkpoint directory that needs nothing else; an earlier one there is replaced.

        It has the whole learner, but neither replay data nor the place in the run: those stay in `run_dir`.
        """
        state = {"spaces": self.agent.spaces.to_json(), "learner": self.agent.learner.state_dict()}
        return save_checkpoint(
            path,
            algorithm=self.algorithm,
            config=self.config.model_dump(mode="json"),
            state=state,
            env_steps=self.env_steps,
            number=0,
            kind="agent",
            replace=True,
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Env | None = None,
        *,
        eval_env: str | EnvMaker | None = None,
        output_dir: str | Path = "runs",
    ) -> Self:
        """From a saved agent, a run directory, its name under `output_dir`, a checkpoint, `latest` or `best`.

        `learn` then goes on with the run exactly; a saved agent (or a run's best) starts a new run from its
        networks and optimizers. `env` is needed only where the env was a Python object, to learn or evaluate.
        """
        # Replay data may be gigabytes, and acting needs none of it.
        checkpoint = load_checkpoint(resolve_checkpoint(path, output_dir, segments="skip"))
        if checkpoint.algorithm != cls.algorithm:
            raise CheckpointError(
                f"{checkpoint.path}: its algorithm is {checkpoint.algorithm}, not {cls.algorithm}: "
                f"load it with {_class_name(checkpoint.algorithm)}.load or rl_training.load"
            )
        # Whether the user meant this very checkpoint, or the newest of its run.
        named = Path(path).name == checkpoint.path.name
        return cls._from_checkpoint(checkpoint, env, eval_env, named)

    @classmethod
    def _from_checkpoint(
        cls, checkpoint: Checkpoint, env: Env | None, eval_env: str | EnvMaker | None, named: bool
    ) -> Self:
        agent: Agent = get_spec(checkpoint.algorithm).load(checkpoint)
        if env is not None and env != agent.config.env_id:
            backend = backend_for_another_env(agent.config.vector_backend)
            changes = {"env_id": _name_of(env), "vector_backend": backend}
            keywords = keywords_for_another_env(agent.config) if isinstance(env, str) else {}
            config = agent.config.model_copy(update=changes | keywords)
            if _spaces_of(env, config) != agent.spaces:
                raise EnvError(
                    f"{config.env_id} has other spaces than the env of {checkpoint.path}: give one with the same"
                )
            agent.config = config
        else:
            env = None
        self = cls.__new__(cls)
        self._set_up(agent, env, eval_env)
        self.env_steps = checkpoint.env_steps
        if checkpoint.kind == "agent":
            self._initial_learner = checkpoint.state["learner"]
            return self
        self.run_dir = checkpoint.path.absolute().parent.parent
        # Which of a run's checkpoints is whole, replay data too, is found out when it is needed.
        self._resume_from = checkpoint.path.absolute() if named else self.run_dir
        info = open_run_directory(self.run_dir).read_info()
        finished = info.get("status") == "finished" and info.get("env_steps") == checkpoint.env_steps
        self._base_steps = agent.config.total_timesteps if finished else checkpoint.env_steps
        return self

    @property
    def config(self) -> TrainConfig:
        """Every setting, as the agent has it now."""
        return self.agent.config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config.env_id!r}, seed={self.config.seed}, env_steps={self.env_steps})"

    def _configure(self, env: Env | None, preset: Preset | None, settings: dict[str, Any]) -> TrainConfig:
        for name, instead in (("algo", f"{type(self).__name__} is {self.algorithm}"), ("env_id", "give env instead")):
            if name in settings:
                raise ConfigError(f"{name}: not a setting here, {instead}", key=name)
        if env is None and preset is None:
            raise ConfigError(f"env: missing, such as {type(self).__name__}('CartPole-v1')", key="env_id")
        if env is not None:
            settings = {"env_id": _name_of(env), **settings}
        if isinstance(env, VectorEnv):
            settings.setdefault("num_envs", env.num_envs)
        config = load_config({"algo": self.algorithm} if preset is None else preset, settings)
        if config.algo != self.algorithm:
            raise ConfigError(f"preset: it is for {config.algo}, use {_class_name(config.algo)}", key="algo")
        return config

    def _single_env(self) -> str | EnvMaker | None:
        """What evaluation makes its envs from; None is the config's own id."""
        if self._eval_env is not None:
            return self._eval_env
        if self._env is None or isinstance(self._env, (str, VectorEnv)):
            return None
        return partial(make_env, self._env, self.config.evaluation_kwargs)


def _class_name(algorithm: str) -> str:
    return get_entry(algorithm).learner.partition(":")[2]


def _name_of(env: Env) -> str:
    if isinstance(env, str):
        return env
    named = env.unwrapped if isinstance(env, VectorEnv) else env.func if isinstance(env, partial) else env
    return CALLABLE_PREFIX + str(getattr(named, "__name__", type(named).__name__))


def _spaces_of(env: Env, config: TrainConfig) -> Spaces:
    if isinstance(env, VectorEnv):
        return Spaces(env.single_observation_space, env.single_action_space)
    if isinstance(env, str) and env.startswith(CALLABLE_PREFIX):
        raise EnvError(f"{env.removeprefix(CALLABLE_PREFIX)} is a Python object: give env too")
    made = make_env(env, config.env_kwargs)
    try:
        return Spaces(made.observation_space, made.action_space)
    finally:
        made.close()
