"""Train, resume, evaluate, predict: one workflow for every algorithm. `resume` is `train` from a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.config.loading import save_config
from rl_training.config.own_classes import allow, handed_over
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.agent import Agent, stored_config
from rl_training.runtime.callbacks.callback_list import CallbackArgument, open_hooks
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult
from rl_training.runtime.output.sink_list import make_sinks, permitted, proof_of
from rl_training.runtime.output.train_result import TrainResult
from rl_training.runtime.session import run_session
from rl_training.runtime.setup.cluster_consent import ask_for_cluster, cluster_proof
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.setup.resume_settings import changed_on_resume
from rl_training.runtime.setup.run_envs import CALLABLE_PREFIX, with_env
from rl_training.runtime.stop_signals import StopSignals
from rl_training.storage.checkpoints import (
    Checkpoint,
    checkpoint_steps,
    list_checkpoints,
    load_checkpoint,
    read_manifest,
    resolve_checkpoint,
    verify_checkpoint,
)
from rl_training.storage.durable_files import USE_ANOTHER, read_json
from rl_training.storage.run_directory import (
    RunDirectory,
    absolute_output_dir,
    create_run_directory,
    open_run_directory,
)
from rl_training.telemetry.metric_lines import warn
from rl_training.telemetry.sink_entries import sinks_of
from rl_training.telemetry.sinks import Sink

__all__ = ["CallbackArgument", "TrainResult", "agent_of", "evaluate_checkpoint", "predict", "resume", "train"]


def train(
    config: TrainConfig,
    *,
    env: EnvSource | None = None,
    eval_env: EnvMaker | str | None = None,
    callback: CallbackArgument | None = None,
    show: bool | None = None,
    initial_learner: dict[str, Any] | None = None,
    trackers: bool = True,
    sinks: Sequence[Sink] = (),
    agent_ready: Callable[[Agent], None] | None = None,
) -> TrainResult:
    """Run `config` in a new run directory.

    `env` replaces the config's env id: a callable that makes environments, or a vector environment. `eval_env` is
    evaluated on instead of `env`. `callback` is a `Callback`, a function that sees every `Progress` and stops the run
    by returning False, or a list of them. `show` forces the live display on or off. `initial_learner` is the state of a
    learner to start from. With `trackers=False` nothing is sent to the trackers that the config names. `sinks` are
    objects with the methods of `Sink`, beside the setting of that name. `agent_ready` is called with the agent of the
    run before its first step; it acts with what the run has learned so far.

    >>> from rl_training import load_config
    >>> result = train(load_config("ppo/cartpole", {"total_timesteps": 512}), show=False)
    >>> result.env_steps, result.interrupted, result.checkpoint.name
    (512, False, 'step-000000000512')
    """
    allow_own_encoder(config)
    signals = StopSignals()
    output_dir = absolute_output_dir(config.output_dir)  # now: an environment may change the working directory
    hooks = open_hooks(config, callback, warn)
    used = permitted(sinks_of(config), (), {}, trackers)
    made = make_sinks(used, sinks)
    with open_loop(config, env, eval_env, signals) as loop:
        if initial_learner is not None:
            loop.learner.load_state_dict(initial_learner)
        # From here on there is a run directory: everything that can be refused has been refused.
        run = create_run_directory(
            output_dir,
            config.run_name or default_run_name(config),
            algorithm=config.algo,
            env=config.env_id,
            seed=config.seed,
            total_timesteps=config.total_timesteps,
        )
        run = replace(run, named=Path(config.output_dir) / run.name)
        with signals, run.lock():
            save_config(loop.config, run.path / "config.yaml")
            return run_session(
                loop,
                run,
                signals,
                env=env,
                eval_env=eval_env,
                hooks=hooks,
                show=show,
                sinks=made,
                proofs=proof_of(config, used) | cluster_proof(config),
                agent_ready=agent_ready,
            )


def default_run_name(config: TrainConfig) -> str:
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", config.env_id.removeprefix(CALLABLE_PREFIX)).strip("-.")
    return f"{config.algo}-{env}-seed{config.seed}"[:64]


def resume(
    target: str | Path,
    *,
    total_timesteps: int | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    output_dir: str | Path = "runs",
    env: EnvSource | None = None,
    eval_env: EnvMaker | str | None = None,
    callback: CallbackArgument | None = None,
    show: bool | None = None,
    trackers: bool | None = None,
    sinks: Sequence[Sink] = (),
    encoder: type[Any] | None = None,
    trust: str | Sequence[str] = (),
    agent_ready: Callable[[Agent], None] | None = None,
) -> TrainResult:
    """Continue a run from its newest good checkpoint, or from the one named, in the same run directory.

    `total_timesteps` extends the run. `overrides` change settings that describe the machine or the reports, such as
    {"compile": "off"}; the others belong to the experiment. `trackers` says whether to log to the trackers that the run
    names; None does so only if this user started the run. An encoder of your own is code: pass its class as `encoder`,
    or its module in `trust`. The other options are those of `train`.
    """
    found = resolve_checkpoint(target, output_dir, segments="skip")
    is_named = found in (Path(target), Path(output_dir) / target)
    if len(found.parts) < 3:  # named from inside its run directory
        found = found.resolve()
    if read_manifest(found).kind != "resume":
        raise CheckpointError(f"{found}: holds an agent only; resume its run, or load the agent in Python and learn")
    run = open_run_directory(found.parent.parent)
    found = found.absolute()
    with run.lock():
        # Only now does no other process write to the run. The one that had the lock may have saved since.
        checkpoint = load_checkpoint(found if is_named else _to_continue(run))
        stored = stored_config(checkpoint, encoder, trust)
        with handed_over(stored.model.encoder, encoder):
            return _resume(
                run,
                checkpoint,
                total_timesteps,
                overrides,
                env=env,
                eval_env=eval_env,
                callback=callback,
                show=show,
                trackers=trackers,
                sinks=sinks,
                stored_config=stored,
                agent_ready=agent_ready,
            )


def _resume(
    run: RunDirectory,
    checkpoint: Checkpoint,
    total_timesteps: int | None,
    overrides: Mapping[str, Any] | Sequence[str],
    *,
    env: EnvSource | None,
    eval_env: EnvMaker | str | None,
    callback: CallbackArgument | None,
    show: bool | None,
    trackers: bool | None,
    sinks: Sequence[Sink],
    stored_config: TrainConfig,
    agent_ready: Callable[[Agent], None] | None,
) -> TrainResult:
    checkpoint = replace(checkpoint, skipped=_damaged_after(checkpoint))
    stored = sinks_of(stored_config)
    config, changes = changed_on_resume(stored_config, overrides, total_timesteps)
    ask_for_cluster(config, stored_config, overrides, run.read_info())
    config = with_env(config, env)
    used = permitted(sinks_of(config), stored, run.read_info(), trackers)
    if config.total_timesteps < checkpoint.env_steps:
        raise ConfigError(
            f"total_timesteps: {config.total_timesteps} is less than the {checkpoint.env_steps} steps already done"
        )
    if isinstance(env, str):
        env = None  # the config names it
    hooks = open_hooks(config, callback, warn)
    made = make_sinks(used, sinks)
    hooks.ignore_stops_until = run.read_info().get("stopped_at", 0)
    run.know(algorithm=config.algo, env=config.env_id, seed=config.seed, env_steps=checkpoint.env_steps)
    with StopSignals(has_checkpoint=True) as signals, open_loop(config, env, eval_env, signals, checkpoint) as loop:
        save_config(loop.config, run.path / "config.yaml")
        return run_session(
            loop,
            run,
            signals,
            env=env,
            eval_env=eval_env,
            hooks=hooks,
            show=show,
            checkpoint=checkpoint,
            sinks=made,
            proofs=proof_of(config, used) | cluster_proof(config),
            changes=changes,
            agent_ready=agent_ready,
        )


def _to_continue(run: RunDirectory) -> Path:
    """The checkpoint from which a run continues: the newest one that verifies.

    A run that stopped by itself continues from its newest exact one, so that it goes on as if it had not stopped. The
    steps after that one are trained again. Without a schedule (`checkpoint_every` 0) there is nothing to be exact to.
    """
    newest = resolve_checkpoint(run.path)
    if "stop_reason" not in run.read_info() or read_manifest(newest).exact:
        return newest
    for path in list_checkpoints(run.path, "resume"):
        if not verify_checkpoint(path) and read_manifest(path).exact:
            is_start = checkpoint_steps(path) == 0
            return newest if is_start and read_json(path / "config.json").get("checkpoint_every") == 0 else path
    return newest


def _damaged_after(checkpoint: Checkpoint) -> list[str]:
    """The problems of newer checkpoints of the same run: they are set aside, so the user must know."""
    paths = list_checkpoints(checkpoint.path.parent.parent, "resume")
    newer = [path for path in paths if checkpoint_steps(path) > checkpoint.env_steps]
    return [problems[0].removesuffix(USE_ANOTHER) for path in newer if (problems := verify_checkpoint(path))]


def evaluate_checkpoint(
    target: str | Path,
    *,
    episodes: int = 10,
    seed: int = DEFAULT_SEED,
    deterministic: bool = True,
    max_steps: int | None = None,
    env: EnvMaker | str | None = None,
    output_dir: str | Path = "runs",
    encoder: type[Any] | None = None,
    trust: str | Sequence[str] = (),
    policy: str | None = None,
) -> EvalResult:
    """Evaluate the agent of a checkpoint or run; episode i is reset with `seed` + i and cut after `max_steps` steps.

    Without `max_steps`, the run's setting `eval_max_steps` applies. `encoder` and `trust` are those of `resume`. An
    agent with several policies (TD7: kept and last) plays `policy`, or the one that its settings say.

    >>> from rl_training import PPO
    >>> len(evaluate_checkpoint(PPO("CartPole-v1", seed=0).save("my-agent"), episodes=5).returns)
    5
    """
    agent = agent_of(target, output_dir, encoder=encoder, trust=trust)
    if policy is not None:
        agent.choose_policy(policy)
    return agent.evaluate(episodes=episodes, seed=seed, deterministic=deterministic, max_steps=max_steps, env=env)


def predict(
    target: str | Path,
    observation: Any,
    *,
    deterministic: bool = True,
    output_dir: str | Path = "runs",
    encoder: type[Any] | None = None,
    trust: str | Sequence[str] = (),
) -> Any:
    """The action of a checkpoint's agent for a raw observation or a batch of them, in the units of the environment."""
    agent = agent_of(target, output_dir, encoder=encoder, trust=trust)
    actions, _ = agent.predict(observation, deterministic=deterministic)
    return actions


def agent_of(
    target: str | Path,
    output_dir: str | Path = "runs",
    *,
    encoder: type[Any] | None = None,
    trust: str | Sequence[str] = (),
) -> Agent:
    """The agent of a checkpoint or run. `encoder` and `trust` are those of `resume`."""
    checkpoint = load_checkpoint(resolve_checkpoint(target, output_dir, segments="skip"))
    return Agent.load(checkpoint, encoder=encoder, trust=trust)


def allow_own_encoder(config: TrainConfig) -> None:
    """Obey a config that the user trains with: it may name an encoder of the user's own."""
    if config.model.has_own_encoder:
        allow(config.model.encoder)
