"""A worker that trains with rl_training: the whole run, with its directory and a line of metrics every 10,000 steps.

It uses only the public API, so that it runs with any version of the library (see commits.py).
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from windows import Windows

import rl_training


def main() -> None:
    config, warm_up, clock = json.loads(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    preset = config.pop("preset", None)
    windows: Windows | None = None

    def callback(progress: Any) -> bool:
        nonlocal windows
        if windows is None:
            if progress.updates == 0:
                return True  # the replay buffer is not filled yet
            windows = Windows(warm_up, clock)
        return windows.between_rounds(progress.env_steps)

    with tempfile.TemporaryDirectory() as folder:
        quiet = {"output_dir": folder, "log_every": 10_000}
        run = [config | quiet] if preset is None else [preset, config | quiet]
        rl_training.train(rl_training.load_config(*run), callback=callback, show=False)


if __name__ == "__main__":
    main()
