"""A finding about a run: what a rule saw, the likely cause, and the setting to change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_training.text import clean_text

LONGEST_TEXT = 600


@dataclass(frozen=True)
class Finding:
    """One finding, made at environment step `env_steps` from `numbers`.

    `exact`: equal runs have it in common. A finding from wall-clock values is not exact, and is not kept in the run.
    """

    rule: str
    env_steps: int
    saw: str
    cause: str
    remedy: str
    numbers: dict[str, float] = field(default_factory=dict)
    exact: bool = True

    @property
    def text(self) -> str:
        """One sentence: what the rule saw, the likely cause, and what to change."""
        return clean_text(f"{self.saw}; {self.cause}: {self.remedy}", LONGEST_TEXT)

    def __str__(self) -> str:
        return f"step {self.env_steps:,}, {self.title}: {self.text}"

    @property
    def title(self) -> str:
        return self.rule.replace("_", " ")

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "env_steps": self.env_steps,
            "text": self.text,
            "numbers": self.numbers,
            "exact": self.exact,
        }
