"""The settings that may say `auto`: device, threads, compilation, precision, vector backend, checkpoint interval.

`resolve_auto` replaces them with the values for this machine. A run stores those values, and a resumed run reuses them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

from rl_training.algorithms.common.compile.compiled_step import can_compile
from rl_training.algorithms.common.learner import resolve_device
from rl_training.config.base import ReplayConfig
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import BackendName
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.models.layers.precision import NARROWEST, bfloat16_pays
from rl_training.runtime.compile_gain import Forecast, forecast

WIDE_LAYER = 256
WIDE_BATCH = 256
MOST_THREADS = 4

# Env steps between checkpoints. A checkpoint takes 15 to 200 ms and restarts all episodes: it must not come so often
# that it costs 2% of a fast run, nor so rarely that a slow run loses more than a few minutes.
ON_POLICY_INTERVAL, ON_POLICY_IMAGE_INTERVAL = 50_000, 100_000
REPLAY_INTERVAL, REPLAY_IMAGE_INTERVAL = 20_000, 50_000
EVALUATIONS_TO_STOP = 20  # of a run that stops by its evaluations and does not say how often it has them
STEPS_PER_ENV = 5_000  # at least, so that with many environments episodes still end by themselves


def resolve_auto(
    config: TrainConfig, spaces: Spaces, made: BackendName | None = None, *, num_envs: int | None = None
) -> TrainConfig:
    """Replace every `auto` with its value here.

    `made` is the vector backend that was made for the run. Without it (the caller passed a vector environment)
    `vector_backend` stays as it is. The values are valid by construction, so the config is not validated again.
    """
    device = str(resolve_device(config.device))
    shape = shape_of(spaces)
    settings: dict[str, Any] = {
        "device": device,
        "threads": resolve_threads(config, shape),
        "compile": resolve_compile(config, device, shape, made),
        "precision": resolve_precision(config, shape, device),
        "checkpoint_every": resolve_checkpoint_every(config, shape, num_envs or config.num_envs),
    }
    if config.stops_by_evaluation and not config.eval_every:
        settings["eval_every"] = max(1, config.total_timesteps // EVALUATIONS_TO_STOP)
    if made is not None and config.vector_backend == "auto":
        settings["vector_backend"] = made
    return config.model_copy(update=settings)


def explain_auto(config: TrainConfig, spaces: Spaces, made: BackendName | None = None) -> dict[str, str]:
    """Why `resolve_auto` compiles this run or not, for run.json; nothing if the config says so itself."""
    if config.compile != "auto":
        return {}
    device, shape = str(resolve_device(config.device)), shape_of(spaces)
    reason = why_not_compiled(config, device) or str(compile_forecast(config, shape, made))
    return {"compile_choice": f"{resolve_compile(config, device, shape, made)}: {reason}"}


def shape_of(spaces: Spaces) -> tuple[int, ...]:
    """The shape of its observations; of a Dict with images, that of the first one."""
    return spaces.images[0].shape if spaces.images else spaces.observation_shape


def resolve_threads(config: TrainConfig, observation_shape: tuple[int, ...] = ()) -> int:
    """`auto` is one thread, or several for images and where batches of 256 rows meet layers of 256 units.

    Small networks are fastest with one thread: there is too little work to share.
    """
    if config.threads != "auto":
        return config.threads
    if not _shares_its_work(config, observation_shape):
        return 1
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    runtime = config.runtime.resolved(config.algo)
    if runtime.backend == "process" or (runtime.backend == "ray" and runtime.address is None):
        available -= config.runtime.actors  # each of them needs a core of its own
    # Torch's current number is the limit that the user set (OMP_NUM_THREADS). More threads than that on a shared
    # machine wait for each other, and training becomes many times slower.
    return max(1, min(MOST_THREADS, available, torch.get_num_threads()))


def _shares_its_work(config: TrainConfig, observation_shape: tuple[int, ...]) -> bool:
    """Whether gradient steps are large enough for several threads."""
    settings = config.algo_kwargs
    rows = getattr(settings, "batch_size", getattr(settings, "minibatch_size", 0))
    layers = (*config.model.hidden_sizes, *config.model.for_critic().hidden_sizes)
    return len(observation_shape) >= 3 or (max(layers, default=0) >= WIDE_LAYER and rows >= WIDE_BATCH)


def resolve_checkpoint_every(config: TrainConfig, observation_shape: tuple[int, ...], num_envs: int) -> int:
    """`auto` depends on the family of the algorithm, on whether it sees images, and on the number of environments.

    It depends neither on `total_timesteps` (a run that is extended is the run that was longer from the start) nor on a
    measured speed: a checkpoint cuts all episodes, so the interval is part of the experiment.
    """
    if config.checkpoint_every != "auto":
        return config.checkpoint_every
    images = len(observation_shape) >= 3
    if isinstance(config.algo_kwargs, ReplayConfig):
        interval = REPLAY_IMAGE_INTERVAL if images else REPLAY_INTERVAL
    else:
        interval = ON_POLICY_IMAGE_INTERVAL if images else ON_POLICY_INTERVAL
    return max(interval, STEPS_PER_ENV * num_envs)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Give torch `count` threads and NumPy's BLAS one, which only handles the few rows of acting."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(1, "blas"):
            yield
    finally:
        torch.set_num_threads(before)


def resolve_compile(
    config: TrainConfig, device: str, observation_shape: tuple[int, ...] = (), made: BackendName | None = None
) -> Literal["on", "off"]:
    """`auto` compiles on the CPU if there is a C++ compiler and the run will save clearly more than that takes."""
    if config.compile == "on":
        reason = config.algo_kwargs.why_not_compilable()
        if reason is not None:
            raise ConfigError(f"compile: {config.algo} {reason}, use compile=off", key="compile")
        if not can_compile():
            raise ConfigError("compile: needs a C++ compiler such as g++, or use compile=off", key="compile")
        return "on"
    if config.compile == "off":
        return "off"
    doubt = why_not_compiled(config, device)
    return "on" if doubt is None and compile_forecast(config, observation_shape, made).pays else "off"


def compile_forecast(
    config: TrainConfig, observation_shape: tuple[int, ...] = (), made: BackendName | None = None
) -> Forecast:
    """What compiling would cost and save. It depends on the settings only, so a run that is repeated is the same run.

    So `threads: auto` counts as the most threads that it may become, on whatever machine.
    """
    threads = config.threads
    if threads == "auto":
        threads = MOST_THREADS if _shares_its_work(config, observation_shape) else 1
    return forecast(config, batched=made == "batched", images=len(observation_shape) >= 3, threads=threads)


def why_not_compiled(config: TrainConfig, device: str) -> str | None:
    """Why `auto` cannot compile at all, or None."""
    reason = config.algo_kwargs.why_not_compilable()
    if reason is not None:
        return f"{config.algo} {reason}"
    if device != "cpu":
        return f"the device is {device}"
    return None if can_compile() else "there is no C++ compiler"


def resolve_precision(
    config: TrainConfig, observation_shape: tuple[int, ...], device: str
) -> Literal["float32", "bfloat16"]:
    """`auto` is bfloat16 on a CPU that is faster with it, if the networks have layers that it is for."""
    if config.precision != "auto":
        return config.precision
    model = config.model
    sizes = [*pairwise(model.hidden_sizes), *pairwise(model.for_critic().hidden_sizes)]
    wide = any(min(pair) >= NARROWEST for pair in sizes)
    images = len(observation_shape) >= 3 and model.encoder != "mlp" and not model.has_own_encoder
    return "bfloat16" if device == "cpu" and (wide or images) and bfloat16_pays() else "float32"


def compile_setting_on_resume(config: TrainConfig) -> TrainConfig:
    """Compile a resumed run exactly if it was compiled before: anything else changes its numbers."""
    if config.compile != "on" or config.algo_kwargs.why_not_compilable() is not None:
        # Older runs may say `on` although nothing was compiled, or have no setting at all.
        return config.model_copy(update={"compile": "off"})
    if not can_compile():
        raise ConfigError(
            "compile: the run was compiled and needs a C++ compiler such as g++ to continue exactly; install one, or "
            "resume with --set compile=off (in Python: overrides={'compile': 'off'}), which is not bit for bit",
            key="compile",
        )
    return config
