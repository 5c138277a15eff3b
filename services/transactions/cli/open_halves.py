"""Open half messages of one broker, as its half and op topics show them over the wire. Stock brokers answer alike."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ringmq.cli.admin import TIMEOUT_MS
from ringmq.cli.queue_pages import pull_page
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.errors import BrokerError
from ringmq.remoting import properties
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages
from ringmq.remoting.names import HALF_TOPIC, OP_HALF_TOPIC

READ_MAX = 100_000
"""The most records of each topic that one call reads."""
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""Its offsets tell up to where the broker has checked halves, and read op messages."""
_NOTHING_THERE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)


@dataclass(frozen=True, slots=True)
class QueueRead:
    """Messages of a queue from an offset on. `left`: messages behind them that were not read."""

    messages: list[MessageExt]
    left: int


@dataclass(frozen=True, slots=True)
class OpenHalves:
    """Rows of a table, oldest message first. `left`: records that were not read."""

    rows: list[dict[str, Any]]
    left: int


def find_open(
    halves: Iterable[MessageExt], operations: Iterable[MessageExt], broker: str, now_ms: int
) -> list[dict[str, Any]]:
    """The halves whose transactions have not ended. Each check appends a half again, so its newest copy counts. Clients
    choose UNIQ_KEY, so copies have the same birth and body, too."""
    ended = {number for operation in operations for number in _numbers(operation.body)}
    newest: dict[Hashable, MessageExt] = {}
    for half in halves:
        group, key = half.properties.get(properties.PGROUP), half.properties.get(properties.UNIQ_KEY)
        newest[group, key, half.born_timestamp_ms, half.born_host, half.body_crc] = half
    rows = [_row(half, broker, now_ms) for half in newest.values() if half.queue_offset not in ended]
    return sorted(rows, key=lambda row: (-row["ageMs"], row["halfOffset"]))


async def read_open(client: RemotingClient, address: str, broker: str, now_ms: int) -> OpenHalves:
    """Read a broker's topics from the offsets where its checks stand. Raises `RingmqError`."""
    halves = await _read(client, address, HALF_TOPIC)
    operations = await _read(client, address, OP_HALF_TOPIC)
    return OpenHalves(find_open(halves.messages, operations.messages, broker, now_ms), halves.left + operations.left)


def _numbers(body: bytes) -> Iterable[int]:
    """Offsets of ended halves in the body of an op message: `12,15,`."""
    return (int(part) for part in body.decode("ascii", "replace").split(",") if part.isascii() and part.isdigit())


def _row(half: MessageExt, broker: str, now_ms: int) -> dict[str, Any]:
    pairs: Mapping[str, str] = half.properties
    checks = pairs.get(properties.TRANSACTION_CHECK_TIMES, "0")
    return {
        "broker": broker,
        "topic": pairs.get(properties.REAL_TOPIC),
        "queueId": pairs.get(properties.REAL_QID),
        "producerGroup": pairs.get(properties.PGROUP),
        "key": pairs.get(properties.KEYS),
        "transactionId": pairs.get(properties.UNIQ_KEY),
        "ageMs": max(0, now_ms - half.born_timestamp_ms),
        "checks": int(checks) if checks.isascii() and checks.isdigit() else 0,
        "halfOffset": half.queue_offset,
        "commitLogOffset": half.commit_log_offset,
    }


async def _read(client: RemotingClient, address: str, topic: str) -> QueueRead:
    queue = {"topic": topic, "queueId": "0"}
    first = await _number(client, address, RequestCode.GET_MIN_OFFSET, queue)
    end = await _number(client, address, RequestCode.GET_MAX_OFFSET, queue)
    try:
        group = {"consumerGroup": TRANSACTION_GROUP}
        first = max(first, await _number(client, address, RequestCode.QUERY_CONSUMER_OFFSET, queue | group))
    except BrokerError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
    found: list[MessageExt] = []
    while first < end and len(found) < READ_MAX:
        answer = await pull_page(client, address, topic, first)
        if answer.code == ResponseCode.SUCCESS:
            found += decode_messages(answer.body)
        elif answer.code in _NOTHING_THERE:
            break
        elif answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
            raise BrokerError(address, answer.code, answer.remark)
        first = max(first + 1, int(answer.ext_fields.get("nextBeginOffset", "0")))
    return QueueRead(found, max(0, end - first))


async def _number(client: RemotingClient, address: str, code: RequestCode, fields: Mapping[str, str]) -> int:
    answer = await client.call(address, code, fields, timeout_ms=TIMEOUT_MS)
    return int(answer.ext_fields["offset"])
