"""Metrics in words: the title, the unit and the section of the page that a metric has. Others keep their own name."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from rl_training.telemetry.metric_lines import INFO_PREFIX, RECENT_EPISODES


class Words(NamedTuple):
    title: str
    unit: str = ""
    section: str = "more"


# In the order of the page.
SECTIONS = {
    "env": "The environment's own numbers",
    "fleet": "Actors and lag",
    "losses": "Losses",
    "time": "Time",
    "more": "More metrics",
    "policy": "Policy and values",
    "data": "Episodes and data",
}

METRICS = {
    "mean_return": Words("Return in training", f"mean of the last {RECENT_EPISODES} episodes", "return"),
    "eval_mean_return": Words("Evaluation", "mean return", "return"),
    "eval_std_return": Words("Spread of an evaluation", "standard deviation of its returns", "return"),
    "loss": Words("Loss", "", "losses"),
    "policy_loss": Words("Policy loss", "", "losses"),
    "value_loss": Words("Value loss", "", "losses"),
    "actor_loss": Words("Actor loss", "", "losses"),
    "critic_loss": Words("Critic loss", "", "losses"),
    "temperature_loss": Words("Temperature loss", "", "losses"),
    "auxiliary_loss": Words("Auxiliary loss", "", "losses"),
    "td_error": Words("TD error", "mean, absolute", "losses"),
    "entropy": Words("Entropy", "nats", "policy"),
    "entropy_share": Words("Entropy share", "of the largest possible entropy", "policy"),
    "approx_kl": Words("Step of the policy", "KL divergence, nats", "policy"),
    "mean_kl": Words("Step of the policy", "KL divergence, nats", "policy"),
    "policy_std": Words("Spread of the policy", "standard deviation of its actions", "policy"),
    "rho_mean": Words("Importance ratios", "mean", "policy"),
    "rho_clip_fraction": Words("Clipped importance ratios", "share", "policy"),
    "clip_fraction": Words("Clipped ratios", "share", "policy"),
    "explained_variance": Words("Explained variance", "share of the returns' variance", "policy"),
    "q_mean": Words("Mean Q", "return", "policy"),
    "q_value_mean": Words("Mean Q", "return", "policy"),
    "target_q_mean": Words("Mean target Q", "return", "policy"),
    "target_std": Words("Spread of targets", "standard deviation", "policy"),
    "temperature": Words("Temperature", "", "policy"),
    "exploration": Words("Exploration", "share of random actions", "policy"),
    "learning_rate": Words("Learning rate", "", "policy"),
    "grad_norm": Words("Gradient norm", "before clipping", "policy"),
    "actor_grad_norm": Words("Actor gradient norm", "before clipping", "policy"),
    "critic_grad_norm": Words("Critic gradient norm", "before clipping", "policy"),
    "dead_units": Words("Dead units", "share of hidden units", "policy"),
    "episodes": Words("Episodes", "count", "data"),
    "mean_length": Words("Episode length", f"env steps, mean of the last {RECENT_EPISODES}", "data"),
    "longest_episode": Words("Longest episode", "env steps", "data"),
    "eval_mean_length": Words("Episode length in evaluations", "env steps", "data"),
    "support_clipped": Words("Targets outside the support", "share of their mass", "policy"),
    "reward_max": Words("Largest reward", "", "data"),
    "reward_clipped": Words("Rewards beyond the clip", "share", "data"),
    "novelty": Words("Novelty", "mean error of a prediction", "data"),
    "updates": Words("Updates", "count", "data"),
    "steps_per_second": Words("Speed", "env steps per second", "time"),
    "time_env": Words("Environment", "share of time", "shares"),
    "time_act": Words("Acting", "share of time", "shares"),
    "time_learn": Words("Learning", "share of time", "shares"),
    "time_other": Words("Other", "share of time", "shares"),
}
HIDDEN = frozenset({"eval_episodes", "eval_cut_episodes", "eval_seed", "wall_seconds"})
FLEET = re.compile(r"(^|_)(lag|actors|staleness|queue)(_|$)")


def describe(metric: str) -> dict[str, Any]:
    """Title, unit and section of a metric."""
    if metric in METRICS:
        return METRICS[metric]._asdict()
    if metric.startswith(INFO_PREFIX):
        return Words(metric.removeprefix(INFO_PREFIX), f"mean of the last {RECENT_EPISODES} episodes", "env")._asdict()
    if metric.startswith(f"eval_{INFO_PREFIX}"):
        return Words(metric.removeprefix(f"eval_{INFO_PREFIX}"), "mean of an evaluation", "env")._asdict()
    if metric.endswith("_loss"):
        return Words(metric, "", "losses")._asdict()
    if FLEET.search(metric):
        return Words(metric, "", "fleet")._asdict()
    return Words(metric)._asdict()
