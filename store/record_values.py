"""Values that no broker gives a record, in Python: the same rule as `native/src/codec/record_values.c`.

The frame around such a value may be valid: lengths add up and the body has its CRC, but no checksum covers the
header. The record stays in the log and goes to slaves byte for byte. No queue and no index has it.
"""

from collections.abc import Iterable

from msgspec import Struct

from ringmq.store import layout
from ringmq.store.record import Record

QUEUE_ID_MAX = 65534
"""A topic has at most 65535 queues."""
QUEUE_OFFSET_MAX = 0x00FFFFFFFFFFFFFF
TOPIC_BYTES_MAX = 255

POSSIBLE = 0
PHYSICAL_OFFSET = 1
QUEUE_ID = 2
QUEUE_OFFSET = 3
TOPIC = 4
QUEUE_PLACE = 5

FIELDS = {
    PHYSICAL_OFFSET: "physical offset: it names another place of the log",
    QUEUE_ID: f"queue id: it is not in 0..{QUEUE_ID_MAX}",
    QUEUE_OFFSET: "queue offset: no queue reaches there",
    TOPIC: "topic: no folder can have this name",
    QUEUE_PLACE: "queue offset: another record has this place of the queue, or the queue ends far before it",
}
"""Field -> the reason why its value is impossible, for operators."""


def is_topic_name(name: bytes) -> bool:
    """True if the bytes can name a topic, and so a folder."""
    if not 0 < len(name) <= TOPIC_BYTES_MAX or name.startswith(b".") or b"/" in name or b"\0" in name:
        return False
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_queue_id(number: int) -> bool:
    """True if a queue can have this number."""
    return 0 <= number <= QUEUE_ID_MAX


def queue_id_of(folder: str) -> int | None:
    """Return the queue whose folder has this name, None if the folder is no queue's."""
    is_number = folder.isascii() and folder.isdigit() and len(folder) <= len(str(QUEUE_ID_MAX))
    queue_id = int(folder) if is_number else -1
    return queue_id if is_queue_id(queue_id) and str(queue_id) == folder else None


def impossible_value(record: Record, position: int) -> int:
    """Return the first impossible field of a record at `position` of the commit log, POSSIBLE without one."""
    if record.physical_offset != position:
        return PHYSICAL_OFFSET
    if not is_queue_id(record.queue_id):
        return QUEUE_ID
    has_unit = record.transaction_type not in (layout.TRANSACTION_PREPARED, layout.TRANSACTION_ROLLBACK)
    if has_unit and not 0 <= record.queue_offset <= QUEUE_OFFSET_MAX:
        return QUEUE_OFFSET
    return POSSIBLE if is_topic_name(record.topic_raw) else TOPIC


class NotIndexed(Struct, frozen=True):
    """Records with impossible values in a part of the log."""

    count: int
    first_offset: int
    field: int
    """The impossible field of the first of them, a key of FIELDS."""

    def __str__(self) -> str:
        return not_indexed_line(self.count, self.first_offset, self.field)


def counted(found: Iterable[tuple[int, int]]) -> NotIndexed | None:
    """Return the count of `found`, (offset, field) of each record. None without any."""
    entries = iter(found)
    first = next(entries, None)
    return None if first is None else NotIndexed(1 + sum(1 for _ in entries), *first)


def not_indexed_line(count: int, offset: int, field: int) -> str:
    """Return the log line for `count` such records.

    `offset` is the commit log offset of the first record, `field` its impossible field.
    """
    return (
        f"{count} records with impossible values are kept in the log and not indexed; the first, at {offset}, has an "
        f"impossible {FIELDS.get(field, f'field {field}')}; `ringmq store verify` names all of them"
    )
