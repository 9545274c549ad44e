"""`python -m rl_training` is the same program as the `rl-training` command."""

import sys

from rl_training.cli import main

if __name__ == "__main__":
    sys.exit(main())
