"""Findings to read: one line each in a file, and wrapped to the width of a terminal."""

from __future__ import annotations

import sys
from typing import Any

from rl_training.checkup.finding import LABELS, Finding, Report, summary
from rl_training.command_line.common import output
from rl_training.errors import RLTrainingError
from rl_training.text import clean_text

COLORS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def show_finding(finding: Finding) -> None:
    if sys.stdout is None or not sys.stdout.isatty():
        output.print_text(str(finding))
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=4)
    grid.add_column(width=12)
    grid.add_column(overflow="fold")
    text = Text(clean_text(finding.detail, None))
    if finding.fix:
        text.append(f"\n{finding.advice}: ", "bold").append(clean_text(finding.fix, None))
    grid.add_row(Text(LABELS[finding.status], COLORS[finding.status]), finding.what, text)
    output.show(grid)


def finish(report: Report, document: dict[str, Any] | None, error: type[RLTrainingError]) -> None:
    """Print the JSON, or a summary; raise `error` about the first failure if there is one."""
    if document is not None:
        output.print_json(document)
    else:
        output.print_text(summary(report.findings))
    failures = [finding for finding in report.findings if finding.status == "fail"]
    if failures:
        first = failures[0]
        fix = f"; fix: {first.fix}" if first.fix else ""
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise error(f"{first.what}: {first.detail}{fix}{more}")
