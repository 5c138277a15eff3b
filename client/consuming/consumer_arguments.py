"""Checks of a consumer's arguments. No IO.

A wrong one would fail in a task of the consumer, which tries again without end: `start` would never return.
"""

from __future__ import annotations

from ringmq.client.arguments import (
    INT_MAX,
    LONG_MAX,
    check_file,
    check_flags,
    check_functions,
    check_kinds,
    check_numbers,
    check_optional,
)
from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.consuming.queue_reader import PullOptions
from ringmq.client.settings import ConnectionSettings


def check_consumer(
    topics: object,
    consume_from: object,
    timestamp_ms: object,
    drain_timeout_ms: object,
    options: object,
    allocate: object,
    offset_file: object,
    settings: object,
    *,
    auto_ack: object,
    ordered: object,
    broadcast: object,
    **listeners: object,
) -> None:
    """Raise TypeError or ValueError for an argument that cannot be used."""
    check_kinds(ConsumeFrom, consume_from=consume_from)
    check_numbers(0, LONG_MAX, timestamp_ms=timestamp_ms)
    check_numbers(0, INT_MAX, drain_timeout_ms=drain_timeout_ms)
    check_optional(PullOptions, options=options)
    check_optional(ConnectionSettings, settings=settings)
    check_flags(auto_ack=auto_ack, ordered=ordered, broadcast=broadcast)
    check_functions(allocate=allocate, **listeners)
    check_file(offset_file=offset_file)
    if allocate is None and not broadcast:
        raise TypeError("allocate must be a function such as allocate_averagely, not None")
    if topics is None and ordered:
        raise ValueError("ordered consumption needs subscribed topics: assigned queues have no locks")
    if offset_file is not None and not broadcast:
        raise ValueError("offset_file is for broadcast=True: other groups keep their offsets at the broker")
