"""The time of popped messages: every state with every event, and the order in which leases become due."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ringmq.client.popping.lease import Lease, LeaseRules, Step, Use
from ringmq.client.popping.lease_table import LeaseTable

RULES = LeaseRules(invisible_s=60.0, hold_max_s=600.0)  # renewed 10 s before the end
POPPED, DUE, END = 1000.0, 1050.0, 1060.0


def lease(use: Use, *, asked: bool = False) -> Lease:
    made = Lease(RULES, END)
    made.use = use
    made.is_asked = asked
    return made


Outcome = tuple[object, Use, bool]
"""The result of the call, and the use and the open question after it."""
W, K, S, L = Use.WAITING, Use.KEPT, Use.SETTLED, Use.LOST
CELLS: list[tuple[str, Callable[[Lease], object], dict[tuple[Use, bool], Outcome]]] = [
    ("too early", lambda one: one.step(DUE - 1), {
        (W, False): (None, W, False), (K, False): (None, K, False), (K, True): (None, K, True),
        (S, False): (None, S, False), (S, True): (None, S, True), (L, False): (None, L, False),
    }),
    ("due", lambda one: one.step(DUE), {
        (W, False): (Step.GIVE_BACK, S, False), (K, False): (Step.RENEW, K, True), (K, True): (None, K, True),
        (S, False): (None, S, False), (S, True): (None, S, True), (L, False): (None, L, False),
    }),
    ("over", lambda one: one.step(END), {
        (W, False): (Step.LOSE, L, False), (K, False): (Step.LOSE, L, False), (K, True): (None, K, True),
        (S, False): (None, S, False), (S, True): (None, S, True), (L, False): (None, L, False),
    }),
    ("renewed", lambda one: one.renewed(END + 50), {
        (K, True): (None, K, False), (S, True): (None, S, False),
    }),
    ("refused", lambda one: one.refused(), {
        (K, True): (True, L, False), (S, True): (False, S, False),
    }),
    ("unanswered", lambda one: one.unanswered(DUE + 3), {
        (K, True): (None, K, False), (S, True): (None, S, False),
    }),
    ("kept", lambda one: one.keep(), {
        (W, False): (None, K, False), (K, False): (None, K, False), (K, True): (None, K, True),
        (S, False): (None, S, False), (S, True): (None, S, True), (L, False): (None, L, False),
    }),
    ("released", lambda one: one.release(), {
        (W, False): (None, W, False), (K, False): (None, W, False), (K, True): (None, W, True),
        (S, False): (None, S, False), (S, True): (None, S, True), (L, False): (None, L, False),
    }),
    ("settled", lambda one: one.settle(), {
        (W, False): (True, S, False), (K, False): (True, S, False), (K, True): (True, S, True),
        (S, False): (False, S, False), (S, True): (False, S, True), (L, False): (False, L, False),
    }),
    ("reopened", lambda one: one.reopen(), {
        (W, False): (None, W, False), (K, False): (None, K, False), (K, True): (None, K, True),
        (S, False): (None, K, False), (S, True): (None, K, True), (L, False): (None, L, False),
    }),
    ("lost", lambda one: one.lose(), {
        (W, False): (True, L, False), (K, False): (True, L, False), (K, True): (True, L, True),
        (S, False): (True, L, False), (S, True): (True, L, True), (L, False): (True, L, False),
    }),
]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "state", "expected"),
    [
        pytest.param(event, state, expected, id=f"{name}-{state[0].value}{'-asked' if state[1] else ''}")
        for name, event, cells in CELLS
        for state, expected in cells.items()
    ],
)
def test_each_cell(event: Callable[[Lease], object], state: tuple[Use, bool], expected: Outcome) -> None:
    one = lease(state[0], asked=state[1])
    assert (event(one), one.use, one.is_asked) == expected


@pytest.mark.parametrize(("invisible_s", "lead_s"), [(1.0, 1 / 3), (6.0, 2.0), (30.0, 10.0), (3600.0, 10.0)])
def test_short_times_are_renewed_a_third_before_their_end(invisible_s: float, lead_s: float) -> None:
    rules = LeaseRules(invisible_s, 3600.0)
    assert rules.lead_s == pytest.approx(lead_s)
    assert Lease(rules, 100.0).due_at == pytest.approx(100.0 - lead_s)


def test_a_kept_message_is_renewed_again_and_again_but_not_for_ever() -> None:
    one, renewals, now = lease(Use.KEPT), 0, DUE
    while (step := one.step(now)) is Step.RENEW:
        one.renewed(now + RULES.invisible_s)
        now = one.due_at
        renewals += 1
    assert step is None
    assert now >= POPPED + RULES.hold_max_s
    assert renewals == (RULES.hold_max_s - 50) / (RULES.invisible_s - RULES.lead_s)
    assert one.step(one.expires_at) is Step.LOSE


def test_a_broker_that_does_not_answer_is_asked_again_until_the_time_is_over() -> None:
    one, now, asked = lease(Use.KEPT), DUE, 0
    while (step := one.step(now)) is Step.RENEW:
        asked += 1
        one.unanswered(now + 0.5)
        now = one.due_at
    assert step is Step.LOSE
    assert asked == 4


@dataclass(eq=False)
class Thing:
    name: str
    lease: Lease


def names(due: list[tuple[Thing, Step]]) -> list[tuple[str, Step]]:
    return [(thing.name, step) for thing, step in due]


def test_leases_are_due_in_their_order() -> None:
    table: LeaseTable[Thing] = LeaseTable(RULES)
    things = [Thing(name, Lease(RULES, END + number)) for number, name in enumerate("abcd")]
    for thing in things:
        table.add(thing)
    for thing in things[:3]:
        thing.lease.keep()
    assert table.pause_s(POPPED) == 50
    assert table.due(DUE - 1) == []
    assert names(table.due(DUE + 1)) == [("a", Step.RENEW), ("b", Step.RENEW)]
    assert table.due(DUE + 1) == []
    assert table.pause_s(DUE + 1) == 1  # until the next one; the others are asked for
    things[0].lease.renewed(DUE + 60)
    table.add(things[0])
    things[1].lease.unanswered(DUE + 1)
    assert table.pause_s(DUE + 1) == 1
    assert names(table.due(DUE + 3.5)) == [("b", Step.RENEW), ("c", Step.RENEW), ("d", Step.GIVE_BACK)]
    assert [thing.name for thing in table] == ["b", "c", "a"]
    table.remove(things[1])
    table.remove(things[1])
    assert len(table) == 2


def test_what_is_settled_or_lost_is_forgotten() -> None:
    table: LeaseTable[Thing] = LeaseTable(RULES)
    settled, lost = Thing("settled", lease(Use.SETTLED)), Thing("lost", lease(Use.KEPT))
    table.add(settled)
    table.add(lost)
    assert names(table.due(END)) == [("lost", Step.LOSE)]
    assert len(table) == 0
    assert table.pause_s(END) == RULES.invisible_s - RULES.lead_s  # a message that comes now is due no sooner


def test_a_table_is_looked_at_no_more_often_than_that() -> None:
    table: LeaseTable[Thing] = LeaseTable(RULES)
    table.add(Thing("due", lease(Use.KEPT)))
    assert 0 < table.pause_s(END) < 0.1
