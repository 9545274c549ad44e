"""The metric window: everything since the last metric line, and the running statistics of episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.runtime.collection.info_numbers import means
from rl_training.runtime.divergence import check_metrics
from rl_training.runtime.loops import Progress
from rl_training.telemetry.metric_lines import RECENT_EPISODES


class MetricWindow:
    """Collects progress and turns it into one metric line. Numbers leave torch here, once per line.

    `info_names` are the numbers of episodes that a line has, in this order.
    """

    def __init__(self, info_names: Sequence[str] = ()) -> None:
        self._info_names = info_names
        self._infos: deque[Mapping[str, float]] = deque(maxlen=RECENT_EPISODES)  # beside `recent`
        self.episodes = 0
        self.recent: deque[tuple[float, int]] = deque(maxlen=RECENT_EPISODES)
        self._history: list[Metrics] = []
        self._progress: Progress | None = None

    @property
    def is_empty(self) -> bool:
        return self._progress is None

    def add(self, progress: Progress) -> None:
        self._progress = progress
        self._history += [result.metrics for result in progress.results]
        for episode in progress.episodes:
            self.episodes += 1
            self.recent.append((episode.total_reward, episode.length))
            self._infos.append(episode.info)

    def line(self) -> dict[str, Any]:
        """The line for everything since the last one; the window is empty afterwards."""
        assert self._progress is not None
        line: dict[str, Any] = {
            "kind": "train",
            "env_steps": self._progress.env_steps,
            "updates": self._progress.updates,
            "episodes": self.episodes,
        }
        if self.recent:
            line["mean_return"] = sum(total for total, _ in self.recent) / len(self.recent)
            line["mean_length"] = sum(length for _, length in self.recent) / len(self.recent)
            line |= means(self._infos, self._info_names)
        metrics = self.check()
        self._history, self._progress = [], None
        return line | metrics

    def check(self) -> dict[str, float]:
        """Mean metrics since the last line; NumericalError if training has diverged. The window stays as it is."""
        metrics = {name: float(value) for name, value in mean_metrics(self._history).items()}
        if metrics:
            assert self._progress is not None
            check_metrics(metrics, self._progress.env_steps, self._progress.updates)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"episodes": self.episodes, "recent": [list(episode) for episode in self.recent]}
        if any(self._infos):
            state["infos"] = [dict(info) for info in self._infos]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episodes = int(state["episodes"])
        self.recent = deque(((float(r), int(n)) for r, n in state["recent"]), maxlen=RECENT_EPISODES)
        # Older checkpoints, and runs without such numbers, have none.
        infos: list[Mapping[str, Any]] = state.get("infos", [{}] * len(self.recent))
        self._infos = deque(
            ({name: float(value) for name, value in info.items()} for info in infos), maxlen=RECENT_EPISODES
        )
