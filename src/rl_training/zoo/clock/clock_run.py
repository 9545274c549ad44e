"""From a request to the lines of a board: which runs are left, which libraries are here, and the sitting itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_training.errors import ConfigError
from rl_training.runtime.stop_signals import StopSignals
from rl_training.zoo.clock.board import Task
from rl_training.zoo.clock.peers import Peers, find_checkout, probe
from rl_training.zoo.clock.sitting import Sitting, Turn, all_turns, is_done

KEPT = "every finished run is kept; the same command continues"


@dataclass(frozen=True)
class Plan:
    """What a sitting would do: the runs that are left, in their order, and why others cannot be done here."""

    turns: tuple[Turn, ...]
    done: int
    peers: Peers
    left_out: tuple[str, ...]

    @property
    def longest_seconds(self) -> float:
        return sum(turn.task.limit for turn in self.turns)


@dataclass(frozen=True)
class Sat:
    """How a sitting ended: reasons by the title of the turn that failed, and whether a signal stopped it."""

    failures: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


def plan_sitting(
    tasks: Sequence[Task], seeds: Sequence[int], folder: Path, checkout: Path | None, *, warm: bool, start: bool
) -> Plan:
    """ConfigError if nothing that is left can be run here. `start` the workers of other libraries to know that."""
    turns = list(all_turns(tasks, seeds))
    left = [turn for turn in turns if not is_done(turn, folder, warm)]
    if checkout is not None and find_checkout(checkout) is None:
        raise ConfigError(f"--checkout {checkout}: is not a checkout of rl_training, it has no directory benchmarks")
    peers = probe([turn.side for turn in left], find_checkout(checkout), start=start)
    kept = tuple(turn for turn in left if turn.side.library not in peers.missing)
    left_out = tuple(peers.missing.values())
    if left and not kept:
        raise ConfigError("; ".join(left_out))
    return Plan(kept, len(turns) - len(left), peers, left_out)


def sit(plan: Plan, folder: Path, *, warm: bool, repeats: int, tell: Callable[[str], None]) -> Sat:
    """Do the runs that are left. After a signal the run in progress is ended, and is done again next time."""
    if not plan.turns:
        return Sat()
    with StopSignals(kept=KEPT) as signals:
        sitting = Sitting(folder, plan.peers, warm, repeats, tell, lambda: signals.requested)
        finished = sitting.run(plan.turns)
    return Sat(sitting.failures, not finished)
