"""Compare runs with a published learning curve at equal env steps, finished or not."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_training.analysis.curves import Curve
from rl_training.analysis.statistics import score_text, standard_error
from rl_training.zoo.manifest import Entry, Manifest
from rl_training.zoo.published import PublishedCurve

# Steps at which curves are compared, in addition to the last step that all seeds have reached.
STEPS = (
    20_000, 50_000, 100_000, 150_000, 200_000, 300_000, 400_000, 500_000, 750_000, 1_000_000, 1_500_000, 2_000_000,
    3_000_000, 5_000_000, 10_000_000,
)  # fmt: skip
COMPARED = ("row", "seeds", "step", "ours ± se", "published ± se", "ours / published", "each seed")
HEADING = "Comparison with published curves"
RULE = """Our scores are evaluations during training, including those of unfinished runs. Published scores are points of
the published curve. Both are interpolated linearly. `seeds` counts the runs that have reached the step. A star marks
the last step that all runs of the row have reached. The ratio is shown only if both scores are positive."""

Line = dict[str, Any]


def compare(entry: Entry, curves: Mapping[int, Curve], seeds: int) -> Line:
    """Columns of a table line; `curves` by seed. Empty without a published curve."""
    if entry.published is None:
        return {}
    last = min((float(curve.steps[-1]) for curve in curves.values()), default=0.0)
    # A short published curve may end between two of the steps.
    points = [_at(entry.published, curves, step) for step in sorted({*STEPS, float(entry.published.steps[-1]), last})]
    lines = [
        line | {"of_steps": entry.preset.total_timesteps, "of_seeds": seeds} for line in points if line is not None
    ]
    common = next((line for line in lines if line["step"] == last), None)
    return {
        "published_at_step": None if common is None else common["step"],
        "published": None if common is None else common["published"],
        "ours_at_step": None if common is None else common["mean"],
        "against_published": lines,
    }


def _at(published: PublishedCurve, curves: Mapping[int, Curve], step: float) -> Line | None:
    """None where nothing is published or no run has been evaluated."""
    reference = published.at(step)
    reached = {seed: curve for seed, curve in curves.items() if curve.steps[0] <= step <= curve.steps[-1]}
    if reference is None or not reached:
        return None
    returns = {str(seed): float(np.interp(step, curve.steps, curve.returns)) for seed, curve in reached.items()}
    mean = statistics.fmean(returns.values())
    return {
        "step": int(step),
        "seeds": len(reached),
        "mean": mean,
        "standard_error": standard_error(list(returns.values())),
        "by_seed": returns,
        "published": reference.score,
        "published_standard_error": reference.standard_error,
        "ratio": mean / reference.score if mean > 0 and reference.score > 0 else None,
    }


def comparison_rows(table: Sequence[Line]) -> list[list[str]]:
    """Cells as text, in the order of `COMPARED`."""
    rows = []
    for line in table:
        for at in line.get("against_published", ()):
            star = " *" if at["step"] == line["published_at_step"] else ""
            rows.append(
                [
                    line["name"],
                    f"{at['seeds']} of {at['of_seeds']}",
                    f"{at['step']:,} of {at['of_steps']:,}{star}",
                    f"{score_text(at['mean'])} ± {score_text(at['standard_error'])}",
                    f"{score_text(at['published'])} ± {score_text(at['published_standard_error'])}",
                    "-" if at["ratio"] is None else f"{at['ratio']:.2f}",
                    ", ".join(f"{seed}: {score_text(value)}" for seed, value in at["by_seed"].items()),
                ]
            )
    return rows


def comparison_section(manifest: Manifest, table: Sequence[Line]) -> str:
    """The Markdown section; empty if no row has reached a published step."""
    rows = comparison_rows(table)
    if not rows:
        return ""
    shown = {row[0] for row in rows}
    curves = [e.published for e in manifest.entries if e.published is not None and e.name in shown]
    lines = [f"| {' | '.join(COMPARED)} |", "| --- " * len(COMPARED) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    sources = {curve.protocol: f"- **{curve.source}**: {manifest.protocols[curve.protocol]}" for curve in curves}
    return "\n\n".join([f"## {HEADING}", RULE, "\n".join(lines), "\n".join(sources.values())])
