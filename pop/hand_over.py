"""The last step of the worker: open messages become RocketMQ's records in the log, so that the store can change hands.

A RocketMQ broker then finds check points of all open messages, and consumer offsets behind all messages that consumers
have had. The order is: check points, acknowledgements for check points of before, their flush, consumer offsets, the
offset of the revive group. A death between two of them makes a RocketMQ broker give messages again that were given
before, and loses none: a message that an acknowledgement ends in one check point may be open in another one.

| Crash point | A death there leaves |
|---|---|
| pop-points-noted | `pop/records`, which the next stop finds |
| pop-points-stored | check points. Messages of earlier ones that are done since come again |
| pop-points-ended | the acknowledgements for these, too |
| pop-points-due | the time until which the next stop looks for them. A power cut may take the records |
| pop-points-synced | all records on the disk. Consumer offsets lie before them: other messages come again |
| pop-points-committed | all but the offset of the revive group. What a start has read from there comes again |
| pop-points-handled | what a stop leaves, without the last snapshot |

Records of an earlier stop, or of a RocketMQ broker, may still wait in the timer. Their pops get no second check point.
Messages of theirs that are done since get acknowledgements. What lies in the revive queues is handled: it stands in the
windows, or is done.

A stop that exports nothing goes the way back (`ringmq.pop.way_back`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.pop.check_points import CheckPoints, Ending, HandOverError
from ringmq.pop.endings import endings_of
from ringmq.pop.open_pops import OpenPops
from ringmq.pop.record_log import RecordLog, Steps
from ringmq.pop.record_notice import LATE_MS, KeptNotice, RecordNotice
from ringmq.pop.record_scan import RecordScan
from ringmq.pop.record_targets import Targets, targets_of
from ringmq.pop.way_back import WayBack
from ringmq.pop.window_names import Key, Window, WindowNames
from ringmq.remoting import names
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.services.topics import Topics
from ringmq.store.crash_points import passed
from ringmq.store.message_store import MessageStore
from ringmq.store.record_numbers import LONG_MAX

STEP_S = 0.0005
TELL_MS = 1000
WAITING_MAX = 100_000
"""Records in the timer that a stop compares with its windows, some 20 us each."""


class HandOver:
    """One run at the end of the worker, when no copy is under way and control has all consumer offsets.

    `store`: opens the store to read. `is_drained`: no message is given any more, and nothing may be exported.
    """

    def __init__(
        self, *, plane: Plane, windows: Any, names: WindowNames, records: RecordLog, way_back: WayBack,
        notice: KeptNotice, config: Callable[[], BrokerConfig], store: Callable[[], MessageStore],
        is_drained: Callable[[], bool], log_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plane, self._windows, self._names, self._notice = plane, windows, names, notice
        self._records, self._way_back, self._config, self._store = records, way_back, config, store
        self._is_drained, self._log_line = is_drained, log_line
        self._deadline_ms = self._next_tell_ms = 0

    @property
    def exports(self) -> bool:
        """True if the stop writes check points of what is open."""
        return self._config().pop_export_at_stop and not self._is_drained()

    def run(self, deadline_ms: int, *, is_ready: bool) -> None:
        """Hand over what is open, or go the way back. `is_ready`: no copy is under way, and the windows know every
        copy. Raises OSError and HandOverError."""
        self._deadline_ms = deadline_ms
        self._next_tell_ms = monotonic_ms() + TELL_MS
        for progress in self._steps(is_ready=is_ready):
            self._check_time(progress or "the records that wait in the timer are not compared")
            if progress:
                self._wait(progress)

    def _steps(self, *, is_ready: bool) -> Steps:
        targets, has_open = targets_of(self._plane, self._config()), bool(lib.rmq_pop_counts_of(self._windows).open)
        exports = has_open and self.exports
        if targets is None and exports:
            topic = names.revive_topic(self._config().broker_cluster_name)
            raise HandOverError(f"the topic {topic} has no queues")
        if not is_ready:
            raise HandOverError("the start has not ended, or copies of messages are under way")
        if targets is None or not exports:
            yield from self._way_back.steps()
            return
        ends = self._records.ends(targets)
        yield from self._write(targets)
        yield from self._records.commit_handled(targets, ends)
        passed("pop-points-handled")

    # ---- records ----

    def _write(self, targets: Targets) -> Steps:
        began_ms, log_end = monotonic_ms(), int(self._plane.watermarks.append_offset)
        points = self._records.points(targets, self._names.all())
        before = self._notice.now if self._notice.waits else RecordNotice(log_end)
        endings = self._endings(points) if self._notice.waits else []
        # a death on the way leaves records that the next stop has to find
        self._notice.keep(RecordNotice(before.since, wall_ms() + lib.RMQ_POP_INVISIBLE_MS_MAX))
        passed("pop-points-noted")
        try:
            yield from self._append_all(points, endings)
        finally:
            self._notice.lower(RecordNotice(before.since, max(before.until_ms, points.due_ms)))
        passed("pop-points-due")
        yield from self._records.sync(log_end, points.log_end)
        passed("pop-points-synced")
        yield from self._records.commit(self._next_offsets())
        passed("pop-points-committed")
        text = f"pop: {points.messages} open messages are in the log for a RocketMQ broker, in {points.records} records"
        self._log_line(f"{text} ({monotonic_ms() - began_ms} ms)")

    def _append_all(self, points: CheckPoints, endings: list[Ending]) -> Steps:
        def progress() -> str:
            return f"{points.messages} of {lib.rmq_pop_counts_of(self._windows).open} open messages are in the log"

        for _, window in self._names.all():  # these messages would get receipts that their check points do not name
            lib.rmq_pop_leave_returned(self._windows, window.place, LONG_MAX)
        while True:
            requests, count = points.fill()
            if not count:
                break
            yield from self._records.append(points, requests, count, progress)
        yield from self._records.settle(points, progress)
        passed("pop-points-stored")
        yield from self._records.acknowledge(points, endings, progress)
        passed("pop-points-ended")

    def _wait(self, progress: str) -> None:
        if (now_ms := monotonic_ms()) >= self._next_tell_ms:
            self._next_tell_ms = now_ms + TELL_MS
            self._log_line(f"pop: {progress}")
        time.sleep(STEP_S)

    def _check_time(self, progress: str) -> None:
        if monotonic_ms() >= self._deadline_ms:
            raise HandOverError(f"the time of the stop is over: {progress}")

    # ---- records of before ----

    def _endings(self, points: CheckPoints) -> list[Ending]:
        """Acknowledgements for check points that wait in the timer. Those that stay there count for their pops."""
        now_ms, found = wall_ms(), OpenPops()
        scan = RecordScan(self._store(), lambda topic, queue_id: -1)
        delay_ms = self._config().timer_max_delay_sec * 1000
        timed = scan.timed(now_ms - LATE_MS, delay_ms, self._notice.now.since, self._check_scan)
        for count, record in enumerate(timed):
            if count == WAITING_MAX:
                text = f"more than {WAITING_MAX} records for a RocketMQ broker wait in the timer"
                self._log_line(f"pop: {text}: messages of theirs that are done since may come again there")
                return []
            found.add(*record)
        windows = dict(self._names.all())
        return endings_of(points, windows, lambda key: self._following(windows, key), found, now_ms)

    def _following(self, windows: Mapping[Key, Window], key: Key) -> int:
        """The offset at which the group goes on: that of the window, else the consumer offset. -1: it has none."""
        if (window := windows.get(key)) is not None:
            return int(self._names.native(window).next_offset)
        group_id = self._plane.group_find(key.group)
        queue = Topics(self._plane).queue(key.topic, key.queue_id)
        return -1 if group_id is None or queue is None else self._plane.offset_get(group_id, queue[1])

    def _check_scan(self) -> None:
        self._check_time("the records that wait in the timer are not compared")

    # ---- offsets ----

    def _next_offsets(self) -> Iterator[tuple[int, int, int]]:
        """Next offsets that the table does not have. Open messages of orderly groups lie behind them."""
        start_id = int(self._plane.watermarks.start_id)
        for _, window in self._names.all():
            following = int(self._names.native(window).next_offset)
            if following > int(self._names.native(window).committed):
                lib.rmq_pop_set_committed(self._windows, window.place, following, start_id)
                yield window.group_id, window.queue_slot, following
