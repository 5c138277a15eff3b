"""Stored records of which no copy is made, in words: which topic or queue is missing, or what else is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ringmq.native import ffi, lib
from ringmq.remoting import names
from ringmq.store.copy_targets import REAL_TOPIC
from ringmq.store.record import parse_record
from ringmq.store.record_copy import PROPERTIES_BYTES_MAX, Cause

WITHOUT_TARGET = (Cause.NO_PAIR, Cause.NO_TOPIC, Cause.NO_QUEUE)


class MissingTarget(Struct, frozen=True):
    """A record of a batch for which there is no queue. Its text completes "skips messages"."""

    number: int
    """Its number in the batch."""
    cause: Cause
    """NO_PAIR: it does not name its queue. NO_TOPIC, NO_QUEUE: the queue that it names is not there."""
    topic: str
    """The topic that it names."""
    queue_id: int = -1
    """Of NO_QUEUE: the queue that it names."""

    def __str__(self) -> str:
        if not self.topic:
            return "that name no topic"
        if self.cause is Cause.NO_PAIR:
            return f"for topic {self.topic}: they name no queue"
        if self.cause is Cause.NO_QUEUE:
            return f"for queue {self.queue_id} of topic {self.topic}: the topic has no such queue"
        if self.topic == names.HALF_TOPIC:
            return f"for topic {self.topic}: nothing is delivered there"
        return f"for topic {self.topic}: the topic does not exist"


def missing_target(copy: Any, number: int) -> MissingTarget:
    """The missing target of a record (struct rmq_record_copy) to which rmq_copy_targets has given no queue."""
    _, record = parse_record(bytes(ffi.buffer(copy.record, copy.record_bytes)))
    topic = "" if record is None else record.properties.get(REAL_TOPIC.decode(), "")
    cause = Cause(copy.cause)
    return MissingTarget(number, cause, topic, int(copy.detail) if cause is Cause.NO_QUEUE else -1)


def distinct_targets(copies: Any, count: int) -> Iterator[MissingTarget]:
    """Each missing target of a batch once.

    A record is parsed only if its last pair REAL_TOPIC differs from those before: a million messages may wait for a
    topic that is gone.
    """
    seen = set()
    for number in range(count):
        copy = copies[number]
        if copy.queue_slot != lib.RMQ_NONE:
            continue
        data = bytes(ffi.buffer(copy.record, copy.record_bytes))
        pair = data[data.rfind(REAL_TOPIC) :].partition(b"\x02")[0]
        key = int(copy.cause), int(copy.detail), pair
        if key not in seen:
            seen.add(key)
            yield missing_target(copy, number)


def first_not_copied(copies: Any, count: int) -> tuple[int, str] | None:
    """(number, reason) of the first record of a batch that has a target and of which no copy can be made."""
    for number in range(count):
        cause, detail = int(copies[number].cause), int(copies[number].detail)
        if cause == Cause.PROPERTIES:
            return number, f"{Cause(cause).name}: {detail} bytes, at most {PROPERTIES_BYTES_MAX} are stored"
        if cause and cause not in WITHOUT_TARGET:
            return number, f"{Cause(cause).name} {detail}"
    return None
