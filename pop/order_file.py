"""`config/consumerOrderInfo.json`: the batches of orderly groups for RocketMQ, which a store may be given back to.

The memory is the truth. The file is written beside it, and read where it may know more: after RocketMQ has had the
store, or if the memory is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.pop.order_records import BatchRecord, read_batches, write_batches
from ringmq.pop.window_names import Window, WindowNames
from ringmq.remoting.errors import RequestError
from ringmq.services.kit.clocks import wall_ms
from ringmq.services.kit.log_lines import LogLines
from ringmq.store.config_files import ConfigFileError, load_config, persist_config, save_damaged_copy

FILE = "consumerOrderInfo.json"
SAVE_MS = 10_000
"""Time between two writes while anything changes, as in RocketMQ."""
KEPT_MS = 24 * 3_600_000
"""Batches of older pops are left out, as in RocketMQ."""
BATCHES_PER_TURN = 64


class OrderFile:
    """Reads and writes the file. No other process of the broker writes it."""

    def __init__(
        self, root: Path, plane: Plane, windows: Any, names: WindowNames, log_line: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._root, self._plane, self._windows, self._names = root, plane, windows, names
        self._log_line, self._lines = log_line, LogLines(log_line)
        self._written = self._changes
        self._next_ms = 0
        self._found: list[BatchRecord] = []
        self._slot = 0
        """Slot of the batches at which the collection goes on."""
        self._collecting: int | None = None
        """The number of changes when the collection began."""
        self._thread = ThreadPoolExecutor(1, "order-file")
        self._saving: Future[None] | None = None

    # ---- reading ----

    def take_over(self, now_ms: int, mono_ms: int) -> int:
        """Take over batches that are newer than those of the memory. Returns their number. `now_ms`: wall clock.

        Groups and topics that are gone, and messages that the queue does not have, are left out.
        """
        try:
            content = load_config(self._root, FILE, self._log_line)
            records = list(read_batches(content))
        except (ConfigFileError, ValueError) as error:
            copy = save_damaged_copy(self._root, FILE)
            self._log_line(f"pop: {error}; orderly groups go on without it, and {copy} keeps it")
            return 0
        broken = [record for record in records if isinstance(record, str)]
        if broken:
            self._log_line(f"pop: {FILE}: {len(broken)} batches cannot be read, the first is {broken[0]}")
        taken = sum(
            self._take(record, now_ms, mono_ms) for record in records
            if isinstance(record, BatchRecord) and now_ms - record.pop_time_ms < KEPT_MS
        )  # fmt: skip
        if taken:
            self._log_line(f"pop: {FILE}: {taken} batches of orderly groups are taken over")
        return taken

    def _take(self, record: BatchRecord, now_ms: int, mono_ms: int) -> bool:
        window = self._window_of(record)
        if window is None:
            return False
        native = self._names.native(window)
        known, end = lib.rmq_pop_order_at(self._windows, window.place), self._plane.queue(window.queue_slot).max_offset
        is_older = known != ffi.NULL and known.pop_time_ms >= record.pop_time_ms
        is_open = any(
            offset >= native.next_offset and not record.acked >> number & 1
            for number, offset in enumerate(record.offsets)
        )  # fmt: skip
        skips = record.offsets[0] > native.next_offset  # acknowledgements of an old batch would pass over messages
        if is_older or not is_open or skips or record.offsets[-1] >= end:
            return False
        text = ffi.from_buffer(record.attempt.encode("utf-8", "replace"))
        give = {
            "pop_time_ms": record.pop_time_ms, "mono_ms": mono_ms - max(now_ms - record.pop_time_ms, 0),
            "start_offset": record.offsets[0], "invisible_ms": record.invisible_ms,
        }  # fmt: skip
        code = lib.rmq_pop_order_adopt(
            self._windows, window.place, ffi.new("struct rmq_pop_give *", give),
            ffi.new("struct rmq_pop_attempt *", {"text": text, "bytes": len(text)}), list(record.offsets),
            len(record.offsets), list(record.visible_ms), list(record.consumed), record.acked,
        )  # fmt: skip
        return not code

    def _window_of(self, record: BatchRecord) -> Window | None:
        """The window of the batch, which is made at the consumer offset of the group."""
        plane = self._plane
        topic_id, group_id = plane.topic_find(record.topic), plane.group_find(record.group)
        if topic_id is None or group_id is None:
            return None
        slot = plane.queue_find(topic_id, record.queue_id)
        is_live = int(plane.topic(topic_id).config) >> 40 & lib.RMQ_TOPIC_LIVE and (
            plane.group(group_id).config & lib.RMQ_GROUP_LIVE
        )
        if slot is None or not is_live:
            return None
        try:
            self._names.make_all(group_id, topic_id, from_min=True)
        except (RequestError, OSError, ConfigFileError) as error:
            self._lines(f"pop: {FILE}: a batch of {record.group} cannot be taken over: {error}")
        return self._names.find(group_id, slot)

    # ---- writing ----

    @property
    def _changes(self) -> int:
        return int(lib.rmq_pop_orders_changes(self._windows))

    def turn(self, now_ms: int) -> bool:
        """Collect the batches, some a turn, and have them written. True if more may follow at once."""
        if self._saving is not None and self._saving.done():
            self._tell(self._saving)
            self._saving = None
        if self._collecting is None:
            if now_ms < self._next_ms or self._saving is not None or self._changes == self._written:
                return False
            self._begin(now_ms)
        if self._collect(BATCHES_PER_TURN):
            return True
        self._saving = self._thread.submit(self._save, self._found)
        return False

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next write may be due."""
        return 0 if self._collecting is not None else max(0, self._next_ms - now_ms) or SAVE_MS

    def finish(self, now_ms: int) -> None:
        """Write what has changed, at a stop. No call may follow."""
        self._thread.shutdown(wait=True)
        if self._saving is not None:
            self._tell(self._saving)
        if self._changes == self._written and self._collecting is None:
            return
        self._begin(now_ms)
        while self._collect(BATCHES_PER_TURN):
            pass
        try:
            self._save(self._found)
        except OSError as error:
            self._lines(f"pop: {FILE} cannot be written: {error}")

    def _begin(self, now_ms: int) -> None:
        self._next_ms, self._collecting = now_ms + SAVE_MS, self._changes
        self._found, self._slot = [], 0

    def _collect(self, room: int) -> bool:
        """True if batches are left."""
        place, now_ms = ffi.new("uint32_t *"), wall_ms()
        for _ in range(room):
            self._slot = int(lib.rmq_pop_orders_from(self._windows, self._slot, place))
            if self._slot == lib.RMQ_NONE:
                self._written, self._collecting = self._collecting or 0, None
                return False
            self._slot += 1
            window = self._names.at(int(place[0]))
            named = None if window is None else self._names.named(window.window_id)
            if named is not None:
                order = lib.rmq_pop_order_at(self._windows, place[0])
                if now_ms - order.pop_time_ms < KEPT_MS:
                    self._found.append(_record(order, *named[0]))
        return True

    def _save(self, found: list[BatchRecord]) -> None:
        persist_config(self._root, FILE, write_batches(iter(found)))

    def _tell(self, saving: Future[None]) -> None:
        error = saving.exception()
        if error is not None:
            self._written = -1  # it is tried again
            self._lines(f"pop: {FILE} cannot be written: {error}")


def _record(order: Any, group: str, topic: str, queue_id: int) -> BatchRecord:
    numbers: Iterator[int] = iter(range(order.count))
    return BatchRecord(
        topic, group, queue_id, int(order.pop_time_ms), int(order.invisible_ms),
        tuple(int(order.base_offset + order.deltas[number]) for number in numbers),
        tuple(order.visible_ms[0 : order.count]), tuple(order.consumed[0 : order.count]), int(order.acked),
        bytes(order.attempt[0 : order.attempt_bytes]).decode("utf-8", "replace"),
    )  # fmt: skip
