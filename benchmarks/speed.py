"""Measure training speed: compare with other libraries, break down the time, and scale envs and network width.

    python benchmarks/speed.py                  compare with Stable-Baselines3, SBX, PufferLib and a loop in JAX
    python benchmarks/speed.py breakdown        time per part of our training loop
    python benchmarks/speed.py growth           scaling with envs, network width and replay size; and a picture
    python benchmarks/speed.py kernels          cost of a gradient step on images, per layer
    python benchmarks/speed.py bfloat16         processor time of updates in float32 and bfloat16
    python benchmarks/speed.py cold             seconds to the help text and to the first update
    python benchmarks/speed.py warm-up          start-up seconds that the comparison excludes
    python benchmarks/speed.py short-runs       `compile: auto` and `off` from start to end
    python benchmarks/speed.py saving           share of time spent on checkpoints

Each mode prints its table and writes it to docs/benchmarks/speed.md. The peers have their own virtual environment:
`make bench-setup`. Use an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bfloat16 import bfloat16
from checkpoint_cost import saving
from clock_cleanrl import checkout, commit
from growth import growth
from kernels import kernels
from parts import breakdown
from puffer_setup import VERSION as PUFFER_VERSION
from startup import cold_start, short_runs, warm_up
from workers import (
    CLEANRL_PYTHON,
    PEER_PYTHON,
    PUFFER_PYTHON,
    Worker,
    cleanrl_is_here,
    cores,
    peer_is_here,
    start_ours,
    start_peer,
)
from works import WORKS, Work

from rl_training.zoo.clock.foreign_load import MOST_LOAD, busy_seconds, family_seconds
from rl_training.zoo.results import processor

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks" / "speed.md"
PAIRS, WINDOW = 5, 5.0
MOST_TRIES = 3  # for a pair of windows during which other programs ran


@dataclass(frozen=True)
class Pair:
    """A window of the peer and one of ours, and the cores that other programs kept busy meanwhile (Linux)."""

    peer: float
    ours: float
    load: float | None

    @property
    def is_calm(self) -> bool:
        return self.load is None or self.load <= MOST_LOAD


@dataclass(frozen=True)
class Comparison:
    work: Work
    ours: list[float]
    peer: list[float]
    peer_threads: int
    disturbed: int = 0  # pairs during which other programs ran, in every try

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.peer, strict=False)]

    def row(self) -> str:
        ours = f"{statistics.median(self.ours):,.0f} ({min(self.ours):,.0f} .. {max(self.ours):,.0f})"
        if not self.peer:
            return f"| {self.work.title} | {ours} | | | {self.work.bar} | peer not installed |"
        peer = f"{statistics.median(self.peer):,.0f} ({min(self.peer):,.0f} .. {max(self.peer):,.0f})"
        ratio = statistics.median(self.ratios)
        verdict = "met" if ratio >= self.work.bar else "MISSED"
        spread = f"{ratio:.2f} ({min(self.ratios):.2f} .. {max(self.ratios):.2f})"
        count = f"{self.peer_threads} {'thread' if self.peer_threads == 1 else 'threads'}"
        threads = "its own number of threads" if self.work.takes_its_own_threads else count
        remark = f"{verdict}; peer with {threads}"
        if self.disturbed:
            remark += f"; † {self.disturbed} of {len(self.ours)} pairs"
        return f"| {self.work.title} | {ours} | {peer} | {spread} | {self.work.bar} | {remark} |"


def compare(work: Work, pairs: int, window: float) -> Comparison:
    """Measure peer and ours alternately, so that other load on the machine affects both."""
    if not peer_is_here(work):
        mine = start_ours(work)
        rates = [mine.rate(window) for _ in range(pairs)]
        mine.stop()
        return Comparison(work, rates, [], 0)
    peers = {threads: start_peer(work, threads) for threads in work.threads}
    best = max(peers, key=lambda threads: peers[threads].rate(window)) if len(peers) > 1 else work.threads[0]
    for threads, peer in peers.items():
        if threads != best:
            peer.stop()
    mine = start_ours(work)
    measured = [calmest_pair(peers[best], mine, window) for _ in range(pairs)]
    peers[best].stop()
    mine.stop()
    ours, theirs = [pair.ours for pair in measured], [pair.peer for pair in measured]
    return Comparison(work, ours, theirs, best, sum(not pair.is_calm for pair in measured))


def calmest_pair(peer: Worker, ours: Worker, window: float) -> Pair:
    """The first pair of windows during which the machine did nothing else, or the one with the least foreign load."""
    tries: list[Pair] = []
    while len(tries) < MOST_TRIES and not (tries and tries[-1].is_calm):
        before, started = foreign_seconds(), time.monotonic()
        rates = peer.rate(window), ours.rate(window)
        elapsed, after = time.monotonic() - started, foreign_seconds()
        load = None if before is None or after is None else max(0.0, after - before) / elapsed
        tries.append(Pair(*rates, load))
    return min(tries, key=lambda pair: pair.load or 0.0)


def foreign_seconds() -> float | None:
    """Processor seconds of everything but this process and its workers, up to a constant."""
    busy = busy_seconds()
    return None if busy is None else busy - family_seconds(os.getpid())


def peer_versions() -> str:
    versions = _versions(PEER_PYTHON, ["stable_baselines3", "sb3_contrib", "sbx_rl", "jax", "torch"])
    if PUFFER_PYTHON.exists():
        versions += f"; pufferlib {PUFFER_VERSION}, {_versions(PUFFER_PYTHON, ['torch'])}"
    if cleanrl_is_here():
        versions += f"; CleanRL {commit(checkout())}, {_versions(CLEANRL_PYTHON, ['envpool', 'torch'])}"
    return versions


def _versions(python: Path, names: list[str]) -> str:
    code = f"from importlib.metadata import version; print(', '.join(f'{{n}} {{version(n)}}' for n in {names}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def write_section(name: str, lines: list[str]) -> None:
    """Replace one section of the page; each mode writes its own."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    text = PAGE.read_text() if PAGE.exists() else "# Speed\n\nGenerated by `python benchmarks/speed.py`.\n"
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    block = "\n".join([start, *lines, end])
    if start in text:
        head, _, rest = text.partition(start)
        text = head + block + rest.partition(end)[2]
    else:
        text = text.rstrip() + "\n\n" + block + "\n"
    PAGE.write_text(text)


def machine() -> str:
    names = ("torch", "numpy", "gymnasium")
    return f"{processor()}, {cores()} cores, Python {platform.python_version()}, " + ", ".join(
        f"{name} {version(name)}" for name in names
    )


def against_peers(only: list[str], pairs: int, window: float) -> None:
    if not PEER_PYTHON.exists():
        raise SystemExit("the peers are not installed; run `make bench-setup` first")
    rows, load, versions = [], os.getloadavg()[0], peer_versions()
    for name in only or WORKS:
        rows.append(compare(WORKS[name], pairs, window).row())
        print(rows[-1], flush=True)
    header = [
        "## Comparison with other libraries",
        "",
        f"Env steps per second of the full training loop: median (worst .. best) of {pairs} windows of {window:g} s.",
        "Peer and ours run alternately; imports, compilation and warm-up are excluded. The ratio is the median of the",
        "pairs. Each peer uses its faster thread setting, measured before. DQN explores with 0.05 on both sides.",
        "A pair during which other programs took more than a tenth of a core is measured again, up to twice, and the",
        "calmest counts; a † says how many pairs of a row were not calm either.",
        f"Ours: {machine()}. Peer: {versions}. Load average before the start: {load:.1f}.",
        "",
        "| workload | ours | peer | ratio | bar | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    if not only:
        write_section("peers", header + rows)


MODES: dict[str, Callable[[list[str], float], list[str]]] = {
    "breakdown": breakdown,
    "growth": growth,
    "kernels": kernels,
    "bfloat16": bfloat16,
    "cold": cold_start,
    "warm-up": warm_up,
    "short-runs": short_runs,
    "saving": saving,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("peers", *MODES), default="peers")
    parser.add_argument(
        "--only", nargs="+", choices=WORKS, default=[], help="only these workloads; does not write the page"
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of windows")
    parser.add_argument("--window", type=float, default=WINDOW, help="seconds per window")
    arguments = parser.parse_args()
    if arguments.mode == "peers":
        against_peers(arguments.only, arguments.pairs, arguments.window)
        return
    lines = MODES[arguments.mode](arguments.only or list(WORKS), arguments.window)
    print("\n".join(lines))
    if not arguments.only:
        write_section(arguments.mode, lines)


if __name__ == "__main__":
    main()
