"""Ctrl-C while the program is loading: exit code 130, and nothing is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rl_training.command_line.common import interrupts

# Python imports this module before ours. It sends the signal at the moment a module is about to be imported.
HOOK = """
import os, sys

wanted, log = os.environ["INTERRUPT_AT"], os.environ.get("IMPORT_LOG")
seen = []

def on_event(event, arguments):
    if event != "import":
        return
    if log:
        seen.append(arguments[0])
        with open(log, "a") as file:
            file.write(arguments[0] + "\\n")
    elif arguments[0] == wanted and not seen:
        seen.append(wanted)
        try:
            os.kill(os.getpid(), 2)  # SIGINT; the module `signal` must not be imported here
            sum(range(100))  # here the handler has run
        except KeyboardInterrupt:
            if not os.environ.get("SWALLOW"):
                raise

sys.addaudithook(on_event)
"""


@pytest.fixture
def hooked(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "INTERRUPT_AT": ""}


def start(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # Of a shell in the background a child inherits SIGINT as ignored.
    command = [sys.executable, "-m", "rl_training", *words]
    restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, preexec_fn=restore, check=False
    )


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["--version"], "rl_training.command_line"),  # the first import of `main`
        (["--version"], "signal"),
        (["--version"], "rl_training.errors"),
        (["--version"], "typer"),
        (["--version"], "rl_training.command_line.zoo"),
        (["list", "configs"], "rl_training.config.loading"),
        (["list", "configs"], "pydantic_core._pydantic_core"),
        (["list", "algorithms"], "rich.table"),
        (["train", "ppo/cartpole"], "torch"),
        (["train", "ppo/cartpole"], "gymnasium"),
        (["train", "ppo/cartpole"], "numpy._core._multiarray_umath"),
        (["train", "ppo/cartpole"], "rl_training.runtime.session"),
    ],
)
def test_an_import_can_be_interrupted(words: list[str], module: str, hooked: dict[str, str], tmp_path: Path) -> None:
    done = start(words, {**hooked, "INTERRUPT_AT": module, "IMPORT_LOG": ""})
    assert done.returncode == 130, done.stderr
    assert done.stdout == "" and done.stderr == ""


@pytest.mark.parametrize("module", ["typer", "rl_training.command_line.zoo"])
def test_an_import_that_swallows_the_exception_is_interrupted_too(module: str, hooked: dict[str, str]) -> None:
    """As callbacks of the interpreter and native modules do."""
    done = start(["--version"], {**hooked, "INTERRUPT_AT": module, "SWALLOW": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_nothing_slow_is_imported_before_the_signal_is_handled(hooked: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "imports"
    assert start(["--version"], {**hooked, "IMPORT_LOG": str(log)}).returncode == 0
    names = log.read_text().split()
    # Of the console script these imports happen as well; everything after them is inside `main`.
    ours = names[names.index("rl_training") : names.index("rl_training.command_line")]
    known = {"rl_training", "rl_training._version", "rl_training.__main__", "rl_training.cli", "sys"}
    known.add("rl_training.command_line.common")  # holds the handler
    assert set(ours) <= known


def test_a_process_in_the_background_keeps_ignoring_the_signal(hooked: dict[str, str]) -> None:
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    command = [sys.executable, "-m", "rl_training", "--version"]
    environment = {**hooked, "INTERRUPT_AT": "typer"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, preexec_fn=ignore, check=False
    )
    assert done.returncode == 0 and done.stdout.startswith("rl_training ")


PROGRAM = """
import signal, sys
from rl_training.command_line.common import interrupts
interrupts.take_over()
assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
try:
    with interrupts.clean_up():
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("cleaned", interrupts.received(), flush=True)
if "twice" in sys.argv:
    with interrupts.clean_up():
        signal.raise_signal(signal.SIGINT)
signal.raise_signal(signal.SIGINT)
print("not reached")
"""


@pytest.mark.parametrize("words", [[], ["twice"]])
def test_work_is_cleaned_up_once(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "cleaned True\n", "")


def test_a_program_that_calls_main_keeps_its_handler() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with interrupts.clean_up():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
