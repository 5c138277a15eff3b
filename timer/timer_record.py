"""The fields of a record of the timer topic that say when and where it goes.

The twin of native/src/timer/timer_record.c.
"""

from __future__ import annotations

from msgspec import Struct

from ringmq.remoting.properties import REAL_TOPIC, UNIQ_KEY
from ringmq.remoting.subscription import java_string_hash
from ringmq.store.record import parse_record
from ringmq.store.record_numbers import LONG_MAX, decimal
from ringmq.timer.placement import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, TIMER_ROLL_TIMES, exact_ms


class TimerRecord(Struct, frozen=True):
    """A record of the timer topic. Times in ms."""

    queue_offset: int
    store_ms: int
    out_ms: int | None
    """TIMER_OUT_MS. None: a client has sent the record straight to the timer topic, so it can never be due."""
    exact_ms: int
    topic_hash: int
    """Java's hash of REAL_TOPIC, 0 without one."""
    is_delete: bool
    key: bytes
    """Of a delete the key that it names, else REAL_TOPIC, "+", UNIQ_KEY. Empty without a time or without UNIQ_KEY."""
    target_key: bytes = b""
    """UNIQ_KEY of the message that a delete names. Empty if it names none of its own REAL_TOPIC: such a delete works in
    its own slot alone."""
    rolls: int = 0
    """TIMER_ROLL_TIMES."""
    born_ms: int = 0
    mark: int = 0
    """The prepared transaction offset: of a copy the mark of its source, if RingMQ has rolled it."""


def timer_record(data: bytes | memoryview, coarsest_ms: int) -> TimerRecord | None:
    """Read a record. None if it is damaged. `coarsest_ms`: see exact_ms."""
    _, record = parse_record(data)
    if record is None:
        return None
    pairs = record.properties
    out_ms = decimal(pairs.get(TIMER_OUT_MS, ""))
    if out_ms is not None and out_ms > LONG_MAX // 2:
        out_ms = None
    topic, unique = pairs.get(REAL_TOPIC, ""), pairs.get(UNIQ_KEY, "")
    is_delete, rolls = TIMER_DEL_UNIQKEY in pairs, decimal(pairs.get(TIMER_ROLL_TIMES, ""))
    named = pairs[TIMER_DEL_UNIQKEY] if is_delete else f"{topic}+{unique}" if unique else ""
    return TimerRecord(
        record.queue_offset,
        record.store_time_ms,
        out_ms,
        -1 if out_ms is None else exact_ms(pairs, record.store_time_ms, out_ms, coarsest_ms),
        java_string_hash(topic) if topic else 0,
        is_delete,
        b"" if out_ms is None else named.encode(),
        named.removeprefix(f"{topic}+").encode() if out_ms is not None and is_delete and _is_own(topic, named) else b"",
        rolls if rolls is not None and rolls < 1 << 32 else 0,
        record.born_time_ms,
        record.prepared_transaction_offset,
    )


def _is_own(topic: str, named: str) -> bool:
    return bool(topic) and named.startswith(f"{topic}+")
