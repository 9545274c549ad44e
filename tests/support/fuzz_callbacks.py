"""Callbacks that misbehave, for cases of the fuzzer: `fuzz_callbacks:Raises` and the like."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

from fuzz_envs import RustPanic, WithoutText
from rl_training import Callback

ESCAPE = "\x1b[31mred\nerror: a forged line\u202e"


class Counts(Callback):
    """Without surprises; it has a state."""

    def __init__(self) -> None:
        self.rounds = 0

    def on_round(self, context: Any) -> None:
        self.rounds += 1
        context.log("rounds", self.rounds)

    def state_dict(self) -> dict[str, Any]:
        return {"rounds": self.rounds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rounds = int(state["rounds"])


class Raises(Callback):
    def on_round(self, context: Any) -> None:
        raise ValueError(ESCAPE)


class RaisesWithoutText(Callback):
    def on_round(self, context: Any) -> None:
        raise WithoutText


class Panics(Callback):
    def on_evaluation(self, context: Any) -> None:
        raise RustPanic("index out of bounds")


class Exits(Callback):
    def on_round(self, context: Any) -> None:
        sys.exit(0)


class ExitsAtTheStart(Callback):
    def on_start(self, context: Any) -> None:
        sys.exit(0)


class ExitsAtTheEnd(Callback):
    def on_end(self, context: Any) -> None:
        sys.exit(0)


class ExitsInItsState(Callback):
    def on_checkpoint(self, context: Any) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        sys.exit(0)


class ExitsWhenRestored(Counts):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        sys.exit(0)


class ExitsWhenMade(Counts):
    def __init__(self) -> None:
        sys.exit(0)


class HasAnEndlessState(Counts):
    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        state["state"] = state
        return state


class AnswersOddly(Callback):
    def on_round(self, context: Any) -> Any:
        return WithoutText()


class Writes(Callback):
    """Escapes wherever a callback may say something."""

    def on_round(self, context: Any) -> None:
        context.note(ESCAPE + "x" * 10_000)

    def on_checkpoint(self, context: Any) -> None:
        context.stop(ESCAPE)


class LogsOddly(Callback):
    def on_round(self, context: Any) -> None:
        for _ in range(3):
            context.log("large", 1.7e308)
        context.log("many_digits", 10**5000)


class LinksVideos(Callback):
    def on_start(self, context: Any) -> None:
        os.symlink("../../../outside/folder", context.run_dir / "videos")

    def on_round(self, context: Any) -> None:
        context.record_video()


class RemovesRun(Callback):
    def on_round(self, context: Any) -> None:
        shutil.rmtree(context.run_dir, ignore_errors=True)


class Wanders(Callback):
    def on_start(self, context: Any) -> None:
        os.chdir(os.path.join(os.environ["HOME"], os.pardir, "outside"))


class ClosesStreams(Callback):
    def on_round(self, context: Any) -> None:
        os.close(1)
        os.close(2)


class LeavesAProcess(Callback):
    def on_round(self, context: Any) -> None:
        subprocess.Popen(["sleep", "1000"])


ODD = [name for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, Callback)]
ODD.remove("Callback")
