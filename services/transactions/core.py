"""The policy of transactions without IO: `step(event, now_ms) -> effects`.

A half message is OPEN, or one piece of work for it is in flight, or it has ended and is in no table. The first end of a
transaction ends all copies of its half. Later ends are answered 0 and store nothing. An end that finds work in flight
waits for its result.

| State | Ended | Look, due | Stored | Refused | Lost |
|---|---|---|---|---|---|
| not open | answers 0, or 1 if it expired | - | KeyError | KeyError | KeyError |
| OPEN | submits COMMIT, ROLLBACK | submits CHECK, EXPIRE, RENEW | KeyError | KeyError | KeyError |
| COMMIT, ROLLBACK | waits | - | ends it, answers 0 | OPEN, answers the refusal | ends it, answers 1 |
| EXPIRE | waits | - | ends it, answers 1 | OPEN, its ends go on | ends it, answers 1 |
| CHECK | waits | - | OPEN; its ends go on, else asks the producer | OPEN, its ends go on | ends it, answers 1 |
| RENEW | waits | - | OPEN, its ends go on | OPEN, its ends go on | ends it, answers 1 |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct, field

from ringmq.services.transactions.half_table import NO_IMMUNITY, Half, HalfTable

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


Event = Ended[R] | BeginRound | Look | Stored | Refused | Lost


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

    def step(self, event: Event[R], now_ms: int) -> Sequence[Effect[R]]:
        """Accept an event. `now_ms`: wall clock."""
        match event:
            case Ended():
                return self._ended(event)
            case BeginRound():
                self._next = 0
                return ()
            case Look(room, end):
                return self._look(room, end, now_ms)
            case Stored(first, copy):
                return self._stored(first, copy)
            case Refused():
                return self._refused(event)
            case Lost(first):
                self.table.end(first)
                return [Answer(end.request, *GONE) for end in self._done(first).ends]

    def _ended(self, end: Ended[R]) -> Sequence[Effect[R]]:
        if found := self._in_flight.get(end.first):
            found.ends.append(end)
            self._waiting += 1
            return ()
        half = self.table.find(end.first)
        if half is None:
            return (Answer(end.request, *(EXPIRED if end.first in self._expired else STORED)),)
        work = Work.COMMIT if end.is_commit else Work.ROLLBACK
        self._begin(end.first, _InFlight(work, [end]))
        return (Submit(work, half, end.position),)

    def _look(self, room: int, end: int, now_ms: int) -> Sequence[Effect[R]]:
        if self._next is None:
            return ()
        policy = self._policy()
        found: list[Submit] = []
        for half in self.table.following(self._next, LOOK_ENTRIES):
            if half.first in self._in_flight:
                continue
            work = self._work_of(half, policy, end, now_ms)
            if work is None:
                continue
            if len(found) == room:
                self._next = half.first
                break
            found.append(Submit(work, half))
        else:
            self._next = self.table.following_first(self._next, LOOK_ENTRIES)
        for submit in found:
            self._begin(submit.half.first, _InFlight(submit.work))
        return found

    @staticmethod
    def _work_of(half: Half, policy: CheckPolicy, end: int, now_ms: int) -> Work | None:
        if policy.is_expired(half, now_ms):
            return Work.EXPIRE
        if policy.is_due(half, now_ms):
            return Work.CHECK
        return Work.RENEW if half.newest + RENEW_BEHIND < end else None

    def _stored(self, first: int, copy: int) -> Sequence[Effect[R]]:
        done = self._done(first)
        match done.work:
            case Work.COMMIT | Work.ROLLBACK:
                self.table.end(first)
                return [Answer(end.request, *STORED) for end in done.ends]
            case Work.EXPIRE:
                self.table.end(first)
                self.restore_expired((first,))
                return [Answer(end.request, *EXPIRED) for end in done.ends]
            case Work.CHECK | Work.RENEW:
                self.table.move(first, copy, is_check=done.work is Work.CHECK)
                if done.ends or done.work is Work.RENEW:
                    return self._again(done)
                half = self.table.find(first)
                assert half is not None, "it has just been moved"
                return (AskProducer(half),)

    def _refused(self, event: Refused) -> Sequence[Effect[R]]:
        done = self._done(event.first)
        if done.work in (Work.COMMIT, Work.ROLLBACK):
            return [Answer(end.request, event.code, event.remark) for end in done.ends]
        return self._again(done)

    def _begin(self, first: int, work: _InFlight[R]) -> None:
        self.table.hold(first)
        self._in_flight[first] = work
        self._waiting += len(work.ends)

    def _done(self, first: int) -> _InFlight[R]:
        self.table.release(first)
        done = self._in_flight.pop(first)
        self._waiting -= len(done.ends)
        return done

    def _again(self, done: _InFlight[R]) -> Sequence[Effect[R]]:
        return [effect for end in done.ends for effect in self._ended(end)]
