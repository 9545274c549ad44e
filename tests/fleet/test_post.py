"""Deadlines of actors, on a clock that is turned by hand."""

from __future__ import annotations

import pytest

from rl_training.envs.processes.async_vector import CONSTRUCTOR_PATIENCE
from rl_training.runtime.fleet import post as post_module
from rl_training.runtime.fleet.post import SUSPENDED_SECONDS, Post, give_back

NEVER = float("inf")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(post_module, "time", clock)
    return clock


def test_an_actor_has_more_time_while_it_makes_its_envs_and_none_is_due_without_a_ticket(clock: Clock) -> None:
    post = Post()
    assert post.deadline == NEVER and not post.is_late()
    post.order("first", 10.0)
    assert post.deadline == 100.0 + 10.0 * (1 + CONSTRUCTOR_PATIENCE)
    clock.now += 30.0
    post.answered(10.0)  # the envs are made
    assert post.deadline == clock.now + 10.0
    post.answered(10.0, "first")
    assert post.deadline == NEVER
    post.order("second", 10.0)
    assert post.deadline == clock.now + 10.0
    clock.now += 9.9
    assert not post.is_late()
    clock.now += 0.2
    assert post.is_late()


def test_an_answer_that_is_due_gets_no_new_time_with_another_ticket(clock: Clock) -> None:
    post = Post(has_envs=True)
    post.order("abandoned", 10.0)
    clock.now += 8.0
    post.order("next", 10.0)
    assert post.deadline == 110.0
    post.answered(10.0, "abandoned")
    assert post.works == ["next"] and post.deadline == clock.now + 10.0


def test_only_the_first_delivery_of_an_actor_that_compiles_has_more_time(clock: Clock) -> None:
    post = Post(compile_seconds=50.0)
    post.order("first", 10.0)
    assert post.deadline == clock.now + 10.0 * (1 + CONSTRUCTOR_PATIENCE) + 50.0
    post.answered(10.0)  # the envs are made, and now it compiles
    assert post.deadline == clock.now + 60.0
    post.order("second", 10.0)
    post.answered(10.0, "first")
    assert post.deadline == clock.now + 10.0
    post.answered(10.0, "second")
    post.order("third", 10.0)
    assert post.deadline == clock.now + 10.0


@pytest.mark.parametrize(("overslept", "back"), [(SUSPENDED_SECONDS / 2, 0.0), (30.0, 30.0)])
def test_actors_get_the_time_back_in_which_this_process_was_stopped(
    clock: Clock, overslept: float, back: float
) -> None:
    busy, idle = Post(has_envs=True), Post(has_envs=True)
    busy.order("ticket", 10.0)
    give_back([busy, idle], overslept)
    assert (busy.deadline, idle.deadline) == (110.0 + back, NEVER)
