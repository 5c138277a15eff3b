"""Counts a stock broker's data in a store that RingMQ does not serve yet, before RingMQ opens the store.

Nothing of it is touched. The topics stay in the log with their queues, and so do the files with stock's progress
(`timercheck`, `consumerOffset.json`). A stock broker that gets the store back continues there.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ringmq.fastjson.files import read_head
from ringmq.store import layout, markers
from ringmq.store.batch_consume_queue import BatchUnit
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import load_config
from ringmq.store.consume_queue import Unit
from ringmq.store.dispatch_backlog import dispatch_backlog
from ringmq.store.message_store import MessageStore
from ringmq.store.record import Record
from ringmq.store.record_numbers import decimal
from ringmq.store.recovery import survey
from ringmq.store.unsupported_pop import PopLedger

EVERYTHING = 1 << 62
READ_RECORDS_MAX = 100_000
"""The most records that are decoded per kind. Beyond it units are counted, and the number is an upper bound."""
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
ROCKSDB_TIMERS, ROCKSDB_TIMERS_FOLDER = "rocksdb timers", "rocksdbstore"
"""The kind that no property accepts, and its folder."""
_REAL_TOPIC = "REAL_TOPIC"
_TIMER_CHECK = struct.Struct(">q")  # lastReadTimeMs


class Unsupported(Struct, frozen=True):
    """One kind of waiting data. `count` is None if it is unknown."""

    kind: str
    what: str
    count: int | None
    is_exact: bool = True
    due_ms: int | None = None
    """Due time of the first of them, ms since the epoch."""

    def __str__(self) -> str:
        number = "" if self.count is None else f"{self.count} " if self.is_exact else f"up to {self.count} "
        return number + self.what


def find_unsupported(config: StoreConfig) -> list[Unsupported]:
    """Return the waiting data in a closed store that RingMQ does not serve, none for a store of RingMQ.

    Reads the queues of a handful of system topics. If a stock broker was killed it also reads the log behind all
    queues. Raises ConfigFileError, StoreLoadError and OSError.
    """
    store = MessageStore(config)
    offsets = load_config(config.root, "consumerOffset.json").get("offsetTable")
    tail = _tail_counts(config, store) if markers.is_abort_of_stock(config.root) else {}
    ledger = PopLedger()
    _add_timers_of_pop(store, tail, ledger)
    found = [
        *_popped(store, offsets, tail, ledger),
        *_light_queues(store),
        *_compacted_topics(config.root),
        *_static_topics(config.root),
        *_folders(config.root),
    ]
    return [entry for entry in found if entry.count != 0]


def _tail_counts(config: StoreConfig, store: MessageStore) -> dict[str, int]:
    """Return records per topic that no queue has yet: a killed broker leaves its dispatch behind."""
    counts: dict[str, int] = {}
    for (topic, _), records in dispatch_backlog(store, survey(config)).items():
        counts[topic] = counts.get(topic, 0) + len(records)
    return counts


def _bounds(store: MessageStore, topic: str, queue_id: int, first: int) -> tuple[int, int]:
    """Return existing queue offsets [from, to) at or behind `first`. All of them if it lies beyond the end: then it is
    true of another log."""
    queue = store.queue(topic, queue_id)
    if queue is None:
        return 0, 0
    end = queue.max_offset(EVERYTHING)
    return min(end, max(first if first <= end else 0, queue.min_offset(store.commit_log.min_offset, end))), end


def _records(store: MessageStore, topic: str, queue_id: int, first: int, end: int) -> Iterator[Record]:
    queue = store.queue(topic, queue_id)
    for unit in () if queue is None else queue.units(first, end):
        record = store.commit_log.record_at(unit.commit_log_offset, EVERYTHING, unit.size)
        if record is not None:
            yield record


def _queue_ids(store: MessageStore, topic: str) -> list[int]:
    return [name.queue_id for name in store.queue_names([topic])]


def _number(table: Any, key: object, default: int) -> int:
    """Return an entry of an offset table, whose keys may be numbers or text."""
    value = table.get(key, table.get(str(key), default)) if isinstance(table, Mapping) else default
    return value if isinstance(value, int) else default


def _named(store: MessageStore, units: Iterable[Unit | BatchUnit], text: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield offset and size of records that the log has. True if they have the text: a thirtieth of a parse."""
    start, mapped = 0, None
    for unit in units:
        at = unit.commit_log_offset - start
        if mapped is None or not 0 <= at < len(mapped):
            found = store.commit_log.files.find(unit.commit_log_offset)
            if found is None:
                continue
            start, mapped = found
            at = unit.commit_log_offset - start
        yield unit.commit_log_offset, unit.size, mapped.find(text, at, at + unit.size) >= 0


def _add_timers_of_pop(store: MessageStore, tail: Mapping[str, int], ledger: PopLedger) -> None:
    """Add POP's own messages in the timer topic to the ledger. Those of clients are served, and millions may wait. So
    only records that name a topic of POP are decoded."""
    topic = layout.TIMER_TOPIC
    first, end = _bounds(store, topic, 0, 0)
    begin = max(first, end - READ_RECORDS_MAX)
    read_ms = _timer_read_ms(store.config.root)
    unread = end - first + tail.get(topic, 0)
    text = f"{_REAL_TOPIC}\x01{layout.REVIVE_TOPIC_PREFIX}".encode()
    queue = store.queue(topic, 0)
    units = () if queue is None else queue.units(begin, end)
    for offset, size, is_named in _named(store, units, text):
        record = store.commit_log.record_at(offset, EVERYTHING, size) if is_named else None
        unread -= record is not None or not is_named
        if record is None:
            continue
        out_ms = decimal(record.properties.get("TIMER_OUT_MS", ""))
        if out_ms is None or out_ms < read_ms or "TIMER_DEL_UNIQKEY" in record.properties:
            continue
        if record.properties.get(_REAL_TOPIC, "").startswith(layout.REVIVE_TOPIC_PREFIX):
            ledger.add(record)
    ledger.is_partial = unread > 0


def _timer_read_ms(root: Path) -> int:
    """Return the time up to which stock has delivered timers, 0 if unknown."""
    try:
        data = read_head(root / layout.CONFIG / "timercheck", _TIMER_CHECK.size)
    except FileNotFoundError:
        return 0
    return int(_TIMER_CHECK.unpack(data)[0]) if len(data) == _TIMER_CHECK.size else 0


def _popped(store: MessageStore, offsets: Any, tail: Mapping[str, int], ledger: PopLedger) -> Iterator[Unsupported]:
    """Count messages behind the revive group's offset, the last handled check point. `ledger` has the timer's."""
    unread = 0
    folder = store.config.root / layout.CONSUME_QUEUE
    for topic in _names(folder, layout.REVIVE_TOPIC_PREFIX):
        table = offsets.get(f"{topic}@{REVIVE_GROUP}", {}) if isinstance(offsets, Mapping) else {}
        for queue_id in _queue_ids(store, topic):
            first, end = _bounds(store, topic, queue_id, _number(table, queue_id, -1) + 1)
            begin = max(first, end - READ_RECORDS_MAX)
            unread += begin - first
            unread += end - begin
            for record in _records(store, topic, queue_id, begin, end):
                unread -= 1
                ledger.add(record)
    unread += sum(number for topic, number in tail.items() if topic.startswith(layout.REVIVE_TOPIC_PREFIX))
    unread += ledger.unknown
    what = f"messages that POP has handed out and nobody has acknowledged ({layout.REVIVE_TOPIC_PREFIX}*)"
    yield Unsupported(
        "pop", what, ledger.messages + unread, is_exact=not (unread or ledger.is_partial), due_ms=ledger.due_ms
    )


def _light_queues(store: MessageStore) -> Iterator[Unsupported]:
    names = _names(store.config.root / layout.CONSUME_QUEUE, layout.LMQ_PREFIX)
    yield Unsupported(
        "light queue", f"light message queues ({layout.LMQ_PREFIX}*): they get no new messages", len(names)
    )


def _compacted_topics(root: Path) -> Iterator[Unsupported]:
    """Yield topics for which stock has made a compacted log. RingMQ may have marked topics without one itself."""
    count = len(_names(root / layout.COMPACTION_LOG, ""))
    yield Unsupported("compaction", f"topics that are compacted ({layout.COMPACTION_LOG})", count)


def _static_topics(root: Path) -> Iterator[Unsupported]:
    table = load_config(root, "topicQueueMapping.json").get("topicQueueMappingInfoMap")
    count = len(table) if isinstance(table, Mapping) else 0
    yield Unsupported("static topic", "topics with mapped queues (topicQueueMapping.json)", count)


def _folders(root: Path) -> Iterator[Unsupported]:
    """Yield data in forms that RingMQ does not read at all."""
    rocks = {
        "consumequeue": "queues that are kept in RocksDB (storeType)",
        "config/topics": "topics that are kept in RocksDB",
        "config/rdb": "settings that are kept in RocksDB",
        "kvStore": "check points of POP in RocksDB",
    }
    for folder, what in rocks.items():
        if (root / folder / "CURRENT").is_file():
            yield Unsupported("rocksdb", f"{what} ({folder})", None)
    if has_rocksdb_timers(root):
        what = "timer messages, transactions or index in RocksDB (timerRocksDBEnable and others)"
        yield Unsupported(ROCKSDB_TIMERS, f"{what} ({ROCKSDB_TIMERS_FOLDER})", None)
    for name in _names(root, "dledger-"):
        yield Unsupported("dledger", f"a log of DLedger ({name})", None)
    epochs = root / "epochFileCheckpoint"
    if epochs.is_file() and epochs.stat().st_size:
        yield Unsupported("controller", f"epochs of controller mode ({epochs.name})", None)


def has_rocksdb_timers(root: Path) -> bool:
    """Return True if the store has the folder in which later versions keep timer messages (MessageRocksDBStorage).

    They are in the timer topic as well, but `timercheck` does not say which of them are delivered. RingMQ would put all
    into its wheel and deliver them again.
    """
    return (root / ROCKSDB_TIMERS_FOLDER / "CURRENT").is_file()


def _names(folder: Path, prefix: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith(prefix) and entry.is_dir())
    except FileNotFoundError:
        return []
