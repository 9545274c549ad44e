"""A worker that trains with rl_training: the whole run, with its directory and a line of metrics every 10,000 steps."""

from __future__ import annotations

import json
import sys
import tempfile

from windows import Windows

from rl_training.config.loading import load_config
from rl_training.runtime.loops import Progress
from rl_training.runtime.workflows import train


def main() -> None:
    config, warm_up = json.loads(sys.argv[1]), float(sys.argv[2])
    windows: Windows | None = None

    def callback(progress: Progress) -> bool:
        nonlocal windows
        if windows is None:
            if progress.updates == 0:
                return True  # still filling the replay buffer
            windows = Windows(warm_up)
        return windows.between_rounds(progress.env_steps)

    with tempfile.TemporaryDirectory() as folder:
        quiet = {"output_dir": folder, "log_every": 10_000}
        train(load_config(config | quiet), callback=callback, show=False)


if __name__ == "__main__":
    main()
