"""Consumer offsets of groups that pop: at most one report a second and window, and changes by others.

Control alone writes the table of offsets. Pop reports the lowest message that is not done, through the ring of commits
of its port (`native/src/pop/pop_offsets.h`). An offset in the table that pop has not reported comes from a client or an
operator. A larger one moves the window on, and a smaller one begins another window there. One beyond the end of the
queue counts as the end: no later message is passed over. Control tells of a reset, which is reported like any other
offset.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ringmq.ipc.plane import NONE, Plane
from ringmq.native import ffi, lib
from ringmq.pop.clamp import end_of
from ringmq.pop.window_names import Window, WindowNames
from ringmq.remoting.errors import RequestError
from ringmq.services.kit.log_lines import LogLines
from ringmq.store.crash_points import Step, passed

PASS_MS = 1000
PLACES_PER_TURN = 4096
FOLLOWED_PER_TURN = 512
"""Windows made or ended that a turn takes over, some 0.6 us each."""
CHANGED_MAX: int = lib.RMQ_POP_OFFSETS_CHANGED


class Reset(NamedTuple):
    """A queue that a group goes on with at another offset. `window`: None if it has none."""

    group_id: int
    queue_slot: int
    offset: int
    window: Window | None


class Offsets:
    """Reports offsets, a pass over all windows each second.

    `on_moved`: called with the id of a group of which a window has begun anew.
    """

    def __init__(
        self,
        plane: Plane,
        port: int,
        windows: Any,
        names: WindowNames,
        windows_max: int,
        log_line: Callable[[str], None],
        on_moved: Callable[[int], None],
        step: Step = passed,
    ) -> None:
        self._plane, self._names, self._lines, self._on_moved = plane, names, LogLines(log_line), on_moved
        self._windows, self._port, self._step = windows, port, step
        self._rows = ffi.new("struct rmq_pop_offset[]", windows_max)
        self._native = ffi.new("struct rmq_pop_offsets *")
        self._native.windows, self._native.plane, self._native.port = windows, plane.struct, port
        self._native.at = self._rows
        self._native.start_id = plane.watermarks.start_id
        self._next_pass_ms = 0
        self._is_passing = False
        self._told_before = self._read_told()

    @property
    def reported(self) -> int:
        """Reports since the start of the process."""
        return int(self._native.reported)

    @property
    def unstored(self) -> int:
        """Reports that control has not stored."""
        ring = self._plane.header.ports.port[self._port].commit
        return int(ring.head - ring.tail)

    def turn(self, now_ms: int) -> bool:
        """Go on with a pass, or begin the next one. True if more may follow at once."""
        self._follow(FOLLOWED_PER_TURN)
        if not self._is_passing:
            if now_ms < self._next_pass_ms:
                return self._names.has_changed
            self._next_pass_ms = now_ms + PASS_MS
            self._begin()
        code = int(lib.rmq_pop_offsets_look(self._native, PLACES_PER_TURN))
        self._is_passing = code > 0 or self._native.changed_count == CHANGED_MAX
        self._take_changed()
        if self._told_before and not self._is_passing and not self._names.has_changed:
            self._forget_told()
        return self._is_passing or self._names.has_changed

    def reset(self, resets: Sequence[Reset]) -> None:
        """Have groups go on at other offsets, as an operator wants it. Raises OSError: nothing has changed.

        One store publishes all reports, and is the reset: if the worker dies behind it, a pass of its replacement finds
        the offsets in the table.
        """
        if not self.has_room(len(resets)):
            raise OSError(errno.EBUSY, "too many consumer offsets wait for control")
        resets = [reset._replace(offset=self._within(reset.queue_slot, reset.offset)) for reset in resets]
        for reset in resets:
            if reset.window is not None and self._ends(reset.window, reset.offset):
                self._names.have_id(reset.window)
        self.publish([reset[:3] for reset in resets])
        self._step("pop-reset-reported")
        for reset in resets:
            if reset.window is not None:
                self._move(reset.window, reset.offset)
                self._step("pop-window-reset")
                self._on_moved(reset.group_id)

    def has_room(self, count: int) -> bool:
        """True if so many reports fit into the ring. Raises OSError if they never do."""
        ring = self._plane.header.ports.port[self._port].commit
        if count > int(ring.capacity):
            raise OSError(errno.ENOSPC, f"{count} queues are more than {int(ring.capacity)}, the limit")
        return count <= int(ring.capacity) - self.unstored

    def pass_over(self, ends: Mapping[Window, int]) -> None:
        """Have groups go on at these offsets, though messages before are open: records in the log name them. One store
        publishes all reports, for which there is room. Windows that have ended meanwhile are left out.

        If the worker dies behind the store, a pass of its replacement finds the offsets in the table.
        """
        there = [(window, end) for window, end in ends.items() if self._names.at(window.place) == window]
        ahead = [(window, end) for window, end in there if end > int(self._names.native(window).committed)]
        self.publish([(window.group_id, window.queue_slot, end) for window, end in ahead])
        self._step("pop-leave-reported")
        for window, end in ahead:
            lib.rmq_pop_set_committed(self._windows, window.place, end, int(self._native.start_id))

    def publish(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Report offsets by one store: group id, queue slot, offset. There is room for them."""
        commits = ffi.new("struct rmq_offset_commit[]", rows)
        self._native.may_compare = 0  # the table does not have them yet
        lib.rmq_port_commit(self._plane.struct, self._port, commits, len(rows))

    def _within(self, queue_slot: int, offset: int) -> int:
        """An offset of others, at most the end of the queue."""
        return min(offset, end_of(self._plane.queue(queue_slot)))

    def _move(self, window: Window, offset: int) -> None:
        """Go on at an offset. Messages before it that consumers hold stay theirs, if none behind it was given."""
        start_id = int(self._native.start_id)
        if self._ends(window, offset):
            window = self._names.begin_at(window, offset)
        lib.rmq_pop_skip_to(self._windows, window.place, offset)
        lib.rmq_pop_set_committed(self._windows, window.place, offset, start_id)

    def _ends(self, window: Window, offset: int) -> bool:
        """True if a reset takes away what consumers hold: the message was given before, or a batch has it."""
        batch = lib.rmq_pop_order_at(self._windows, window.place)
        in_batch = batch != ffi.NULL and offset <= int(batch.base_offset + batch.deltas[batch.count - 1])
        return bool(in_batch) or offset < int(self._names.native(window).next_offset)

    def finish(self) -> bool:
        """A turn of the stop: report all offsets. True once control has stored them."""
        while self._names.has_changed:
            self._follow(FOLLOWED_PER_TURN)
        if not self._is_passing:
            self._begin()
        code = int(lib.rmq_pop_offsets_look(self._native, 1 << 31))
        self._is_passing = code != 0
        return not code and not self.unstored

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next pass."""
        return 0 if self._names.has_changed else max(0, self._next_pass_ms - now_ms)

    def _begin(self) -> None:
        lib.rmq_pop_offsets_begin(self._native)
        self._is_passing = True

    def _follow(self, room: int) -> None:
        """Take over windows that were made, and forget those that have ended, at most `room`."""
        for place in self._names.take_changed(room):
            row, window = self._rows[place], self._names.at(place)
            self._tell_end(row)
            if window is None:
                row.window = 0
                continue
            row.window, row.group_id, row.queue_slot = window.window_id, window.group_id, window.queue_slot
            row.told_open = row.told_next = 0
            self._native.count = max(self._native.count, place + 1)

    def _read_told(self) -> list[tuple[int, int]]:
        """Group id and queue slot where a worker before, which may have died, has told of open messages."""
        port = self._plane.header.ports.port[self._port]
        if not port.pull_stats_at or not port.pull_stats.count:
            return []
        struct_bytes = ffi.sizeof("struct rmq_pull_stats")
        at, fields = self._plane.struct.base + port.pull_stats_at, struct_bytes // 8
        words = memoryview(ffi.buffer(at, int(port.pull_stats.count) * struct_bytes)).cast("Q")
        opened = words[ffi.offsetof("struct rmq_pull_stats", "open") // 8 :: fields].tolist()
        return [(words[number * fields] >> 32, words[number * fields] & NONE) for number, n in enumerate(opened) if n]

    def _forget_told(self) -> None:
        """Tell that nothing is open where no window is: it has ended before this worker could look at it."""
        for group_id, queue_slot in self._told_before:
            if self._names.find(group_id, queue_slot) is None:
                lib.rmq_pull_stats_set_open(self._plane.struct, self._port, group_id, queue_slot, 0, 0)
        self._told_before = []

    def _tell_end(self, row: Any) -> None:
        """Tell that nothing is open of a window that has ended, unless another one has its queue."""
        if row.told_open and self._names.find(row.group_id, row.queue_slot) is None:
            lib.rmq_pull_stats_set_open(self._plane.struct, self._port, row.group_id, row.queue_slot, 0, 0)
            row.told_open = row.told_next = 0

    def _take_changed(self) -> None:
        """Somebody has set these offsets back: other windows begin there. Without an offset, the next pop makes one."""
        places = self._native.changed[0 : self._native.changed_count]
        self._native.changed_count = 0
        for place in places:
            window = self._names.at(place)
            if window is not None:
                self._set_back(window)

    def _set_back(self, window: Window) -> None:
        offset = self._within(window.queue_slot, self._plane.offset_get(window.group_id, window.queue_slot))
        try:
            if offset < 0:
                self._names.end(window)
            else:
                self._names.begin_at(window, offset)
            self._on_moved(window.group_id)
        except (RequestError, OSError) as error:  # the next pass tries it again
            self._lines(f"pop: a window cannot begin anew at {offset}, to which it was set back: {error}")
