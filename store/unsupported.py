"""Counts a stock broker's data in a store that RingMQ does not serve yet, before RingMQ opens the store.

Nothing of it is touched. The topics stay in the log with their queues. A stock broker that gets the store back
continues there.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from ringmq.store import layout
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import load_config

ROCKSDB_TIMERS, ROCKSDB_TIMERS_FOLDER = "rocksdb timers", "rocksdbstore"
"""The kind that no property accepts, and its folder."""


class Unsupported(Struct, frozen=True):
    """One kind of waiting data. `count` is None if it is unknown."""

    kind: str
    what: str
    count: int | None

    def __str__(self) -> str:
        return self.what if self.count is None else f"{self.count} {self.what}"


def find_unsupported(config: StoreConfig) -> list[Unsupported]:
    """Return the waiting data in a closed store that RingMQ does not serve, none for a store of RingMQ.

    Reads names of folders and files alone. Raises ConfigFileError and OSError.
    """
    found = [
        *_light_queues(config.root),
        *_compacted_topics(config.root),
        *_static_topics(config.root),
        *_folders(config.root),
    ]
    return [entry for entry in found if entry.count != 0]


def _light_queues(root: Path) -> Iterator[Unsupported]:
    names = _names(root / layout.CONSUME_QUEUE, layout.LMQ_PREFIX)
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
        "kvStore": "open messages of POP in RocksDB (popConsumerKVServiceEnable): request 200056 to the stock broker "
        "writes them into the log. Then stop it, and move the folder out of the store",
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
