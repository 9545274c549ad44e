"""Tables: per row, the scores of its seeds, the reference and the verdict."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence

from rl_training.analysis.curves import Curve
from rl_training.analysis.statistics import bootstrap_interval, interquartile_mean, score_text, standard_error
from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED, SCORE_EPISODES
from rl_training.text import clean_text
from rl_training.zoo.comparison import Line, compare
from rl_training.zoo.manifest import Entry, Manifest, Row
from rl_training.zoo.results import Result, Results
from rl_training.zoo.runs import Score, settings, stop_at

SHARE_OF_SEEDS_AT_FLOOR = 0.8
SEEDS_OF_THE_RULE = 5
LONGEST_VERDICT = 120

COLUMNS = (
    "row", "env steps", "mean ± se", "IQM [95 %]", "median", "worst .. best", "steps to floor", "minutes to floor",
    "area", "floor", "bar", "reference", "min/seed", "verdict",
)  # fmt: skip
# Columns that fit on a terminal; `--write` writes all of them.
NARROW = ("row", "env steps", "mean ± se", "IQM [95 %]", "steps to floor", "bar", "reference", "min/seed", "verdict")
CSV_COLUMNS = (
    "name", "algorithm", "environment", "budget", "env_steps", "seeds", "mean", "standard_error", "iqm", "iqm_low",
    "iqm_high", "median", "low", "high", "steps_to_floor", "minutes_to_floor", "seeds_that_reached_floor_in_training",
    "area", "floor", "bar", "must_stay_below", "reference", "reference_steps", "source", "protocol",
    "published_at_step", "published", "ours_at_step", "minutes", "verdict",
)  # fmt: skip


def make_table(
    entries: Sequence[Entry], results: Mapping[str, Results], seeds: int, fraction: float = 1.0
) -> list[Line]:
    return [_line_of(entry, results.get(entry.name, {}), seeds, fraction) for entry in entries]


def _line_of(entry: Entry, results: Results, seeds: int, fraction: float) -> Line:
    """A full run is scored over 100 episodes; a fraction of it by the last evaluation during training."""
    stop = stop_at(entry, fraction)
    curves_so_far = {seed: result.curve.until(stop, entry.round_steps) for seed, result in results.items()}
    scores = {seed: _score(result, curves_so_far[seed], stop, fraction) for seed, result in results.items()}
    done = {seed for seed, score in scores.items() if score is not None}
    started = {seed: curve for seed, curve in curves_so_far.items() if curve.steps.size}
    failed = {seed: result.failure for seed, result in results.items() if result.failure is not None}
    failures = {seed: why for seed, why in failed.items() if seed not in done}
    under_way = [curve for seed, curve in started.items() if seed not in done and seed not in failures]
    curves = [curve for seed, curve in started.items() if seed in done]
    in_order = [scores.get(seed) for seed in range(seeds)]
    line = summarize(entry, in_order, curves, failures, _progress(under_way, stop))
    if fraction < 1 and "median" in line:
        line["verdict"] = f"at {fraction:.0%} of the budget"
    return line | compare(entry, started, seeds)


def _progress(under_way: Sequence[Curve], stop: int) -> str:
    """How far the unfinished runs are, by their last evaluations."""
    if not under_way:
        return ""
    low, high = (f"{end(curve.steps[-1] for curve in under_way):,.0f}" for end in (min, max))
    return f", {len(under_way)} under way at {low if low == high else f'{low} .. {high}'} of {stop:,} steps"


def _score(result: Result, curve: Curve, stop: int, fraction: float) -> Score | None:
    """`curve` ends at `stop`."""
    if fraction >= 1:
        return result.score
    if not result.done(stop, fraction) or not curve.steps.size:
        return None
    return {
        "mean_return": float(curve.returns[-1]),
        "env_steps": int(curve.steps[-1]),
        "wall_seconds": float(curve.seconds[-1]),
    }


def passes(row: Row, returns: Sequence[float]) -> bool:
    """At least 4 of 5 seeds reach the floor and the median the bar; for a control, no seed exceeds its limit."""
    if row.must_stay_below is not None:
        return max(returns) <= row.must_stay_below
    assert row.floor is not None and row.bar is not None
    at_floor = sum(value >= row.floor for value in returns)
    return at_floor >= SHARE_OF_SEEDS_AT_FLOOR * len(returns) and statistics.median(returns) >= row.bar


def verdict_on(row: Row, returns: Sequence[float]) -> str:
    """The rule needs five seeds; the verdict of fewer seeds says so."""
    verdict = "pass" if passes(row, returns) else "MISS"
    few = len(returns) < SEEDS_OF_THE_RULE
    return f"{verdict} ({len(returns)} of {SEEDS_OF_THE_RULE} seeds)" if few else verdict


def summarize(
    entry: Entry,
    scores: Sequence[Score | None],
    curves: Sequence[Curve],
    failures: dict[int, str] | None = None,
    progress: str = "",
) -> Line:
    """A line of the table: target, scores of the seeds and verdict. `progress` describes the unfinished seeds."""
    present = [score for score in scores if score is not None]
    returns = [float(score["mean_return"]) for score in present]
    facts = entry.row.model_dump(exclude={"name", "long"}) | {
        "name": entry.name,
        "algorithm": entry.algorithm,
        "environment": entry.environment,
        "seeds": len(present),
        "scores": returns,
        "settings": settings(entry.preset),
    }
    if len(present) < len(scores) or not present:
        verdict = f"{len(present)} of {len(scores)} seeds{progress}"
        for seed, why in (failures or {}).items():
            verdict += f"; seed {seed} failed: {why}"
        return facts | {"verdict": clean_text(verdict, LONGEST_VERDICT)}
    interval = bootstrap_interval(returns)
    return (
        facts
        | {
            "verdict": verdict_on(entry.row, returns),
            "mean": statistics.fmean(returns),
            "standard_error": standard_error(returns),
            "iqm": interquartile_mean(returns),
            "iqm_low": interval.low,
            "iqm_high": interval.high,
            "median": statistics.median(returns),
            "low": min(returns),
            "high": max(returns),
            "env_steps": max(int(score["env_steps"]) for score in present),
            "area": statistics.fmean(curve.area() for curve in curves) if curves else None,
            "minutes": round(statistics.median(score["wall_seconds"] for score in present) / 60, 2),
        }
        | _time_to_floor(entry.threshold, curves)
    )


def _time_to_floor(threshold: float | None, curves: Sequence[Curve]) -> Line:
    """Env steps and minutes of the first evaluation at the floor: median over the seeds that reached it."""
    firsts = [] if threshold is None else [(curve, curve.first_at(threshold)) for curve in curves]
    reached = [(curve.steps[index], curve.seconds[index] / 60) for curve, index in firsts if index is not None]
    return {
        "steps_to_floor": statistics.median(float(steps) for steps, _ in reached) if reached else None,
        "minutes_to_floor": round(statistics.median(float(minutes) for _, minutes in reached), 2) if reached else None,
        "seeds_that_reached_floor_in_training": len(reached) if curves else None,
    }


def cells(line: Line) -> list[str]:
    """The cells of a line as text, in the order of `COLUMNS`."""
    bars = [_short(line["floor"]), _short(line["bar"])]
    if line["must_stay_below"] is not None:
        bars = ["-", f"stay <= {_short(line['must_stay_below'])}"]
    reference = _short(line["reference"]) if line["reference"] is not None else "none"
    if line["reference"] is not None:
        reference += f" at {_steps(line['reference_steps'] or line['budget'])}"
    reference += f" ({line['source']})"
    if "median" not in line:
        return [line["name"], "", *_so_far(line["scores"]), *[""] * 3, *bars, reference, "", line["verdict"]]
    return [
        line["name"],
        f"{line['env_steps']:,}",
        f"{score_text(line['mean'])} ± {score_text(line['standard_error'])}",
        _iqm(line),
        score_text(line["median"]),
        f"{score_text(line['low'])} .. {score_text(line['high'])}",
        _steps_to_floor(line),
        "-" if line["minutes_to_floor"] is None else f"{line['minutes_to_floor']:.1f}",
        "-" if line["area"] is None else score_text(line["area"]),
        *bars,
        reference,
        f"{line['minutes']:.1f}",
        line["verdict"],
    ]


def _so_far(scores: Sequence[float]) -> list[str]:
    """Mean, IQM, median and range if seeds are missing: only mean and range of the finished ones."""
    if not scores:
        return [""] * 4
    mean = f"{score_text(statistics.fmean(scores))} ± {score_text(standard_error(scores))}"
    return [mean, "", "", f"{score_text(min(scores))} .. {score_text(max(scores))}"]


def _iqm(line: Line) -> str:
    """The interval is omitted for a single seed."""
    text = score_text(line["iqm"])
    return text if line["seeds"] == 1 else f"{text} [{score_text(line['iqm_low'])}, {score_text(line['iqm_high'])}]"


def _steps_to_floor(line: Line) -> str:
    """With the number of seeds if not all of them reached the floor."""
    if line["steps_to_floor"] is None:
        return "-"
    reached, seeds = line["seeds_that_reached_floor_in_training"], line["seeds"]
    return f"{line['steps_to_floor']:,.0f}" + (f" ({reached} of {seeds})" if reached < seeds else "")


def seeds_text(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def scoring(seeds: int, fraction: float = 1.0) -> str:
    if fraction < 1:
        return f"{seeds_text(seeds)}, the first {fraction:.0%} of each budget; scores are the last evaluations."
    return f"{seeds_text(seeds)}, {SCORE_EPISODES} deterministic episodes each, reset seeds from {FIRST_EVAL_SEED}."


def markdown(table: Sequence[Line], seeds: int, fraction: float = 1.0) -> str:
    rows = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    rows += ["| " + " | ".join(text.replace("|", "/") for text in cells(line)) + " |" for line in table]
    return "\n".join(rows) + f"\n\n{scoring(seeds, fraction)}\n"


def protocols_text(manifest: Manifest, table: Sequence[Line]) -> str:
    used = {line["protocol"] for line in table}
    return "".join(f"- **{name}**: {text}\n" for name, text in manifest.protocols.items() if name in used)


def csv_text(table: Sequence[Line]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: line.get(key) for key in CSV_COLUMNS} for line in table)
    return buffer.getvalue()


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _steps(steps: int) -> str:
    return f"{steps / 1e6:g}M" if steps >= 1_000_000 else f"{steps / 1e3:g}k"
