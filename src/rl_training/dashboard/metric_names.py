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
    "auxiliary_value_loss": Words("Value loss of the auxiliary phase", "", "losses"),
    "auxiliary_head_loss": Words("Loss of the auxiliary head", "", "losses"),
    "dual_loss": Words("Dual loss", "of the multipliers", "losses"),
    "embedding_loss": Words("Embedding loss", "", "losses"),
    "novelty_loss": Words("Novelty loss", "", "losses"),
    "novelty_value_loss": Words("Value loss of novelty", "", "losses"),
    "td_error": Words("TD error", "mean, absolute", "losses"),
    "entropy": Words("Entropy", "nats", "policy"),
    "entropy_share": Words("Entropy share", "of the largest possible entropy", "policy"),
    "approx_kl": Words("Step of the policy", "KL divergence, nats", "policy"),
    "mean_kl": Words("Step of the policy", "KL divergence, nats", "policy"),
    "covariance_kl": Words("Step of the spread", "KL divergence, nats", "policy"),
    "predicted_kl": Words("Predicted step of the policy", "KL divergence, nats", "policy"),
    "improvement_kl": Words("Sample weights from equal ones", "KL divergence, nats", "policy"),
    "kl_to_target": Words("Distance to the target policy", "KL divergence, nats", "policy"),
    "kl_average": Words("Distance to the average policy", "KL divergence, nats", "policy"),
    "auxiliary_kl": Words("Policy moved by the auxiliary phase", "KL divergence, nats", "policy"),
    "kl_penalty": Words("Penalty on steps", "KL divergences by their multipliers", "policy"),
    "mean_multiplier": Words("Multiplier of the mean's step", "", "policy"),
    "covariance_multiplier": Words("Multiplier of the spread's step", "", "policy"),
    "surrogate_improvement": Words("Gain of a step", "in the surrogate loss", "policy"),
    "line_search_steps": Words("Steps that were tried", "count for each update", "policy"),
    "line_search_success": Words("Steps that were taken", "share of updates", "policy"),
    "projected": Words("Projected gradients", "share of rows", "policy"),
    "policy_std": Words("Spread of the policy", "standard deviation of its actions", "policy"),
    "ratio_mean": Words("Importance ratios", "mean", "policy"),
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
    "auxiliary_grad_norm": Words("Gradient norm of the auxiliary phase", "before clipping", "policy"),
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
    "lag_mean": Words("Lag, mean", "updates", "fleet"),
    "lag_max": Words("Lag, largest", "updates", "fleet"),
    "queue": Words("Waiting to be learned", "rollouts", "fleet"),
    "actors": Words("Actors", "count", "fleet"),
    "actors_alive": Words("Actors that run", "count", "fleet"),
    "actor_restarts": Words("Actors replaced", "count since the start", "fleet"),
    "actors_wait": Words("Actors wait", "share of time, mean actor", "fleet"),
    "learner_waits": Words("Learner waits", "share of time", "fleet"),
    "samples_per_insert": Words("Samples per insert", "rows sampled for each new row", "fleet"),
    "env_steps_granted": Words("Steps ordered", "env steps", "fleet"),
    "env_steps_learned": Words("Steps learned", "env steps", "fleet"),
    "env_steps_in_flight": Words("Steps on their way", "env steps", "fleet"),
    "env_steps_stale": Words("Steps that came too old", "env steps", "fleet"),
    "env_steps_lost": Words("Steps lost with an actor", "env steps", "fleet"),
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
