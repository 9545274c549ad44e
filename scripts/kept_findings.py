"""What calibration has seen of healthy runs: a small file per seed and row, and the part of a page made from it.

Runs are large and stay on the machine that made them. `calibrate_findings.py report FOLDER` keeps of each finished run
its score, whether it passed its row, the rules that fired, and its figures next to the thresholds of the rules.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rl_training.diagnosis
from rl_training.config.train_config import TrainConfig
from rl_training.storage.durable_files import atomic_write_text
from rl_training.zoo.manifest import Entry
from rl_training.zoo.runs import settings

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "benchmarks" / "results" / "findings.json"
PAGE = ROOT / "docs" / "diagnoses.md"
BEGIN, END = "<!-- healthy runs: begin -->", "<!-- healthy runs: end -->"
ENOUGH_SEEDS = 3

Kept = dict[str, Any]  # {"older": ..., "rows": {row: {"preset": hash, "seeds": {seed: Seen as a dict}}}}
Worst = dict[str, tuple[float, str]]  # figure -> its largest value and the run that has it


def percent(value: float) -> str:
    return f"{100 * value:.2g} %"


# Rule -> its figures of a healthy run, and how the page writes them. The larger a figure, the nearer the threshold.
COLUMN: dict[str, dict[str, Callable[[float], str]]] = {
    "steps_too_large": {
        "approx_kl": lambda value: f"{value:.2g}",
        "approx_kl, median of 5": lambda value: f"median {value:.2g}",
    },
    "policy_stands_still": {"1 / approx_kl, first half": lambda value: f"{1 / value:.2g}"},
    "entropy_gone": {
        "-entropy_share, first half": lambda value: percent(-value),
        "gain lost at low entropy": lambda value: f"at most {percent(value)} of the gain lost",
    },
    "value_learns_nothing": {"value_loss / that of the mean": lambda value: f"{value:.2g} times"},
    "gradients_too_long": {
        "gradient / max_grad_norm": lambda value: f"{value:.3g} times",
        "gradient without a limit": lambda value: f"{value:.3g} without a limit",
    },
    "q_beyond_reach": {"q_mean / reach": lambda value: f"{value:.2g} times"},
    "dead_units": {"dead_units, median of 3": percent},
    "fell_from_peak": {"gain lost in evaluations": lambda value: f"{percent(value)} of the gain lost"},
    "replay_starved": {"updates per step": lambda value: f"{value:.2g}"},
    "episodes_never_end": {"steps without an end": lambda value: f"{value:,.0f}"},
    "support_too_narrow": {"support_clipped": percent},
    "rewards_clipped": {"reward_clipped, median of 5": percent},
    "env_is_the_limit": {"time_env, 10 in a row": percent},
}


@dataclass(frozen=True)
class Seen:
    """One finished run. `trained` and `judged` name the version or commit that trained it, and that applied the rules;
    `rules` is a hash of these rules."""

    score: float
    passed: bool
    fired: list[str]
    figures: dict[str, float]
    trained: str
    judged: str
    rules: str


def preset_hash(preset: TrainConfig) -> str:
    """Of the settings that differ from their defaults: a new setting with a default keeps what was seen before."""
    named = preset.model_dump(mode="json", exclude_defaults=True)
    return _hash(json.dumps({key: named[key] for key in settings(preset) if key in named}, sort_keys=True))


def rules_hash() -> str:
    """Of the code of the rules: after a change, older entries say what older rules said."""
    (folder,) = map(Path, rl_training.diagnosis.__path__)
    return _hash("".join(code_of(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*_rules.py"))))


def code_of(source: str) -> str:
    r"""The code without comments, docstrings and layout.

    >>> code_of("def f():\n    'About it.'\n    return 1") == code_of("def f(): return 1  # one")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.unparse(tree)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def load(path: Path) -> Kept:
    kept: Kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {"older": {"runs": 0, "worst": {}}, "rows": {}} | kept


def merge(kept: Kept, entries: Iterable[Entry], seen: Mapping[tuple[str, int], Seen]) -> Kept:
    """What was kept and what is seen now, by row and seed. A row whose preset has changed, or is gone, drops what was
    kept of it."""
    rows: dict[str, Any] = {}
    for entry in entries:
        preset, before = preset_hash(entry.preset), kept["rows"].get(entry.name, {})
        seeds = before["seeds"] if before.get("preset") == preset else {}
        seeds = seeds | {str(seed): asdict(each) for (name, seed), each in seen.items() if name == entry.name}
        if seeds:
            rows[entry.name] = {"preset": preset, "seeds": dict(sorted(seeds.items(), key=lambda item: int(item[0])))}
    return kept | {"rows": dict(sorted(rows.items()))}


def save(kept: Kept, path: Path) -> None:
    """A line per seed, so that a change shows what it is."""
    blocks = []
    for name, row in kept["rows"].items():
        lines = ",\n".join(f"   {json.dumps(seed)}: {json.dumps(each)}" for seed, each in row["seeds"].items())
        blocks.append(f'  {json.dumps(name)}: {{"preset": {json.dumps(row["preset"])}, "seeds": {{\n{lines}\n  }}}}')
    rows = ",\n".join(blocks)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, f'{{\n "older": {json.dumps(kept["older"])},\n "rows": {{\n{rows}\n }}\n}}\n')


def healthy(kept: Kept) -> dict[str, dict[str, Any]]:
    """The kept runs that passed their row, by the name of row and seed."""
    return {
        f"{name} seed {seed}": each
        for name, row in kept["rows"].items()
        for seed, each in row["seeds"].items()
        if each["passed"]
    }


def worst(kept: Kept) -> Worst:
    """The largest value of each figure among healthy runs, the older ones included."""
    found: Worst = {name: (value, run) for name, (value, run) in kept["older"]["worst"].items()}
    for run, each in healthy(kept).items():
        for name, value in each["figures"].items():
            if name not in found or value > found[name][0]:
                found[name] = (value, run)
    return found


def summary(kept: Kept, presets: int) -> str:
    """The paragraph of the page about the healthy runs."""
    runs = healthy(kept)
    enough = sum(sum(each["passed"] for each in row["seeds"].values()) >= ENOUGH_SEEDS for row in kept["rows"].values())
    below = sum(len(row["seeds"]) for row in kept["rows"].values()) - len(runs)
    fired = [f"`{', '.join(each['fired'])}` on {run}" for run, each in runs.items() if each["fired"]]
    old_rules = sum(each["rules"] != rules_hash() for each in runs.values())
    lines = [
        f"[findings.json](benchmarks/results/findings.json) keeps {_runs(len(runs))} that passed the floor of their "
        f"row (or stayed below its ceiling, for a control). They are of {len({run.split()[0] for run in runs})} of the "
        f"{presets} rows of the [benchmarks](benchmarks.md), and {enough} rows have {ENOUGH_SEEDS} seeds or more.",
        f"A rule fires on {len(fired)} of them{': ' if fired else ''}{'; '.join(fired)}.",
    ]
    if below:
        lines.append(f"It also keeps {_runs(below)} that did not pass; they are not counted here.")
    if old_rules:
        lines.append(f"Older rules judged {_runs(old_rules)} of these.")
    if kept["older"]["runs"]:
        lines.append(
            f"Besides, there are {_runs(kept['older']['runs'])} from before the file: {kept['older']['about']}"
        )
    return " ".join(lines)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def cell(rule: str, found: Worst) -> str:
    """The last column of the page for one rule."""
    parts = []
    for name, form in COLUMN[rule].items():
        if name in found:
            value, run = found[name]
            parts.append(f"{form(value)} ({run})" if run else form(value))
    return "; ".join(parts) or "not measured"


def with_healthy_runs(page: str, kept: Kept, presets: int) -> str:
    """The page with the last column of its table and its paragraph made from what is kept."""
    found = worst(kept)

    def row(match: re.Match[str]) -> str:
        return f"{match['start']}| {cell(match['rule'], found)} |" if match["rule"] in COLUMN else match[0]

    page = re.sub(r"^(?P<start>\| `(?P<rule>\w+)` \|.*)\|[^|\n]*\|$", row, page, flags=re.MULTILINE)
    start, _, rest = page.partition(BEGIN)
    _, _, end = rest.partition(END)
    if not rest or not end:
        raise SystemExit(f"the page needs the lines {BEGIN} and {END}")
    return f"{start}{BEGIN}\n{wrapped(summary(kept, presets))}\n{END}{end}"


def wrapped(text: str, width: int = 120) -> str:
    """Lines that do not break inside a link."""
    lines = [""]
    for word in re.findall(r"\[[^]]*\]\([^)]*\)\S*|\S+", text):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
