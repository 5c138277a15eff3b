"""The policy of transactions without IO: `step(event, now_ms) -> effects`.

`TRANSITIONS` holds every pair of a transaction's state and an event. docs/state-machines.md draws it. The first end of
a transaction ends all copies of its half. Later ends are answered 0 and store nothing. An end that finds work in flight
waits for its result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct, field

from ringmq.ipc.transitions import Cell, Kind, Table, ignored, impossible, transitions
from ringmq.services.transactions.half_table import ENDED, NO_IMMUNITY, SENT, Half, HalfTable

OPEN_SPARE = 1_000_000
"""Open halves that fit beyond ringmqOpenHalvesMax: sends that were under way when it was reached, and timers. Halves
behind them are read when others have ended."""
EXPIRED_MAX = 65_536
"""Expired transactions whose late ends are refused. An end of an older one is answered like that of an ended one."""
LOOK_ENTRIES = 4096
"""Halves that one `Look` examines."""
RENEW_BEHIND = 1_000_000
"""Distance to the end of the half queue at which an open half is copied there. It bounds what a start has to read."""
EXPIRED = 1, "the transaction has expired: its message is in TRANS_CHECK_MAX_TIME_TOPIC"
GONE = 1, "the half message is deleted or damaged"
STORED = 0, ""

R = TypeVar("R")


class Work(Enum):
    """Work for one half: a record, and its offset in an op record."""

    COMMIT = "copies it into its own topic"
    ROLLBACK = "stores no copy"
    CHECK = "copies it to the end of the half queue with one more check, and asks its producer"
    RENEW = "copies it to the end of the half queue, so that a start need not read from so far behind"
    EXPIRE = "copies it into TRANS_CHECK_MAX_TIME_TOPIC"


class State(Enum):
    """State of a transaction. The last five have the names of the work in flight."""

    ENDED = "no half is open: it has ended, or never began"
    EXPIRED = "its message is in TRANS_CHECK_MAX_TIME_TOPIC, and late ends are refused"
    OPEN = "its half waits for an end, or for a check"
    SENT = "C has sent the chain of its end"
    COMMIT = "the committed message is in flight"
    ROLLBACK = "the op record of a rollback is in flight"
    CHECK = "the copy for a check is in flight"
    RENEW = "the copy for the end of the half queue is in flight"
    EXPIRE = "the copy for TRANS_CHECK_MAX_TIME_TOPIC is in flight"


class CheckPolicy(Struct, frozen=True):
    """The settings of checks."""

    timeout_ms: int
    """transactionTimeOut."""
    checks_max: int
    """transactionCheckMax."""
    reserved_ms: int
    """fileReservedTime. Retention takes older halves."""

    def is_due(self, half: Half, now_ms: int) -> bool:
        """True if the producer may be asked. A half of the future comes from a clock that was set back, and is due."""
        immunity_ms = max(self.timeout_ms, half.immunity_s * 1000 if half.immunity_s != NO_IMMUNITY else 0)
        return not 0 <= now_ms - half.born_ms < immunity_ms

    def is_expired(self, half: Half, now_ms: int) -> bool:
        """True if its producer is not asked any more."""
        return half.checks >= max(1, self.checks_max) or now_ms - half.born_ms > self.reserved_ms


class Ended(Struct, Generic[R], frozen=True):
    """An end of a transaction that names a copy of its half. `position`: place of the named copy in the log."""

    first: int
    is_commit: bool
    position: int
    request: R


class BeginRound(Struct, frozen=True):
    """The time between two rounds of checks is over."""


class Look(Struct, frozen=True):
    """Go on with the round. `room`: pieces of work that may be submitted. `end`: end of the half queue."""

    room: int
    end: int


class Due(Struct, frozen=True):
    """A look has found that this work is due for an open half."""

    first: int
    half: Half
    work: Work


class Stored(Struct, frozen=True):
    """The work for a half is in the log. `copy`: half-queue offset of the copy of CHECK and RENEW.

    A half whose properties have no room for a count is checked without a copy. Then `copy` is its newest one.
    """

    first: int
    copy: int = -1


class Refused(Struct, frozen=True):
    """Write has stored nothing of the work for a half."""

    first: int
    code: int
    remark: str


class Lost(Struct, frozen=True):
    """Retention has taken the half, or its record is damaged, so its work cannot be done."""

    first: int


Event = Ended[R] | BeginRound | Look | Due | Stored | Refused | Lost
EVENTS = Ended, Due, Stored, Refused, Lost
"""Those of one transaction."""


class Submit(Struct, frozen=True):
    """Effect: do the work. `position`: place of the copy that the end has named, -1 = the newest."""

    work: Work
    half: Half
    position: int = -1


class Answer(Struct, Generic[R], frozen=True):
    """Effect: answer an end."""

    request: R
    code: int
    remark: str


class AskProducer(Struct, frozen=True):
    """Effect: send the check of this half."""

    half: Half


Effect = Submit | Answer[R] | AskProducer


class _InFlight(Struct, Generic[R]):
    work: Work
    ends: list[Ended[R]] = field(default_factory=list)


class Transactions(Generic[R]):
    """All open transactions. `policy` gives the present settings."""

    def __init__(self, policy: Callable[[], CheckPolicy], table: HalfTable | None = None) -> None:
        self._policy = policy
        self.table = HalfTable() if table is None else table
        """The owner adds the halves that producers have sent, and not their copies: the core has made those."""
        self._open_max = 0
        self._in_flight: dict[int, _InFlight[R]] = {}
        self._waiting = 0
        self._expired: OrderedDict[int, None] = OrderedDict()
        self._next: int | None = None
        """First offset of the half that the round examines next. None: no round is under way."""

    @property
    def is_in_round(self) -> bool:
        """True if a round of checks is under way."""
        return self._next is not None

    @property
    def in_flight(self) -> int:
        """Pieces of work without a result."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        """Ends without an answer. Any number of them may wait for one half."""
        return self._waiting

    @property
    def is_full(self) -> bool:
        """True if no more half may arrive."""
        return len(self.table) >= self._open_max + OPEN_SPARE

    def allow(self, open_max: int) -> None:
        """Readers accept so many halves. A smaller number than before does not count: there are halves of that time."""
        self._open_max = max(self._open_max, open_max)

    def restore_expired(self, firsts: Iterable[int]) -> None:
        """Remember transactions that have expired, the oldest first."""
        for first in firsts:
            self._expired[first] = None
            if len(self._expired) > EXPIRED_MAX:
                self._expired.popitem(last=False)

    def state(self, first: int) -> State:
        """State of the transaction with this first offset."""
        if found := self._in_flight.get(first):
            return State[found.work.name]
        state = self.table.state(first)
        if state == ENDED:
            return State.EXPIRED if first in self._expired else State.ENDED
        return State.SENT if state == SENT else State.OPEN

    def step(self, event: Event[R], now_ms: int) -> Sequence[Effect[R]]:
        """Accept an event. `now_ms`: wall clock."""
        match event:
            case BeginRound():
                self._next = 0
                return ()
            case Look(room, end):
                return self._look(room, end, now_ms)
        return TRANSITIONS[self.state(event.first), type(event)].act(self, event, now_ms)

    def _look(self, room: int, end: int, now_ms: int) -> Sequence[Effect[R]]:
        if self._next is None:
            return ()
        policy = self._policy()
        found: list[Due] = []
        for half in self.table.following(self._next, LOOK_ENTRIES):
            work = self._work_of(half, policy, end, now_ms)
            if work is None or TRANSITIONS[self.state(half.first), Due].kind is Kind.IGNORED:
                continue
            if len(found) == room:
                self._next = half.first
                break
            found.append(Due(half.first, half, work))
        else:
            self._next = self.table.following_first(self._next, LOOK_ENTRIES)
        return [effect for due in found for effect in self.step(due, now_ms)]

    @staticmethod
    def _work_of(half: Half, policy: CheckPolicy, end: int, now_ms: int) -> Work | None:
        if policy.is_expired(half, now_ms):
            return Work.EXPIRE
        if policy.is_due(half, now_ms):
            return Work.CHECK
        return Work.RENEW if half.newest + RENEW_BEHIND < end else None

    # -- cells of TRANSITIONS ----------------------------------------------------------------------------

    def _end_open(self, event: Ended[R], now_ms: int) -> Sequence[Effect[R]]:
        half = self.table.find(event.first)
        assert half is not None, "it is open"
        work = Work.COMMIT if event.is_commit else Work.ROLLBACK
        self._begin(event.first, _InFlight(work, [event]))
        return (Submit(work, half, event.position),)

    def _end_waits(self, event: Ended[R], now_ms: int) -> Sequence[Effect[R]]:
        self._in_flight[event.first].ends.append(event)
        self._waiting += 1
        return ()

    def _end_late(self, event: Ended[R], now_ms: int) -> Sequence[Effect[R]]:
        return (Answer(event.request, *STORED),)

    def _end_expired(self, event: Ended[R], now_ms: int) -> Sequence[Effect[R]]:
        return (Answer(event.request, *EXPIRED),)

    def _due(self, event: Due, now_ms: int) -> Sequence[Effect[R]]:
        self._begin(event.first, _InFlight(event.work))
        return (Submit(event.work, event.half),)

    def _stored_end(self, event: Stored, now_ms: int) -> Sequence[Effect[R]]:
        return self._close(event.first, *STORED)

    def _stored_expired(self, event: Stored, now_ms: int) -> Sequence[Effect[R]]:
        self.restore_expired((event.first,))
        return self._close(event.first, *EXPIRED)

    def _stored_check(self, event: Stored, now_ms: int) -> Sequence[Effect[R]]:
        ends = self._done(event.first)
        self.table.move(event.first, event.copy, is_check=True)
        if ends:
            return self._again(ends, now_ms)
        half = self.table.find(event.first)
        assert half is not None, "it has just been moved"
        return (AskProducer(half),)

    def _stored_renewed(self, event: Stored, now_ms: int) -> Sequence[Effect[R]]:
        ends = self._done(event.first)
        self.table.move(event.first, event.copy, is_check=False)
        return self._again(ends, now_ms)

    def _refused_end(self, event: Refused, now_ms: int) -> Sequence[Effect[R]]:
        return [Answer(end.request, event.code, event.remark) for end in self._done(event.first)]

    def _refused_other(self, event: Refused, now_ms: int) -> Sequence[Effect[R]]:
        return self._again(self._done(event.first), now_ms)

    def _lost(self, event: Lost, now_ms: int) -> Sequence[Effect[R]]:
        return self._close(event.first, *GONE)

    # -- helpers -----------------------------------------------------------------------------------------

    def _close(self, first: int, code: int, remark: str) -> Sequence[Effect[R]]:
        """Take the half out, and answer the ends that wait."""
        ends = self._done(first)
        self.table.end(first)
        return [Answer(end.request, code, remark) for end in ends]

    def _begin(self, first: int, work: _InFlight[R]) -> None:
        self.table.hold(first)
        self._in_flight[first] = work
        self._waiting += len(work.ends)

    def _done(self, first: int) -> list[Ended[R]]:
        """The work is over. Returns the ends that wait for it."""
        self.table.release(first)
        done = self._in_flight.pop(first)
        self._waiting -= len(done.ends)
        return done.ends

    def _again(self, ends: Iterable[Ended[R]], now_ms: int) -> Sequence[Effect[R]]:
        return [effect for end in ends for effect in self.step(end, now_ms)]


_ENDED, _EXPIRED, _OPEN, _SENT, _COMMIT, _ROLLBACK, _CHECK, _RENEW, _EXPIRE = State
_IN_FLIGHT = _COMMIT, _ROLLBACK, _CHECK, _RENEW, _EXPIRE
_ENDS_GO_ON = _OPEN, _COMMIT, _ROLLBACK
TRANSITIONS: Table = transitions(
    (Ended, _ENDED, Cell(Transactions._end_late, "answers 0 and stores nothing")),
    (Ended, _EXPIRED, Cell(Transactions._end_expired, "answers 1")),
    (Ended, _OPEN, Cell(Transactions._end_open, "submits the commit or rollback", (_COMMIT, _ROLLBACK))),
    (Ended, _IN_FLIGHT, Cell(Transactions._end_waits, "the end waits for the result")),
    (Ended, _SENT, impossible("the service keeps an end while C has the half")),
    (Due, _OPEN, Cell(Transactions._due, "submits the work", (_CHECK, _RENEW, _EXPIRE))),
    (Due, _IN_FLIGHT, ignored("its half has work in flight")),
    (Due, (_ENDED, _EXPIRED, _SENT), impossible("a look finds open halves alone")),
    (Stored, (_COMMIT, _ROLLBACK), Cell(Transactions._stored_end, "answers all ends 0", (_ENDED,))),
    (Stored, _EXPIRE, Cell(Transactions._stored_expired, "answers all ends 1", (_EXPIRED,))),
    (Stored, _CHECK, Cell(Transactions._stored_check, "its ends go on, or the producer is asked", _ENDS_GO_ON)),
    (Stored, _RENEW, Cell(Transactions._stored_renewed, "its ends go on", _ENDS_GO_ON)),
    (Refused, (_COMMIT, _ROLLBACK), Cell(Transactions._refused_end, "answers all ends with the refusal", (_OPEN,))),
    (Refused, (_CHECK, _RENEW, _EXPIRE), Cell(Transactions._refused_other, "its ends go on", _ENDS_GO_ON)),
    (Lost, _IN_FLIGHT, Cell(Transactions._lost, "answers all ends 1", (_ENDED,))),
    ((Stored, Refused, Lost), (_ENDED, _EXPIRED, _OPEN, _SENT), impossible("results come for work in flight")),
)
"""Of a transaction: (state, event) -> what is done. BeginRound and Look are of the round."""
