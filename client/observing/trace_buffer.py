"""Buffer of trace records: bounded, cut into messages. No IO; the clock is an argument.

Tracing must never delay the traced client: a record that finds the buffer full is dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ringmq.client.arguments import check_kinds, check_numbers
from ringmq.client.observing.trace_records import TraceRecord, index_keys
from ringmq.remoting import properties as names
from ringmq.remoting.message import Message
from ringmq.remoting.names import TRACE_TOPIC, InvalidName, check_topic

BODY_BYTES_MAX = 128_000
"""Stock's limit for a trace message."""
KEYS_BYTES_MAX = 16_384
"""Limit of the keys of a trace message. All properties of a message together may have 32767 bytes."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Message trace of a client, for `ConnectionSettings(trace=...)`. The defaults are stock's.

    Up to `batch_records` records make a trace message. Fewer records leave after `flush_interval_ms`. While the topic
    cannot be written, `buffer_records_max` records wait and further ones are dropped. Raises ValueError.
    """

    topic: str = TRACE_TOPIC
    batch_records: int = 20
    buffer_records_max: int = 2048
    flush_interval_ms: int = 5000

    def __post_init__(self) -> None:
        check_kinds(str, topic=self.topic)
        try:
            check_topic(self.topic)
        except InvalidName as error:
            raise ValueError(f"trace topic: {error}") from None
        for name, high in (("batch_records", 1000), ("buffer_records_max", 1_000_000), ("flush_interval_ms", 60_000)):
            check_numbers(1, high, **{name: getattr(self, name)})


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """Records since the start: added to the buffer, dropped because it was full, lost with a failed send."""

    recorded: int
    dropped: int
    lost: int


class TraceBuffer:
    """Records of one client. Any thread may call `add`, the sending one calls the rest."""

    def __init__(self, settings: TraceSettings, count: Callable[[str, int], None] | None = None) -> None:
        """`count` is called with (outcome, records) for every change of the counts."""
        self.settings = settings
        self._count = count or (lambda outcome, records: None)
        self._records: deque[tuple[int, TraceRecord]] = deque()  # with the time of their coming
        self._recorded = self._dropped = self._lost = 0

    def add(self, record: TraceRecord, now_ms: int) -> bool:
        """Add a record. False if it was dropped."""
        if len(self._records) >= self.settings.buffer_records_max:
            self._dropped += 1
            self._count("dropped", 1)
            return False
        self._records.append((now_ms, record))
        self._recorded += 1
        self._count("recorded", 1)
        return True

    def take(self, now_ms: int, *, everything: bool = False) -> Message | None:
        """Return the next trace message, if a batch is full or has waited long enough (or `everything`)."""
        records, settings = self._records, self.settings
        if not records:
            return None
        due = len(records) >= settings.batch_records or now_ms - records[0][0] >= settings.flush_interval_ms
        if not (due or everything):
            return None
        taken: list[TraceRecord] = []
        lines: list[bytes] = []
        body_bytes = keys_bytes = 0
        while records and len(taken) < settings.batch_records:
            record = records[0][1]
            line = record.encode().encode("utf-8", "replace")
            its_keys_bytes = sum(len(key.encode("utf-8", "replace")) + 1 for key in index_keys((record,)))
            full = body_bytes + len(line) > BODY_BYTES_MAX or keys_bytes + its_keys_bytes > KEYS_BYTES_MAX
            if taken and full:
                break
            records.popleft()
            taken.append(record)
            lines.append(line)
            body_bytes += len(line)
            keys_bytes += its_keys_bytes
        return Message(settings.topic, b"".join(lines), {names.KEYS: _keys_text(taken)})

    def note_lost(self, message: Message) -> None:
        """Count the records of a trace message that could not be sent."""
        records = message.body.count(b"\x02")
        self._lost += records
        self._count("lost", records)

    def counts(self) -> TraceCounts:
        """The counts of all records."""
        return TraceCounts(self._recorded, self._dropped, self._lost)


def _keys_text(records: list[TraceRecord]) -> str:
    text = " ".join(index_keys(records))
    if len(text.encode("utf-8", "replace")) > KEYS_BYTES_MAX:  # one message with very many keys: its id finds it
        text = " ".join(dict.fromkeys(record.message.message_id for record in records))
    return text
