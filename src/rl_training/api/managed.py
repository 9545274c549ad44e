"""The base of the managed API: one object that builds, trains, acts, evaluates, saves and loads an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithm_table import get_algorithm
from rl_training.config.arguments import whole_number
from rl_training.config.loading import load_config
from rl_training.config.names_elsewhere import POLICIES
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.envs.factory import make_env
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.agent import Agent
from rl_training.runtime.episode_video import Recording, record_episode
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult
from rl_training.runtime.output.sink_list import split_sinks, uses_trackers
from rl_training.runtime.output.train_result import stored_curves
from rl_training.runtime.setup.cluster_consent import without_foreign_cluster
from rl_training.runtime.setup.resolved_defaults import resolve_defaults
from rl_training.runtime.setup.run_envs import env_name, require_stored_spaces, spaces_of, with_env
from rl_training.runtime.spec import get_spec
from rl_training.runtime.workflows import CallbackArgument, TrainResult, allow_own_encoder, resume, train
from rl_training.storage.checkpoints import Checkpoint, load_checkpoint, resolve_checkpoint, save_checkpoint
from rl_training.storage.run_directory import is_run_directory, open_run_directory
from rl_training.telemetry.notebook_view import run_html
from rl_training.telemetry.sinks import Sink

if TYPE_CHECKING:
    from typing_extensions import Self

Env = EnvSource
Preset = str | Path | Mapping[str, Any] | TrainConfig


class ManagedAlgorithm:
    """Base of `PPO`, `DQN`, ...: `PPO("CartPole-v1", seed=0).learn(50_000).evaluate()`.

    `env` is an env id, a callable that makes environments, or a gymnasium VectorEnv. `preset` is a packaged preset, a
    YAML file, a mapping or a whole TrainConfig, and may name the environment. Every other keyword is a setting of the
    run, the model or the algorithm by its bare name, and overrides the preset. Without a preset, settings that are not
    given have defaults for this kind of environment (config/env_defaults.py); with `defaults="fixed"`, those of
    `rl-training list settings`. `eval_env` replaces the training environment for evaluation; an agent of a VectorEnv
    cannot be evaluated without one.

    >>> from rl_training import PPO
    >>> agent = PPO("CartPole-v1", seed=0, num_envs=2, num_steps=64)
    >>> agent.learn(256, show=False)
    PPO('CartPole-v1', seed=0, env_steps=256)
    >>> len(agent.evaluate(episodes=3).returns)
    3
    >>> action, state = agent.predict([0.0, 0.1, 0.0, -0.1])
    >>> int(action) in (0, 1), state
    (True, None)
    """

    algorithm: ClassVar[str]
    agent: Agent
    env_steps: int
    run_dir: Path | None
    result: TrainResult | None  # of the last `learn`

    def __init_subclass__(cls, *, algorithm: str | None = None) -> None:
        if algorithm is None:  # a user's own subclass of PPO, say
            return
        cls.algorithm, row = algorithm, get_algorithm(algorithm)
        if cls.__doc__ is None:
            cls.__doc__ = f"{row.title}, for {', '.join(row.action_names)} actions ({row.paper})."

    def __init__(
        self,
        env: Env | None = None,
        *others: Any,
        preset: Preset | None = None,
        eval_env: str | EnvMaker | None = None,
        **settings: Any,
    ) -> None:
        example = f"{type(self).__name__}('CartPole-v1')"
        if isinstance(env, str) and env in POLICIES:
            raise ConfigError(f"env: there is no policy argument here, so leave {env!r} out: {example}", key="env_id")
        if others:
            raise TypeError(f"only the environment is passed without a name: {example[:-1]}, seed=0)")
        objects: list[Sink] = []
        if "sinks" in settings:
            entries, objects = split_sinks(settings["sinks"])
            settings = {**settings, "sinks": entries}
        config = resolve_defaults(self._configure(env, preset, settings), env)
        allow_own_encoder(config)
        spaces = spaces_of(config.env_id if env is None else env, config)
        spec = get_spec(self.algorithm)
        spec.check_spaces(spaces, config.env_id)
        agent = Agent(spec.learner(spaces, config, Streams(config.seed)), spaces, config)
        self._set_up(agent, None if isinstance(env, str) else env, eval_env)
        self._sinks = objects

    def _set_up(self, agent: Agent, env: Env | None, eval_env: str | EnvMaker | None) -> None:
        self.agent = agent
        self.env_steps = 0
        self.run_dir = self.result = None
        # Only Python objects: an env id is in the config.
        self._env: Env | None = env
        self._eval_env: str | EnvMaker | None = eval_env
        self._resume_from: Path | None = None
        self._initial_learner: dict[str, Any] | None = None
        self._run_info: Mapping[str, Any] | None = None  # run.json of the agent that was loaded
        self._sinks = []  # objects; names are in the config
        self._trackers: bool | None = None  # whether the run that this object started uses them
        self._base_steps = 0

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        callback: CallbackArgument | None = None,
        show: bool | None = None,
        trackers: bool | None = None,
        sinks: Sequence[Sink] = (),
    ) -> Self:
        """Train for `total_timesteps` env steps; without a number, to the end of the config's budget.

        `callback` is a `Callback`, a function that sees every `Progress` and stops the run by returning False, or a
        list of them. `show` forces the live display on or off.

        A second call continues the same run in the same run directory: with a number for that many more steps
        (schedules stretch to the new total), without one to the end of a run that was stopped. `trackers` says whether
        to use the trackers that the config names; None does so unless the agent was loaded and another user set them.
        `sinks` are objects with the methods of `Sink`, beside those that the object was made with.

        A last evaluation that fails does not raise: `result.evaluation_error` has the error, the agent is trained.
        """
        if total_timesteps is not None:
            total_timesteps = whole_number("total_timesteps", total_timesteps)
        total = None if total_timesteps is None else self._base_steps + total_timesteps
        options: dict[str, Any] = {"env": self._env, "eval_env": self._eval_env, "callback": callback, "show": show}
        options["sinks"] = [*self._sinks, *sinks]
        # A callback may call `predict` or `evaluate` of this object: they act with what has been learned so far.
        before, options["agent_ready"] = self.agent, self._use
        try:
            if self._resume_from is None:
                config = self.config if total is None else load_config(self.config, {"total_timesteps": total})
                if self._run_info is not None:
                    config = without_foreign_cluster(config, self._run_info)
                if trackers is None:
                    trackers = self._run_info is None or uses_trackers(config, self._run_info)
                self._trackers = trackers
                result = train(config, initial_learner=self._initial_learner, trackers=trackers, **options)
            else:
                trackers = self._trackers if trackers is None else trackers
                result = resume(self._resume_from, total_timesteps=total, trackers=trackers, **options)
        except BaseException:
            self.agent = before  # another `learn` starts where this one did
            raise
        self.agent, self.result, self.env_steps = result.agent, result, result.env_steps
        self.run_dir = self._resume_from = result.run_dir.absolute()
        # A finished run counts its planned steps: a remainder too small for another rollout is not lost, and
        # learn(a).learn(b) is a run of a + b steps.
        is_complete = not result.interrupted and result.stop_reason is None
        self._base_steps = result.agent.config.total_timesteps if is_complete else result.env_steps
        return self

    def _use(self, agent: Agent) -> None:
        self.agent = agent

    def predict(
        self,
        observation: Any,
        *,
        deterministic: bool = True,
        state: Any = None,
        episode_start: np.ndarray | None = None,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """(action, state) for one raw observation or a batch of them; the action is in the units of the environment.

        `state` is the memory of a recurrent policy: pass it back with the next observation. For other policies it is
        None. Before `learn` the untrained network acts. `action_masks` say which actions are allowed, for an
        environment that does not have them in its observations.
        """
        return self.agent.predict(
            observation,
            deterministic=deterministic,
            state=state,
            episode_start=episode_start,
            action_masks=action_masks,
        )

    def evaluate(
        self,
        episodes: int = 10,
        *,
        seed: int = DEFAULT_SEED,
        deterministic: bool = True,
        max_steps: int | None = None,
        env: str | EnvMaker | None = None,
    ) -> EvalResult:
        """Raw returns of whole episodes; episode i is reset with `seed` + i. Training is not affected.

        An episode that does not end is cut after `max_steps` steps (default: the setting `eval_max_steps`), and
        `cut_episodes` of the result counts it.
        """
        return self.agent.evaluate(
            episodes=episodes,
            seed=seed,
            deterministic=deterministic,
            max_steps=max_steps,
            env=self._single_env() if env is None else env,
        )

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
        """Play episodes and write them to a .gif or .mp4; a callable `env` must accept `render_mode`."""
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
        """Write the agent as a self-contained checkpoint directory; only an earlier agent at `path` is replaced.

        It holds the whole learner, but neither replay data nor the position in the run: those stay in `run_dir`.
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
        encoder: type[Any] | None = None,
        trust: str | Sequence[str] = (),
    ) -> Self:
        """Load a saved agent, a run directory, its name under `output_dir`, a checkpoint, `latest` or `best`.

        `learn` then continues the run exactly. A saved agent, or the best one of a run, starts a new run from its
        networks and optimizers. `env` is needed to learn or evaluate if the environment was a Python object. An encoder
        of your own is code: pass its class as `encoder`, or its module in `trust`.

        >>> from rl_training import PPO, load
        >>> path = PPO("CartPole-v1", seed=3).save("my-agent")
        >>> PPO.load(path)
        PPO('CartPole-v1', seed=3, env_steps=0)
        >>> load("my-agent")  # finds the class in the checkpoint
        PPO('CartPole-v1', seed=3, env_steps=0)
        """
        # Replay data may be gigabytes, and acting does not need it.
        checkpoint = load_checkpoint(resolve_checkpoint(path, output_dir, segments="skip"))
        if checkpoint.algorithm != cls.algorithm:
            raise CheckpointError(
                f"{checkpoint.path}: its algorithm is {checkpoint.algorithm}, not {cls.algorithm}: "
                f"load it with {get_algorithm(checkpoint.algorithm).class_name}.load or rl_training.load"
            )
        # Whether the user asked for this very checkpoint, or for the newest one of its run.
        named = Path(path).name == checkpoint.path.name
        agent = Agent.load(checkpoint, encoder=encoder, trust=trust)
        return cls._from_checkpoint(checkpoint, agent, env, eval_env, named)

    @classmethod
    def _from_checkpoint(
        cls, checkpoint: Checkpoint, agent: Agent, env: Env | None, eval_env: str | EnvMaker | None, named: bool
    ) -> Self:
        config = with_env(agent.config, env)
        if config is agent.config:
            env = None
        elif env is not None:
            require_stored_spaces(spaces_of(env, config), config.env_id, checkpoint)
        agent.config = config
        self = cls.__new__(cls)
        self._set_up(agent, env, eval_env)
        self.env_steps = checkpoint.env_steps
        run_dir = checkpoint.path.absolute().parent.parent
        if checkpoint.kind == "agent":
            self._initial_learner = checkpoint.state["learner"]
            self._run_info = open_run_directory(run_dir).read_info() if is_run_directory(run_dir) else {}
            return self
        self.run_dir = run_dir
        # Which checkpoint of the run is intact, with its replay data, is checked when it is needed.
        self._resume_from = checkpoint.path.absolute() if named else self.run_dir
        info = open_run_directory(self.run_dir).read_info()
        finished = info.get("status") == "finished" and info.get("env_steps") == checkpoint.env_steps
        finished = finished and "stop_reason" not in info
        self._base_steps = agent.config.total_timesteps if finished else checkpoint.env_steps
        return self

    @property
    def config(self) -> TrainConfig:
        """All settings, as the agent has them now."""
        return self.agent.config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config.env_id!r}, seed={self.config.seed}, env_steps={self.env_steps})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the result of the last `learn`, or what was loaded."""
        if self.result is not None:
            return self.result._repr_html_()
        facts = {"env steps": f"{self.env_steps:,}", "seed": str(self.config.seed)}
        curves = () if self.run_dir is None else stored_curves(self.run_dir)
        return run_html(f"{self.algorithm} on {self.config.env_id}", facts, *curves)

    def _configure(self, env: Env | None, preset: Preset | None, settings: dict[str, Any]) -> TrainConfig:
        for name, instead in (("algo", f"{type(self).__name__} is {self.algorithm}"), ("env_id", "pass env instead")):
            if name in settings:
                raise ConfigError(f"{name}: not a setting here, {instead}", key=name)
        if env is None and preset is None:
            raise ConfigError(f"env: missing; pass one, for example {type(self).__name__}('CartPole-v1')", key="env_id")
        if env is not None:
            settings = {"env_id": env_name(env), **settings}
        if isinstance(env, VectorEnv):
            settings.setdefault("num_envs", env.num_envs)
        # Without a preset, the environment decides about the defaults.
        source = {"algo": self.algorithm, "defaults": "env"} if preset is None else preset
        config = load_config(source, settings)
        if config.algo != self.algorithm:
            name = str(preset) if isinstance(preset, (str, Path)) else "it"
            right = get_algorithm(config.algo).class_name
            raise ConfigError(f"preset: {name} is a preset of {config.algo}; use {right}", key="algo")
        return config

    def _single_env(self) -> str | EnvMaker | None:
        """The source of evaluation environments; None stands for the config's env id."""
        if self._eval_env is not None:
            return self._eval_env
        if self._env is None or isinstance(self._env, (str, VectorEnv)):
            return None
        return partial(make_env, self._env, self.config.evaluation_kwargs)
