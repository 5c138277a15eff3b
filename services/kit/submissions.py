"""Submissions: the way of a service to write. It owns the arena of a port, or a part of it, and what is in flight.

There are two policies:

| Policy | Port | Tokens | After a refusal | After a death |
|---|---|---|---|---|
| `InOrder` | ordered, of one owner | marks of the source records | settles, pauses, goes on from there | likewise |
| `EachAlone` | any, also shared | numbers | each item has a result of its own | items without a result may come again |

`InOrderFlow` and `Flight` decide. This module calls the port, once for each step of a batch: it copies records into the
arena, submits requests, and takes completions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ringmq.ipc.invariant import check_invariant
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port, mark_of, tie
from ringmq.ipc.republish_words import INHERITED, REFUSED, SKIPPED, SUBMITTED
from ringmq.native import ffi, lib
from ringmq.services.kit.arena import Arena, ArenaRing, fit
from ringmq.services.kit.flight import Flight, Result
from ringmq.services.kit.in_order_flow import InOrderFlow
from ringmq.services.kit.pace import Pace
from ringmq.services.kit.shared_port import SharedPort

RINGS = (lib.RMQ_PORT_APPENDED, lib.RMQ_PORT_COMPLETED)
T = TypeVar("T")


def copy_records(arena: Arena, native: Any, copies: Any, count: int, requests: Any, *, kept: int = 0) -> int:
    """Copy records (struct rmq_record_copy) by a struct rmq_copy_batch into the free piece of the arena, but for its
    last `kept` bytes. Returns how many are over: they have a request, or cannot be copied. Their bytes end at
    `native.arena_at`.

    Raises ValueError if the first one needs more than the arena ever has.
    """

    def make(start: int, end: int) -> int:
        native.arena_at, native.arena_end = start, max(start, end - kept)
        return int(lib.rmq_record_copies(copies, count, native, requests))

    done = fit(arena, make) if count else 0
    if count and not done and native.needed > arena.piece_max - kept:
        raise ValueError(f"a copy needs {native.needed} bytes, but the arena has {arena.piece_max - kept}")
    return done


def submit_all(port: Port, requests: Any, count: int) -> None:
    """Submit requests for which the ring has room."""
    accepted = port.submit(requests, count)
    if accepted != count:
        check_invariant(False, "the request ring takes what it has room for", accepted=accepted, count=count)


# -- in order --------------------------------------------------------------------------------------------------


class Collected(Struct, frozen=True):
    """Completions of one call. `has_settled`: of the requests in flight before none will be stored any more."""

    stored: int
    has_settled: bool


class InOrder:
    """Submissions in order. `words`: those of the role block (`ipc/republish_words.py`).

    The tokens of requests are marks. `stored[lane]` lies behind the largest source offset whose request was stored.
    `write_down` is called before completions are given back, so that a replacement finds the ones or the other. At a
    settlement, `settle` is asked again and again until it returns True: then the owner knows where to go on. `of_role`
    makes one for a worker.
    """

    def __init__(
        self, port: Port, words: Any, pace: Pace, log_line: Callable[[str], None], *, lanes: int = 1,
        write_down: Callable[[], None] = lambda: None, settle: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.port, self.words = port, words
        self._pace, self._log_line, self._lanes = pace, log_line, lanes
        self._write_down, self._settle = write_down, settle
        self.arena = ArenaRing(len(port.arena))
        self.flow = InOrderFlow(self.arena)
        self.stored = ffi.new("uint64_t[]", lanes)
        self._tally = ffi.new("struct rmq_port_tally *")
        self._allowance = 0
        port.claim()

    @classmethod
    def of_role(cls, plane: Plane, role: int, log_line: Callable[[str], None], **options: Any) -> InOrder:
        """The submissions of the worker with this role. No other code of the process may use its port."""
        port = Port(plane, plane.port_of(role))
        plane.map_arena(port.number)
        return cls(port, plane.role(role).counters, Pace(plane, role), log_line, **options)

    @property
    def log_end(self) -> int:
        """End of the last record of this process that is known to be stored. 0 = none is known."""
        return int(self._tally.end)

    @property
    def is_answered(self) -> bool:
        """True if no request is in flight, and no completion waits."""
        return self.port.answered and not self.port.has_answers

    def collect(self, now_ms: int) -> Collected:
        """Take completions. Settle a death or a refusal, once every request has one."""
        stored, has_settled = self._take(now_ms), False
        if self.flow.is_settling and self.port.answered:
            stored += self._take(now_ms)
            if self._settle():
                self.port.acknowledge()
                self.flow.settled()
                has_settled = True
        return Collected(stored, has_settled)

    def _take(self, now_ms: int) -> int:
        tally, count = self._tally, 0
        tally.stored = tally.refused = tally.inherited = 0
        for ring in RINGS:
            while taken := self.port.tally(ring, self.stored, self._lanes, tally):
                self._write_down()
                self.port.done(ring, taken)
                count += taken
        if not count:
            return 0
        self.words[INHERITED] += tally.inherited
        self.words[REFUSED] += tally.refused
        refusal = f"code {tally.first.code}, cause {tally.first.cause}" if tally.refused else ""
        if said := self.flow.tallied(int(tally.stored), refusal, now_ms):
            self._log_line(said)
        return int(tally.stored)

    def may_submit(self, now_ms: int) -> bool:
        """True if requests may be submitted now, beside those of clients. Call it before each batch."""
        self._allowance = self._pace.allowance(now_ms) if self.flow.may_submit(now_ms) else 0
        return self._allowance > 0

    @property
    def room(self) -> int:
        """Requests that may be submitted behind `may_submit`."""
        return min(self.port.room, self._allowance)

    def submit(self, requests: Any, count: int, arena_end: int) -> None:
        """Submit a batch with its marks, at most `room`. Its bytes end at `arena_end`."""
        self.flow.submitted(count, arena_end)
        self.words[SUBMITTED] += count
        self._pace.published(count)
        self._allowance = max(0, self._allowance - count)
        submit_all(self.port, requests, count)

    def publish(self, native: Any, units: Any, done: int, lane: int = 0) -> int:
        """Submit what `copy_records` has made of these units (struct rmq_queue_unit). Returns the number of requests:
        the other records cannot be copied, and count as skipped."""
        requests = native.requests
        made = int(lib.rmq_record_copies_mark(requests, units, done, mark_of(int(self.port.row.role), lane, 0)))
        self.words[SKIPPED] += done - made
        if made:
            self.submit(requests, made, int(native.batch.arena_at))
        return made


# -- each alone ------------------------------------------------------------------------------------------------


class EachAlone(Generic[T]):
    """Submissions of which each has a result of its own. Their bytes are those of `arena`, a part of the port's."""

    def __init__(self, port: SharedPort, arena: Arena) -> None:
        self.port, self.arena = port, arena
        self._flight: Flight[T] = Flight(arena)
        port.add_user(self._flight)

    @property
    def in_flight(self) -> int:
        """Items whose result was not taken yet."""
        return self._flight.items

    @property
    def has_answers(self) -> bool:
        """True if a result waits, or a completion that no user of the port has taken yet."""
        return bool(self._flight.results) or self.port.has_answers

    def submit(self, requests: Any, items: Sequence[T], arena_end: int) -> None:
        """Submit a request for each item, as the port has room. Their bytes end at `arena_end`."""
        self._submit(requests, len(items), self._flight.submitted(items, arena_end))

    def submit_tied(self, requests: Any, count: int, chain: Sequence[tuple[T, int]], arena_end: int) -> None:
        """Submit a chain, which write stores as a whole or not at all. Each item has the number of its request, or
        RIDER if it has none. Some requests may be no item's."""
        tie(requests, 0, count)
        self._submit(requests, count, self._flight.submitted_tied(chain, count, arena_end))

    def _submit(self, requests: Any, count: int, token: int) -> None:
        for number in range(count):
            requests[number].token = token + number
        submit_all(self.port, requests, count)

    def results(self) -> Iterator[Result[T]]:
        """The results since the last call."""
        self.port.collect()
        results = self._flight.results
        while results:
            yield results.popleft()
