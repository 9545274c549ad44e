"""A finding: what was checked, how it is, and how to fix it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rl_training.text import clean_text

Status = Literal["ok", "warn", "fail"]
LABELS: dict[Status, str] = {"ok": "ok", "warn": "warn", "fail": "FAIL"}
LONGEST_TEXT = 1000


@dataclass(frozen=True)
class Finding:
    """The result of one check. `what` is a short name that does not change between versions.

    `fail`: training stops or is refused. `warn`: training works, but something else does not, or is slower than it
    could be.
    """

    status: Status
    what: str
    detail: str
    fix: str = ""

    @property
    def advice(self) -> str:
        """What to call `fix`: without a fault there is nothing to fix."""
        return "hint" if self.status == "ok" else "fix"

    def __str__(self) -> str:
        """One line: status, name, detail and the fix."""
        fix = f"; {self.advice}: {self.fix}" if self.fix else ""
        return clean_text(f"{LABELS[self.status]:<4}  {self.what:<12}  {self.detail}{fix}", LONGEST_TEXT)


def ok(what: str, detail: str, fix: str = "") -> Finding:
    return Finding("ok", what, detail, fix)


def warn(what: str, detail: str, fix: str = "") -> Finding:
    return Finding("warn", what, detail, fix)


def fail(what: str, detail: str, fix: str = "") -> Finding:
    return Finding("fail", what, detail, fix)


def worst(findings: Sequence[Finding]) -> Status:
    order: tuple[Status, ...] = ("ok", "warn", "fail")
    return max((finding.status for finding in findings), key=order.index, default="ok")


@dataclass(frozen=True)
class Report:
    """All findings of one subject. `print(report)` shows a line for each."""

    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst status of any finding."""
        return worst(self.findings)

    @property
    def usable(self) -> bool:
        """Whether nothing failed."""
        return self.status != "fail"

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "findings": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def summary(findings: Sequence[Finding]) -> str:
    """How many findings there are of each status, as a sentence."""
    warnings = sum(finding.status == "warn" for finding in findings)
    failures = sum(finding.status == "fail" for finding in findings)
    counts = [f"{len(findings)} check{'s' * (len(findings) != 1)}", f"{warnings} warning{'s' * (warnings != 1)}"]
    return ", ".join([*counts, f"{failures} failure{'s' * (failures != 1)}"])
