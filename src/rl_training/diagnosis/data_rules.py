"""Rules about what a run learns from: episodes, rewards, replay, and the speed of the environment."""

from __future__ import annotations

from statistics import median
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.diagnosis.run_finding import Finding
from rl_training.diagnosis.stream_summary import KEPT, StreamSummary

ENDLESS = 20_000  # steps of one env without an end
FEW_BATCHES = 10
MANY_UPDATES, STEADY = 8.0, 5
CLIPPED_REWARDS = 0.2
ENV_SHARE = 0.92  # LunarLander takes up to 0.75 of a run and drawing CarRacing 0.88, which is as it should be


def episodes_never_end(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """No episode has ended for 20,000 steps of each env."""
    steps = (stream.env_steps - stream.episode_at) // config.num_envs
    if stream.is_evaluation or steps < ENDLESS:
        return None
    every = config.checkpoint_every
    cut = every // config.num_envs if isinstance(every, int) and every else 0
    cause, remedy = "the environment has no end and no time limit", "set env_kwargs.max_episode_steps"
    if cut and cut < ENDLESS:
        cause = f"each checkpoint cuts all episodes, after {cut:,} steps of each environment"
        remedy = "raise checkpoint_every, or set env_kwargs.max_episode_steps"
    return Finding(
        "episodes_never_end",
        stream.env_steps,
        f"no episode has ended for {steps:,} steps of each environment",
        cause,
        remedy,
        {"steps": steps, "episodes": stream.episodes},
    )


def usual_updates(settings: Any) -> float:
    """Updates per environment step by default: 20 for REDQ and DroQ, which are made for many, and 1 or fewer else."""
    fields = type(settings).model_fields
    updates, every = fields["gradient_steps"].default, fields["train_frequency"].default
    return 1.0 if updates == -1 else float(updates / every)


def replay_starved(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Updates see the same few transitions again and again."""
    settings: Any = config.algo_kwargs
    if stream.is_evaluation or len(stream.update_ratios) < STEADY or not hasattr(settings, "buffer_size"):
        return None
    if not hasattr(settings, "batch_size"):  # learns from every rollout as well
        return None
    stored, batch = min(stream.env_steps, settings.buffer_size), settings.batch_size
    ratio = median(list(stream.update_ratios)[-STEADY:])
    numbers = {"stored": float(stored), "batch_size": float(batch), "updates_per_step": ratio}
    if ratio > max(MANY_UPDATES, 2 * usual_updates(settings)):
        return Finding(
            "replay_starved",
            stream.env_steps,
            f"there are {ratio:.1f} updates per environment step",
            "the networks fit the few transitions that are stored",
            "lower gradient_steps or raise train_frequency",
            numbers,
        )
    if ratio > 0 and stored < FEW_BATCHES * batch and stored == settings.buffer_size:
        return Finding(
            "replay_starved",
            stream.env_steps,
            f"the replay buffer holds {stored:,} transitions, {stored / batch:.1f} batches",
            "every batch is nearly the whole buffer, and older experience is forgotten",
            "raise buffer_size",
            numbers,
        )
    return None


def rewards_clipped(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Many rewards are beyond `reward_clip`, so that different outcomes look alike."""
    share = stream.middle("reward_clipped", STEADY) if stream.has("reward_clipped") else None
    if share is None or share <= CLIPPED_REWARDS:
        return None
    limit = getattr(config.algo_kwargs, "reward_clip", None) or 0.0
    return Finding(
        "rewards_clipped",
        stream.env_steps,
        f"{share:.0%} of the rewards are beyond reward_clip={limit:g}",
        "good and bad outcomes look alike to the learner",
        "lower reward_scale, so that fewer rewards are clipped, or set reward_clip=null",
        {"reward_clipped": share, "reward_clip": limit},
    )


def env_is_the_limit(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Most of the time goes into stepping environments. This is about the machine, not about the experiment."""
    values = stream.last("time_env", KEPT) if stream.has("time_env") else []
    if not values or min(values) <= ENV_SHARE:
        return None
    remedy = (
        "use more CPU cores or a faster environment"
        if config.vector_backend == "async"
        else "step more environments in processes (vector_backend=async), or make the environment faster"
    )
    return Finding(
        "env_is_the_limit",
        stream.env_steps,
        f"{values[-1]:.0%} of the time goes into the environment",
        "the learner waits for it",
        remedy,
        {"time_env": values[-1]},
        exact=False,
    )
