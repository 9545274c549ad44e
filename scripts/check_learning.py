"""Does every preset reach its score? All manifests of the zoo at once; `rl-training zoo` does the same for one of them.

    python scripts/check_learning.py                      every row that is not marked long, 5 seeds
    python scripts/check_learning.py --only ppo/cartpole  one row (may be repeated)
    python scripts/check_learning.py --table              print what is there, train nothing
    python scripts/check_learning.py --write              also write the reports to docs/benchmarks/, with what
                                                          they have kept of runs that are not here

Stop it at any time and start it again: finished seeds are kept, an interrupted one is resumed. A preset whose
settings changed since its run was made is trained anew. Exit code 0 only if every row passes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.zoo.display import JobsDisplay
from rl_training.zoo.launcher import launch
from rl_training.zoo.manifest import Manifest, list_manifests, load_manifest
from rl_training.zoo.report import KEPT, write_report
from rl_training.zoo.results import gather
from rl_training.zoo.runs import Job, is_done
from rl_training.zoo.table import make_table, markdown

REPORTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"


def main() -> int:
    arguments = parse_arguments()
    manifests = [load_manifest(name) for name in list_manifests()]
    rows = tuple(entry for manifest in manifests for entry in manifest.entries)
    # A report is of all rows, those that take hours too; what is trained is what was asked for.
    chosen = Manifest("the zoo", "", "", {}, rows, {}).select(arguments.only or (), long=arguments.long)
    if not chosen:  # or nothing would count as every row
        raise ConfigError(f"--only {arguments.only[0]}: all of these rows are long ones; --long includes them")
    if not arguments.table:
        jobs = [Job(entry, seed, arguments.output_dir) for entry in chosen for seed in range(arguments.seeds)]
        ahead = [job for job in jobs if not is_done(job)]
        with JobsDisplay(ahead, len(jobs) - len(ahead)) as display:
            if launch(ahead, arguments.jobs, display).stopped:
                return 75
    kept = REPORTS / KEPT if arguments.write else None
    table = make_table(chosen, gather(chosen, arguments.seeds, arguments.output_dir, kept), arguments.seeds)
    print(markdown(table, arguments.seeds))
    if arguments.write:
        for manifest in manifests:
            results = gather(manifest.entries, arguments.seeds, arguments.output_dir, kept)
            whole = make_table(manifest.entries, results, arguments.seeds)
            if any(line["seeds"] for line in whole):
                write_report(manifest, manifest.entries, whole, results, arguments.seeds, REPORTS)
    return 0 if all(line["verdict"].startswith("pass") for line in table) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="row, algorithm or env word to run; repeat for several")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--long", action="store_true", help="include the rows that take hours")
    parser.add_argument("--table", action="store_true", help="train nothing, show what is there")
    parser.add_argument("--write", action="store_true", help="write the reports to docs/benchmarks/")
    parser.add_argument("--output-dir", default="runs/learning")
    arguments = parser.parse_args()
    for option in ("seeds", "jobs"):
        if getattr(arguments, option) < 1:
            raise ConfigError(f"--{option}: {getattr(arguments, option)} has to be at least 1")
    return arguments


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RLTrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
