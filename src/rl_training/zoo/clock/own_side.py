"""Our side of a board: an ordinary run of `rl-training train` with this callback."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.runtime.callbacks.callback import Callback, RunContext
from rl_training.zoo.clock.stopwatch import Stopwatch, play_episodes


class ClockCallback(Callback):
    """Stops the run when its clock says so."""

    def __init__(self) -> None:
        self.watch = Stopwatch.open()

    def on_start(self, context: RunContext) -> None:
        agent, make_env = context.agent, context.agent.env_maker()

        def play(seeds: Sequence[int]) -> list[float]:
            return play_episodes(make_env, lambda observations: agent.act(observations)[0], seeds)

        self.watch.plays_with(play)

    def on_round(self, context: RunContext) -> bool:
        return self.watch.look(context.env_steps)

    def on_end(self, context: RunContext) -> None:
        if context.status == "finished":
            self.watch.finish(context.env_steps)
