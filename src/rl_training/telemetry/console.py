"""The display of a run: a live panel on a terminal or in a notebook, plain lines elsewhere, nothing in quiet mode."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from rl_training.telemetry.console_view import Snapshot, actors_text, plain_line, render
from rl_training.telemetry.metric_lines import INFO_PREFIX, WALL_CLOCK_FIELDS
from rl_training.telemetry.notebook_panel import NotebookPanel, in_notebook
from rl_training.telemetry.notebook_view import snapshot_html
from rl_training.terminal import encodable, make_console, write
from rl_training.text import clean_text

if TYPE_CHECKING:
    from rich.live import Live

_LIVE_INTERVAL = 0.1
_PLAIN_INTERVAL = 5.0
_NOTEBOOK_INTERVAL = 0.5
_INTERVALS = {"live": _LIVE_INTERVAL, "plain": _PLAIN_INTERVAL, "notebook": _NOTEBOOK_INTERVAL}
_DRAWING_SHARE = 0.01  # largest share of the run's time; a slow terminal is redrawn less often
_RATE_WINDOW = 15.0
_HISTORY = 400
_NOTES = 6  # that a notebook keeps below its panel
_RETURN_FIELDS = ("mean_return", "episode_return")
_METRIC_ORDER = (
    "policy_loss", "actor_loss", "value_loss", "critic_loss", "loss", "entropy", "approx_kl",
    "q_mean", "temperature", "exploration", "clip_fraction", "explained_variance", "learning_rate",
)  # fmt: skip
_NOT_METRICS = WALL_CLOCK_FIELDS | {"kind", "env_steps", "updates", "episodes", "lag_mean", *_RETURN_FIELDS}


class ConsoleDisplay:
    """Shows the progress of one run on `stream`. The default is stderr, because stdout is for machine output.

    With `enabled=None` the display draws a live panel on a terminal and prints plain lines elsewhere; `True` always
    draws the panel; `False` shows nothing. In a notebook, the panel is HTML below the cell, unless there is a `stream`.
    A display that cannot write turns quiet and never stops a run.
    """

    def __init__(
        self,
        total_steps: int,
        title: str,
        *,
        start_step: int = 0,
        stream: TextIO | None = None,
        enabled: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._mode = "notebook" if stream is None and enabled is not False and in_notebook() else ""
        self._stream = stream if stream is not None else sys.stderr
        self._mode = self._mode or _choose_mode(self._stream, enabled)
        self._snapshot = Snapshot(clean_text(title, 80), total_steps, env_steps=start_step)
        self._start_step = start_step
        self._started_at = 0.0
        self._running = False
        self._next_draw = float("inf")
        self._printed_step: int | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._returns: deque[float] = deque(maxlen=_HISTORY)
        self._known_metrics: dict[str, float | None] = {}
        self._curve: list[tuple[int, float]] = []
        self._eval_curve: list[tuple[int, float]] = []
        self._notes: deque[str] = deque(maxlen=_NOTES)
        self._live: Live | None = None
        self._panel = NotebookPanel()

    def start(self) -> None:
        """Start drawing. A second call does nothing."""
        if self._running:
            return
        self._running = True
        self._started_at = self._clock()
        self._samples.append((self._started_at, self._start_step))
        if self._mode == "live":
            self._guard(self._start_live)
        if self._mode == "notebook":
            self._draw(self._started_at)
        elif self._mode != "quiet":
            self._next_draw = self._started_at + _INTERVALS[self._mode]

    def update(self, env_steps: int, line: Mapping[str, Any] | None = None) -> None:
        """Report the environment steps so far and the newest metric line, if any. Most calls draw nothing."""
        self._snapshot.env_steps = env_steps
        if line is not None:
            self._absorb(line)
        now = self._clock()
        if now >= self._next_draw:
            self._draw(now)

    def note(self, text: str) -> None:
        """Print one line above the live panel, such as an evaluation, a checkpoint or a warning."""
        if self._running and self._mode == "notebook":
            self._notes.append(clean_text(text))
        elif self._running and self._mode != "quiet":
            self._guard(lambda: self._print(clean_text(text)))

    def stop(self) -> None:
        """Draw the final state and release the terminal. A second call does nothing."""
        if not self._running:
            return
        self._snapshot.finished = True
        if self._mode in ("live", "notebook") or (
            self._mode == "plain" and self._printed_step != self._snapshot.env_steps
        ):
            self._draw(self._clock())
        self._running = False
        self._next_draw = float("inf")
        self._release()

    def _absorb(self, line: Mapping[str, Any]) -> None:
        snapshot = self._snapshot
        if line.get("kind") == "eval":
            mean = line.get("eval_mean_return")
            if mean is not None:
                snapshot.eval_mean, snapshot.eval_std = mean, line.get("eval_std_return")
                snapshot.eval_best = mean if snapshot.eval_best is None else max(mean, snapshot.eval_best)
                snapshot.eval_step, snapshot.eval_episodes = line.get("env_steps"), line.get("eval_episodes")
                snapshot.eval_infos = _numbers_of_env(line, "eval_" + INFO_PREFIX)
                _extend(self._eval_curve, line.get("env_steps", snapshot.env_steps), mean)
            return
        snapshot.infos |= _numbers_of_env(line, INFO_PREFIX)
        snapshot.episodes = line.get("episodes", snapshot.episodes)
        for name in _RETURN_FIELDS:
            if line.get(name) is not None:
                snapshot.mean_return = line[name]
                self._returns.append(line[name])
                _extend(self._curve, line.get("env_steps", snapshot.env_steps), line[name])
                break
        if "actors" in line:
            snapshot.actors = actors_text(line)
        if "time_env" in line:
            snapshot.shares = {name: line[name] for name in line if name.startswith("time_")}
        for name, value in line.items():
            if (
                name not in _NOT_METRICS
                and not name.startswith(INFO_PREFIX)
                and (value is None or isinstance(value, float))
            ):
                self._known_metrics[name] = value

    def _draw(self, now: float) -> None:
        snapshot = self._snapshot
        snapshot.elapsed = now - self._started_at
        snapshot.steps_per_second = self._rate(now)
        if self._mode == "plain":
            self._guard(lambda: self._print(plain_line(snapshot)))
            self._printed_step = snapshot.env_steps
            self._next_draw = now + _PLAIN_INTERVAL
        elif self._mode in ("live", "notebook"):
            preferred = [name for name in _METRIC_ORDER if name in self._known_metrics]
            others = [name for name in self._known_metrics if name not in _METRIC_ORDER]
            snapshot.metrics = {name: self._known_metrics[name] for name in preferred + others}
            snapshot.return_history = tuple(self._returns)
            snapshot.curve, snapshot.eval_curve = self._curve, self._eval_curve
            self._guard(self._refresh)
            cost = self._clock() - now
            self._next_draw = now + max(_INTERVALS.get(self._mode, 0.0), cost / _DRAWING_SHARE)
        if self._mode == "quiet":
            self._next_draw = float("inf")

    def _rate(self, now: float) -> float | None:
        """Environment steps per second over the last seconds, or over the whole run after its end."""
        samples = self._samples
        if self._snapshot.finished:
            then, steps = self._started_at, self._start_step
        else:
            samples.append((now, self._snapshot.env_steps))
            while len(samples) > 2 and samples[1][0] <= now - _RATE_WINDOW:
                samples.popleft()
            then, steps = samples[0]
        seconds = now - then
        return (self._snapshot.env_steps - steps) / seconds if seconds > 0 else None

    def _start_live(self) -> None:
        from rich.live import Live

        console = make_console(self._stream, force_terminal=True)
        # No refresh thread: env workers would hang if they were forked while the thread holds a lock.
        # Redirect stdout only if it is a terminal; a file or pipe must get exactly what the program prints.
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            vertical_overflow="crop",
        )
        self._live.start()
        self._refresh()

    def _refresh(self) -> None:
        if self._mode == "notebook":
            self._panel.show(snapshot_html(self._snapshot, self._notes))
        elif self._live is not None:
            console = self._live.console
            view = render(
                self._snapshot,
                console.width,
                console.height,
                ascii_only=console.options.ascii_only,
                color=console.color_system is not None and not console.no_color,
            )
            self._live.update(view, refresh=True)

    def _print(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(encodable(self._stream, text))
        else:
            write(self._stream, text + "\n")

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # for example a closed pipe: the run matters more than its display
            self._mode = "quiet"
            self._next_draw = float("inf")
            self._release()

    def _release(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            try:
                live.stop()
            except Exception:
                self._mode = "quiet"

    def __enter__(self) -> ConsoleDisplay:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _extend(curve: list[tuple[int, float]], step: int, value: float) -> None:
    """Add a point; a long curve keeps every second one, so that the whole run stays visible."""
    curve.append((step, value))
    if len(curve) > _HISTORY:
        del curve[1:-1:2]


def _numbers_of_env(line: Mapping[str, Any], prefix: str) -> dict[str, float | None]:
    found = {name.removeprefix(prefix): value for name, value in line.items() if name.startswith(prefix)}
    return {name: value for name, value in found.items() if value is None or isinstance(value, (int, float))}


def _choose_mode(stream: TextIO | None, enabled: bool | None) -> str:
    if enabled is False or stream is None:
        return "quiet"
    if enabled:
        return "live"
    try:
        terminal = stream.isatty()
    except (AttributeError, ValueError):
        terminal = False
    # A dumb terminal, as in some editors and CI systems, cannot move its cursor.
    return "live" if terminal and os.environ.get("TERM", "").lower() not in ("dumb", "unknown") else "plain"
