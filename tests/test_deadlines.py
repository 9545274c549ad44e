"""No test depends on the load of the machine: none reads the wall clock, and every deadline is minutes.

A test measures processor time, waits for events (`tests/support/waiting.py`) or replaces the clock. Promises about wall
seconds are measured by the drills.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# The fuzzer tells a process that hangs from one that waits for a processor: it must look at both clocks.
EXEMPT = {TESTS / "support" / "waiting.py", TESTS / "support" / "fuzz_runner.py"}
WALL_CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time_ns"}
WAITING_CALLS = {"call", "check_call", "check_output", "communicate", "get", "join", "run", "wait"}
SHORTEST_DEADLINE = 100.0


def load_dependent(text: str) -> list[str]:
    """The calls in a module whose result depends on how busy the machine is, with their lines."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {f"time.{name}" for name in WALL_CLOCKS}:
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        deadlines = {"timeout"} if name in WAITING_CALLS else {"seconds"} if name.startswith("wait_") else set()
        for keyword in node.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg in deadlines and isinstance(value, (int, float)) and value < SHORTEST_DEADLINE:
                found.append(f"{node.lineno}: {name}({keyword.arg}={value})")
    return found


def test_tests_neither_read_the_wall_clock_nor_have_short_deadlines() -> None:
    paths = [path for path in sorted(TESTS.rglob("*.py")) if path not in EXEMPT]
    found = [f"{path.relative_to(TESTS)}:{each}" for path in paths for each in load_dependent(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "assert time.monotonic() - started < 2",
        "process.communicate(timeout=10)",
        "subprocess.run(command, timeout=59.5)",
        "wait_for(condition, process, seconds=30)",
    ],
)
def test_what_depends_on_load_is_found(text: str) -> None:
    (found,) = load_dependent(text)
    assert found.startswith("1: ")
    assert load_dependent("time.process_time(); run(timeout=300); make_vector_env(timeout=0.1)") == []
