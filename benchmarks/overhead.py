"""Measure what the reporting parts of a run cost: the same training with a part on and off, in alternating pairs.

    python benchmarks/overhead.py                                    # every part, ppo/cartpole and dqn/cartpole
    python benchmarks/overhead.py --parts all --pairs 20             # all parts at once: 8 minutes on an idle core
    python benchmarks/overhead.py --parts all --pairs 20 --write     # and keep them: docs/benchmarks/speed.md
    python benchmarks/overhead.py --inside                           # one run with all parts on, with a clock in each

Each training is a process of its own. Its processor time (with its children) and its wall time are taken around
`train`, so that imports do not count. The first of a pair changes from pair to pair, and a row is the median of the
ratios on / off with its quartiles. On a busy machine only the processor time says anything, and pairs differ by more
than the bar. `--inside` does not compare runs: it takes the processor time of the thread around every call into the
parts, less what the clock itself takes, as a share of that of the run. Trackers are measured if their packages are
installed; what they send offline stays in a temporary directory.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from speed import write_section

BAR = 1.01
KEPT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "results" / "overhead.json"
KINDS = ("processor", "wall")
HEAD = (
    "## Cost of reporting",
    "",
    "The same training with diagnoses, `log_info`, a callback that logs in every round and episode, both stop rules,",
    "TensorBoard and a sink on, and with all of them off, in alternating pairs: the median of the ratios, and the",
    "interval that contains the true median in 19 of 20 cases. Seconds are wall time with everything off. The bar is",
    "1.01. `python benchmarks/overhead.py --parts all --write` adds pairs.",
    "",
    "| preset | env steps | parts | pairs | processor time, on / off | wall time, on / off | seconds |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
# Runs of a few seconds. Neither preset compiles its gradient step, at these lengths or at its own.
PRESETS = {"ppo/cartpole": 50_000, "dqn/cartpole": 8_000}
OTHER_STEPS = 50_000
NOTHING = "nothing"
TRACKERS = ("wandb", "mlflow", "trackio")
PARTS = ("diagnoses", "info", "callback", "rules", "tensorboard", "sink", *TRACKERS)


def train_once(preset: str, steps: int, parts: list[str], on: bool, folder: str) -> dict[str, float]:
    """Train with the parts on or off; seconds of processor and wall."""
    from rl_training import Callback, Sink, load_config, train
    from rl_training.diagnosis.rule_book import Diagnosis

    class Watch(Callback):
        def on_episode(self, context: Any) -> None:
            context.log("long_episode", context.episode.length > 100)

        def on_round(self, context: Any) -> None:
            context.log("rounds", 1.0)

    class Keep(Sink):
        def __init__(self) -> None:
            self.lines: list[Any] = []

        def write(self, line: dict[str, Any]) -> None:
            self.lines.append(line)

    # The same evaluations on both sides: rules need them, but they are no part of the rules' cost.
    settings: dict[str, Any] = {"total_timesteps": steps, "output_dir": folder, "eval_every": steps // 4}
    options: dict[str, Any] = {"show": False}
    if not (on and "diagnoses" in parts):
        Diagnosis.look = lambda self, line: []  # type: ignore[method-assign]
    if on:
        settings["sinks"] = [part for part in parts if part in ("tensorboard", *TRACKERS)]
        if "info" in parts:
            settings["log_info"] = ["score"]
        if "rules" in parts:
            settings |= {"stop_at_return": 1e9, "patience": 1_000_000}
        if "callback" in parts:
            options["callback"] = Watch()
        if "sink" in parts:
            options["sinks"] = [Keep()]
    config = load_config(preset, settings)
    if importlib.util.find_spec("tensorboard") is not None:
        import torch.utils.tensorboard  # noqa: F401  (imports do not count)
    before, started = os.times(), time.perf_counter()
    train(config, **options)
    after = os.times()
    return {"processor": sum(after[:4]) - sum(before[:4]), "wall": time.perf_counter() - started}


def timed(part: str, call: Any, spent: dict[str, float], calls: dict[str, int]) -> Any:
    """The function with a clock: it adds its seconds of processor time and its calls to those of the part."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        started = time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            spent[part] += time.thread_time() - started
            calls[part] += 1

    return wrapper


def clocks(spent: dict[str, float], calls: dict[str, int]) -> None:
    """Put a clock around every call into the parts."""
    from rl_training.diagnosis.findings_file import FindingsSink
    from rl_training.runtime.callbacks.callback import Hooks
    from rl_training.runtime.collection.info_numbers import InfoNumbers
    from rl_training.runtime.output.metric_window import MetricWindow
    from rl_training.telemetry.tensorboard_sink import TensorBoardSink

    methods = {
        "diagnoses": (FindingsSink, ("write", "flush", "close")),
        "info": (InfoNumbers, ("read", "tell", "report_missing")),
        "callback, rules": (Hooks, ("start", "round", "evaluation", "saved", "end", "take_logged", "state_dict")),
        "tensorboard": (TensorBoardSink, ("open", "write", "note", "flush", "close")),
    }

    for part, (owner, names) in methods.items():
        spent[part], calls[part] = 0.0, 0
        for name in names:
            if name in vars(owner):
                setattr(owner, name, timed(part, vars(owner)[name], spent, calls))
    # A clock adds to what it measures, and more in a run than in a tight loop: a call of nothing in every round tells.
    spent[NOTHING], calls[NOTHING] = 0.0, 0
    nothing, add = timed(NOTHING, lambda: None, spent, calls), MetricWindow.add

    def add_and_measure_nothing(window: Any, progress: Any) -> None:
        nothing()
        add(window, progress)

    MetricWindow.add = add_and_measure_nothing  # type: ignore[method-assign]


def inside(preset: str, steps: int, folder: str) -> dict[str, Any]:
    """One run with all parts on: the share of each part in its processor time."""
    spent: dict[str, float] = {}
    calls: dict[str, int] = {}
    clocks(spent, calls)
    parts = [each for each in PARTS if each not in TRACKERS]
    total = train_once(preset, steps, parts, True, folder)["processor"]
    cost = spent.pop(NOTHING) / calls[NOTHING]
    shares = {part: max(0.0, seconds - cost * calls[part]) / total for part, seconds in spent.items()}
    return {"preset": preset, "steps": steps, "seconds": total, "shares": shares, "all": sum(shares.values())}


def in_a_process(mode: str, *words: object) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        home = {"HOME": folder, "TRACKIO_DIR": folder, "XDG_STATE_HOME": folder, "WANDB_MODE": "offline"}
        command = [sys.executable, __file__, mode, *map(str, words), folder]
        done = subprocess.run(command, env={**os.environ, **home}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the training failed: {done.stderr.strip().splitlines()[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(preset: str, steps: int, part: str, pairs: int) -> list[dict[str, Any]]:
    """Alternating pairs: the seconds with the part on and off."""
    found = []
    for pair in range(pairs):
        times = {on: in_a_process("--once", preset, steps, part, int(on)) for on in (pair % 2 == 0, pair % 2 == 1)}
        found.append({"preset": preset, "part": part, "steps": steps, "on": times[True], "off": times[False]})
    return found


def summary(pairs: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The ratios on / off of some pairs, and the interval in which their median lies in 19 of 20 cases."""
    ratios = sorted(pair["on"][kind] / pair["off"][kind] for pair in pairs)
    count = len(ratios)
    low, median, high = statistics.quantiles(ratios, n=4) if count > 1 else ratios * 3
    reach = math.ceil(0.98 * math.sqrt(count))  # of the ranks around the median: 1.96 standard deviations of a binomial
    middle = (count - 1) / 2
    interval = [ratios[max(0, math.floor(middle - reach))], ratios[min(count - 1, math.ceil(middle + reach))]]
    seconds = statistics.median(pair["off"][kind] for pair in pairs)
    return {"median": median, "quartiles": [low, high], "interval": interval, "seconds_off": seconds}


def keep(pairs: list[dict[str, Any]]) -> None:
    """Add pairs to those of earlier calls, and write the table of all of them into the page."""
    kept = [*(json.loads(KEPT.read_text()) if KEPT.exists() else []), *pairs]
    KEPT.write_text("[\n" + ",\n".join(json.dumps(pair) for pair in kept) + "\n]\n")
    lines = [*HEAD]
    for preset, part, steps in dict.fromkeys((pair["preset"], pair["part"], pair["steps"]) for pair in kept):
        group = [pair for pair in kept if (pair["preset"], pair["part"], pair["steps"]) == (preset, part, steps)]
        cells = []
        for kind in KINDS:
            row = summary(group, kind)
            first, last = row["interval"]
            cells.append(f"{row['median']:.4f} ({first:.4f} .. {last:.4f})")
        seconds = summary(group, "wall")["seconds_off"]
        lines.append(f"| {preset} | {steps:,} | {part} | {len(group)} | {' | '.join(cells)} | {seconds:.2f} |")
    write_section("overhead", lines)


def main() -> int:
    if sys.argv[1:2] == ["--inside-once"]:
        preset, steps, folder = sys.argv[2:]
        print(json.dumps(inside(preset, int(steps), folder)))
        return 0
    if sys.argv[1:2] == ["--once"]:
        preset, steps, part, on, folder = sys.argv[2:]
        parts = [each for each in PARTS if each not in TRACKERS] if part == "all" else [part]
        print(json.dumps(train_once(preset, int(steps), parts, on == "1", folder)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=tuple(PRESETS))
    parser.add_argument("--parts", nargs="+", default=("all", *PARTS), choices=("all", *PARTS), metavar="PART")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, help="env steps per training (default: 50,000; dqn/cartpole 8,000)")
    parser.add_argument("--inside", action="store_true", help="the share of each part in one run with all parts on")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--write", action="store_true", help="keep the pairs, and write the table of all that are kept")
    arguments = parser.parse_args()
    steps = {preset: arguments.steps or PRESETS.get(preset, OTHER_STEPS) for preset in arguments.presets}
    worst = 0.0
    for preset in arguments.presets if arguments.inside else ():
        found = in_a_process("--inside-once", preset, steps[preset])
        worst = max(worst, 1 + found["all"])
        words = [f"{part} {share:.2%}" for part, share in found["shares"].items()]
        line = f"{preset:14} all {found['all']:.2%} of {found['seconds']:.2f} s: {', '.join(words)}"
        print(json.dumps(found) if arguments.json else line, flush=True)
    for preset in () if arguments.inside else arguments.presets:
        for part in arguments.parts:
            if part in TRACKERS and importlib.util.find_spec(part) is None:
                continue
            pairs = measure(preset, steps[preset], part, arguments.pairs)
            if arguments.write:
                keep(pairs)
            rows = {kind: summary(pairs, kind) for kind in KINDS}
            if part == "all":
                worst = max(worst, rows["processor"]["median"])
            if arguments.json:
                print(json.dumps({"preset": preset, "part": part, "pairs": len(pairs), **rows}), flush=True)
                continue
            words = [
                f"{kind} {row['median']:.4f} ({row['quartiles'][0]:.4f} to {row['quartiles'][1]:.4f})"
                for kind, row in rows.items()
            ]
            print(f"{preset:14} {part:12} {'  '.join(words)}  of {rows['processor']['seconds_off']:.2f} s", flush=True)
    return int(worst > BAR)


if __name__ == "__main__":
    sys.exit(main())
