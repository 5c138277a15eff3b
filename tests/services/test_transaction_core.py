"""The transition table of transactions: each state with each event."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from ringmq.ipc.transitions import ImpossibleEventError, Kind
from ringmq.services.transactions.core import (
    EXPIRED,
    EXPIRED_MAX,
    GONE,
    RENEW_BEHIND,
    Answer,
    AskProducer,
    BeginRound,
    CheckPolicy,
    Due,
    Effect,
    Ended,
    Event,
    Look,
    Lost,
    Refused,
    State,
    Stored,
    Submit,
    Transactions,
    Work,
)
from ringmq.services.transactions.half_table import NO_IMMUNITY, SENT, Half
from tests.services.transaction_machine import TRANSACTION

POLICY = CheckPolicy(timeout_ms=6000, checks_max=15, reserved_ms=72 * 3_600_000)
HALF = Half(7, 7, 1000, NO_IMMUNITY, 0)
DUE_MS = 7000
ENDED, EXPIRED_STATE, OPEN, SENT_STATE, COMMIT_STATE, ROLLBACK_STATE, CHECK, RENEW, EXPIRE = State
COMMIT, ROLLBACK = Ended(7, True, 70, "commit"), Ended(7, False, 70, "rollback")


class Core:
    """A core with one half, brought into a state."""

    def __init__(self, state: State) -> None:
        self.transactions: Transactions[str] = Transactions(lambda: POLICY)
        if state is not ENDED:
            is_old = state in (EXPIRE, EXPIRED_STATE)
            self.transactions.table.add(replace_checks(HALF, 15) if is_old else HALF)
        if state in (COMMIT_STATE, ROLLBACK_STATE):
            self.step(Ended(7, state is COMMIT_STATE, 70, "first"))
        elif state in (CHECK, EXPIRE, EXPIRED_STATE):
            self.look(DUE_MS)
        elif state is RENEW:
            self.look(DUE_MS - 1, end=7 + RENEW_BEHIND + 1)
        if state is EXPIRED_STATE:
            self.step(Stored(7))
        elif state is SENT_STATE:
            self.transactions.table.native.rows[0].state = SENT
        assert self.transactions.state(7) is state

    def step(self, event: Event[str], now_ms: int = DUE_MS) -> Sequence[Effect[str]]:
        return list(self.transactions.step(event, now_ms))

    def look(self, now_ms: int, room: int = 10, end: int = 8) -> Sequence[Effect[str]]:
        self.step(BeginRound())
        return self.step(Look(room, end), now_ms)


def replace_checks(half: Half, checks: int) -> Half:
    return half._replace(checks=checks)


def answers(code: int, remark: str, *requests: str) -> list[Effect[str]]:
    return [Answer(request, code, remark) for request in requests]


MOVED, CHECKED = HALF._replace(newest=9), HALF._replace(newest=9, checks=1)
STORED, REFUSED, LOST = Stored(7, 9), Refused(7, 14, "full"), Lost(7)
CASES: list[tuple[State, list[Ended[str]], Event[str], list[Effect[str]], State]] = [
    # state, ends that wait beside that of the state itself, event, effects, then
    (ENDED, [], COMMIT, answers(0, "", "commit"), ENDED),
    (EXPIRED_STATE, [], COMMIT, answers(*EXPIRED, "commit"), EXPIRED_STATE),
    (OPEN, [], COMMIT, [Submit(Work.COMMIT, HALF, 70)], COMMIT_STATE),
    (OPEN, [], ROLLBACK, [Submit(Work.ROLLBACK, HALF, 70)], ROLLBACK_STATE),
    *[(state, [], COMMIT, [], state) for state in (COMMIT_STATE, ROLLBACK_STATE, CHECK, RENEW, EXPIRE)],
    *[(OPEN, [], Due(7, HALF, Work[state.name]), [Submit(Work[state.name], HALF)], state)
      for state in (CHECK, RENEW, EXPIRE)],
    (COMMIT_STATE, [ROLLBACK], STORED, answers(0, "", "first", "rollback"), ENDED),
    (ROLLBACK_STATE, [COMMIT], STORED, answers(0, "", "first", "commit"), ENDED),
    (EXPIRE, [COMMIT], STORED, answers(*EXPIRED, "commit"), EXPIRED_STATE),
    (CHECK, [], STORED, [AskProducer(CHECKED)], OPEN),
    (CHECK, [COMMIT, ROLLBACK], STORED, [Submit(Work.COMMIT, CHECKED, 70)], COMMIT_STATE),
    (CHECK, [ROLLBACK], STORED, [Submit(Work.ROLLBACK, CHECKED, 70)], ROLLBACK_STATE),
    (RENEW, [], STORED, [], OPEN),
    (RENEW, [COMMIT], STORED, [Submit(Work.COMMIT, MOVED, 70)], COMMIT_STATE),
    (RENEW, [ROLLBACK], STORED, [Submit(Work.ROLLBACK, MOVED, 70)], ROLLBACK_STATE),
    (COMMIT_STATE, [COMMIT], REFUSED, answers(14, "full", "first", "commit"), OPEN),
    (ROLLBACK_STATE, [COMMIT], REFUSED, answers(14, "full", "first", "commit"), OPEN),
    *[
        case
        for state, half in ((CHECK, HALF), (RENEW, HALF), (EXPIRE, HALF._replace(checks=15)))
        for case in (
            (state, [], REFUSED, [], OPEN),
            (state, [COMMIT], REFUSED, [Submit(Work.COMMIT, half, 70)], COMMIT_STATE),
            (state, [ROLLBACK], REFUSED, [Submit(Work.ROLLBACK, half, 70)], ROLLBACK_STATE),
        )
    ],
    *[(state, [COMMIT], LOST, answers(*GONE, "first", "commit"), ENDED) for state in (COMMIT_STATE, ROLLBACK_STATE)],
    *[(state, [COMMIT], LOST, answers(*GONE, "commit"), ENDED) for state in (CHECK, RENEW, EXPIRE)],
]  # fmt: skip
SAMPLES: list[Event[str]] = [COMMIT, Due(7, HALF, Work.CHECK), STORED, REFUSED, LOST]


@pytest.mark.parametrize(("state", "ends", "event", "effects", "then"), CASES)
def test_a_cell(
    state: State, ends: list[Ended[str]], event: Event[str], effects: list[Effect[str]], then: State
) -> None:  # fmt: skip
    core = Core(state)
    for end in ends:
        assert core.step(end) == []
    assert core.step(event) == effects
    assert core.transactions.state(7) is then


@pytest.mark.parametrize("state", [state for state, _ in TRANSACTION.cells(Kind.IGNORED)])
def test_work_in_flight_is_not_doubled(state: State) -> None:
    core = Core(state)
    assert core.step(Due(7, HALF, Work.CHECK)) == core.look(DUE_MS) == []
    assert core.transactions.state(7) is state


@pytest.mark.parametrize(("state", "event"), TRANSACTION.cells(Kind.IMPOSSIBLE))
def test_an_impossible_event(state: State, event: type[Event[str]]) -> None:
    core = Core(state)
    with pytest.raises(ImpossibleEventError):
        core.step(next(sample for sample in SAMPLES if type(sample) is event))
    assert core.transactions.state(7) is state


def test_the_cases_are_all_cells_and_all_arrows() -> None:
    TRANSACTION.check_walked((state, type(event), then) for state, _, event, _, then in CASES)
    assert {event for _, event in TRANSACTION.cells(Kind.IGNORED)} == {Due}


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
    core = Core(ENDED)
    core.transactions.table.add(half)
    assert core.look(now_ms) == ([] if work is None else [Submit(work, half)])


def test_a_round_goes_on_where_there_was_no_room() -> None:
    core = Core(ENDED)
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
    core = Core(ENDED)
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


@pytest.mark.parametrize("state", [OPEN, COMMIT_STATE, ROLLBACK_STATE, CHECK, RENEW, EXPIRE])
@pytest.mark.parametrize("result", [STORED, REFUSED, LOST])
def test_all_ends_of_one_half_count_while_they_wait(state: State, result: Event[str]) -> None:
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
