"""The catalog of a store on this host: its files and its owner's watermark page, without a request to the broker.

The end of the readable log depends on the owner:

* A live RingMQ has its confirm offset.
* A store without an owner ends at the end that recovery would find, whole records without a ConsumeQueue unit
  included.
* A running stock broker has its ConsumeQueues, which never go beyond its own confirm offset.
* While a RingMQ starts the end is unknown: records that a power failure took may still have units.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringmq.client.topics import is_user_topic
from ringmq.ipc.watermark import Watermarks, read_watermarks
from ringmq.spark_bridge.configured_queues import configured_queues
from ringmq.spark_bridge.errors import BrokerStartingError
from ringmq.spark_bridge.live_queues import LiveQueues
from ringmq.spark_bridge.log_index import LogIndex
from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.slices import BrokerLocation, LogSpan, QueueKey, StoreLocation
from ringmq.spark_bridge.store_access import check_folder, check_log, readable
from ringmq.store import layout, markers
from ringmq.store.broker_name import read_broker_name
from ringmq.store.dispatch_backlog import Backlog, dispatch_backlog
from ringmq.store.inferred_config import config_without_index
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import survey

log = logging.getLogger("ringmq.spark_bridge")

DISPATCH_WAIT_S: Final = 2.0
START_WAIT_S: Final = 5.0
START_POLL_S: Final = 0.05
EVERYTHING: Final = 1 << 62
SNAPSHOT_TRIES_MAX: Final = 5
MAPPED_FILES_MAX = 16384  # a plan maps each queue up to three times; a process may have 65,530 mappings


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The store at one moment."""

    place: BrokerLocation
    store: MessageStore
    index: LogIndex
    tails: Backlog
    bounds: dict[QueueKey, tuple[int, int]]


class StoreCatalog:
    """See `Catalog`. Each snapshot opens the files again, to notice a store that was created again."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        """Open nothing before the first call. A folder without a readable store then raises `ReadError`."""
        assert options.store is not None
        self._root = options.store
        self._options = options
        self._clock = clock
        self._ended: tuple[object, int, Backlog] | None = None
        self._last: _Snapshot | None = None
        self._live: LiveQueues | None = None

    def brokers(self) -> tuple[BrokerLocation, ...]:
        """See Catalog."""
        if self._last is not None:
            return (self._last.place,)
        with readable(self._root):
            return (self._place(),)

    def queues(self) -> list[QueueKey]:
        """See Catalog."""
        self._last = self._snapshot()
        with readable(self._root):
            return sorted(self._keys())

    def ends(self) -> dict[QueueKey, int]:
        """See Catalog. Uses the tables of a live owner, if they are readable, in place of the files."""
        with readable(self._root):
            marks = self._dispatched_watermarks(start_wait_s=0.0)  # a stream tries again
        self._last = None  # the next question about these queues takes a snapshot that is at least as new
        if not marks.live:
            self._live = None
        elif self._live is None or self._live.start_id != marks.start_id:
            self._live = LiveQueues.open(self._root, read_broker_name(self._root), self._wants)
        if self._live is None or self._live.start_id != marks.start_id:
            return {key: self.bounds(key)[1] for key in self.queues()}
        return self._live.ends()

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """See Catalog."""
        known = self._now.bounds.get(key)
        if known is None:
            index = self._now.index
            with readable(self._root):
                first, end = index.offsets_at(key, (index.span.begin, index.span.end))
            known = self._now.bounds[key] = (first, max(first, end))
        return known

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """See Catalog. Store times never fall along a queue."""
        snapshot, (first, end) = self._now, self.bounds(key)
        with readable(self._root):
            offset = snapshot.store.offset_by_time(key.topic, key.queue_id, timestamp_ms, snapshot.index.span.end)
        for record in snapshot.index.tail(key):
            if offset >= record.queue_offset and record.store_time_ms < timestamp_ms:
                offset = record.queue_offset + record.messages
        return max(first, offset) if offset < end else None

    def log_index(self) -> LogIndex:
        """See Catalog."""
        return self._now.index

    @property
    def _now(self) -> _Snapshot:
        if self._last is None:
            self._last = self._snapshot()
        return self._last

    def _snapshot(self) -> _Snapshot:
        with readable(self._root):
            for _ in range(SNAPSHOT_TRIES_MAX - 1):
                # A broker that recovers, or retention, may delete a listed file meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    return self._take_snapshot()
            return self._take_snapshot()

    def _take_snapshot(self) -> _Snapshot:
        place = self._place()
        marks = self._dispatched_watermarks()  # first, so that the listing is at least as new
        store = MessageStore(config_without_index(self._root), MAPPED_FILES_MAX)
        check_log(store.commit_log)
        end, tails = self._end(marks, store)
        files = store.commit_log.files
        begin = max(files.min_offset, marks.min_offset)
        index = LogIndex(store, LogSpan(min(begin, end), min(end, files.end_offset)), tails)
        return _Snapshot(place, store, index, tails, {})

    def _place(self) -> BrokerLocation:
        check_folder(self._root)
        return BrokerLocation(read_broker_name(self._root), None, store_place(self._root))

    def _end(self, marks: Watermarks, store: MessageStore) -> tuple[int, Backlog]:
        """Return the readable end, and the records in front of it that no queue has."""
        if marks.live:
            return marks.dispatched_offset, {}
        if marks.lock_holder is not None:
            return EVERYTHING, {}
        if not markers.has_abort(self._root) and markers.failed_cause(self._root) is None:
            return EVERYTHING, {}
        stamp = tuple(_stamp(self._root / name) for name in (layout.ABORT, layout.COMMIT_LOG, layout.CHECKPOINT))
        if self._ended is None or self._ended[0] != stamp:  # slow, and constant without an owner
            found = survey(store.config)
            self._ended = (stamp, found.append_offset, dispatch_backlog(store, found))
        return self._ended[1], self._ended[2]

    def _dispatched_watermarks(self, start_wait_s: float = START_WAIT_S) -> Watermarks:
        """Return the owner's watermarks, once every record acknowledged by now is in a queue.

        Raises `ReadError` while the owner has no watermarks.
        """
        first = marks = self._owner_watermarks(start_wait_s)
        give_up_at = self._clock() + DISPATCH_WAIT_S
        # A slave's confirm offset may fall when its master returns, also below what dispatch has to do here.
        while marks.live and marks.dispatched_offset < min(first.confirm_offset, marks.confirm_offset):
            if self._clock() >= give_up_at:
                behind = first.confirm_offset - marks.dispatched_offset
                log.warning(
                    "%s: the broker's queues are %d bytes behind its log; the read ends there", self._root, behind
                )
                break
            time.sleep(0.0005)  # the interval of dispatch
            marks = read_watermarks(self._root)
        return marks

    def _owner_watermarks(self, start_wait_s: float) -> Watermarks:
        give_up_at = self._clock() + start_wait_s
        while (marks := read_watermarks(self._root)).is_starting:
            if self._clock() >= give_up_at:
                raise BrokerStartingError(
                    f"store {self._root}: its broker is starting (or newer than this reader, or its /dev/shm is not "
                    "this host's): the readable end is known when it serves. Read then, or with the options "
                    "bootstrap and transport=tcp"
                )
            time.sleep(START_POLL_S)
        return marks

    def _keys(self) -> Iterator[QueueKey]:
        """Yield queues of the chosen topics.

        These are queues with units, queues of records behind all units, and queues that wait for their first message.
        """
        chosen, broker = self._options.topics, self._now.place.name
        topics = (
            None if chosen.pattern is not None or chosen.is_open else {*chosen.names, *(q.topic for q in chosen.queues)}
        )
        found = {(name.topic, name.queue_id) for name in self._now.store.queue_names(topics)} | self._now.tails.keys()
        found = {name for name in found if self._wants(name[0])}
        with_own = topics is not None or self._options.include_system_topics
        for topic, queue_id in found.union(configured_queues(self._root, self._wants, with_own=with_own)):
            yield QueueKey(topic, broker, queue_id)

    def _wants(self, topic: str) -> bool:
        return self._options.topics.wants(topic) and (self._options.include_system_topics or is_user_topic(topic))


def store_place(root: Path) -> StoreLocation:
    """Return the store as this host sees it. Raises OSError."""
    status = (root / layout.COMMIT_LOG).stat()
    return StoreLocation(str(root), markers.BOOT_ID.read_text().strip(), status.st_dev, status.st_ino)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a stamp that differs after every run of a broker."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
