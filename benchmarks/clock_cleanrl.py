"""A worker of `rl-training zoo clock`: a single-file program of CleanRL, unchanged, from a checkout of it.

    git clone https://github.com/vwxyzjn/cleanrl .cleanrl              # or anywhere, and set CLEANRL to the directory
    .venv-cleanrl/bin/python benchmarks/clock_cleanrl.py --probe       # print the versions

Its settings in a board: `file`, the program, and `arguments` for its command line; without them it has its published
settings. The program runs as it is, with its own loop and its TensorBoard files. It logs `charts/SPS` after each round:
that call is where the clock looks at its networks.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rl_training.zoo.clock.stopwatch import Stopwatch, play_episodes

ROUND = "charts/SPS"
NETWORKS = {"agent": "actor", "q_network": None}  # global name -> the part that rates actions
SHOWN = ("torch", "numpy", "gymnasium")


def checkout() -> Path:
    place = Path(os.environ.get("CLEANRL", Path(__file__).resolve().parent.parent / ".cleanrl"))
    if not (place / "cleanrl" / "ppo.py").is_file():
        raise SystemExit(f"{place} is no checkout of CleanRL: clone it and set CLEANRL to its directory")
    return place


def main() -> None:
    place = checkout()
    if "--probe" in sys.argv:
        import tyro
        from torch.utils.tensorboard import SummaryWriter

        assert tyro.cli and SummaryWriter  # what its programs need
        print(json.dumps({"cleanrl": commit(place), **{name: version(name) for name in SHOWN}}))
        return
    watch = Stopwatch.open()
    settings = watch.request["settings"]
    if watch.request["threads"] is not None:
        import torch

        torch.set_num_threads(watch.request["threads"])
    steps = 0

    def after_round(program: dict[str, Any], env_steps: int) -> None:
        nonlocal steps
        steps = env_steps
        watch.plays_with(player(program, watch.request["env"]))
        if not watch.look(env_steps):
            raise SystemExit

    call_after_rounds(after_round)
    sys.path[:0] = [str(place)]  # of its package cleanrl_utils
    sys.argv = [settings["file"], "--env-id", watch.request["env"], "--seed", str(watch.request["seed"]), "--no-cuda"]
    sys.argv += settings.get("arguments", [])
    runpy.run_path(str(place / "cleanrl" / settings["file"]), run_name="__main__")
    watch.finish(steps)


def commit(place: Path) -> str:
    """Its short commit, without asking git: the checkout may belong to another user."""
    head = (place / ".git" / "HEAD").read_text().strip() if (place / ".git" / "HEAD").is_file() else ""
    named = place / ".git" / head.removeprefix("ref: ")
    return (named.read_text().strip() if head.startswith("ref: ") and named.is_file() else head)[:9] or "unknown"


def call_after_rounds(after_round: Callable[[dict[str, Any], int], None]) -> None:
    """Have the writer that the program creates call a function with the program's variables after each round."""
    from torch.utils import tensorboard

    class Writer(tensorboard.SummaryWriter):
        def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, *more: Any, **named: Any) -> None:
            super().add_scalar(tag, scalar_value, global_step, *more, **named)
            if tag == ROUND:
                after_round(sys._getframe(1).f_globals, int(global_step))

    tensorboard.SummaryWriter = Writer


def player(program: dict[str, Any], env: str) -> Callable[[Sequence[int]], list[float]]:
    """Plays the action that its network rates highest."""
    import gymnasium
    import numpy as np
    import torch

    name, part = next((name, part) for name, part in NETWORKS.items() if name in program)
    network = program[name] if part is None else getattr(program[name], part)

    def act(observations: list[Any]) -> Any:
        with torch.no_grad():
            return network(torch.Tensor(np.stack(observations))).argmax(dim=-1).numpy()

    return lambda seeds: play_episodes(lambda: gymnasium.make(env), act, seeds)


if __name__ == "__main__":
    main()
