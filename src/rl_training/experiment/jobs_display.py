"""Progress of all jobs on stderr: bars on a terminal, otherwise a line when a job starts or ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TextIO

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rl_training.experiment.launcher import Job
from rl_training.telemetry.console_view import format_duration
from rl_training.terminal import make_console
from rl_training.text import clean_text


class Pace:
    """Estimates how long a job takes, per kind: kinds differ by orders of magnitude."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # of a whole job, by kind

    def learn(self, job: Job, seconds: float, share: float) -> None:
        if share > 0.02:
            self.seconds[job.kind] = seconds / share

    def of(self, job: Job) -> float | None:
        if job.kind in self.seconds:
            return self.seconds[job.kind]
        return sum(self.seconds.values()) / len(self.seconds) if self.seconds else None


class JobsDisplay:
    """`enabled`: None draws bars on a terminal and prints lines elsewhere; False prints nothing."""

    def __init__(self, jobs: Sequence[Job], done: int, *, enabled: bool | None = None, stream: TextIO | None = None):
        self.stream = stream if stream is not None else sys.stderr
        self.console = make_console(self.stream)
        self.quiet = enabled is False
        self.live: Live | None = None
        if not self.quiet and self.console.is_terminal:
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.total, self.done, self.failed = len(jobs), done, 0
        self.waiting = list(jobs)
        self.running: dict[str, tuple[Job, float, int]] = {}  # job, start time, env steps
        self.first_steps: dict[str, int] = {}
        self.pace = Pace()
        self.drawn = 0.0

    def __enter__(self) -> JobsDisplay:
        if self.live is not None:
            self._draw(self.live.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self._draw(self.live.stop)

    def begin(self, job: Job) -> None:
        self.waiting = [other for other in self.waiting if other.run_name != job.run_name]
        self.running[job.run_name] = (job, monotonic(), 0)
        if self.live is None:
            self._print(f"{job.title}: started, {job.stop:,} steps")

    def progress(self, job: Job, env_steps: int) -> None:
        first = self.first_steps.setdefault(job.run_name, env_steps)
        start = self.running[job.run_name][1]
        self.running[job.run_name] = (job, start, env_steps)
        self.pace.learn(job, monotonic() - start, (env_steps - first) / job.stop)

    def end(self, job: Job, problem: str | None, *, failed: bool = False) -> None:
        _, start, _ = self.running.pop(job.run_name)
        seconds = monotonic() - start
        self.done += problem is None
        self.failed += failed
        left = self.remaining()
        rest = f", about {format_duration(left)} left" if left else ""
        outcome = f"finished in {format_duration(seconds)}" if problem is None else problem
        self._print(f"{job.title}: {outcome} ({self.done} of {self.total} done{rest})")

    def tick(self) -> None:
        if self.live is not None and monotonic() - self.drawn > 0.5:
            self.drawn = monotonic()
            self._draw(partial(self.live.update, self.render(), refresh=True))

    def remaining(self) -> float | None:
        """Estimated seconds until all jobs are done; None while the pace is unknown."""
        whole = [self.pace.of(job) for job in self.waiting]
        for job, _, steps in self.running.values():
            pace = self.pace.of(job)
            whole.append(None if pace is None else pace * max(0.0, 1 - steps / job.stop))
        if not whole or None in whole:
            return None
        return sum(value for value in whole if value is not None) / max(1, len(self.running))

    def render(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for justify in ("left", "left", "right", "right"):
            table.add_column(justify=justify, no_wrap=True)
        for job, start, steps in self.running.values():
            pace = self.pace.of(job)
            left = None if pace is None else pace * max(0.0, 1 - steps / job.stop)
            rest = "evaluating" if steps >= job.stop else f"{format_duration(left)} left"
            table.add_row(
                Text(f"{job.title}"),
                ProgressBar(total=job.stop, completed=steps, width=30),
                f"{steps:,} of {job.stop:,}",
                f"{format_duration(monotonic() - start)}, {rest}",
            )
        remaining = self.remaining()
        summary = f"{self.done} of {self.total} done, {len(self.running)} running, {len(self.waiting)} waiting"
        summary += f", {self.failed} failed" if self.failed else ""
        summary += f", about {format_duration(remaining)} left" if remaining else ""
        return Group(table, Text(summary, "bold"))

    def _print(self, text: str) -> None:
        if not self.quiet:
            self._draw(partial(self.console.print, Text(clean_text(text)), soft_wrap=True))

    def _draw(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, ValueError):  # the terminal is gone: the jobs matter more than their display
            self.quiet, self.live = True, None
