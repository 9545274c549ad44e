"""Consent to a Ray cluster: whether the user of this process chose the cluster that a stored run names.

The learner takes pickled objects from a cluster that it joins, and gives it the token of the user's clusters. Even one
on this machine listens on the network. A run directory that came from someone else must not decide that, so a run on a
cluster carries a proof in its run.json, as a run with trackers does (telemetry/tracker_consent.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.config.loading import load_config
from rl_training.config.runtime_settings import RuntimeConfig
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.telemetry.metric_lines import warn
from rl_training.telemetry.tracker_consent import is_own, proof_for

PROOF_FIELD = "cluster_proof"  # in run.json
NOBODY = "nobody.invalid:0"


def cluster_proof(config: TrainConfig) -> dict[str, str]:
    """The field of run.json that shows who chose the cluster of a run; empty if it has none."""
    return proof_for(_signed(config.runtime), PROOF_FIELD) if config.runtime.backend == "ray" else {}


def ask_for_cluster(
    config: TrainConfig,
    stored: TrainConfig,
    overrides: Mapping[str, Any] | Sequence[str],
    run_info: Mapping[str, Any],
) -> None:
    """ConfigError if a resumed run would use a Ray cluster that this user chose neither before nor now."""
    if config.runtime.backend != "ray" or not _is_foreign(stored, run_info) or _chosen_now(stored, overrides):
        return
    runtime = stored.runtime
    again = "runtime.backend=ray" if runtime.address is None else _setting(runtime.address)
    raise ConfigError(
        f"runtime: a run that is not known to be yours names {_named(runtime)}, so it is not used; use it with "
        f"--set {again}, or this machine with --set {_own_machine(runtime)} (in Python: overrides=)",
        key="runtime.address",
    )


def without_foreign_cluster(config: TrainConfig, run_info: Mapping[str, Any]) -> TrainConfig:
    """The config for a new run from a stored agent: actors are processes unless this user chose its cluster."""
    if not _is_foreign(config, run_info):
        return config
    warn(
        f"runtime: a stored agent that is not known to be yours names {_named(config.runtime)}, so it is not used; "
        "actors are processes on this machine"
    )
    settings = {"backend": "process", "address": None, "cpus_per_actor": None}
    return load_config(config, {f"runtime.{name}": value for name, value in settings.items()})


def _is_foreign(config: TrainConfig, run_info: Mapping[str, Any]) -> bool:
    return config.runtime.backend == "ray" and not is_own(run_info, _signed(config.runtime), PROOF_FIELD)


def _chosen_now(stored: TrainConfig, overrides: Mapping[str, Any] | Sequence[str]) -> bool:
    """Whether the overrides say where actors run: what they leave open would stay as it is in a config without it."""
    if not overrides:
        return False
    address = stored.runtime.address
    opened: dict[str, Any] = {"backend": "process"} if address is None else {"address": NOBODY}
    runtime = load_config(
        stored.model_copy(update={"runtime": stored.runtime.model_copy(update=opened)}), overrides
    ).runtime
    return runtime.backend != "process" if address is None else runtime.address != NOBODY


def _signed(runtime: RuntimeConfig) -> str:
    return f"cluster:{runtime.address or ''}"


def _named(runtime: RuntimeConfig) -> str:
    return "a Ray cluster on this machine" if runtime.address is None else f"the Ray cluster {runtime.address}"


def _setting(address: str) -> str:
    """The word after --set, for a shell and for YAML, where a bracket or a number would begin something else."""
    is_plain = re.fullmatch(r"auto|[A-Za-z][\w.-]*:\d+|\d+(\.\d+){3}:\d+", address)
    return f"runtime.address={address}" if is_plain else f"'runtime.address=\"{address}\"'"


def _own_machine(runtime: RuntimeConfig) -> str:
    words = ["runtime.backend=process"]
    words += [f"runtime.{name}=null" for name in ("address", "cpus_per_actor") if getattr(runtime, name) is not None]
    return " --set ".join(words)
