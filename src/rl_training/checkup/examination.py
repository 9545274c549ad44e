"""The whole checkup: Python and packages, the machine, the output directory and, with a config, a planned run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from rl_training.checkup.disk import check_disk, look_at_disk
from rl_training.checkup.finding import Finding, Report, fail, warn
from rl_training.checkup.import_trial import try_imports
from rl_training.checkup.machine import look_at_machine
from rl_training.checkup.machine_checks import check_machine
from rl_training.checkup.packages import (
    check_dependencies,
    check_extras,
    check_python,
    extra_problem,
    modules_to_try,
)
from rl_training.checkup.requirements import installed_version, package_requirements, python_range, tested_pythons
from rl_training.errors import install_hint
from rl_training.telemetry.sink_entries import BUILT_IN_SINKS, sinks_of

if TYPE_CHECKING:
    from rl_training.checkup.run_check import Plan
    from rl_training.config.train_config import TrainConfig


@dataclass
class Examination:
    """One checkup. `examine` yields findings as they are known and keeps them; torch is imported only for a config."""

    output_dir: str = "runs"
    config: TrainConfig | None = None
    seconds: float = 5.0
    findings: list[Finding] = field(default_factory=list)
    plan: Plan | None = None

    def examine(self) -> Iterator[Finding]:
        for finding in self._examine():
            self.findings.append(finding)
            yield finding

    def report(self) -> Report:
        return Report(tuple(self.findings))

    def to_json(self) -> dict[str, Any]:
        return self.report().to_json() | {"plan": None if self.plan is None else self.plan.to_json()}

    def _examine(self) -> Iterator[Finding]:
        requirements = package_requirements()
        yield check_python(sys.version_info[:3], python_range(), tested_pythons(), date.today())
        trials = try_imports(modules_to_try(requirements or []))
        yield from check_dependencies(requirements, installed_version, trials)
        yield from check_extras(requirements, installed_version, trials)
        machine, disk = look_at_machine(), look_at_disk(self.output_dir)
        yield from check_machine(machine, trials["torch"])
        yield from check_disk(disk)
        if self.config is None:
            return
        for extra, setting in needed_extras(self.config):
            problem = extra_problem(extra, requirements, installed_version, trials)
            if problem is not None:
                yield fail("extras", f"{setting} needs the extra {extra}: {problem}", install_hint(extra))
        if (
            any(entry.name == "wandb" for entry in sinks_of(self.config))
            and machine.wandb_installed
            and not machine.wandb_key
        ):
            yield warn("wandb", "the run logs to W&B, but there is no API key: it logs offline", "wandb login")
        if any(finding.status == "fail" and finding.what in ("torch", "dependencies") for finding in self.findings):
            return  # nothing that follows could be imported

        from rl_training.checkup.run_check import Plan, run_findings

        self.plan = Plan()
        yield from run_findings(self.config, machine, disk, self.plan, seconds=self.seconds)


def needed_extras(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """The extras that settings of a run need, each with the setting. What an env needs, its making says."""
    for entry in sinks_of(config):
        if entry.name in BUILT_IN_SINKS:
            yield entry.name, f"the sink {entry.name}"
    if config.runtime.backend == "ray":
        yield "ray", "runtime.backend ray"
