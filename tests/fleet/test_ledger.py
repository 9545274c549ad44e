"""The ledger of env steps: whatever happens to tickets, every granted step is in exactly one place."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rl_training.runtime.fleet.tickets import Ledger, Ticket, UnknownTicket

ACTORS, ENVS = 3, 2


def ticket(actor: int, steps: int = 5, incarnation: int = 0) -> Ticket:
    return Ticket(0, actor, incarnation, version=0, env_steps=0, num_steps=steps)


class Bookkeeping(RuleBasedStateMachine):
    """A second account, kept step by step in sets, beside the ledger's counters."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(ENVS)
        self.out: dict[int, Ticket] = {}
        self.arrived: dict[int, int] = {}
        self.gone: list[Ticket] = []
        self.incarnations = [0] * ACTORS
        self.learned = self.stale = self.lost = 0

    @rule(actor=st.integers(0, ACTORS - 1), steps=st.integers(1, 9))
    def grant(self, actor: int, steps: int) -> None:
        asked = ticket(actor, steps, self.incarnations[actor])
        if any(each.actor == actor for each in self.out.values()):
            with pytest.raises(ValueError):
                self.ledger.grant(asked)
            return
        granted = self.ledger.grant(asked)
        assert granted.number not in {*self.out, *self.arrived, *(each.number for each in self.gone)}
        self.out[granted.number] = granted

    @precondition(lambda self: self.out)
    @rule(data=st.data(), share=st.floats(0, 1))
    def arrive(self, data: st.DataObject, share: float) -> None:
        mine = data.draw(st.sampled_from(list(self.out.values())))
        made = int(share * mine.num_steps * ENVS)
        assert self.ledger.arrive(mine.number, mine.actor, mine.incarnation, made) == mine
        del self.out[mine.number]
        self.arrived[mine.number] = made
        self.gone.append(mine)

    @precondition(lambda self: self.arrived)
    @rule(data=st.data(), stale=st.booleans())
    def learn(self, data: st.DataObject, stale: bool) -> None:
        number = data.draw(st.sampled_from(list(self.arrived)))
        self.ledger.learn(number, stale=stale)
        steps = self.arrived.pop(number)
        self.learned, self.stale = self.learned + steps * (not stale), self.stale + steps * stale
        with pytest.raises(KeyError):
            self.ledger.learn(number)

    @rule(actor=st.integers(0, ACTORS - 1))
    def lose(self, actor: int) -> None:
        lost = self.ledger.lose(actor)
        self.incarnations[actor] += 1
        if lost is not None:
            assert self.out.pop(lost.number) == lost
            self.lost += lost.num_steps * ENVS
            self.gone.append(lost)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def a_late_or_double_delivery_is_refused(self, data: st.DataObject) -> None:
        late = data.draw(st.sampled_from(self.gone))
        with pytest.raises(UnknownTicket):
            self.ledger.arrive(late.number, late.actor, late.incarnation, 1)

    @rule()
    def abandon(self) -> None:
        self.ledger.abandon()
        self.gone += self.out.values()
        self.out, self.arrived = {}, {}

    @rule()
    def save_and_resume(self) -> None:
        state = self.ledger.state_dict()
        self.ledger = Ledger(ENVS)
        self.ledger.load_state_dict(state)
        self.gone += self.out.values()
        self.out, self.arrived = {}, {}

    @invariant()
    def every_step_is_in_one_place(self) -> None:
        ledger = self.ledger
        in_flight = sum(each.num_steps * ENVS for each in self.out.values()) + sum(self.arrived.values())
        assert (ledger.learned, ledger.stale, ledger.lost) == (self.learned, self.stale, self.lost)
        assert ledger.in_flight == in_flight
        counts = ledger.counts()
        assert counts["env_steps_granted"] == self.learned + self.stale + self.lost + in_flight
        assert ledger.tickets_out == len(self.out)


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(max_examples=40, stateful_step_count=30)


def test_a_delivery_of_an_earlier_incarnation_is_refused() -> None:
    ledger = Ledger(ENVS)
    first = ledger.grant(ticket(0))
    ledger.lose(0)
    again = ledger.grant(ticket(0, incarnation=1))
    with pytest.raises(UnknownTicket):
        ledger.arrive(again.number, 0, 0, 10)
    with pytest.raises(UnknownTicket):
        ledger.arrive(first.number, 0, 0, 10)
    ledger.arrive(again.number, 0, 1, 10)
    assert ledger.counts() == {
        "env_steps_granted": 20,
        "env_steps_learned": 0,
        "env_steps_stale": 0,
        "env_steps_lost": 10,
        "env_steps_in_flight": 10,
    }


def test_more_steps_than_were_ordered_are_refused() -> None:
    ledger = Ledger(ENVS)
    mine = ledger.grant(ticket(0, steps=5))
    with pytest.raises(ValueError, match="11 env steps for a ticket of 10"):
        ledger.arrive(mine.number, 0, 0, 11)
