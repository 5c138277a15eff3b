"""Twin of the rule by which C takes the source of a send-back (rmq_send_back_is_sound)."""

from __future__ import annotations

from collections.abc import Collection

from ringmq.services.send_back.cases import Source
from ringmq.store import layout
from ringmq.store import record as records


def sound_source(raw: bytes | memoryview, offset: int, hidden: Collection[str]) -> Source | None:
    """The record at this position, which a client names. None if no consumer can have got it."""
    result, record = records.parse_record(raw, offset, with_body=False)
    if result != records.OK or record is None or record.physical_offset != offset:
        return None
    if record.topic in hidden or record.transaction_type not in (0, layout.TRANSACTION_COMMIT):
        return None
    return Source(record.reconsume_times)
