"""Tickets, and the ledger that accounts for every environment step of a run with actors. Nothing here does any I/O.

The learner hands out tickets, and an actor collects only what a ticket asks for. So tickets bound at once the budget,
the memory that rollouts take, and how far an actor can fall behind. One ticket per actor is out at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

COUNTS = ("learned", "stale", "lost")
# A rollout; one vector step for a replay buffer; the gradient on a rollout, not the rollout itself; vector steps for a
# sharded replay, with their priorities.
Kind = Literal["rollout", "step", "gradient", "experience"]


@dataclass(frozen=True)
class Ticket:
    """An order to one actor: collect `num_steps` steps of each of its envs with the weights of `version`."""

    number: int
    actor: int
    incarnation: int  # how often the actor was replaced before: what an older one delivers late is refused
    version: int  # updates that the weights had seen
    env_steps: int  # of the run when the ticket was granted, for the schedules of exploration
    num_steps: int
    kind: Kind = "rollout"
    random: bool = False  # with uniform actions, each held for `repeat` steps
    repeat: int = 1
    reset_at: int | None = None  # start new episodes first, with the seeds of this env step
    streams: Mapping[str, Any] | None = None  # continue with these positions of the random streams
    returns: Mapping[str, Any] | None = None  # continue with these statistics of returns, for a gradient


class UnknownTicket(Exception):
    """A ticket that is not out: it was delivered before, abandoned, or lost with an earlier incarnation."""


class Ledger:
    """Counts env steps: granted = learned + stale + lost + in flight, at all times.

    A step is in flight from the grant of its ticket until it is learned, found stale, lost with its actor, or
    abandoned; abandoned steps count as never granted. Rows that are resets are no env steps: when a delivery arrives,
    its grant is corrected to the steps that were made.
    """

    def __init__(self, envs_per_actor: int) -> None:
        self._envs = envs_per_actor
        self._next_number = 0
        self._out: dict[int, Ticket] = {}  # by number: with an actor
        self._arrived: dict[int, int] = {}  # by number: env steps that wait to be learned
        self.learned = self.stale = self.lost = 0
        self.granted = 0  # an account of its own: that the others add up to it is what the ledger has to prove

    @property
    def in_flight(self) -> int:
        """Env steps that are granted and neither learned, stale nor lost."""
        return sum(self._steps(ticket) for ticket in self._out.values()) + sum(self._arrived.values())

    @property
    def tickets_out(self) -> int:
        """The number of actors that have a ticket."""
        return len(self._out)

    def out_with(self, actor: int) -> Ticket | None:
        """The ticket that an actor has, if any."""
        return next((ticket for ticket in self._out.values() if ticket.actor == actor), None)

    def grant(self, ticket: Ticket) -> Ticket:
        """The ticket with its number; from here on its steps are in flight."""
        if self.out_with(ticket.actor) is not None:
            raise ValueError(f"actor {ticket.actor} has a ticket already")
        ticket = replace(ticket, number=self._next_number)
        self._next_number += 1
        self._out[ticket.number] = ticket
        self.granted += self._steps(ticket)
        return ticket

    def arrive(self, number: int, actor: int, incarnation: int, env_steps: int) -> Ticket:
        """A delivery arrives with `env_steps` steps. UnknownTicket if it is late, double or of a replaced actor."""
        ticket = self._out.get(number)
        if ticket is None or (ticket.actor, ticket.incarnation) != (actor, incarnation):
            raise UnknownTicket(f"ticket {number} is not out with incarnation {incarnation} of actor {actor}")
        if not 0 <= env_steps <= self._steps(ticket):
            raise ValueError(f"{env_steps} env steps for a ticket of {self._steps(ticket)}")
        del self._out[number]
        self._arrived[number] = env_steps
        self.granted -= self._steps(ticket) - env_steps
        return ticket

    def learn(self, number: int, *, stale: bool = False) -> None:
        """The steps of a delivery are learned, or dropped because they are stale. Either happens once."""
        steps = self._arrived.pop(number)
        if stale:
            self.stale += steps
        else:
            self.learned += steps

    def lose(self, actor: int) -> Ticket | None:
        """The ticket of an actor that is gone, whose steps are lost; None if it had none."""
        ticket = self.out_with(actor)
        if ticket is not None:
            del self._out[ticket.number]
            self.lost += self._steps(ticket)
        return ticket

    def abandon(self) -> None:
        """Take back all tickets and deliveries: their steps count as never granted."""
        self.granted -= self.in_flight
        self._out, self._arrived = {}, {}

    def counts(self) -> dict[str, int]:
        """For the metric line."""
        return {f"env_steps_{name}": getattr(self, name) for name in ("granted", *COUNTS, "in_flight")}

    def state_dict(self) -> dict[str, int]:
        """What is settled. Steps in flight are not part of a checkpoint: a resumed run grants them again."""
        return {name: getattr(self, name) for name in COUNTS} | {"next_number": self._next_number}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._out, self._arrived = {}, {}
        self.learned, self.stale, self.lost = (int(state[name]) for name in COUNTS)
        self.granted = self.learned + self.stale + self.lost
        self._next_number = int(state["next_number"])

    def _steps(self, ticket: Ticket) -> int:
        return ticket.num_steps * self._envs
