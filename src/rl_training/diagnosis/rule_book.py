"""The diagnosis of a run: every rule, applied to each metric line as it comes.

During training and for a stored run it is the same function of the same lines, so both give the same findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rl_training.config.train_config import TrainConfig
from rl_training.diagnosis import data_rules, policy_rules, value_rules
from rl_training.diagnosis.run_finding import Finding
from rl_training.diagnosis.stream_summary import StreamSummary


class Rule(NamedTuple):
    """A pure function of the stream so far, and the findings that explain what it would see."""

    judge: Callable[[StreamSummary, TrainConfig], Finding | None]
    explained_by: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.judge.__name__


_STEPS = frozenset({"steps_too_large"})
_BROKEN = frozenset({"steps_too_large", "gradients_too_long", "dead_units", "entropy_gone", "q_beyond_reach"})

# Causes come before what they bring about: one cause deserves one finding.
RULES: tuple[Rule, ...] = (
    Rule(policy_rules.steps_too_large),
    Rule(value_rules.gradients_too_long, _STEPS | {"q_beyond_reach"}),
    Rule(data_rules.episodes_never_end),
    Rule(data_rules.replay_starved),
    Rule(data_rules.rewards_clipped),
    Rule(value_rules.support_too_narrow),
    Rule(value_rules.dead_units, _STEPS | {"gradients_too_long", "q_beyond_reach"}),
    Rule(value_rules.q_beyond_reach, frozenset({"dead_units", "replay_starved"})),
    Rule(policy_rules.entropy_gone, _STEPS | {"dead_units"}),
    Rule(policy_rules.policy_stands_still, _BROKEN),
    Rule(value_rules.value_learns_nothing, _BROKEN | {"policy_stands_still"}),
    Rule(policy_rules.fell_from_peak, _BROKEN | {"replay_starved", "support_too_narrow"}),
    Rule(data_rules.env_is_the_limit),
)


class Diagnosis:
    """The findings about one run so far. A rule speaks once."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.stream = StreamSummary()
        self.findings: list[Finding] = []
        self._waiting = list(RULES)

    def look(self, line: Mapping[str, Any]) -> list[Finding]:
        """Take in the next metric line; return what is new."""
        if not self.stream.add(line):
            return []
        found: list[Finding] = []
        for rule in tuple(self._waiting):
            if rule.explained_by and any(finding.rule in rule.explained_by for finding in self.findings):
                self._waiting.remove(rule)
                continue
            finding = rule.judge(self.stream, self.config)
            if finding is not None:
                self._waiting.remove(rule)
                self.findings.append(finding)
                found.append(finding)
        return found


def diagnose(lines: Iterable[Mapping[str, Any]], config: TrainConfig) -> Diagnosis:
    """The diagnosis of whole metric streams, line by line."""
    diagnosis = Diagnosis(config)
    for line in lines:
        diagnosis.look(line)
    return diagnosis
