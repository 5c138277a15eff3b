"""Timer messages that a key names, as a broker's index and timer topic show them. Stock brokers answer alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ringmq.cli.admin import TIMEOUT_MS
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.client.namespaces import without_namespace
from ringmq.client.producing.recall import recall_fields
from ringmq.remoting import properties
from ringmq.remoting.client_headers import QueryMessageRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages
from ringmq.remoting.names import WHEEL_TIMER_TOPIC
from ringmq.remoting.recall_handle import RecallHandle

QUERY_MAX = 64
"""The most records of one query, the newest. It is stock's limit of an answer, too."""
NAMES_MAX = 10
"""Messages that an error names."""
RECALL_GROUP = "ringmq_cli_recall"
WAITING, DUE, RECALLED, DELIVERED = "waiting", "due", "recalled", "delivered"
"""States. `due`: the time has come, and the message is not in its topic yet."""
ENABLE = "recallMessageEnable"
_ROLL_TIMES, _DEQUEUE_MS = "TIMER_ROLL_TIMES", "TIMER_DEQUEUE_MS"
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TimerFound:
    """A timer message with its newest record of the timer topic."""

    broker: str
    address: str
    record: MessageExt
    out_ms: int
    """TIMER_OUT_MS: the step of the wheel before the delivery."""
    recalled: bool
    """True if a stored delete names the message."""

    @property
    def topic(self) -> str:
        """The topic of the delivery, as the broker knows it."""
        return self.record.properties.get(properties.REAL_TOPIC, "")

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY, "" without one."""
        return self.record.properties.get(properties.UNIQ_KEY, "")

    @property
    def handle(self) -> RecallHandle:
        """The handle by which the broker recalls the message."""
        return RecallHandle(self.topic, self.broker, str(self.out_ms + 1), self.unique_key)

    @property
    def due_ms(self) -> int:
        """The time of the delivery. After a roll the delay no longer says it, so it is that of the wheel's step."""
        pairs, stored_ms = self.record.properties, self.record.store_timestamp_ms
        if _ROLL_TIMES not in pairs:
            for name, unit_ms, from_ms in (
                (properties.TIMER_DELAY_SEC, 1000, stored_ms), (properties.TIMER_DELAY_MS, 1, stored_ms),
                (properties.TIMER_DELIVER_MS, 1, 0),
            ):  # fmt: skip
                if (number := _number(pairs.get(name))) is not None:
                    return max(self.out_ms + 1, from_ms + number * unit_ms)
        return self.out_ms + 1

    def state(self, delivered: bool, now_ms: int) -> str:
        """One of the states. `delivered`: its topic has it."""
        if delivered:
            return DELIVERED
        if self.recalled:
            return RECALLED
        return WAITING if self.due_ms > now_ms else DUE

    def row(self, state: str, now_ms: int, namespace: str = "") -> dict[str, Any]:
        """The row of a table."""
        return {
            "state": state,
            "topic": without_namespace(namespace, self.topic),
            "due": _time(self.due_ms),
            "dueInMs": self.due_ms - now_ms,
            "key": self.record.properties.get(properties.KEYS),
            "uniqueKey": self.unique_key or None,
            "rolls": _number(self.record.properties.get(_ROLL_TIMES)) or 0,
            "broker": self.broker,
            "timerOffset": self.record.queue_offset,
            "recallHandle": self.handle.encode() if self.unique_key else None,
        }


def timers_of(records: Iterable[MessageExt], key: str, broker: str, address: str) -> list[TimerFound]:
    """The timer messages among records of the timer topic that `key` names, the earliest first.

    Each roll appends a message again, so its newest record counts. Records that only share the key's hash are left out.
    """
    newest: dict[tuple[str, str, int], MessageExt] = {}
    deleted: set[str] = set()
    for record in sorted(records, key=lambda record: record.queue_offset):
        pairs = record.properties
        unique_key = pairs.get(properties.UNIQ_KEY, "")
        if properties.TIMER_DEL_UNIQKEY in pairs:
            deleted.add(pairs[properties.TIMER_DEL_UNIQKEY])
        elif key == unique_key or key in pairs.get(properties.KEYS, "").split():
            newest[pairs.get(properties.REAL_TOPIC, ""), unique_key, record.born_timestamp_ms] = record
    found = [
        TimerFound(broker, address, record, out_ms, f"{topic}+{unique_key}" in deleted)
        for (topic, unique_key, _), record in newest.items()
        if (out_ms := _number(record.properties.get(properties.TIMER_OUT_MS))) is not None
    ]
    return sorted(found, key=lambda one: (one.due_ms, one.record.queue_offset))


async def find_timers(client: RemotingClient, address: str, broker: str, key: str) -> list[TimerFound]:
    """Ask a broker for the timer messages of a key. Deletes have the unique key alone. Raises `RingmqError`."""
    records = {record.queue_offset: record for record in await _query(client, address, WHEEL_TIMER_TOPIC, key)}
    unique_keys = {one.unique_key for one in timers_of(records.values(), key, broker, address)} - {key, ""}
    for unique_key in sorted(unique_keys):
        found = await _query(client, address, WHEEL_TIMER_TOPIC, unique_key)
        records |= {record.queue_offset: record for record in found}
    return timers_of(records.values(), key, broker, address)


async def is_delivered(client: RemotingClient, found: TimerFound) -> bool:
    """True if its topic has a message of the unique key that came out of the wheel. Raises `RingmqError`."""
    if not found.unique_key:
        return False
    return any(
        record.properties.get(properties.UNIQ_KEY) == found.unique_key and _DEQUEUE_MS in record.properties
        for record in await _query(client, found.address, found.topic, found.unique_key)
    )


async def recall(client: RemotingClient, found: TimerFound) -> None:
    """Recall a message (370). Raises `RingmqError`, and ValueError if the broker's configuration forbids recalls."""
    fields = recall_fields(RECALL_GROUP, found.handle, found.handle.encode())
    try:
        await client.call(found.address, RequestCode.RECALL_MESSAGE, fields, timeout_ms=TIMEOUT_MS)
    except BrokerError as error:
        if error.code != ResponseCode.NO_PERMISSION:
            raise
        raise ValueError(
            f"broker {found.broker} takes no recalls, because {ENABLE} is false: set {ENABLE}=true in its "
            f"configuration, then run ringmq config reload ({error.remark})"
        ) from error


async def recall_all(client: RemotingClient, found: Sequence[TimerFound]) -> None:
    """Recall messages. An error names those that were recalled before it. Raises as `recall`."""
    for number, one in enumerate(found):
        try:
            await recall(client, one)
        except (RingmqError, ValueError) as error:
            if not number:
                raise
            raise ValueError(
                f"{error}; recalled before: {_names(done.unique_key for done in found[:number])}"
            ) from error


async def _query(client: RemotingClient, address: str, topic: str, key: str) -> Sequence[MessageExt]:
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=QUERY_MAX, begin_timestamp=0, end_timestamp=_LONG_MAX
    )
    try:
        answer = await client.call(address, RequestCode.QUERY_MESSAGE, header.encode(), timeout_ms=TIMEOUT_MS)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
    return decode_messages(answer.body)


def own(found: Iterable[TimerFound], namespace: str) -> list[TimerFound]:
    """The messages of a namespace, all without one."""
    return [one for one in found if not namespace or without_namespace(namespace, one.topic) != one.topic]


def only_waiting(rows: Sequence[Mapping[str, Any]], key: str, takes_all: bool) -> None:
    """Raise ValueError unless `rows`, the waiting messages of a key, is one, or any number for `takes_all`."""
    if not rows:
        raise ValueError(f"no timer message with key {key} waits; see ringmq timer show {key}")
    if len(rows) > 1 and not takes_all:
        names = _names(str(row["uniqueKey"]) for row in rows)
        raise ValueError(
            f"{len(rows)} timer messages with key {key} wait: give the unique key of one ({names}), or --all"
        )


def _names(keys: Iterable[str]) -> str:
    names = list(keys)
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().isoformat(sep=" ", timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
