"""The speed of a planned run: a few seconds of its own loop, measured part by part."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rl_training.checkup.env_trial import Broken, random_walk
from rl_training.config.base import ReplayConfig
from rl_training.config.train_config import TrainConfig
from rl_training.envs.processes.async_vector import AsyncVector
from rl_training.runtime.collection.collector import Collector
from rl_training.runtime.collection.rollout_writer import RolloutWriter
from rl_training.runtime.collection.steps import Step
from rl_training.runtime.loops import Loop, OnPolicyLoop, ReplayLoop

# The share of the time for environment and acting; an on-policy update is measured in the rest.
COLLECTING_SHARE = 0.6
STEPS_ALONE = 200
MOST_UPDATES = 10  # of an on-policy run; a mean over more says nothing new
PARTS = ("env", "act", "learn", "other")

Clock = Callable[[], float]


@dataclass(frozen=True)
class Speed:
    """Seconds per environment step, by part. Replay algorithms neither act nor learn before `learning_starts`."""

    env: float
    act: float
    learn: float
    other: float
    learning_starts: int = 0

    @property
    def seconds_per_step(self) -> float:
        return self.env + self.act + self.learn + self.other

    def share(self, part: str) -> float:
        seconds: float = getattr(self, part)
        return seconds / max(self.seconds_per_step, 1e-12)

    @property
    def shares(self) -> dict[str, float]:
        return {part: self.share(part) for part in PARTS}

    def run_seconds(self, total_timesteps: int) -> float:
        """The time of a run without its evaluations and checkpoints."""
        learning = max(0, total_timesteps - self.learning_starts)
        return total_timesteps * (self.env + self.other) + learning * (self.act + self.learn)


def prepared(config: TrainConfig) -> TrainConfig:
    """The config of the loop to measure: not compiled, and learning starts after a few steps."""
    settings = config.algo_kwargs
    if isinstance(settings, ReplayConfig):
        early = min(settings.learning_starts, config.num_envs * (settings.n_step + 1))
        settings = settings.model_copy(update={"learning_starts": early})
    return config.model_copy(update={"compile": "off", "algo_kwargs": settings})


def measure(loop: Loop, seconds: float, learning_starts: int = 0, clock: Clock = time.perf_counter) -> Speed:
    """Run a new loop for about `seconds`: at least one step of every environment and one update."""
    if isinstance(loop, OnPolicyLoop):
        return _measure_on_policy(loop, seconds, clock)
    assert isinstance(loop, ReplayLoop)
    return replace(_measure_replay(loop, seconds, clock), learning_starts=learning_starts)


def _measure_on_policy(loop: OnPolicyLoop, seconds: float, clock: Clock) -> Speed:
    collector = loop.collector
    assert isinstance(collector, Collector)  # the probe of a run starts no actors
    collector.step()  # the first step is slower than the others
    collector.seconds_env = collector.seconds_acting = 0.0
    steps: list[Step] = []
    started = clock()
    while len(steps) < loop.num_steps and (not steps or clock() - started < COLLECTING_SHARE * seconds):
        steps.append(collector.step())
    rows = len(steps) * collector.num_envs
    env, act = collector.seconds_env / rows, collector.seconds_acting / rows
    other = max(0.0, (clock() - started) / rows - env - act)
    # A rollout of a slow env would take too long. The steps that there are, repeated, take the same time to learn from.
    writer = RolloutWriter()
    writer.start(loop.num_steps, steps[0].memory)
    for index in range(loop.num_steps):
        writer.add(steps[index % len(steps)])
    rollout = writer.finish(collector.obs)
    batch = replace(rollout, rewards=loop.learner.shape_rewards(rollout.rewards))
    loop.learn_from(batch)  # the first update is slower too
    loop.seconds_learning, updates = 0.0, 0
    phases = int(getattr(loop.config.algo_kwargs, "policy_phases", 1))  # PPG learns more after this many updates
    while updates < phases or (clock() - started < seconds and updates < MOST_UPDATES):
        loop.learn_from(batch)
        updates += 1
    learn = loop.seconds_learning / updates / (loop.num_steps * collector.num_envs)
    return Speed(env, act, learn, other)


def _measure_replay(loop: ReplayLoop, seconds: float, clock: Clock) -> Speed:
    collector, settings = loop.collector, loop.settings
    while loop.learner.updates == 0 and loop.round() is not None:
        pass  # warm-up, and the first update, which is slower than the others
    collector.seconds_env = collector.seconds_acting = loop.seconds_learning = 0.0
    before, updates, started = loop.env_steps, loop.learner.updates, clock()
    while clock() - started < seconds or loop.learner.updates == updates:
        if loop.round() is None:
            break
    steps, done = max(1, loop.env_steps - before), max(1, loop.learner.updates - updates)
    elapsed = clock() - started
    env, act, learn = (
        total / steps for total in (collector.seconds_env, collector.seconds_acting, loop.seconds_learning)
    )
    other = max(0.0, elapsed / steps - env - act - learn)
    # By the ratio of the settings: a short probe may end between two rounds of updates.
    per_step = 1.0 if settings.gradient_steps == -1 else settings.gradient_steps / settings.train_frequency
    return Speed(env, act, loop.seconds_learning / done * per_step, other)


def seconds_alone(loop: Loop, seconds: float, clock: Clock = time.perf_counter) -> float | None:
    """What a step of one environment takes in this process; None if the run steps its environments here anyway."""
    assert isinstance(loop.collector, Collector)
    envs = loop.collector.envs.unwrapped
    if not isinstance(envs, AsyncVector):
        return None
    started = clock()
    try:
        walk = random_walk(envs.local_env(), loop.collector.spaces, STEPS_ALONE, seconds, clock)
    except Broken:  # it was sound a moment ago, and the run survives failures
        return None
    return (clock() - started) / walk.steps


def parameter_count(loop: Loop) -> int:
    """The number of trained parameters; those of target networks do not count."""
    trained = {
        id(parameter): parameter.numel()
        for part in vars(loop.learner).values()
        if hasattr(part, "parameters") and callable(part.parameters)
        for parameter in part.parameters()
        if parameter.requires_grad
    }
    return sum(trained.values())


def state_bytes(value: object) -> int:
    """Bytes of all arrays and tensors in a nested state."""
    if isinstance(value, dict):
        return sum(map(state_bytes, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(state_bytes, value))
    if isinstance(value, np.ndarray):
        return value.nbytes
    count, width = getattr(value, "numel", None), getattr(value, "element_size", None)
    return int(count() * width()) if callable(count) and callable(width) else 0
