"""The clock of one training process, of ours or of a peer: when to evaluate, when it is over, and what it reports.

A worker opens a `Stopwatch`, says how its policy plays, and calls `look` after each round. Every side is evaluated by
`play_episodes`, at the same env steps or minutes. The clock starts before the process does and stands still during
evaluations. This file needs the standard library only: the environment of a peer may lack the rest.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rl_training.storage.real_files import open_own_file

REQUEST = "RL_TRAINING_CLOCK"  # the environment variable with the path of the request
ENVS_AT_ONCE = 25
LONGEST_EPISODE = 200_000

Play = Callable[[Sequence[int]], list[float]]  # from reset seeds to raw returns


class Stopwatch:
    """`request` has the start of the process on the monotonic clock, the file for events, and the rule of the board.

    A board of thresholds has `threshold`, `every` (env steps between evaluations) and `budget` (seconds). A board of
    scores has `minutes`, the times of its evaluations.
    """

    def __init__(self, request: Mapping[str, Any]):
        self.request = request
        self.is_over = False
        self._play: Play | None = None
        self._paused = self._paused_processor = 0.0
        self._next_steps = int(request["every"] or 0)
        self._marks = [60.0 * minutes for minutes in request["minutes"] or ()]
        self._evaluated_at = -1

    @classmethod
    def open(cls) -> Stopwatch:
        return cls(json.loads(Path(os.environ[REQUEST]).read_text(encoding="utf-8")))

    def plays_with(self, play: Play) -> None:
        self._play = play

    def seconds(self) -> float:
        """Since the start of the process, without evaluations."""
        return time.monotonic() - float(self.request["started"]) - self._paused

    def look(self, env_steps: int) -> bool:
        """Evaluate if that is due. False when the run is over: solved, or out of time."""
        if self.is_over:
            return False
        now = self.seconds()
        if self._marks:
            if now >= self._marks[0]:
                self._evaluate(env_steps)
                self._marks = [mark for mark in self._marks if mark > now]
                if not self._marks:
                    self._end("minutes", env_steps)
        else:
            if env_steps >= self._next_steps:
                self._next_steps = (env_steps // self.request["every"] + 1) * self.request["every"]
                self._evaluate(env_steps)
            if not self.is_over and now >= self.request["budget"]:
                self._end("budget", env_steps)
        return not self.is_over

    def finish(self, env_steps: int) -> None:
        """The run has used all of its env steps: its last policy is evaluated, too."""
        if not self.is_over:
            if env_steps > self._evaluated_at:
                self._evaluate(env_steps)
            self._end("steps", env_steps)

    def _evaluate(self, env_steps: int) -> None:
        if self.is_over:
            return
        assert self._play is not None, "plays_with comes first"
        self._evaluated_at = env_steps
        facts = {"env_steps": env_steps, "seconds": self.seconds(), "processor": self._processor()}
        self._tell("evaluates", **facts)
        began, busy = time.monotonic(), _processor_seconds()
        try:
            returns = self._returns()
        except Exception as error:
            self._tell("failed", reason=f"its evaluation failed with {type(error).__name__}: {error}")
            self.is_over = True
            raise
        self._paused += time.monotonic() - began
        self._paused_processor += _processor_seconds() - busy
        mean = fmean(returns)
        if not math.isfinite(mean):
            mean = -math.inf
        self._tell("evaluated", **facts, mean=max(mean, -1e300), episodes=len(returns), wall=self._wall())
        threshold = self.request["threshold"]
        if threshold is not None and mean >= threshold and len(returns) == self.request["episodes"]:
            self._end("solved", env_steps, facts["seconds"])

    def _returns(self) -> list[float]:
        """The first episodes tell whether the threshold is near; only then the others are played, too."""
        assert self._play is not None
        episodes, threshold = self.request["episodes"], self.request["threshold"]
        first = self.request["first_episodes"] or episodes
        seeds = [self.request["first_seed"] + number for number in range(episodes)]
        returns = list(self._play(seeds[:first]))
        if first < episodes and fmean(returns) >= threshold:
            returns += self._play(seeds[first:])
        return returns

    def _end(self, reason: str, env_steps: int, seconds: float | None = None) -> None:
        self.is_over = True
        now = self.seconds() if seconds is None else seconds
        self._tell(
            "end", reason=reason, env_steps=env_steps, seconds=now, wall=self._wall(), processor=self._processor()
        )

    def _wall(self) -> float:
        return time.monotonic() - float(self.request["started"])

    def _processor(self) -> float:
        return _processor_seconds() - self._paused_processor

    def _tell(self, event: str, **facts: Any) -> None:
        """One line, at once: the sitting follows the file, and ends this process after the last one."""
        with open_own_file(Path(self.request["events"]), "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **facts}) + "\n")


def _processor_seconds() -> float:
    """Of this process and of its children that have ended, such as compilers."""
    return sum(os.times()[:4])


def play_episodes(make_env: Callable[[], Any], act: Callable[[list[Any]], Any], seeds: Sequence[int]) -> list[float]:
    """The raw returns of whole episodes, each reset with its seed. `act` gets a list of observations."""
    envs = [make_env() for _ in range(min(len(seeds), ENVS_AT_ONCE))]
    try:
        returns, lengths = [0.0] * len(seeds), [0] * len(seeds)
        playing = {slot: slot for slot in range(len(envs))}  # the episode of each slot
        observations = [env.reset(seed=int(seeds[slot]))[0] for slot, env in enumerate(envs)]
        following = len(envs)
        while playing:
            slots = list(playing)
            actions = act([observations[slot] for slot in slots])
            for slot, action in zip(slots, actions, strict=True):
                episode = playing[slot]
                observations[slot], reward, terminated, truncated, _ = envs[slot].step(action)
                returns[episode] += float(reward)
                lengths[episode] += 1
                if terminated or truncated or lengths[episode] >= LONGEST_EPISODE:
                    del playing[slot]
                    if following < len(seeds):
                        playing[slot] = following
                        observations[slot] = envs[slot].reset(seed=int(seeds[following]))[0]
                        following += 1
        return returns
    finally:
        for env in envs:
            env.close()
