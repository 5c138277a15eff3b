"""The report of `ringmq store timers` on a store folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict

from ringmq.store.config_files import load_config
from ringmq.store.layout import TIMER_TOPIC
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.timer import timer_log
from ringmq.timer.survey import TimerState, names_its_record, survey
from ringmq.timer.timer_log import TimerLog
from ringmq.timer.timer_wheel import PRECISIONS_MS
from ringmq.timer.waiting import waiting_topics

Rows = list[dict[str, Any]]


def report(store: MessageStore, properties: Mapping[str, str], now_ms: int) -> tuple[dict[str, Any], Rows]:
    """Return facts of wheel and log, and one row for each topic. `properties`: broker.conf's.

    The size of the log's files is that of its first file unless `mappedFileSizeTimerLog` is given. Raises
    StoreLoadError, ConfigFileError and ValueError.
    """
    precision_ms = _number(properties, "timerPrecisionMs", PRECISIONS_MS[-1])
    if precision_ms not in PRECISIONS_MS:
        raise ValueError(f"timerPrecisionMs is {precision_ms}, must be one of {', '.join(map(str, PRECISIONS_MS))}")
    root = store.config.root
    file_bytes = _number(properties, "mappedFileSizeTimerLog", _size_of_files(store))
    state = survey(root, now_ms, names_its_record(store), precision_ms, file_bytes)
    log = TimerLog(root, file_bytes)
    topics = load_config(root, "topics.json").get("topicConfigTable")
    rows = waiting_topics(log, state, map(str, topics) if isinstance(topics, Mapping) else ())
    facts = {
        "delivered_before": _time(state.from_ms),
        "slots_in_use": len(state.slots),
        "messages": sum(row.messages for row in rows),
        "deletes": sum(row.deletes for row in rows),
        "not_in_the_wheel": _not_in_the_wheel(store, log, state),
        "log_begin": log.min_position,
        "log_end": state.log_end,
        "log_flushed": state.checkpoint.flushed_position,
    }
    return facts, [
        asdict(row) | {"first_due": _time(row.first_slot_ms), "last_due": _time(row.last_slot_ms)} for row in rows
    ]


def _not_in_the_wheel(store: MessageStore, log: TimerLog, state: TimerState) -> int:
    """Count messages of the timer topic behind the one that the newest unit names. Without a unit the checkpoint
    counts, unless it is true of another log."""
    queue, end = store.queue(TIMER_TOPIC, 0), store.commit_log.files.end_offset
    newest = log.unit_before(state.log_end)
    record = None if newest is None else store.commit_log.record_at(newest.commit_log_offset, end, newest.size)
    count = 0 if queue is None else queue.max_offset(end)
    known = state.checkpoint.queue_offset
    following = record.queue_offset + 1 if record is not None else known if known <= count else 0
    return max(0, count - following)


def _size_of_files(store: MessageStore) -> int:
    for path in sorted((store.config.root / timer_log.FOLDER).glob("[0-9]" * 20)):
        if size := path.stat().st_size:
            return size
    return timer_log.FILE_BYTES


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, str(default))
    if not text.isascii() or not text.isdigit():
        raise StoreLoadError(f"{name} = {text} is not a whole number")
    return int(text)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
