"""What limits the speed of a run, what to change, and how long the run will take. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.checkup.finding import Finding, ok, warn
from rl_training.checkup.speed import Speed

MOST_OF_IT = 0.5  # the share of the time from which a part is the limit
# A round trip to the processes of `async` takes about this long: with a faster env it loses time.
ASYNC_PAYS_FROM_SECONDS = 300e-6
NAMES = {"env": "the environment", "act": "acting", "learn": "learning", "other": "the loop itself"}


@dataclass(frozen=True)
class Setting:
    """What a run uses, and what it could use here."""

    backend: str
    num_envs: int
    cores: int  # that this process may use
    on_policy: bool
    alone: float | None = None  # seconds of a step in this process, if the run takes it in another one
    can_fork: bool = True
    compiled: bool = False  # whether the run compiles its gradient step
    should_compile: bool = False  # whether it would pay, but the run says off
    update_knob: str = ""  # the setting for fewer updates
    cuda_unused: bool = False  # torch can use a card, and the run does not


def limit_of(speed: Speed) -> str | None:
    """The part that takes most of the time, or None if none does."""
    part = max(speed.shares, key=speed.share)
    return part if speed.share(part) >= MOST_OF_IT else None


def check_limit(speed: Speed, setting: Setting) -> Finding:
    """Name the part that takes most of the time; a warning if a setting can change that."""
    limit = limit_of(speed)
    shares = ", ".join(f"{NAMES[part]} {share:.0%}" for part, share in speed.shares.items())
    if limit is None:
        return ok("limit", f"no part takes most of the time: {shares}")
    detail = f"{NAMES[limit]} takes {speed.share(limit):.0%} of the time"
    if limit == "env":
        return _env_limit(detail, speed.env, setting)
    if limit == "learn":
        return _learning_limit(detail, setting)
    if limit == "act" and setting.num_envs < 8 and setting.on_policy:
        return warn("limit", detail, f"num_envs={2 * setting.num_envs} or more: one pass then serves more environments")
    return ok("limit", detail)


def check_backend(setting: Setting) -> Finding | None:
    """A warning if the run takes steps to other processes that are too short for that."""
    if setting.alone is None or setting.alone >= ASYNC_PAYS_FROM_SECONDS:
        return None
    detail = f"a step takes {setting.alone * 1e6:.0f} microseconds, which is too short for processes to pay off"
    return warn("backend", detail, "vector_backend=sync; keep async if environments may crash or hang")


def _env_limit(detail: str, seconds: float, setting: Setting) -> Finding:
    rate = f"{detail} ({1 / max(seconds, 1e-9):,.0f} steps per second)"
    if setting.backend != "sync":
        return ok("limit", f"{rate}, with vector_backend {setting.backend} already")
    if seconds < ASYNC_PAYS_FROM_SECONDS:
        return ok("limit", f"{rate}, but a step is too short for processes to pay off")
    if setting.cores < 2 or not setting.can_fork:
        reason = "only one core" if setting.cores < 2 else "no fork"
        return ok("limit", f"{rate}, and there is {reason} here for more processes", "make the environment faster")
    if setting.num_envs == 1:
        return warn("limit", rate, f"vector_backend=async with num_envs={setting.cores}, one process for each")
    return warn("limit", rate, f"vector_backend=async with {setting.num_envs} processes, one for each environment")


def _learning_limit(detail: str, setting: Setting) -> Finding:
    if setting.cuda_unused:
        return warn("limit", detail, "device=cuda, if the networks are large")
    if setting.compiled:
        return ok("limit", f"{detail} uncompiled; this run compiles it, which makes it faster")
    if setting.should_compile:
        return warn("limit", detail, "compile=auto: this run is long enough for compiling to pay off")
    fewer = f" or fewer updates ({setting.update_knob})" if setting.update_knob else ""
    return ok("limit", f"{detail}; only smaller networks{fewer} would change that, and also what the run learns")


def check_duration(speed: Speed, total_timesteps: int, *, compiled: bool) -> Finding:
    """How long the run will take here, if the machine stays as busy as it is."""
    seconds = speed.run_seconds(total_timesteps)
    rate = total_timesteps / max(seconds, 1e-9)
    upper = "at most about" if compiled else "about"
    detail = f"{upper} {duration(seconds)} for {total_timesteps:,} steps ({rate:,.0f} per second), without evaluations"
    return ok("duration", detail + ("; compiling makes it shorter" if compiled else ""))


def duration(seconds: float) -> str:
    """Seconds to read, rounded as an estimate deserves: 40 s, 12 min, 3.5 h, 2.1 days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"
