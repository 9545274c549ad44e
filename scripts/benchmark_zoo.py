"""List and run the benchmarks of the zoo from a checkout; same as `rl-training zoo`.

python scripts/benchmark_zoo.py list [MANIFEST]
python scripts/benchmark_zoo.py run zoo/atari/benchmark.yaml --only dqn --seeds 1 --long
python scripts/benchmark_zoo.py table classic
"""

from __future__ import annotations

import sys

from rl_training.cli import main

if __name__ == "__main__":
    words = ["list" if word == "--list" else word for word in sys.argv[1:]]
    sys.exit(main(["zoo", *(words or ["list"])]))
