"""The time of popped messages: every state with every event, and the order in which leases become due."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ringmq.client.popping.lease import Lease, LeaseRules, Step, Use
from ringmq.client.popping.lease_table import LeaseTable

RULES = LeaseRules(invisible_s=60.0, hold_max_s=600.0)  # renewed 10 s before the end
POPPED, DUE, END = 1000.0, 1050.0, 1060.0


def lease(use: Use, *, asked: bool = False) -> Lease:
    """A lease. `asked`: a renewal is under way."""
    made = Lease(RULES, END)
    if asked:
        made.keep()
        assert made.step(DUE) is Step.RENEW
    made.use = use
    return made


Outcome = tuple[object, Use, float]
"""The result of the call, then the use, and the time at which a step is due."""
W, K, S, L, D, E = Use.WAITING, Use.KEPT, Use.SETTLED, Use.LOST, DUE, END
CELLS: list[tuple[str, Callable[[Lease], object], dict[tuple[Use, bool], Outcome]]] = [
    ("too early", lambda one: one.step(DUE - 1), {
        (W, False): (None, W, D), (K, False): (None, K, D), (K, True): (None, K, E),
        (S, False): (None, S, D), (S, True): (None, S, E), (L, False): (None, L, D), (L, True): (None, L, E),
    }),
    ("due", lambda one: one.step(DUE), {
        (W, False): (Step.GIVE_BACK, S, D), (K, False): (Step.RENEW, K, E), (K, True): (None, K, E),
        (S, False): (None, S, D), (S, True): (None, S, E), (L, False): (None, L, D), (L, True): (None, L, E),
    }),
    ("over", lambda one: one.step(END), {
        (W, False): (Step.LOSE, L, D), (K, False): (Step.LOSE, L, D), (K, True): (Step.LOSE, L, E),
        (S, False): (None, S, D), (S, True): (None, S, E), (L, False): (None, L, D), (L, True): (None, L, E),
    }),
    ("renewed", lambda one: one.renewed(END + 50), {
        (K, True): (None, K, D + 50), (S, True): (None, S, D + 50), (L, True): (None, L, D + 50),
    }),
    ("refused", lambda one: one.refused(), {
        (K, True): (True, L, E), (S, True): (False, S, E), (L, True): (False, L, E),
    }),
    ("unanswered", lambda one: one.unanswered(DUE + 3), {
        (K, True): (None, K, D + 5.5), (S, True): (None, S, D + 5.5), (L, True): (None, L, D + 5.5),
    }),
    ("kept", lambda one: one.keep(), {
        (W, False): (None, K, D), (K, False): (None, K, D), (K, True): (None, K, E),
        (S, False): (None, S, D), (S, True): (None, S, E), (L, False): (None, L, D), (L, True): (None, L, E),
    }),
    ("released", lambda one: one.release(), {
        (W, False): (None, W, D), (K, False): (None, W, D), (K, True): (None, W, E),
        (S, False): (None, S, D), (S, True): (None, S, E), (L, False): (None, L, D), (L, True): (None, L, E),
    }),
    ("settled", lambda one: one.settle(), {
        (W, False): (True, S, D), (K, False): (True, S, D), (K, True): (True, S, E),
        (S, False): (False, S, D), (S, True): (False, S, E), (L, False): (False, L, D), (L, True): (False, L, E),
    }),
    ("reopened", lambda one: one.reopen(), {
        (W, False): (None, W, D), (K, False): (None, K, D), (K, True): (None, K, E),
        (S, False): (None, K, D), (S, True): (None, K, E), (L, False): (None, L, D), (L, True): (None, L, E),
    }),
    ("lost", lambda one: one.lose(), {
        (W, False): (True, L, D), (K, False): (True, L, D), (K, True): (True, L, E),
        (S, False): (True, L, D), (S, True): (True, L, E), (L, False): (True, L, D), (L, True): (True, L, E),
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
    assert (event(one), one.use, one.due_at) == expected


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


def test_a_message_whose_renewal_has_no_answer_is_lost_at_its_end() -> None:
    table: LeaseTable[Thing] = LeaseTable(RULES)
    kept = Thing("kept", lease(Use.KEPT))
    table.add(kept)
    assert names(table.due(DUE)) == [("kept", Step.RENEW)]
    assert table.pause_s(DUE) == END - DUE
    assert table.due(END - 0.1) == []
    assert names(table.due(END)) == [("kept", Step.LOSE)]
    assert len(table) == 0
    assert not kept.lease.refused()  # the answer comes behind it


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
