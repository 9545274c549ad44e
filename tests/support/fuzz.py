"""The fuzzer. `python tests/support/fuzz.py 17 100:200 "A3 ..."` runs cases by seed, range or name and reports them;
`--serve` reads such words from stdin and answers each case with a line of JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
MEMORY = "/dev/shm"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


class Fuzzer:
    """Runs cases on copies of one tree. Everything is imported here, once."""

    def __init__(self, folder: Path) -> None:
        from fuzz_runner import import_everything
        from fuzz_tree import make_tree

        self.folder, self.tree = folder, folder / "tree"
        import_everything()
        child = os.fork()  # training leaves handlers and caches, which the cases must not inherit
        if child == 0:
            code = 1
            try:
                make_tree(self.tree)
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0, "the tree of the fuzzer could not be made"

    def run(self, word: str) -> dict[str, Any]:
        """The report of one case, given by its seed or name."""
        from fuzz_cases import Case, case_of
        from fuzz_commands import name_of
        from fuzz_defects import DEFECTS
        from fuzz_invariants import is_reading, violations
        from fuzz_mutations import release_locks
        from fuzz_runner import IDLE_SECONDS, call_the_cli, run
        from fuzz_sabotage import SABOTAGE, SHORT_IDLE_SECONDS
        from fuzz_tree import WORK, facts_of, remove_tree

        by_hand = {**DEFECTS, **{name: Case(name, ["list", "runs"]) for name in SABOTAGE}}
        case = by_hand[word] if word in by_hand else case_of(int(word), self.tree / WORK)
        root = self.folder / "case"
        remove_tree(root)
        shutil.copytree(self.tree, root, symlinks=True)
        try:
            for mutation in case.mutations:
                try:
                    mutation.apply(root / WORK)
                except Exception:
                    if word in by_hand:  # a random one may meet what another mutation left
                        raise
            before = facts_of(root)
            may_run_long = not is_reading(name_of(case.arguments))
            call = SABOTAGE.get(word, partial(call_the_cli, case.arguments))
            patience = SHORT_IDLE_SECONDS if word in SABOTAGE else IDLE_SECONDS
            outcome = run(call, root, case.stdin, case.stdout, may_run_long, patience)
            broken = violations(case, outcome, before, facts_of(root))
        finally:
            release_locks()
            remove_tree(root)
        facts = {"case": word, "violations": broken, "seconds": outcome.seconds, "megabytes": outcome.megabytes}
        facts |= {
            "code": outcome.code,
            "reading": not may_run_long,
            "about": case.describe(),
            "out": outcome.out[:2_000],
            "err": outcome.err[:4_000],
        }
        return facts


class FuzzServer:
    """A fuzzer in another process, so that it forks without the threads and modules of the tests."""

    def __init__(self) -> None:
        paths = [str(ROOT / "src"), str(ROOT / "tests" / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **THREADS, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def run(self, word: str | int) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the fuzzer died in case {word}"
        report: dict[str, Any] = json.loads(line)
        return report

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def complaint(report: dict[str, Any]) -> str:
    """What to print about a case that broke an invariant."""
    lines = [report["about"], *(f"  VIOLATION {each}" for each in report["violations"])]
    lines += [f"  exit code {report['code']}, {report['seconds']:.2f} s, {report['megabytes']:.0f} MB"]
    lines += [f"  stderr: {line[:300]}" for line in report["err"].splitlines()[-12:]]
    return "\n".join([*lines, f"  again: python tests/support/fuzz.py {json.dumps(report['case'])}"])


def words_of(arguments: list[str]) -> Iterator[str]:
    for word in arguments:
        first, _, end = word.partition(":")
        yield from map(str, range(int(first), int(end))) if first.isdigit() and end.isdigit() else [word]


def main() -> int:
    os.environ |= {name: os.environ.get(name, value) for name, value in THREADS.items()}
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    # Not a TemporaryDirectory: every child would remove it at its exit. In memory: the library syncs what it writes.
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        fuzzer = Fuzzer(folder)
        if sys.argv[1:] == ["--serve"]:
            for line in sys.stdin:
                print(json.dumps(fuzzer.run(line.rstrip("\n"))), file=answers, flush=True)
            return 0
        return _report_all(fuzzer, list(words_of(sys.argv[1:])), answers)
    finally:
        shutil.rmtree(folder)


def _report_all(fuzzer: Fuzzer, words: list[str], answers: TextIO) -> int:
    bad = 0
    for word in words:
        report = fuzzer.run(word)
        bad += bool(report["violations"])
        if report["violations"] or len(words) == 1:
            print(complaint(report), file=answers, flush=True)
    used = os.times()
    seconds = used.children_user + used.children_system
    print(f"{len(words)} cases, {bad} with violations, {seconds:.0f} s of processor time", file=answers, flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
