"""The parts of the worker `pop`, in their order: recovery, then the desk, revival, offsets, snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import is_master
from ringmq.native import lib
from ringmq.pop.check_points import HandOverError
from ringmq.pop.desk import Desk
from ringmq.pop.drain import PopDrain
from ringmq.pop.gauges import Gauges
from ringmq.pop.hand_over import HandOver
from ringmq.pop.offsets import Offsets
from ringmq.pop.open_records import OpenRecords
from ringmq.pop.order_file import OrderFile
from ringmq.pop.pull_switch import PullSwitch
from ringmq.pop.record_notice import KeptNotice
from ringmq.pop.recovery import LOOK_MS, Recovery
from ringmq.pop.revival import Revival
from ringmq.pop.revival_words import RevivalWord
from ringmq.pop.snapshots import Snapshots
from ringmq.pop.table_changes import TableChanges
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.services.kit.log_lines import LogLines
from ringmq.services.kit.loop import Part

FINISH_MS = 3000
"""Time of a stop for copies that are with write, and for the last consumer offsets."""
HAND_OVER_MS = 5000
"""Time of a stop until what is open is in the log for a RocketMQ broker, FINISH_MS included."""
STOP_MS = 9000
"""Time of a stop until the last snapshot is on the disk, HAND_OVER_MS included. Stop phases have 10 s."""
STEP_S = 0.001
DRAIN_LOOK_MS = 1
"""Time between two looks at records of a drain that are with write, or at offsets that are with control."""


class PopService(Part):
    """Answers no request before the windows know every copy. `close_memory`: (whether the image has all)."""

    def __init__(
        self, *, plane: Plane, role: int, windows: Any, desk: Desk, recovery: Recovery, revival: Revival,
        drain: PopDrain, offsets: Offsets, changes: TableChanges, orders: OrderFile, hand_over: HandOver,
        notice: KeptNotice, switch: PullSwitch, records: OpenRecords, snapshots: Snapshots, gauges: Gauges,
        close_memory: Callable[[bool], None], log_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plane, self._windows, self._gauges = plane, windows, gauges
        self._role, self._words = role, plane.role(role).counters
        self._desk, self._recovery, self._revival, self._offsets = desk, recovery, revival, offsets
        self._drain = drain
        self._changes, self._orders, self._hand_over, self._snapshots = changes, orders, hand_over, snapshots
        self._switch, self._records = switch, records
        self._notice, self._close_memory, self._log_line = notice, close_memory, log_line
        self._lines = LogLines(log_line)
        self._has_failed = self._lacks_room = False

    def begin(self) -> None:
        """See Part."""
        self._stop_if_failed()  # a predecessor may have failed
        self._desk.begin()
        self._gauges.tell()

    def turn(self, now_ms: int) -> bool:
        """See Part."""
        if not self._recovery.is_done and not self._recover():
            return False
        worked = self._desk.turn(now_ms)
        worked |= self._copy(now_ms)
        worked |= self._changes.turn()
        has_more = self._offsets.turn(now_ms) | self._orders.turn(now_ms)
        self._snapshots.turn(now_ms)
        self._stop_if_failed()
        if bool(self._snapshots.no_room) != self._lacks_room:
            self._tell_room()
        self._gauges.turn(now_ms)
        self.has_worked = worked or bool(self._desk.has_worked)
        return worked or has_more

    def _copy(self, now_ms: int) -> bool:
        """Copies of messages, records of a drain, and of groups that leave POP: each has the port for itself."""
        if self._drain.has_begun:
            return self._drain.run()
        records = self._records
        records.lend(self._revival.is_answered)
        worked = self._switch.turn(now_ms)
        if records.has_port:
            return worked
        is_drain_next = self._drain.needs_port and not self._switch.is_busy
        worked |= self._revival.turn(now_ms, records.wants_port or is_drain_next)
        if is_drain_next and self._revival.is_answered:
            worked |= self._drain.run()
        return worked

    def _recover(self) -> bool:
        """True once the windows know every copy."""
        self._recovery.turn()
        copies = self._recovery.copies
        if copies is None:
            return False
        self._words[RevivalWord.FOUND] += copies
        self._revival.recovered(self._recovery.end)
        return True

    def sleep_ms(self, now_ms: int) -> int:
        """See Part."""
        if not self._recovery.is_done:
            return LOOK_MS
        parts = (self._desk, self._revival, self._switch, self._offsets, self._orders, self._snapshots, self._gauges)
        sleep_ms = min(part.sleep_ms(now_ms) for part in parts)
        return min(sleep_ms, DRAIN_LOOK_MS) if self._drain.needs_port else sleep_ms

    def wait(self, timeout_ms: int) -> None:
        """Sleep until the bell rings for a turn. Plain requests are served meanwhile, once the windows know all."""
        if self._recovery.is_done:
            self._desk.wait(timeout_ms)
        else:
            self._plane.wait(self._role, timeout_ms)

    @property
    def is_idle(self) -> bool:
        """See Part. A worker without open messages may end: a pop starts it again."""
        are_idle = self._desk.is_idle and self._revival.is_idle
        has_more = self._changes.is_busy or self._switch.is_busy or self._notice.waits
        is_done = self._recovery.is_done and are_idle and not has_more
        return is_done and not lib.rmq_pop_counts_of(self._windows).open

    def close(self, *, rests: bool) -> None:
        """See Part. The last consumer offsets are with control, and the last snapshot is on the disk, when it ends."""
        self._desk.close(rests=rests)
        began_ms = monotonic_ms()
        while not (is_finished := self._finish()) and monotonic_ms() < began_ms + FINISH_MS:
            time.sleep(STEP_S)
        if is_master(self._plane.watermarks):  # a broker that becomes a slave stores no more records
            self._hand_over_open(began_ms + HAND_OVER_MS, is_ready=self._recovery.is_done and is_finished)
        is_saved = self._recovery.is_done and self._save(began_ms + STOP_MS)
        self._gauges.finish()
        self._records.close()
        self._snapshots.close()
        self._revival.close()
        self._orders.finish(monotonic_ms())
        self._desk.free()
        lib.rmq_pop_windows_close(self._windows)
        self._close_memory(is_saved)

    def _finish(self) -> bool:
        if not self._recovery.is_done:
            return True  # the next process recovers
        if self._drain.has_begun:
            self._drain.run()
            return False
        if not self._switch.finish():
            return False
        now_ms = monotonic_ms()
        self._revival.finish(now_ms)
        self._desk.finish(now_ms)
        return self._offsets.finish() and self._revival.is_answered

    def _hand_over_open(self, deadline_ms: int, *, is_ready: bool) -> None:
        try:
            self._hand_over.run(deadline_ms, is_ready=is_ready)
        except (HandOverError, OSError) as error:
            if self._hand_over.exports:
                text = "a RocketMQ broker that gets this store gives messages again from the consumer offsets on"
                self._log_line(f"pop: open messages are not all in the log: {error}; {text}")
            else:
                text = "records in the log may name messages for which an older version refuses this store"
                self._log_line(f"pop: the way back is not complete: {error}; {text}")

    def _save(self, deadline_ms: int) -> bool:
        """Write the last snapshot. False: the segment has to stay."""
        left_ms = max(0, deadline_ms - monotonic_ms())
        if self._snapshots.finish(left_ms):
            return True
        cause = self._snapshots.failure or self._snapshots.no_room or f"no snapshot within {left_ms} ms"
        self._log_line(f"pop: {cause}; what came since the last snapshot stays in shared memory for the next start")
        return False

    def _stop_if_failed(self) -> None:
        if not self._has_failed and (failure := self._snapshots.failure) is not None:
            self._has_failed = True
            self._desk.stop(failure)
            self._log_line(f"pop: {failure}; POP refuses requests until the broker is started again")

    def _tell_room(self) -> None:
        no_room = self._snapshots.no_room
        self._lacks_room = bool(no_room)
        if no_room:
            self._lines(f"pop: {no_room}; requests are served, but a power cut takes what came since the last snapshot")
        else:
            self._lines("pop: there is room again, and a snapshot is written")
