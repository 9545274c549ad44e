"""Items 4 and 8: 2,000 random run directories, checkpoints, crash files, benchmark files and command lines."""

from __future__ import annotations

import pytest

from figures import record_figure
from fuzz import FuzzServer, complaint
from fuzz_cases import KINDS, seeds_of
from fuzz_invariants import MOST_MEGABYTES, MOST_SECONDS

CASES = 340  # of each of six kinds
FIRST_SEED = 1_000  # the test suite has the seeds before it


@pytest.mark.parametrize("kind", KINDS)
def test_random_cases_keep_every_invariant(kind: str) -> None:
    server = FuzzServer()
    try:
        reports = [server.run(seed) for seed in seeds_of(kind, FIRST_SEED, CASES)]
    finally:
        server.close()
    broken = [complaint(report) for report in reports if report["violations"]]
    assert not broken, f"{len(broken)} of {len(reports)} cases:\n" + "\n".join(broken[:20])
    item = 8 if kind in ("command lines", "configs") else 4
    refused = sum(report["code"] != 0 for report in reports)
    slowest = max((report["seconds"] for report in reports if report["reading"]), default=0.0)
    largest = max(report["megabytes"] for report in reports)
    record_figure(item, f"random {kind}: cases", len(reports), f">= {CASES}")
    record_figure(
        item, f"random {kind}: refused, with one line and a documented exit code", refused, f">= {CASES // 8}"
    )
    record_figure(item, f"random {kind}: cases that broke an invariant", len(broken), "= 0")
    record_figure(item, f"random {kind}: slowest that only reads, processor time", slowest, f"<= {MOST_SECONDS:g} s")
    record_figure(item, f"random {kind}: largest, beside the program itself", largest, f"<= {MOST_MEGABYTES:g} MB")
