"""An independent decoder: a store's files to rows, with struct and the client's message decoder, nothing of the bridge.

It reads every record of the log from the first to the last and takes no ConsumeQueue into account.
"""

import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard

from ringmq.remoting.batch import decode_batch
from ringmq.remoting.message import MessageExt, decode_message
from ringmq.remoting.properties import decode_properties

BLANK = 0xCBD43194
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def log_messages(root: Path) -> Iterator[MessageExt]:
    """Every record of the log, whatever its topic and kind."""
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
            if size == 0 or magic == BLANK:
                break
            message, at = decode_message(data, at)
            yield message


def log_rows(root: Path, broker: str) -> Iterator[dict[str, Any]]:
    """A row of every column for each message that a consumer could get."""
    for message in log_messages(root):
        if message.sys_flag & 0xC in (0x4, 0xC):
            continue
        body = _plain_body(message)
        if not message.sys_flag & 0x80:
            yield _row(message, broker, message.queue_offset, body, message.properties)
            continue
        base = int(message.properties.get("INNER_BASE", message.queue_offset))
        for number, element in enumerate(decode_batch(body)):
            properties = decode_properties(element.properties.decode("utf-8", "replace"))
            yield _row(message, broker, base + number, element.body, properties)


def _plain_body(message: MessageExt) -> bytes:
    if not message.sys_flag & 1:
        return message.body
    kind = message.sys_flag >> 8 & 7
    if kind == 1:
        return bytes(lz4.frame.decompress(message.body))
    return (
        zstandard.ZstdDecompressor().decompressobj().decompress(message.body)
        if kind == 2
        else zlib.decompress(message.body)
    )


SYSTEM = {
    "KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "INNER_NUM", "INNER_BASE", "REAL_TOPIC", "REAL_QID", "DELAY",
    "TRAN_MSG", "PGROUP", "MSG_REGION", "TRACE_ON", "__transactionId__", "MIN_OFFSET", "MAX_OFFSET", "INSTANCE_ID",
    "TRANSACTION_CHECK_TIMES", "RECONSUME_TIME", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "MAX_RECONSUME_TIMES",
    "__SHARDINGKEY", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    "TIMER_DELAY_MS", "TIMER_ROLL_TIMES", "DUP_INFO",
}  # fmt: skip
"""What occurs in the stores of the tests."""


def _row(message: MessageExt, broker: str, offset: int, body: bytes, properties: dict[str, str]) -> dict[str, Any]:
    headers = [{"key": name, "value": value.encode()} for name, value in properties.items() if name not in SYSTEM]
    return {
        "key": properties["KEYS"].encode() if "KEYS" in properties else None,
        "value": body,
        "topic": message.topic,
        "partition": message.queue_id,
        "offset": offset,
        "timestamp": EPOCH + timedelta(milliseconds=message.store_timestamp_ms),
        "timestampType": 1,
        "headers": headers or None,
        "broker": broker,
        "tags": properties.get("TAGS"),
        "msg_id": properties.get("UNIQ_KEY", message.offset_msg_id),
        "born_timestamp": EPOCH + timedelta(milliseconds=message.born_timestamp_ms),
        "sys_flag": int(message.sys_flag),
        "commit_log_offset": message.commit_log_offset,
        "properties": list(properties.items()),
    }
