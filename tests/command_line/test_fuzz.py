"""The fuzzer: fixed cases for every defect that was found, random cases, and proof that it notices a defect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz import FuzzServer, complaint
from fuzz_cases import KINDS, kind_of, seeds_of
from fuzz_commands import commands
from fuzz_defects import DEFECTS
from fuzz_invariants import exit_codes
from fuzz_sabotage import SABOTAGE

CASES, BLOCK = 200, 25
NOTICED = {
    "raises": "traceback: ValueError: invalid literal",
    "exit code 7": "exit code 7",
    "fails without a word": "exit code 2 without a word",
    "prints four lines": "4 lines on stderr",
    "prints an escape": "control characters on stdout: '\\x1b'",
    "prints a C1 control": "control characters on stderr: '\\x9b'",
    "reverses a line": "control characters on stdout: '\\u202e'",
    "works for three seconds": "s of processor time",
    "works for ever": "did not end after",
    "uses 250 MB": "MB of memory",
    "writes outside": "outside/new was created",
    "changes a file outside": "outside/canary was changed (content, time)",
    "may not read what is forbidden": "4 lines on stderr",
    "leaves a process": "left 1 processes behind",
    "waits for a pipe": "did not end after",
}


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[FuzzServer]:
    server = FuzzServer()
    yield server
    server.close()


@pytest.mark.xdist_group("fuzz, by hand")  # tests that share a fuzzer stay in one worker
@pytest.mark.parametrize("name", SABOTAGE)
def test_a_broken_invariant_is_noticed(name: str, fuzzer: FuzzServer) -> None:
    assert any(NOTICED[name] in each for each in fuzzer.run(name)["violations"])


@pytest.mark.xdist_group("fuzz, by hand")
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_stays_fixed(name: str, fuzzer: FuzzServer) -> None:
    report = fuzzer.run(name)
    assert not report["violations"], complaint(report)


@pytest.mark.xdist_group("fuzz, random")
@pytest.mark.parametrize("first", range(0, CASES, BLOCK))
def test_random_cases_keep_every_invariant(first: int, fuzzer: FuzzServer) -> None:
    reports = [fuzzer.run(seed) for seed in range(first, first + BLOCK)]
    broken = [complaint(report) for report in reports if report["violations"]]
    assert not broken, "\n".join(broken)


@pytest.mark.xdist_group("fuzz, random")
def test_a_seed_is_one_case(fuzzer: FuzzServer) -> None:
    for seed in range(len(KINDS)):
        first, second = (fuzzer.run(seed) for _ in range(2))
        assert [first[key] for key in ("about", "code", "violations")] == [
            second[key] for key in ("about", "code", "violations")
        ]


@pytest.mark.parametrize("first", [0, 1, 1_000])
def test_the_seeds_of_a_kind_have_its_cases(first: int) -> None:
    found = [seed for kind in KINDS for seed in seeds_of(kind, first, 4) if kind_of(seed) == kind]
    assert sorted(found) == list(range(first, first + 4 * len(KINDS)))  # every seed once


def test_every_documented_command_is_in_the_grammar(project_root: Path) -> None:
    page = (project_root / "docs/command-line.md").read_text().partition("## Specifying")[0]
    documented = set(re.findall(r"^    rl-training ([a-z-]+)", page, re.MULTILINE))
    assert documented == {name.split()[0] for name in commands()}


def test_exit_codes_are_the_documented_ones(project_root: Path) -> None:
    table = (project_root / "docs/command-line.md").read_text().partition("## Exit codes")[2]
    assert exit_codes() == {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
