"""Batches of orderly groups as RocketMQ writes them: `consumerOrderInfo.json`, a table of topic@group and queue.

Offsets of messages are the keys of `ot` and `oc`. `o` has the first offset, and of the others the distance to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct

from ringmq.native import lib

MESSAGES_MAX: int = lib.RMQ_POP_ORDER_MESSAGES
ATTEMPT_BYTES_MAX: int = lib.RMQ_POP_ATTEMPT_BYTES_MAX
INVISIBLE_MS_MAX: int = lib.RMQ_POP_INVISIBLE_MS_MAX
OFFSET_MAX = 2**63 - 1 - 2**32
COUNT_MAX, VISIBLE_MS_MAX = 65_535, 2**32 - 1


class BatchRecord(Struct, frozen=True):
    """The batch of one queue. `visible_ms`: behind the pop; `acked`: bit i for message i."""

    topic: str
    group: str
    queue_id: int
    pop_time_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    visible_ms: tuple[int, ...]
    consumed: tuple[int, ...]
    acked: int
    attempt: str = ""


def read_batches(content: Mapping[str, Any]) -> Iterator[BatchRecord | str]:
    """The batches of the file's content, and the key of each that is none. Raises ValueError for content without a
    table."""
    table = content.get("table", {})
    if not isinstance(table, dict):
        raise ValueError("table is no object")
    for key, queues in table.items():
        topic, _, group = str(key).partition("@")
        for queue_id, bean in queues.items() if isinstance(queues, dict) else [("", queues)]:
            try:
                yield _read(topic, group, int(queue_id), bean)
            except (TypeError, ValueError, KeyError, AttributeError):
                yield f"{str(key)[:100]}, queue {str(queue_id)[:20]}"


def _read(topic: str, group: str, queue_id: int, bean: Mapping[str, Any]) -> BatchRecord:
    first, *others = (_number(offset) for offset in bean["o"])
    offsets = (first, *(first + other for other in others))
    pop_time_ms, invisible_ms = _number(bean["popTime"]), _number(bean.get("i") or 0)
    is_sound = first >= 0 and offsets[-1] <= OFFSET_MAX and len(offsets) <= MESSAGES_MAX and 0 <= pop_time_ms < 1 << 62
    if not is_sound or any(behind <= before for before, behind in pairwise(offsets)):
        raise ValueError(offsets)
    if not topic or not group or not 0 <= queue_id < 1 << 31 or offsets[-1] - first > VISIBLE_MS_MAX:
        raise ValueError(queue_id)
    invisible_ms = min(max(invisible_ms, 0), INVISIBLE_MS_MAX)
    times, counts = _by_offset(bean.get("ot")), _by_offset(bean.get("oc"))
    visible_ms = (times.get(offset, pop_time_ms + invisible_ms) - pop_time_ms for offset in offsets)
    attempt = bean.get("a") or ""
    return BatchRecord(
        topic, group, queue_id, pop_time_ms, invisible_ms, offsets,
        tuple(min(max(each, 0), VISIBLE_MS_MAX) for each in visible_ms),
        tuple(min(max(counts.get(offset, 0), 0), COUNT_MAX) for offset in offsets),
        _number(bean.get("cm") or 0) & (1 << len(offsets)) - 1,
        attempt if isinstance(attempt, str) and len(attempt.encode("utf-8", "replace")) <= ATTEMPT_BYTES_MAX else "",
    )  # fmt: skip


def _by_offset(value: Mapping[Any, Any] | None) -> dict[int, int]:
    return {int(offset): _number(number) for offset, number in (value or {}).items()}


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def write_batches(batches: Iterator[BatchRecord]) -> dict[str, Any]:
    """The content of the file."""
    table: dict[str, dict[int, Any]] = {}
    for batch in batches:
        table.setdefault(f"{batch.topic}@{batch.group}", {})[batch.queue_id] = _write(batch)
    return {"table": table}


def _write(batch: BatchRecord) -> dict[str, Any]:
    times = {
        offset: batch.pop_time_ms + visible_ms
        for offset, visible_ms in zip(batch.offsets, batch.visible_ms, strict=True) if visible_ms != batch.invisible_ms
    }  # fmt: skip
    return {
        "a": batch.attempt or None, "cm": batch.acked, "i": batch.invisible_ms, "l": batch.pop_time_ms,
        "o": [batch.offsets[0], *(offset - batch.offsets[0] for offset in batch.offsets[1:])],
        "oc": {offset: count for offset, count in zip(batch.offsets, batch.consumed, strict=True) if count},
        "ot": times or None, "popTime": batch.pop_time_ms,
    }  # fmt: skip
