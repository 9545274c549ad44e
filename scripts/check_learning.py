"""Check that every preset reaches its target score. Runs all benchmarks of the zoo; `rl-training zoo` runs one of them.

    python scripts/check_learning.py                      all rows except those marked long, 5 seeds
    python scripts/check_learning.py --only ppo/cartpole  one row (repeatable)
    python scripts/check_learning.py --table              print the results without training
    python scripts/check_learning.py --write              also write the reports to docs/benchmarks/, including the
                                                          results saved there of runs on other machines

You can stop and restart the script at any time: finished seeds are kept, interrupted ones are resumed. A preset with
changed settings is trained again. The exit code is 0 only if every row passes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rl_training.errors import EXIT_RESUMABLE, ConfigError, RLTrainingError
from rl_training.experiment.jobs_display import JobsDisplay
from rl_training.experiment.launcher import launch
from rl_training.zoo.manifest import Manifest, list_manifests, load_manifest
from rl_training.zoo.report import RESULTS_FOLDER, write_report
from rl_training.zoo.results import gather
from rl_training.zoo.runs import Job, is_done
from rl_training.zoo.table import make_table, markdown

REPORTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"


def main() -> int:
    arguments = parse_arguments()
    manifests = [load_manifest(name) for name in list_manifests()]
    rows = tuple(entry for manifest in manifests for entry in manifest.entries)
    # Only the selected rows are trained, but a report covers all rows.
    selected = Manifest("the zoo", "", "", {}, rows, {}).select(arguments.only or (), long=arguments.long)
    if not selected:  # otherwise an empty selection would pass
        raise ConfigError(f"--only {arguments.only[0]}: all selected rows take hours; add --long")
    if not arguments.table:
        jobs = [Job(entry, seed, arguments.output_dir) for entry in selected for seed in range(arguments.seeds)]
        pending = [job for job in jobs if not is_done(job)]
        with JobsDisplay(pending, len(jobs) - len(pending)) as display:
            if launch(pending, arguments.jobs, display).stopped:
                return EXIT_RESUMABLE
    results_folder = REPORTS / RESULTS_FOLDER if arguments.write else None
    results = gather(selected, arguments.seeds, arguments.output_dir, results_folder)
    table = make_table(selected, results, arguments.seeds)
    print(markdown(table, arguments.seeds))
    if arguments.write:
        for manifest in manifests:
            results = gather(manifest.entries, arguments.seeds, arguments.output_dir, results_folder)
            whole = make_table(manifest.entries, results, arguments.seeds)
            if any(line["seeds"] for line in whole):
                write_report(manifest, manifest.entries, whole, results, arguments.seeds, REPORTS)
    return 0 if all(line["verdict"].startswith("pass") for line in table) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="only this row, algorithm or environment; repeatable")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds per row (seeds 0 to N-1)")
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel runs, one thread each")
    parser.add_argument("--long", action="store_true", help="include rows that take hours")
    parser.add_argument("--table", action="store_true", help="print the results without training")
    parser.add_argument("--write", action="store_true", help="write the reports to docs/benchmarks/")
    parser.add_argument("--output-dir", default="runs/learning", help="folder that contains the runs")
    arguments = parser.parse_args()
    for option in ("seeds", "jobs"):
        if getattr(arguments, option) < 1:
            raise ConfigError(f"--{option}: {getattr(arguments, option)} is not valid, must be at least 1")
    return arguments


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RLTrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
