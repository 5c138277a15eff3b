"""The windows of groups and queues: made at the first pop, found again at a start, ended with their topic or group.

A window belongs to a group, a topic and a queue id by their names, which outlive the plane. C finds it by the numbers
that both have in this plane (native/src/pop/pop_index.h).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import NONE, Plane
from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.pop.clamp import end_of
from ringmq.remoting import names as topic_names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.store.queue_reader import QueueReader, QueueReadError

UNUSED_IDS_MAX = 4096
"""Ids of ended windows that are kept for windows of the same names."""
PLACES_OF_LOOK = 1024
"""Places that a step of a look compares with the tables of topics and groups, 0.1 us each."""
LOOKED_PER_STEP = 4096
"""Names that a step compares with those of a deletion, 0.1 us each."""


class NamesFile(Protocol):
    """The names of windows on disk (`ringmq.pop.names`)."""

    def add(self, group: str, topic: str, queue_id: int, birth: int) -> int:
        """A new id. Raises OSError."""

    def all(self) -> Iterator[tuple[int, str, str, int]]:
        """(id, group, topic, queue id), the oldest first."""

    def forget(self, window_id: int) -> None:
        """Forget a window that has ended. Its id is not used again."""


class Window(NamedTuple):
    """A window with the numbers that its group and queue have in this plane."""

    place: int
    window_id: int
    group_id: int
    queue_slot: int


class Key(NamedTuple):
    """The names of a window."""

    group: str
    topic: str
    queue_id: int


class WindowNames:
    """Makes, finds and ends windows. `start_offsets`: reads the log offsets at which topics were made anew."""

    def __init__(
        self, plane: Plane, windows: Any, names: NamesFile, reader: QueueReader,
        start_offsets: Callable[[], Mapping[str, int]], config: Callable[[], BrokerConfig], windows_max: int,
    ) -> None:  # fmt: skip
        self._plane, self._windows, self._names, self._reader = plane, windows, names, reader
        self._start_offsets, self._config = start_offsets, config
        groups_max = int(plane.header.tables.group_capacity)
        self.index: Any = lib.rmq_pop_index_open(table_secret(), windows_max, groups_max)
        if self.index == ffi.NULL:
            raise MemoryError(f"no memory for the index of {windows_max} windows")
        self._windows_max = windows_max
        self._known: dict[Key, Window] = {}
        self._keys: dict[int, Key] = {}
        """By the id of the window."""
        self._unused_ids: dict[tuple[Key, int], int] = {}
        """Ids of ended windows that no mark in the log has, by their names and the birth of the topic."""
        self._start_id = int(plane.watermarks.start_id)
        self._by_place: dict[int, Window] = {}
        self._changed: set[int] = set()
        self._look_at: Any = None
        """The next place of the look at deleted topics and groups that is under way."""
        self._load()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def limit(self) -> int:
        """Windows that there may be."""
        return min(self._config().offsets_max, self._windows_max)

    def close(self) -> None:
        """Forget the index."""
        lib.rmq_pop_index_close(self.index)
        self.index = ffi.NULL

    def find(self, group_id: int, queue_slot: int) -> Window | None:
        """The window of a group's queue."""
        found = ffi.new("uint32_t *")
        place = int(lib.rmq_pop_index_find(self.index, group_id, queue_slot, found))
        return None if place == NONE else Window(place, int(found[0]), group_id, queue_slot)

    def named(self, window_id: int) -> tuple[Key, Window] | None:
        """The names of a window, and its numbers in this plane. None: it has ended."""
        key = self._keys.get(window_id)
        return None if key is None else (key, self._known[key])

    def by_name(self, key: Key) -> Window | None:
        """The window with these names."""
        return self._known.get(key)

    def all(self) -> Iterator[tuple[Key, Window]]:
        """All windows."""
        return iter(self._known.items())

    def of(self, group: str, topic: str) -> Iterator[tuple[Key, Window]]:
        """The windows of a group in the queues of a topic."""
        topic_id = self._plane.topic_find(topic)
        queues = 0 if topic_id is None else int(self._plane.topic(topic_id).config) >> 8 & 0xFFFF
        for key in (Key(group, topic, queue_id) for queue_id in range(queues)):
            if (window := self._known.get(key)) is not None and self._is_there(window):
                yield key, window

    def at(self, place: int) -> Window | None:
        """The window at a place."""
        return self._by_place.get(place)

    @property
    def has_changed(self) -> bool:
        """True if windows were made or ended of which `take_changed` has not told."""
        return bool(self._changed)

    def take_changed(self, room: int) -> list[int]:
        """At most `room` places at which windows were made or ended since they were taken last."""
        return [self._changed.pop() for _ in range(min(room, len(self._changed)))]

    def native(self, window: Window) -> Any:
        """Its struct rmq_pop_window, to read."""
        return lib.rmq_pop_window_at(self._windows, window.place)

    def ahead(self, group_id: int, queue_slot: int, room: int) -> tuple[list[int], int]:
        """The messages of a queue that a group has not received: the offsets that were returned, ascending and at most
        `room`, and the offset from which on all follow. A group without a window goes on at its committed offset, else
        at the oldest message."""
        window = self.find(group_id, queue_slot)
        if window is not None and self._is_there(window):
            offsets = ffi.new("int64_t[]", room)
            count = int(lib.rmq_pop_returned(self._windows, window.place, offsets, room))
            return [int(offset) for offset in offsets[0:count]], int(self.native(window).next_offset)
        committed = self._committed(group_id, queue_slot)
        return [], committed if committed >= 0 else int(self._plane.queue(queue_slot).min_offset)

    def make_all(self, group_id: int, topic_id: int, *, from_min: bool) -> None:
        """Make the windows that a group lacks of a topic. `from_min`: a group without an offset begins at the oldest
        message, else at the newest.

        Raises RequestError at the bound of windows, and OSError.
        """
        topic, group = self._name(self._plane.topic(topic_id)), self._name(self._plane.group(group_id))
        birth = self._start_offsets().get(topic, 0)
        for queue_id in range(int(self._plane.topic(topic_id).config) >> 8 & 0xFFFF):
            slot = self._plane.queue_find(topic_id, queue_id)
            if slot is None:
                continue
            known = self._known.get(key := Key(group, topic, queue_id))
            if known is not None and known.queue_slot == slot and self._is_there(known):
                continue
            if known is not None:
                self.end(known)
            self._check_limit()
            self._make(key, group_id, slot, self._first_offset(group_id, slot, topic, from_min=from_min), birth)

    def begin_at(self, window: Window, offset: int) -> Window:
        """End a window, and begin another one of the same group and queue at an offset. Raises OSError: nothing has
        changed."""
        self.have_id(window)
        key, birth = self._key_of(window), int(self.native(window).birth)
        self.end(window)
        return self._make(key, window.group_id, window.queue_slot, offset, birth)

    def have_id(self, window: Window) -> None:
        """Have an id for the next window of the same group and queue: without one, a window has to stay. Raises
        OSError."""
        key, birth = self._key_of(window), int(self.native(window).birth)
        if not self._is_unmarked(window) and (key, birth) not in self._unused_ids:
            self._keep_id(key, birth, self._names.add(*key, birth))

    def end(self, window: Window) -> int:
        """End a window. Returns the number of its entries.

        The next window of the same names gets its id again, if no mark in the log can have the id.
        """
        key = self._key_of(window)
        lib.rmq_pop_index_forget(self.index, window.group_id, window.queue_slot)
        self._known.pop(key, None)
        self._keys.pop(window.window_id, None)
        if self._by_place.get(window.place) == window:
            del self._by_place[window.place]
            self._changed.add(window.place)
        if not self._is_there(window):
            self._names.forget(window.window_id)
            return 0
        if self._is_unmarked(window):
            self._keep_id(key, int(self.native(window).birth), window.window_id)
        else:
            self._names.forget(window.window_id)
        return int(lib.rmq_pop_window_drop(self._windows, window.place))

    def end_named(self, groups: Container[str], topics: Container[str]) -> Iterator[None]:
        """End all windows of these groups and of these topics. A step looks at some, and ends few."""
        for number, key in enumerate(list(self._known), 1):
            window = self._known.get(key) if key.topic in topics or key.group in groups else None
            if window is not None:
                self.end(window)
            if window is not None or number % LOOKED_PER_STEP == 0:
                yield

    def begin_look(self) -> None:
        """Begin a look at all windows, unless one is under way."""
        if self._look_at is None:
            self._look_at = ffi.new("uint32_t *")

    @property
    def is_looking(self) -> bool:
        """True while a look is under way."""
        return self._look_at is not None

    def end_gone(self, room: int) -> list[Key]:
        """Look at PLACES_OF_LOOK places more. End `room` windows of deleted topics and groups at most, and return their
        names.
        """
        at, gone = self._look_at, list[Key]()
        last = int(at[0]) + PLACES_OF_LOOK
        while len(gone) < room and int(at[0]) < last:
            left = last - int(at[0])
            place = int(lib.rmq_pop_index_gone(self.index, self._plane.struct, self._windows, at, left))
            window = self._by_place.get(place)
            if window is not None and not self._is_wanted(key := self._keys[window.window_id], window):
                self.end(window)
                gone.append(key)
            if place == NONE:
                break
        if not at[0]:
            self._look_at = None
        return gone

    # ---- inside ----

    def _load(self) -> None:
        """Find the windows of the memory again. Those of a topic that was made anew end, and those whose names are
        gone."""
        start_offsets = self._start_offsets()
        for window_id, group, topic, queue_id in self._names.all():
            place = int(lib.rmq_pop_window_place(self._windows, window_id))
            if place == NONE:
                continue
            found = self._numbers(group, topic, queue_id)
            birth = int(lib.rmq_pop_window_at(self._windows, place).birth)
            if found is None or birth < start_offsets.get(topic, 0):
                lib.rmq_pop_window_drop(self._windows, place)
                self._names.forget(window_id)
                continue
            older = self._known.get(key := Key(group, topic, queue_id))
            if older is not None:
                self.end(older)
            self._put(key, Window(place, window_id, *found))

    def _numbers(self, group: str, topic: str, queue_id: int) -> tuple[int, int] | None:
        plane = self._plane
        group_id, topic_id = plane.group_find(group), plane.topic_find(topic)
        if group_id is None or topic_id is None:
            return None
        is_live = plane.group(group_id).config & lib.RMQ_GROUP_LIVE and self._is_live(topic_id)
        slot = plane.queue_find(topic_id, queue_id) if is_live else None
        return None if slot is None else (group_id, slot)

    def _is_unmarked(self, window: Window) -> bool:
        """True if no mark in the log can have the window's id."""
        return 0 < int(self.native(window).unmarked_start) == self._start_id

    def _check_limit(self) -> None:
        if len(self._known) >= (limit := self.limit):
            raise RequestError(
                f"the broker holds {limit} windows of groups and queues, its limit: see ringmqOffsetsMax",
                field="consumerGroup", code=ResponseCode.POLLING_TIMEOUT, limit=limit,
            )  # fmt: skip

    def _make(self, key: Key, group_id: int, slot: int, offset: int, birth: int) -> Window:
        window_id, place = self._unused_ids.pop((key, birth), 0) or self._names.add(*key, birth), ffi.new("uint32_t *")
        code = int(lib.rmq_pop_window_make(self._windows, window_id, key.queue_id, birth, offset, place))
        if code == -errno.ENOSPC:
            self._keep_id(key, birth, window_id)
            raise _none_is_free(self._windows_max)
        if code < 0:
            raise OSError(-code, f"window {window_id} of {key} cannot be made")
        lib.rmq_pop_set_unmarked(self._windows, place[0], self._start_id)
        committed = self._committed(group_id, slot)
        if committed >= 0:
            lib.rmq_pop_set_committed(self._windows, place[0], committed, self._start_id)
        return self._put(key, Window(int(place[0]), window_id, group_id, slot))

    def _keep_id(self, key: Key, birth: int, window_id: int) -> None:
        """Keep an id for the next window of these names. No other names get it: a power cut may bring back the window
        that had it."""
        self._unused_ids[key, birth] = window_id
        if len(self._unused_ids) > UNUSED_IDS_MAX:
            oldest = next(iter(self._unused_ids))
            self._names.forget(self._unused_ids.pop(oldest))

    def _put(self, key: Key, window: Window) -> Window:
        place, window_id, group_id, slot = window
        if lib.rmq_pop_index_put(self.index, group_id, slot, place, window_id) < 0:
            raise _none_is_free(self._windows_max)
        self._known[key], self._keys[window_id] = window, key
        self._by_place[place] = window
        self._changed.add(place)
        return window

    def _first_offset(self, group_id: int, slot: int, topic: str, *, from_min: bool) -> int:
        """The offset at which a group without a window begins (stock: getPopOffset, getInitOffset)."""
        queue = self._plane.queue(slot)
        low, high = int(queue.min_offset), int(queue.max_offset)
        committed = self._committed(group_id, slot)
        if committed >= 0:
            return min(committed, end_of(queue))
        if from_min or topic_names.is_retry_topic(topic):
            return low
        if low <= 0 and self._config().init_pop_offset_by_check_msg_in_mem and self._is_in_memory(slot):
            return 0
        return max(high - 1, 0)

    def _is_in_memory(self, slot: int) -> bool:
        """True if message 0 of the queue is in memory."""
        try:
            unit = self._reader.unit(slot, 0)
        except (QueueReadError, ValueError):
            return False
        return unit is not None and self._reader.in_memory(unit.commit_log_offset)

    def _committed(self, group_id: int, slot: int) -> int:
        return int(lib.rmq_offset_get(self._plane.struct, group_id, slot))

    def _is_there(self, window: Window) -> bool:
        found = lib.rmq_pop_window_at(self._windows, window.place)
        return bool(found != ffi.NULL and found.id == window.window_id)

    def _is_wanted(self, key: Key, window: Window) -> bool:
        found = self._numbers(*key)
        return found == (window.group_id, window.queue_slot) and self._is_there(window)

    def _is_live(self, topic_id: int) -> bool:
        return bool(int(self._plane.topic(topic_id).config) >> 40 & lib.RMQ_TOPIC_LIVE)

    def _key_of(self, window: Window) -> Key:
        queue = self._plane.queue(window.queue_slot)
        group, topic = self._plane.group(window.group_id), self._plane.topic(queue.topic_id)
        return Key(self._name(group), self._name(topic), int(queue.queue_id))

    @staticmethod
    def _name(entry: Any) -> str:
        return bytes(ffi.buffer(entry.name, entry.name_length)).decode()


def _none_is_free(limit: int) -> RequestError:
    remark = f"all {limit} windows of groups and queues are in use"
    return RequestError(remark, field="consumerGroup", code=ResponseCode.POLLING_TIMEOUT, limit=limit)
