"""Load mutants of a run under an audit hook: `python mutant_loader.py RUN COUNT WORKPLACE` prints a report as JSON."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import Any

import rl_training
from checkpoint_helpers import sign_again
from mutants import MARKER, MUST_BE_REFUSED, config_forged, mutations_of
from rl_training.errors import RLTrainingError
from rl_training.experiment.registry import ALGORITHMS, get_config_class, get_spec
from rl_training.runtime.workflows import agent_of, resume
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints, load_checkpoint

# Code of the installation may run, including modules that are imported late. Code from anywhere else may not.
OURS = tuple(
    os.path.realpath(path)
    for path in {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, str(Path(rl_training.__file__).parent)}
)
FORBIDDEN = re.compile(
    r"pickle\.|marshal\.loads|code\.__new__|subprocess\.|os\.(system|exec|posix_spawn|spawn|startfile|fork)|pty\."
    r"|ctypes\.dlopen|socket\.(connect|bind|getaddrinfo)|shelve|webbrowser|urllib\.Request"
)


class Watch:
    """Records the forbidden events that happen while a mutant loads."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "subprocess.Popen" and arguments[0] == "git":
            return  # a run records the commit of the library; what git may run then is tested with `git_state`
        if FORBIDDEN.match(event):
            self.seen.append(f"{event}{arguments!r}"[:200])
        elif event == "exec":
            name = getattr(arguments[0], "co_filename", "?")
            if not name.startswith("<frozen") and not os.path.realpath(name).startswith(OURS):
                self.seen.append(f"exec of code from {name}")


def memory() -> dict[str, int]:
    text = Path("/proc/self/status").read_text()
    return {name: int(re.search(rf"{name}:\s+(\d+)", text)[1]) for name in ("VmRSS", "VmHWM")}  # type: ignore[index]


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


slowest = 0.0


def attempt(action: Any) -> tuple[Any, str | None]:
    """The result, or the message of the refusal. Any other exception fails the drill."""
    global slowest
    started = time.process_time()
    try:
        return action(), None
    except RLTrainingError as error:
        text = str(error)
        assert text.isprintable() and len(text) < 2500, f"not one clean line: {text!r}"
        return None, text
    finally:
        slowest = max(slowest, time.process_time() - started)


def load_in_every_way(run: Path, newest: Path, with_resume: bool) -> bool:
    """Whether any way of loading refuses the checkpoint. A run always falls back to an older one, or loads this one."""
    _, refused = attempt(lambda: load_checkpoint(newest))
    latest, failure = attempt(lambda: latest_checkpoint(run))
    assert failure is None, f"no fallback: {failure}"
    assert refused is None or latest.path != newest
    _, no_agent = attempt(lambda: agent_of(newest))
    not_resumed = None
    if with_resume:
        _, not_resumed = attempt(lambda: resume(newest, show=False))
    return any(reason is not None for reason in (refused, no_agent, not_resumed)) or latest.path != newest


def main(source: Path, count: int, workplace: Path) -> dict[str, Any]:
    global slowest
    watch = Watch()
    for algorithm in ALGORITHMS:  # pydantic evaluates annotations when a config class is imported
        get_config_class(algorithm), get_spec(algorithm)
    marker = workplace / "marker"
    os.environ[MARKER] = str(marker)
    run = workplace / "mutant"
    shutil.copytree(source, run)
    original = list_checkpoints(run, "resume")[0]
    assert not load_in_every_way(run, original, True), "the original does not load"
    sign_again(original)
    assert not load_in_every_way(run, original, True), "a checkpoint with new hashes does not load"
    mutations = mutations_of(list_checkpoints(source, "resume")[0])
    outcomes: Counter[str] = Counter()
    worst_seconds, worst_megabytes, failures = 0.0, 0.0, []
    for number in range(count):
        mutation = mutations[number % len(mutations)]
        shutil.rmtree(run)
        shutil.copytree(source, run)
        newest = list_checkpoints(run, "resume")[0]
        mutation(newest, random.Random(number))
        reset_peak()
        before, slowest, watch.on = memory()["VmRSS"], 0.0, True
        try:
            # A forged config may name any env, and resuming makes that env. Users check it with `inspect`.
            refused = load_in_every_way(run, newest, with_resume=mutation is not config_forged)
            if mutation in MUST_BE_REFUSED:
                assert refused, "it loaded"
            outcomes["refused" if refused else "loaded"] += 1
        except Exception as error:
            failures.append(f"{number} {mutation.__name__}: {type(error).__name__}: {error}"[:500])
        finally:
            watch.on = False
        seconds, megabytes = slowest, (memory()["VmHWM"] - before) / 1024
        if seconds > 2 or megabytes > 200:
            failures.append(f"{number} {mutation.__name__}: {seconds:.1f} s, {megabytes:.0f} MB")
        worst_seconds, worst_megabytes = max(worst_seconds, seconds), max(worst_megabytes, megabytes)
        if marker.exists():
            failures.append(f"{number} {mutation.__name__}: code in the file ran")
            marker.unlink()
    if watch.seen:
        failures.append("something forbidden happened")
    events, watch.on = list(watch.seen), True
    pickle.loads(pickle.dumps(Path))
    watch.on = False
    assert len(watch.seen) > len(events), "the hook misses pickle"
    return {
        "count": count,
        "outcomes": outcomes,
        "worst_seconds": worst_seconds,
        "worst_megabytes": worst_megabytes,
        "events": events,
        "failures": failures,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
