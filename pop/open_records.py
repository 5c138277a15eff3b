"""Check points of the open messages of some windows, written to the log while consumers go on.

Passes over all entries make them, some a turn, until a pass finds little. The last pass takes place in one turn: behind
it, each message below the next offsets of that turn is done or has a check point. These offsets may be reported once
the check points are on the disk, and once the image has the messages: a power cut would leave an older image behind
newer offsets.

The port belongs to the copies of messages that come again. A batch waits until none of them is with write, and copies
wait for the answers to the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import lib
from ringmq.pop.check_points import CheckPoints, HandOverError
from ringmq.pop.record_log import SYNC_BYTES_MAX
from ringmq.pop.record_notice import KeptNotice, RecordNotice
from ringmq.pop.record_targets import targets_of
from ringmq.pop.snapshots import Snapshots
from ringmq.pop.window_names import Key, Window, WindowNames
from ringmq.remoting import names
from ringmq.services.kit.clocks import wall_ms
from ringmq.services.log_view import LogView
from ringmq.store.record_numbers import LONG_MAX

LOOK = 65_536
"""Entries of one turn, some 1 ms."""
RECORDS = 1024
"""Records of one turn, some 1 ms: consumers wait for its end."""
FEW = RECORDS
"""Records of a pass behind which the last one follows, in one turn."""

Steps = Generator[bool, None, None]
"""Steps of a worker's turns. True: the next one may follow at once."""
Ends = Mapping[Window, int]
"""The offset of each window below which no message is without a check point."""


class OpenRecords:
    """The writer. One `write` is under way at a time."""

    def __init__(
        self, *, plane: Plane, port: Port, windows: Any, names: WindowNames, notice: KeptNotice, snapshots: Snapshots,
        config: Callable[[], BrokerConfig], log: Callable[[], LogView],
    ) -> None:  # fmt: skip
        self._plane, self._port, self._windows, self._names = plane, port, windows, names
        self._notice, self._snapshots, self._config, self._log = notice, snapshots, config, log
        self._thread = ThreadPoolExecutor(1, "pop-records")
        self._in_flight: CheckPoints | None = None
        self._is_free = False
        self._end_notice: Callable[[], None] = lambda: None
        self.wants_port = False
        """True if no further copies should go to write."""

    @property
    def has_port(self) -> bool:
        """True while requests have no answer: nothing else may take answers of the port."""
        return self._in_flight is not None

    def lend(self, is_free: bool) -> None:
        """Tell at each turn whether no copy is with write."""
        self._is_free = is_free

    def points(self, chosen: Mapping[Key, Window]) -> CheckPoints:
        """The check points of these windows, of which none is made yet. Raises HandOverError."""
        config = self._config()
        targets = targets_of(self._plane, config)
        if targets is None:
            raise HandOverError(f"the topic {names.revive_topic(config.broker_cluster_name)} has no queues")
        return CheckPoints(
            self._plane, self._port, self._windows, chosen.items(), config.broker_name, targets, wall_ms()
        )  # fmt: skip

    def write(self, points: CheckPoints, chosen: Mapping[Key, Window], now_ms: Callable[[], int]) -> Generator[
        bool, None, Ends
    ]:  # fmt: skip
        """Write what has no check point yet. Returns the offsets that may be reported. Raises HandOverError, OSError.

        A death on the way leaves records that the next stop has to find, so the notice goes first."""
        begin = int(self._plane.watermarks.flushed_offset)
        before = self._notice.now if self._notice.waits else RecordNotice(int(self._plane.watermarks.append_offset))
        longest = RecordNotice(before.since, wall_ms() + lib.RMQ_POP_INVISIBLE_MS_MAX)

        def end_notice() -> None:
            """Consumers may have changed times meanwhile, which needs the notice, too."""
            until_ms = max(before.until_ms, points.due_ms, self._notice.asked_ms)
            self._notice.lower(RecordNotice(before.since, until_ms))

        yield from self._in_thread(lambda: self._notice.keep(longest))
        self._end_notice = end_notice  # not before: a stop would wait for the thread, and the thread for the disk
        yield from self._passes(points, chosen)
        ends, moment_ms = yield from self._last_pass(points, chosen, now_ms)
        end = max(points.log_end, int(self._plane.watermarks.append_offset))
        while end - int(self._plane.watermarks.flushed_offset) > SYNC_BYTES_MAX:
            yield False  # the flush worker does most of it: a stop cannot end a sync of many bytes
        yield from self._in_thread(lambda: self._log().sync(begin, end))
        self._lower_notice()
        while not self._snapshots.has_moment(moment_ms):
            if (cause := self._snapshots.failure or self._snapshots.no_room) is not None and cause:
                raise HandOverError(f"the memory of open messages is not on the disk: {cause}")
            yield False
        return ends

    def give_up(self) -> None:
        """The write that was under way goes on no further. Raises OSError."""
        self.wants_port = False
        self._lower_notice()

    def finish(self) -> bool:
        """A turn of the stop: take answers of write. True once each request has one."""
        if self._in_flight is not None and not self._in_flight.take_answers():
            self._in_flight = None
        return self._in_flight is None

    def close(self) -> None:
        """End the thread. What it does now may take longer than the stop, which does not wait for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    # ---- passes ----

    def _passes(self, points: CheckPoints, chosen: Mapping[Key, Window]) -> Steps:
        made = FEW + 1
        while made > FEW:
            made = 0
            points.begin_pass(_by_place(self._next_offsets(chosen)))
            while not points.is_over:
                yield from self._have_port()
                for window in chosen.values():
                    if not self._is_there(window):
                        points.leave_out(window.place)
                requests, count = points.fill(LOOK, RECORDS)
                made += count
                yield from self._store(points, requests, count)

    def _last_pass(
        self, points: CheckPoints, chosen: Mapping[Key, Window], now_ms: Callable[[], int]
    ) -> Generator[bool, None, tuple[Ends, int]]:
        while True:
            yield from self._have_port()
            for window in filter(self._is_there, chosen.values()):  # pops would give them other receipts
                lib.rmq_pop_leave_returned(self._windows, window.place, LONG_MAX)
            ends, moment_ms = self._next_offsets(chosen), now_ms()
            points.begin_pass(_by_place(ends))
            requests, count = points.fill()
            is_over = points.is_over
            yield from self._store(points, requests, count)
            if is_over:
                return ends, moment_ms

    def _next_offsets(self, chosen: Mapping[Key, Window]) -> Ends:
        there = filter(self._is_there, chosen.values())
        return {window: int(self._names.native(window).next_offset) for window in there}

    def _is_there(self, window: Window) -> bool:
        return self._names.at(window.place) == window

    # ---- port and thread ----

    def _have_port(self) -> Steps:
        self.wants_port, self._is_free = True, False
        while not self._is_free:
            yield False

    def _store(self, points: CheckPoints, requests: Any, count: int) -> Steps:
        """Submit requests, and wait for their answers. Copies have their turn behind it."""
        if count:
            points.submit(requests, count)
            self._in_flight = points
            while not self.finish():
                yield False
        self.wants_port = False
        if points.refused:
            raise HandOverError(f"write refuses a record (cause {points.refused})")
        yield True

    def _in_thread(self, task: Callable[[], object]) -> Steps:
        future = self._thread.submit(task)
        while not future.done():
            yield False
        future.result()

    def _lower_notice(self) -> None:
        end, self._end_notice = self._end_notice, lambda: None
        end()


def _by_place(ends: Ends) -> dict[int, int]:
    return {window.place: end for window, end in ends.items()}
