"""The transition table of transactions: each state with each event."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from ringmq.services.transactions.core import (
    EXPIRED,
    EXPIRED_MAX,
    GONE,
    RENEW_BEHIND,
    Answer,
    AskProducer,
    BeginRound,
    CheckPolicy,
    Effect,
    Ended,
    Event,
    Look,
    Lost,
    Refused,
    Stored,
    Submit,
    Transactions,
    Work,
)
from ringmq.services.transactions.half_table import NO_IMMUNITY, Half

POLICY = CheckPolicy(timeout_ms=6000, checks_max=15, reserved_ms=72 * 3_600_000)
HALF = Half(7, 7, 1000, NO_IMMUNITY, 0)
DUE_MS = 7000
NOT_OPEN, OPEN = "not open", "open"
STATES = (NOT_OPEN, OPEN, *Work)
COMMIT, ROLLBACK = Ended(7, True, 70, "commit"), Ended(7, False, 70, "rollback")


class Core:
    """A core with one half, brought into a state."""

    def __init__(self, state: str | Work) -> None:
        self.transactions: Transactions[str] = Transactions(lambda: POLICY)
        half = HALF
        if state is Work.EXPIRE:
            half = replace_checks(HALF, 15)
        if state is not NOT_OPEN:
            self.transactions.table.add(half)
        if state in (Work.COMMIT, Work.ROLLBACK):
            self.step(Ended(7, state is Work.COMMIT, 70, "first"))
        elif state in (Work.CHECK, Work.EXPIRE):
            self.look(DUE_MS)
        elif state is Work.RENEW:
            self.look(DUE_MS - 1, end=7 + RENEW_BEHIND + 1)

    def step(self, event: Event[str], now_ms: int = DUE_MS) -> Sequence[Effect[str]]:
        return list(self.transactions.step(event, now_ms))

    def look(self, now_ms: int, room: int = 10, end: int = 8) -> Sequence[Effect[str]]:
        self.step(BeginRound())
        return self.step(Look(room, end), now_ms)


def replace_checks(half: Half, checks: int) -> Half:
    return half._replace(checks=checks)


def answers(code: int, remark: str, *requests: str) -> list[Effect[str]]:
    return [Answer(request, code, remark) for request in requests]


@pytest.mark.parametrize("state", STATES)
def test_an_end(state: str | Work) -> None:
    effects = Core(state).step(COMMIT)
    match state:
        case "not open":
            assert effects == answers(0, "", "commit")
        case "open":
            assert effects == [Submit(Work.COMMIT, HALF, 70)]
        case _:
            assert effects == [], "it waits for the work in flight"


def test_a_rollback_of_an_open_half() -> None:
    assert Core(OPEN).step(ROLLBACK) == [Submit(Work.ROLLBACK, HALF, 70)]


@pytest.mark.parametrize("state", STATES)
def test_a_look(state: str | Work) -> None:
    effects = Core(state).look(DUE_MS)
    assert effects == ([Submit(Work.CHECK, HALF)] if state == OPEN else []), "work in flight is not doubled"


@pytest.mark.parametrize("state", STATES)
def test_stored(state: str | Work) -> None:
    core = Core(state)
    if state in (NOT_OPEN, OPEN):
        with pytest.raises(KeyError):
            core.step(Stored(7, 9))
        return
    core.step(COMMIT)
    effects = core.step(Stored(7, 9))
    is_open = core.transactions.table.find(7) is not None
    match state:
        case Work.COMMIT | Work.ROLLBACK:
            assert (effects, is_open) == (answers(0, "", "first", "commit"), False)
        case Work.EXPIRE:
            assert (effects, is_open) == (answers(*EXPIRED, "commit"), False)
            assert core.step(ROLLBACK) == answers(*EXPIRED, "rollback"), "later ones are refused, too"
        case Work.CHECK | Work.RENEW:
            moved = HALF._replace(newest=9, checks=int(state is Work.CHECK))
            assert (effects, is_open) == ([Submit(Work.COMMIT, moved, 70)], True)


@pytest.mark.parametrize(("state", "asks"), [(Work.CHECK, True), (Work.RENEW, False)])
def test_a_stored_copy_asks_the_producer(state: Work, asks: bool) -> None:
    moved = HALF._replace(newest=9, checks=1)
    assert Core(state).step(Stored(7, 9)) == ([AskProducer(moved)] if asks else [])


@pytest.mark.parametrize("state", STATES)
def test_refused(state: str | Work) -> None:
    core = Core(state)
    if state in (NOT_OPEN, OPEN):
        with pytest.raises(KeyError):
            core.step(Refused(7, 14, "full"))
        return
    core.step(COMMIT)
    effects = core.step(Refused(7, 14, "full"))
    half = core.transactions.table.find(7)
    assert half is not None, "nothing was stored, so it is open"
    if state in (Work.COMMIT, Work.ROLLBACK):
        assert effects == answers(14, "full", "first", "commit")
        assert core.step(COMMIT) == [Submit(Work.COMMIT, half, 70)], "another end may try again"
    else:
        assert effects == [Submit(Work.COMMIT, half, 70)], "the end that waited goes on"


@pytest.mark.parametrize("state", STATES)
def test_lost(state: str | Work) -> None:
    core = Core(state)
    if state in (NOT_OPEN, OPEN):
        with pytest.raises(KeyError):
            core.step(Lost(7))
        return
    core.step(COMMIT)
    first = ("first",) if state in (Work.COMMIT, Work.ROLLBACK) else ()
    assert core.step(Lost(7)) == answers(*GONE, *first, "commit")
    assert core.transactions.table.find(7) is None


def test_a_doubled_end_and_a_late_one_store_nothing() -> None:
    core = Core(OPEN)
    assert len(core.step(COMMIT)) == 1
    assert core.step(ROLLBACK) == core.step(COMMIT) == []
    assert core.step(Stored(7)) == answers(0, "", "commit", "rollback", "commit")
    assert core.step(ROLLBACK) == answers(0, "", "rollback")


@pytest.mark.parametrize(
    ("half", "now_ms", "work"),
    [
        (HALF, DUE_MS - 1, None),
        (HALF, DUE_MS, Work.CHECK),
        (HALF, 999, Work.CHECK),  # the clock was set back
        (HALF._replace(immunity_s=60), 60_999, None),
        (HALF._replace(immunity_s=60), 61_000, Work.CHECK),
        (HALF._replace(immunity_s=1), DUE_MS - 1, None),  # never below transactionTimeOut
        (replace_checks(HALF, 14), DUE_MS, Work.CHECK),
        (replace_checks(HALF, 15), DUE_MS, Work.EXPIRE),
        (HALF, 1001 + POLICY.reserved_ms, Work.EXPIRE),
        (HALF, 1000 + POLICY.reserved_ms, Work.CHECK),
    ],
)
def test_the_work_of_a_round(half: Half, now_ms: int, work: Work | None) -> None:
    core = Core(NOT_OPEN)
    core.transactions.table.add(half)
    assert core.look(now_ms) == ([] if work is None else [Submit(work, half)])


def test_a_round_goes_on_where_there_was_no_room() -> None:
    core = Core(NOT_OPEN)
    halves = [HALF._replace(first=first, newest=first) for first in range(5)]
    for half in halves:
        core.transactions.table.add(half)
    assert core.look(DUE_MS, room=2) == [Submit(Work.CHECK, half) for half in halves[:2]]
    assert core.step(Look(2, 5)) == [Submit(Work.CHECK, half) for half in halves[2:4]]
    assert core.step(Look(2, 5)) == [Submit(Work.CHECK, halves[4])]
    assert not core.transactions.is_in_round
    assert core.step(Look(2, 5)) == []


def test_a_half_far_behind_the_end_is_copied_there() -> None:
    core = Core(OPEN)
    assert core.look(DUE_MS - 1, end=7 + RENEW_BEHIND) == []
    assert core.look(DUE_MS - 1, end=8 + RENEW_BEHIND) == [Submit(Work.RENEW, HALF)]


def test_expired_transactions_are_remembered_within_bounds() -> None:
    core = Core(NOT_OPEN)
    for first in range(EXPIRED_MAX + 1):
        core.transactions.table.add(Half(first, first, 0, NO_IMMUNITY, 15))
    core.step(BeginRound())
    while core.transactions.is_in_round:
        for effect in core.step(Look(1000, 0)):
            assert isinstance(effect, Submit)
            core.step(Stored(effect.half.first))
    assert core.step(Ended(0, True, 0, "forgotten")) == answers(0, "", "forgotten")
    assert core.step(Ended(1, True, 0, "known")) == answers(*EXPIRED, "known")


def test_settings_change_while_halves_wait() -> None:
    policies = [POLICY]
    core: Transactions[str] = Transactions(lambda: policies[-1])
    core.table.add(HALF)
    policies.append(replace(POLICY, timeout_ms=1))
    core.step(BeginRound(), 0)
    assert core.step(Look(1, 8), 1001) == [Submit(Work.CHECK, HALF)]


@pytest.mark.parametrize("state", [OPEN, *Work])
@pytest.mark.parametrize("result", [Stored(7, 9), Refused(7, 14, "full"), Lost(7)])
def test_all_ends_of_one_half_count_while_they_wait(state: str | Work, result: Event[str]) -> None:
    """The service bounds the ends that wait by this number, and any client may send ends for the same half."""
    core = Core(state)
    before = core.transactions.waiting
    for _ in range(100):
        core.step(COMMIT)
    assert core.transactions.waiting == before + 100
    answered = sum(isinstance(effect, Answer) for effect in core.step(result))
    assert core.transactions.waiting == before + 100 - answered
    assert answered in (0, before + 100), "the others wait for the next work"


def test_a_check_without_a_copy_asks_the_producer() -> None:
    """Its properties have no room for a count. The count in memory ends the checks."""
    core = Core(OPEN)
    for checks in range(1, POLICY.checks_max + 1):
        assert core.look(DUE_MS) == [Submit(Work.CHECK, replace_checks(HALF, checks - 1))]
        assert core.step(Stored(7, HALF.newest)) == [AskProducer(replace_checks(HALF, checks))]
    assert core.look(DUE_MS) == [Submit(Work.EXPIRE, replace_checks(HALF, POLICY.checks_max))]


def test_the_table_takes_what_readers_have_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lower limit counts for readers at once, and not for halves of the time before."""
    monkeypatch.setattr("ringmq.services.transactions.core.OPEN_SPARE", 1)
    core = Transactions[str](lambda: POLICY)
    core.allow(2)
    for first in range(3):
        assert not core.is_full
        core.table.add(Half(first, first, 0, NO_IMMUNITY, 0))
    core.allow(1)
    assert core.is_full
    core.table.end(0)
    assert not core.is_full
