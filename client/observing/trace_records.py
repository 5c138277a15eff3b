"""Records of message trace as stock writes and reads them (`TraceDataEncoder`). No IO.

A record is one line of fields joined by U+0001 and closed by U+0002. A trace message's body is a sequence of lines.
Its keys are the ids and keys of the traced messages. An absent text is the word "null": Java writes it so, and its
reader needs a last field that is not empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

FIELD_SEPARATOR = "\x01"
RECORD_END = "\x02"


class MessageType(IntEnum):
    """The kind of a sent message. The numbers are the order of stock's `MessageType`."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeOutcome(IntEnum):
    """The outcome of consuming. The numbers are the order of stock's `ConsumeReturnType`."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    NOTHING_RETURNED = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """The fields about a message in all records. `keys` are separated by blanks."""

    message_id: str
    keys: str | None = None


@dataclass(frozen=True, slots=True)
class SentRecord:
    """One message was sent. Times in ms. `store_host` is the broker's address, `success` is True for status OK."""

    NAME: ClassVar[str] = "Pub"

    message: TracedMessage
    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    tags: str | None
    store_host: str
    body_bytes: int
    cost_ms: int
    message_type: MessageType
    offset_message_id: str
    success: bool

    def encode(self) -> str:
        """Return the line."""
        message = self.message
        return _line(
            self.NAME, self.timestamp_ms, self.region_id, self.group, self.topic, message.message_id, self.tags,
            message.keys, self.store_host, self.body_bytes, self.cost_ms, int(self.message_type),
            self.offset_message_id, self.success,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsumeBeginRecord:
    """One message goes to the application. `request_id` is that of the `ConsumeEndRecord` that follows."""

    NAME: ClassVar[str] = "SubBefore"

    message: TracedMessage
    timestamp_ms: int
    region_id: str
    group: str
    request_id: str
    retry_times: int

    def encode(self) -> str:
        """Return the line."""
        message = self.message
        return _line(
            self.NAME, self.timestamp_ms, self.region_id, self.group, self.request_id, message.message_id,
            self.retry_times, message.keys,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsumeEndRecord:
    """The application has finished one message. `timestamp_ms` is the time of the end."""

    NAME: ClassVar[str] = "SubAfter"

    message: TracedMessage
    timestamp_ms: int
    group: str
    request_id: str
    cost_ms: int
    outcome: ConsumeOutcome

    def encode(self) -> str:
        """Return the line."""
        message = self.message
        return _line(
            self.NAME, self.request_id, message.message_id, self.cost_ms, self.outcome is ConsumeOutcome.SUCCESS,
            message.keys, int(self.outcome), self.timestamp_ms, self.group,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TransactionEndRecord:
    """A transaction was committed or rolled back. `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW (sic)."""

    NAME: ClassVar[str] = "EndTransaction"

    message: TracedMessage
    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    tags: str | None
    store_host: str
    message_type: MessageType
    transaction_id: str
    state: str
    from_check: bool

    def encode(self) -> str:
        """Return the line."""
        message = self.message
        return _line(
            self.NAME, self.timestamp_ms, self.region_id, self.group, self.topic, message.message_id, self.tags,
            message.keys, self.store_host, int(self.message_type), self.transaction_id, self.state, self.from_check,
        )  # fmt: skip


TraceRecord = SentRecord | ConsumeBeginRecord | ConsumeEndRecord | TransactionEndRecord


def index_keys(records: Iterable[TraceRecord]) -> list[str]:
    """Return the keys of the records, each once, ids first."""
    ids = dict.fromkeys(record.message.message_id for record in records)
    keys = dict.fromkeys(key for record in records for key in (record.message.keys or "").split())
    return list(ids | keys)


def _line(*fields: str | int | bool | None) -> str:
    return FIELD_SEPARATOR.join(map(_text, fields)) + RECORD_END


def _text(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None or value == "" else str(value)
