"""The ratio of sampled to inserted rows, and who must wait so that it is kept. Nothing here does any I/O."""

from __future__ import annotations

TOLERANCE = 0.1  # either side may be ahead by this share


class SampleRatio:
    """Counts what was inserted since learning began and what was sampled. A `ratio` of None keeps nothing.

    `slack` inserts, one ticket of every actor, may always be ahead, otherwise a run could not begin. So one side may
    have to wait, never both.
    """

    def __init__(self, ratio: float | None, batch_size: int, slack: int):
        self.ratio, self.batch_size, self.slack = ratio, batch_size, slack
        self.inserts = self.samples = 0

    def may_insert(self, more: int) -> bool:
        """Whether `more` rows, those on their way included, leave the learner at most 10 % behind."""
        if self.ratio is None:
            return True
        return (1 - TOLERANCE) * self.ratio * (self.inserts + more - self.slack) <= self.samples

    def may_sample(self) -> bool:
        """Whether the learner is less than 10 % ahead."""
        return self.inserts > 0 and (self.ratio is None or self.samples < (1 + TOLERANCE) * self.ratio * self.inserts)

    def owed(self) -> int:
        """Batches that the learner is behind."""
        if self.ratio is None:
            return 0
        return max(0, int((self.ratio * self.inserts - self.samples) // self.batch_size))

    def sampled(self) -> None:
        self.samples += self.batch_size
