"""How fast training is: side by side with the peers, where the time goes, and how it grows.

    python benchmarks/speed.py                  ours and stable-baselines3 by turns, table and docs/benchmarks/speed.md
    python benchmarks/speed.py breakdown        the parts of our own loop
    python benchmarks/speed.py growth           number of envs and width of the network
    python benchmarks/speed.py kernels          what a gradient step on images is made of
    python benchmarks/speed.py cold             seconds to the first help text and the first update
    python benchmarks/speed.py warm-up          seconds that the comparison leaves out
    python benchmarks/speed.py short-runs       `compile: auto` against `off` from start to end
    python benchmarks/speed.py saving           the share of checkpoints in the time of a run

The peers live in a virtual environment of their own: `make bench-setup`. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from kernels import kernels
from parts import breakdown, growth
from puffer_setup import VERSION as PUFFER_VERSION
from saving import saving
from starting import cold_start, short_runs, warm_up
from workers import PEER_PYTHON, PUFFER_PYTHON, cores, peer_is_here, start_ours, start_peer
from works import WORKS, Work

from rl_training.zoo.results import processor

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks" / "speed.md"
PAIRS, WINDOW = 5, 5.0


@dataclass(frozen=True)
class Comparison:
    work: Work
    ours: list[float]
    peer: list[float]
    peer_threads: int

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
        threads = "the threads it takes" if self.work.takes_its_own_threads else f"{self.peer_threads} thread(s)"
        said = f"{verdict}; peer on {threads}"
        return f"| {self.work.title} | {ours} | {peer} | {spread} | {self.work.bar} | {said} |"


def compare(work: Work, pairs: int, window: float) -> Comparison:
    """Peer, ours, peer, ours: what the machine does in between hits both."""
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
    theirs, ours = [], []
    for _ in range(pairs):
        theirs.append(peers[best].rate(window))
        ours.append(mine.rate(window))
    peers[best].stop()
    mine.stop()
    return Comparison(work, ours, theirs, best)


def peer_versions() -> str:
    found = _versions(PEER_PYTHON, ["stable_baselines3", "sb3_contrib", "sbx_rl", "jax", "torch"])
    if not PUFFER_PYTHON.exists():
        return found
    return f"{found}; pufferlib {PUFFER_VERSION}, {_versions(PUFFER_PYTHON, ['torch'])}"


def _versions(python: Path, names: list[str]) -> str:
    code = f"from importlib.metadata import version; print(', '.join(f'{{n}} {{version(n)}}' for n in {names}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def write_section(name: str, lines: list[str]) -> None:
    """Replace one section of the page, which the modes fill one by one."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    text = PAGE.read_text() if PAGE.exists() else "# Speed\n\nMade by `python benchmarks/speed.py`.\n"
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
        raise SystemExit("the peers are not installed: run `make bench-setup` first")
    rows, load = [], os.getloadavg()[0]
    for name in only or WORKS:
        rows.append(compare(WORKS[name], pairs, window).row())
        print(rows[-1], flush=True)
    header = [
        "## Against the peers",
        "",
        f"Env steps per second of the whole training run, median (worst .. best) of {pairs} windows of {window:g} s,",
        "peer and ours by turns; imports, compiling and warm-up excluded. The ratio is the median of the pairs'.",
        "A peer has the thread setting that was quicker in a window of its own. DQN explores at 0.05 on both sides.",
        f"Ours: {machine()}. Peer: {peer_versions()}. Load of the machine in the minute before: {load:.1f}.",
        "",
        "| work | ours | peer | ratio | bar | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    if not only:
        write_section("peers", header + rows)


MODES: dict[str, Callable[[list[str], float], list[str]]] = {
    "breakdown": breakdown,
    "growth": growth,
    "kernels": kernels,
    "cold": cold_start,
    "warm-up": warm_up,
    "short-runs": short_runs,
    "saving": saving,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("peers", *MODES), default="peers")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=[], help="these works; the page is not written")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--window", type=float, default=WINDOW, help="seconds")
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
