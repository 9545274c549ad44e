"""Importing packages in another process: one that is broken can neither end this process nor print into its output.

The process reports one line of JSON per package. If it dies, the package after its last report is the one that killed
it, and another process tries the rest.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_training.text import describe_error

PATIENCE_SECONDS = 300.0
HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR")
# The path of this process, before anything else is imported: a module in the current directory must not shadow one.
_PROGRAM = """\
import sys
sys.path[:] = sys.argv[1].split("\\n")
from rl_training.checkup.import_trial import report_imports
report_imports(sys.argv[2:])
"""


@dataclass(frozen=True)
class Trial:
    """How an import ended. `facts` says more about torch."""

    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def try_imports(modules: Sequence[str], patience: float = PATIENCE_SECONDS) -> dict[str, Trial]:
    """Import each module in another process."""
    trials: dict[str, Trial] = {}
    while remaining := [module for module in modules if module not in trials]:
        end = _run(remaining, patience, trials)
        unreported = [module for module in remaining if module not in trials]
        if unreported:
            trials[unreported[0]] = Trial(f"importing it {end}")
    return trials


def _run(modules: list[str], patience: float, trials: dict[str, Trial]) -> str:
    """Add the trials that one process reports; how it ended, in words, in case it did not report all."""
    command = [sys.executable, "-c", _PROGRAM, "\n".join(sys.path), *modules]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        with tempfile.TemporaryDirectory() as home:  # some packages write settings or caches when they are imported
            environment = os.environ | dict.fromkeys(HOMES, home)
            done = subprocess.run(command, timeout=patience, env=environment, check=False, **pipes)  # type: ignore[call-overload]
        output, end = done.stdout, _ending(done.returncode)
    except subprocess.TimeoutExpired as late:
        output, end = late.stdout or b"", f"takes longer than {patience:.0f} seconds"
    for line in output.decode("utf-8", "replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            if entry["module"] in modules:
                trials[entry["module"]] = Trial(entry["error"], entry["facts"])
    return end


def _ending(code: int) -> str:
    if code >= 0:
        return f"ends the process with code {code}"
    with contextlib.suppress(ValueError):
        return f"kills the process ({signal.Signals(-code).name})"
    return f"kills the process (signal {-code})"


def report_imports(modules: Sequence[str]) -> None:
    """Import modules and report on stdout: what the other process does."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as report:
        os.dup2(2, 1)  # what packages print is not part of the report
        for module in modules:
            error, facts = None, {}
            try:
                importlib.import_module(module)
                facts = _torch_facts() if module == "torch" else {}
            except (Exception, SystemExit) as problem:
                error = describe_error(problem)
            report.write(json.dumps({"module": module, "error": error, "facts": facts}) + "\n")
            report.flush()


def _torch_facts() -> dict[str, Any]:
    import torch

    cuda = torch.cuda.is_available()
    return {
        "version": str(torch.__version__),
        "cuda_build": torch.version.cuda,
        "cuda": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if cuda else [],
        "mps": bool(torch.backends.mps.is_available()),
        "threads": torch.get_num_threads(),
    }
