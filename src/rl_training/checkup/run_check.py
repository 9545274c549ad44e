"""Checks of a planned run: its environment, its size, its speed. Everything is tried, and nothing is saved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rl_training.checkup.disk import LEAST_SPACE, Disk, check_disk, size
from rl_training.checkup.env_check import env_findings, fitting_algorithms
from rl_training.checkup.finding import Finding, fail, ok, warn
from rl_training.checkup.machine import Machine
from rl_training.checkup.run_limits import Setting, check_backend, check_duration, check_limit, limit_of
from rl_training.checkup.speed import Clock, Speed, measure, parameter_count, prepared, seconds_alone, state_bytes
from rl_training.config.base import RolloutConfig
from rl_training.config.train_config import TrainConfig
from rl_training.errors import RLTrainingError
from rl_training.runtime.auto_settings import limited_threads, resolve_compile, shape_of
from rl_training.runtime.loops import Loop
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.setup.resolved_defaults import resolve_defaults
from rl_training.runtime.setup.run_envs import spaces_of
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.workflows import allow_own_encoder

PROBE_SECONDS = 5.0
UPDATE_KNOBS = ("update_epochs", "train_frequency")
EXTRA_CHECKPOINTS = 2  # beside `keep_checkpoints`: the best agent, and the one that is being written


@dataclass
class Plan:
    """The numbers of a planned run, for programs. A number that could not be found is None."""

    parameters: int | None = None
    replay_bytes: int | None = None
    checkpoint_bytes: int | None = None
    disk_bytes: int | None = None
    steps_per_second: float | None = None
    shares: dict[str, float] | None = None
    limit: str | None = None
    run_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_findings(
    config: TrainConfig,
    machine: Machine,
    disk: Disk,
    plan: Plan,
    *,
    seconds: float = PROBE_SECONDS,
    clock: Clock = time.perf_counter,
) -> Iterator[Finding]:
    """Try a run, and fill in `plan`. Ends at the first failure: what follows would only repeat it."""
    allow_own_encoder(config)
    for finding in env_findings(
        config.env_id, config.training_kwargs, action_bound=config.action_bound, side_by_side=False
    ):
        if finding.what != "algorithms":
            yield finding
        if finding.status == "fail":
            return
    try:
        config = resolve_defaults(config)
    except RLTrainingError as error:
        yield fail("run", str(error))
        return
    fits = _check_algorithm(config)
    yield fits
    if fits.status == "fail":
        return
    try:
        with open_loop(prepared(config), None, None, StopSignals()) as loop, limited_threads(int(loop.config.threads)):
            compiled, should_compile = _compiles(config, loop), _compiles(_automatic(config), loop)
            yield from _check_sizes(loop, config, machine, disk, plan)
            speed = measure(loop, seconds, getattr(config.algo_kwargs, "learning_starts", 0), clock)
            backend, alone = loop.config.vector_backend, seconds_alone(loop, seconds / 5, clock)
    except RLTrainingError as error:
        yield fail("run", str(error))
        return
    _note_speed(plan, speed, config.total_timesteps)
    setting = Setting(
        backend=backend,
        num_envs=config.num_envs,
        cores=machine.usable_cores,
        alone=alone,
        on_policy=isinstance(config.algo_kwargs, RolloutConfig),
        can_fork=machine.can_fork,
        compiled=compiled,
        should_compile=config.compile == "off" and should_compile,
        update_knob=next((name for name in UPDATE_KNOBS if hasattr(config.algo_kwargs, name)), ""),
        cuda_unused=config.device == "cpu" and _cuda_is_available(),
    )
    if (doubt := check_backend(setting)) is not None:
        yield doubt
    yield check_limit(speed, setting)
    yield check_duration(speed, config.total_timesteps, compiled=compiled)


def _check_algorithm(config: TrainConfig) -> Finding:
    try:
        spaces = spaces_of(config.env_id, config)
        fitting, refusals = fitting_algorithms(spaces, config.env_id)
    except RLTrainingError as error:
        return fail("algorithms", str(error))
    if config.algo in refusals:
        return fail("algorithms", refusals[config.algo])
    others = [name for name in fitting if name != config.algo]
    return ok("algorithms", f"{config.algo} fits, and so do {', '.join(others) or 'no others'}")


def _check_sizes(loop: Loop, config: TrainConfig, machine: Machine, disk: Disk, plan: Plan) -> Iterator[Finding]:
    plan.parameters = parameter_count(loop)
    plan.checkpoint_bytes = state_bytes(loop.learner.state_dict())
    replay = 0 if loop.buffer is None else loop.buffer.nbytes
    if loop.buffer is not None:
        plan.replay_bytes = replay
        rows = min(1.0, config.total_timesteps / sum(shard.capacity for shard in loop.buffer.shards))
        replay = int(replay * rows)  # a short run does not fill the buffer
    plan.disk_bytes = (config.keep_checkpoints + EXTRA_CHECKPOINTS) * plan.checkpoint_bytes + replay
    memory = "" if plan.replay_bytes is None else f", replay buffer {size(plan.replay_bytes)}"
    yield ok("size", f"{plan.parameters:,} parameters{memory}, checkpoint {size(plan.checkpoint_bytes)} without replay")
    if plan.replay_bytes is not None and machine.memory is not None and plan.replay_bytes > machine.memory / 2:
        detail = f"the replay buffer will take {size(plan.replay_bytes)} of {size(machine.memory)} available"
        yield warn("size", detail, "lower buffer_size if other programs need memory")
    if disk.problem is None and disk.free < plan.disk_bytes:
        yield from (each for each in check_disk(disk, max(LEAST_SPACE, plan.disk_bytes)) if each.status == "fail")


def _note_speed(plan: Plan, speed: Speed, total_timesteps: int) -> None:
    plan.run_seconds = speed.run_seconds(total_timesteps)
    plan.steps_per_second = total_timesteps / max(plan.run_seconds, 1e-9)
    plan.shares, plan.limit = speed.shares, limit_of(speed)


def _compiles(config: TrainConfig, loop: Loop) -> bool:
    """Whether a run with this config compiles, on the environments of `loop`."""
    shape, made = shape_of(loop.collector.spaces), loop.config.vector_backend
    return resolve_compile(config, loop.config.device, shape, made) == "on"


def _automatic(config: TrainConfig) -> TrainConfig:
    return config.model_copy(update={"compile": "auto"})


def _cuda_is_available() -> bool:
    import torch

    return torch.cuda.is_available()
