"""A worker that trains with a single-file program of CleanRL, unchanged, from a checkout of it (see clock_cleanrl.py).

The windows of a measurement are between the rounds of the program. It needs `make bench-cleanrl`.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from typing import Any

from clock_cleanrl import call_after_rounds, checkout
from windows import Windows


def main() -> None:
    work, warm_up, commands = json.loads(sys.argv[1]), float(sys.argv[2]), sys.stdout
    windows: Windows | None = None

    def after_round(program: dict[str, Any], env_steps: int) -> None:
        nonlocal windows
        windows = windows or Windows(warm_up)
        with contextlib.redirect_stdout(commands):
            if not windows.between_rounds(env_steps):
                raise SystemExit

    call_after_rounds(after_round)
    place = checkout()
    sys.path[:0] = [str(place)]  # of its package cleanrl_utils
    sys.argv = [work["file"], *work["arguments"]]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # it prints each episode
        runpy.run_path(str(place / "cleanrl" / work["file"]), run_name="__main__")


if __name__ == "__main__":
    main()
