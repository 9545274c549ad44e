"""The report of `rl-training inspect`, read from the files of a checkpoint without building the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.command_line.common.output import facts, show, table
from rl_training.errors import RLTrainingError
from rl_training.storage.checkpoint_format import FILES
from rl_training.storage.checkpoints import (
    fingerprint,
    fingerprint_differences,
    load_checkpoint,
    read_manifest,
    verify_checkpoint,
)
from rl_training.storage.run_file import read_run_info
from rl_training.storage.tensor_files import read_header
from rl_training.text import one_line

MOST_ROWS = 500


def make_report(path: Path) -> dict[str, Any]:
    """Everything a checkpoint says about itself; for a damaged one, at least its manifest."""
    manifest = read_manifest(path)
    problems = verify_checkpoint(path)
    report: dict[str, Any] = {
        "path": str(path),
        "algorithm": manifest.algorithm,
        "kind": manifest.kind,
        "env_steps": manifest.env_steps,
        "number": manifest.number,
        "exact": manifest.exact,
        "created": manifest.created,
        "library_version": manifest.library_version,
        "schema": manifest.schema,
        "verified": not problems,
        "problems": problems,
        "files": manifest.files,
        "replay": {
            "segments": len(manifest.segments),
            "rows": sum(segment.stop - segment.start for segment in manifest.segments),
            "bytes": sum(segment.size for segment in manifest.segments),
        },
        "fingerprint": manifest.fingerprint,
        "fingerprint_changes": _changes(manifest.fingerprint),
    }
    try:
        checkpoint = load_checkpoint(path)
        tensors = read_header(path / FILES[2])
    except RLTrainingError as error:
        if not problems:  # the files are as they were written, but not by this library
            report |= {"verified": False, "problems": [str(error)]}
        return report
    report["config"] = checkpoint.config
    report["complete"] = _is_complete(path, manifest.env_steps, checkpoint.config)
    report["spaces"] = checkpoint.state.get("spaces")
    report["fleet"] = _fleet(checkpoint.state)
    report["tensors"] = {
        name: {"dtype": array.dtype, "shape": list(array.shape), "bytes": array.nbytes}
        for name, array in tensors.items()
    }
    if report["spaces"] is not None and (problem := _problem_of_spaces(report["spaces"])):
        report |= {
            "verified": False,
            "problems": [*problems, f"{path / FILES[1]}: its spaces are not valid: {problem}"],
        }
    return report


def show_report(report: dict[str, Any]) -> None:
    """Print the report as tables."""
    config = report.get("config", {})
    size = sum(record["size"] for record in report["files"].values())
    contents = (
        "everything needed to resume" if report["kind"] == "resume" else "an agent, which can act or start a new run"
    )
    if report.get("complete"):  # the last checkpoint of a run is off schedule by nature, which is not a fault
        contents = f"everything needed to train longer; the run is complete after {report['env_steps']:,} steps"
    elif report["kind"] == "resume" and _mode(config) == "async":
        contents += "; the run is asynchronous, so a resumed run counts every step once but is not bit-exact"
    elif report["kind"] == "resume" and not report["exact"]:
        contents += "; saved off schedule, so a resumed run is not bit-exact"
    rows: list[tuple[str, Any]] = [
        ("algorithm", report["algorithm"]),
        ("env", config.get("env_id", "unknown")),
        ("steps", f"{report['env_steps']:,}"),
        ("contents", contents),
        ("created", report["created"]),
        ("saved by", f"rl_training {report['library_version']}, schema {report['schema']}"),
        ("size", f"{size / 1e6:.2f} MB"),
        ("verified", "yes" if report["verified"] else "NO: " + "; ".join(report["problems"])),
        ("versions", ", ".join(f"{name} {value}" for name, value in report["fingerprint"].items())),
    ]
    replay = report["replay"]
    if replay["segments"]:
        rows.append(("replay", f"{replay['rows']:,} rows in {replay['segments']} segments"))
    if report.get("fleet"):
        rows.append(("actors", _fleet_text(report["fleet"], config)))
    if report["fingerprint_changes"]:
        rows.append(("changed since", ", ".join(report["fingerprint_changes"])))
    rows += [(f"{name} space", text) for name, text in _space_texts(report.get("spaces")).items()]
    show(facts(rows, report["path"]))
    if config:
        settings = {key: value for key, value in config.items() if key not in ("runtime", "model", "algo_kwargs")}
        for section in ("runtime", "model", "algo_kwargs"):
            inner = config.get(section)
            settings |= {f"{section}.{key}": value for key, value in inner.items()} if isinstance(inner, dict) else {}
        show(table(["setting", "value"], _first([(key, one_line(item, 500)) for key, item in settings.items()])))
    tensors = report.get("tensors", {})
    if tensors:
        lines = [
            (name, tensor["dtype"], " x ".join(map(str, tensor["shape"])) or "scalar", f"{tensor['bytes']:,}")
            for name, tensor in tensors.items()
        ]
        show(table(["tensor", "type", "shape", "bytes"], _first(lines), ["bytes"]))


def _mode(config: dict[str, Any]) -> Any:
    runtime = config.get("runtime")
    return runtime.get("mode") if isinstance(runtime, dict) else None


def _fleet(state: dict[str, Any]) -> dict[str, Any] | None:
    """The account of the actors, without their random streams; None for a run without actors."""
    loop = state.get("loop")
    fleet = loop.get("fleet") if isinstance(loop, dict) else None
    return {name: value for name, value in fleet.items() if name != "streams"} if isinstance(fleet, dict) else None


def _fleet_text(fleet: dict[str, Any], config: dict[str, Any]) -> str:
    ledger, runtime = fleet.get("ledger", {}), config.get("runtime", {})
    counts = ", ".join(f"{ledger.get(name, 0):,} {name}" for name in ("learned", "stale", "lost"))
    mode = "async (not bit-exact)" if runtime.get("mode") == "async" else runtime.get("mode")
    replaced = f"; {fleet['restarts']} replaced" if fleet.get("restarts") else ""
    return f"{fleet.get('actors')}, {runtime.get('backend')}, {mode}; env steps: {counts}{replaced}"


def _is_complete(path: Path, env_steps: int, config: dict[str, Any]) -> bool:
    """Whether a checkpoint is the end of a run that has trained all its steps or has ended by itself."""
    info = read_run_info(path.parent.parent) if path.parent.name == "checkpoints" else {}
    planned = config.get("total_timesteps")
    ended = info.get("status") == "finished" and info.get("env_steps") == env_steps
    return bool(info) and (ended or (isinstance(planned, int) and env_steps >= planned))


def _first(rows: list[Any]) -> list[Any]:
    """The first rows of a long table: the layout of each row takes about a millisecond."""
    rest = len(rows) - MOST_ROWS
    return (
        rows if rest <= 0 else [*rows[:MOST_ROWS], (f"... and {rest:,} more, see --json",) + ("",) * (len(rows[0]) - 1)]
    )


def _problem_of_spaces(document: Any) -> str | None:
    from rl_training.envs.spaces import Spaces

    try:
        Spaces.from_json(document)
    except ValueError as error:
        return one_line(error)
    return None


def _changes(saved: dict[str, Any]) -> list[str]:
    # The thread count of torch is known only in a process that imports torch.
    now = {**fingerprint(), "threads": saved.get("threads")}
    return fingerprint_differences(saved, now)


def _space_texts(document: Any) -> dict[str, str]:
    from rl_training.envs.spaces import Spaces

    try:
        spaces = Spaces.from_json(document)
    except ValueError:
        return {}
    pairs = {"observation": spaces.observation_space, "action": spaces.action_space}
    return {name: " ".join(str(space).split()) for name, space in pairs.items()}
