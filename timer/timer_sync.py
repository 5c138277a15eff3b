"""A slave's copy of its master's progress with timer messages. No IO.

Request 60 gives timercheck: slots before its time are delivered. The slave may rely on that only when its own log has
the delivered records, else a promotion would lose those that are still on their way. So the log's end of a stock
master is asked for after its timercheck (907). A RingMQ master gives, as the field `marksFrom`, the log offset at which
the slot was opened. Copies of earlier slots lie before it. Its field `filing` tells how it files messages: windows of
rolls may differ between brokers, and then a slave's wheel is not its master's.

A stock master is asked every 3 s, as stock does, a RingMQ master every second.
"""

from __future__ import annotations

from dataclasses import astuple, fields

from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.ha.slave_sync import Ask, master_log_end
from ringmq.remoting import json_body
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.timer.master_timers import MasterTimers
from ringmq.timer.timer_checkpoint import (
    PRECISION_MS_MAX,
    WINDOW_SLOTS_MAX,
    Filing,
    ForSlaves,
    TimerCheckpoint,
)

STOCK_MS, RINGMQ_MS = 3000, 1000
TIMEOUT_MS = 3000
AHEAD_MS_MAX = 60_000
"""Clocks of a group's brokers differ by less."""
WAITING_MAX = 8
RECORD_BYTES_MIN = 91
OFFSET_MAX = 1 << 62
MARKS_FROM, FILING = "marksFrom", "filing"
"""Fields of a RingMQ broker's answer to 60."""


class TimerSync(Struct):
    """The schedule of requests, and answers for which the slave's log is too short yet."""

    master: str = ""
    next_ms: int = 0
    _began_ms: int = 0
    _own_end: int = 0
    _is_asking: bool = False
    _without_end: MasterTimers | None = None
    _waiting: list[MasterTimers] = field(default_factory=list)

    def master_is(self, address: str, now_ms: int) -> None:
        """Set the master's broker address, "" while none is known."""
        if address == self.master:
            return
        self.master, self.next_ms = address, now_ms
        self._is_asking, self._without_end = False, None
        self._waiting.clear()

    def due(self, now_ms: int, own_end: int = 0) -> Ask | None:
        """The request to send now. None if there is none. `own_end`: the current end of our log."""
        if not self.master or self._is_asking or (self._without_end is None and now_ms < self.next_ms):
            return None
        self._is_asking = True
        if self._without_end is not None:
            self._own_end = own_end
            return Ask(self.master, RequestCode.GET_BROKER_HA_STATUS, {}, TIMEOUT_MS)
        self._began_ms = now_ms
        return Ask(self.master, RequestCode.GET_TIMER_CHECK_POINT, {}, TIMEOUT_MS)

    def answered(self, ask: Ask, answer: RemotingCommand, now_ms: int) -> None:
        """Take an answer. Raises RemotingError for one with impossible values, which changes nothing."""
        if ask.address != self.master:
            return
        self._is_asking = False
        without_end, self._without_end = self._without_end, None
        self.next_ms = max(now_ms, self._began_ms + STOCK_MS)
        if without_end is not None:
            self._wait(replace(without_end, log_offset=self._checked_end(answer)))
            return
        found = decode_timers(answer, now_ms)
        if found.marks_from is None:
            self._without_end = found
        else:
            self.next_ms = max(now_ms, self._began_ms + RINGMQ_MS)
            self._wait(found)

    def failed(self, ask: Ask, now_ms: int) -> None:
        """Go on with the next request at its time, because the master has not answered, or with an error."""
        if ask.address == self.master:
            self._is_asking, self._without_end = False, None
            self.next_ms = max(now_ms, self._began_ms + STOCK_MS)

    def refused(self, ask: Ask, code: int, now_ms: int) -> None:
        """See `failed`."""
        self.failed(ask, now_ms)

    @property
    def needs_end(self) -> bool:
        """True if the log's end of a stock master is asked for next."""
        return self._without_end is not None

    def settled(self, own_end: int) -> MasterTimers | None:
        """Remove and return the newest progress for which a log up to `own_end` is long enough."""
        for number in reversed(range(len(self._waiting))):
            if self._waiting[number].log_offset <= own_end:
                found = self._waiting[number]
                del self._waiting[: number + 1]
                return found
        return None

    def _checked_end(self, answer: RemotingCommand) -> int:
        end = master_log_end(answer)
        if not self._own_end <= end <= OFFSET_MAX:
            raise json_body.bad_body(
                f"the master's log ends at {end}, this slave's at {self._own_end}: its progress with timer messages "
                "does not count",
                "masterCommitLogMaxOffset",
            )
        return end

    def _wait(self, found: MasterTimers) -> None:
        if found.known_offset * RECORD_BYTES_MIN > found.log_offset:
            raise json_body.bad_body(
                f"{found.known_offset} timer messages cannot lie before log offset {found.log_offset}",
                "masterTimerQueueOffset",
            )
        if len(self._waiting) == WAITING_MAX:
            self._waiting.pop()  # the oldest is reached first
        self._waiting.append(found)


def decode_timers(answer: RemotingCommand, now_ms: int) -> MasterTimers:
    """Decode the answer to 60. Without `marksFrom` the log offset is 0. Raises `BadBody`."""
    try:
        known = TimerCheckpoint.decode(bytes(answer.body))
    except ValueError as error:
        raise json_body.bad_body(str(error), "body") from error
    if not 0 <= known.last_read_ms <= now_ms + AHEAD_MS_MAX:
        reason = f"lastReadTimeMs {known.last_read_ms} is not between 0 and a minute from now"
        raise json_body.bad_body(reason, "lastReadTimeMs")
    _check_offset(known.master_queue_offset, "masterTimerQueueOffset")
    text = (answer.ext_fields or {}).get(MARKS_FROM)
    marks_from = None if text is None else _check_offset(json_body.as_integer(text, MARKS_FROM), MARKS_FROM)
    version = known.state_version, known.timestamp_ms, known.counter
    filing = _filing((answer.ext_fields or {}).get(FILING))
    return MasterTimers(known.last_read_ms, known.master_queue_offset, marks_from or 0, marks_from, version, filing)


def encode_fields(found: ForSlaves) -> dict[str, str]:
    """Return the fields of the answer to 60 that stock does not have."""
    fields = {} if found.marks_from is None else {MARKS_FROM: str(found.marks_from)}
    return fields if found.filing is None else fields | {FILING: ",".join(map(str, astuple(found.filing)))}


def _filing(text: str | None) -> Filing | None:
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) != len(fields(Filing)):
        return None  # of a later version: a promotion rebuilds
    filing = Filing.of([json_body.as_integer(number, FILING) for number in numbers])
    if filing is None:
        limits = f"a roll window up to {WINDOW_SLOTS_MAX} and three precisions up to {PRECISION_MS_MAX} ms"
        raise json_body.bad_body(f"{FILING} {text} is not {limits}", FILING)
    return filing


def _check_offset(offset: int, name: str) -> int:
    if not 0 <= offset <= OFFSET_MAX:
        raise json_body.bad_body(f"{name} {offset} is not from 0 to {OFFSET_MAX}", name)
    return offset
