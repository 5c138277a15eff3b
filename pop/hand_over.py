"""The last step of the worker: open messages become RocketMQ's records in the log, so that the store can change hands.

A RocketMQ broker then finds check points of all open messages, and consumer offsets behind all messages that consumers
have had. The order is: check points, acknowledgements for check points of before, their flush, consumer offsets, the
offset of the revive group. A death between two of them makes a RocketMQ broker give messages again that were given
before, and loses none: a message that an acknowledgement ends in one check point may be open in another one.

Records of an earlier stop, or of a RocketMQ broker, may still wait in the timer. Their pops get no second check point.
Messages of theirs that are done since get acknowledgements. What lies in the revive queues is handled: it stands in the
windows, or is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import ffi, lib
from ringmq.pop.check_points import CheckPoints, Ending, HandOverError
from ringmq.pop.endings import endings_of
from ringmq.pop.open_pops import OpenPops
from ringmq.pop.questions import HandledAsk, PopAsks
from ringmq.pop.record_notice import LATE_MS, KeptNotice, RecordNotice
from ringmq.pop.record_scan import RecordScan
from ringmq.pop.record_targets import Targets, targets_of
from ringmq.pop.revive_records import REVIVE_GROUP
from ringmq.pop.window_names import WindowNames
from ringmq.remoting import names
from ringmq.remoting.errors import RequestError
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.services.log_view import LogView
from ringmq.store.message_store import MessageStore
from ringmq.store.record_numbers import LONG_MAX

STEP_S = 0.0005
TELL_MS = 1000
WAITING_MAX = 100_000
"""Records in the timer that a stop compares with its windows, some 20 us each."""
COMMITS = 512


class HandOver:
    """One run at the end of the worker, when no copy is under way and control has all consumer offsets.

    `store`, `log`: open the store to read. `are_stored`: control has stored the commits of the port.
    """

    def __init__(
        self, *, plane: Plane, port: Port, notice: KeptNotice, windows: Any, names: WindowNames, control: PopAsks,
        config: Callable[[], BrokerConfig], store: Callable[[], MessageStore], log: Callable[[], LogView],
        are_stored: Callable[[], bool], log_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plane, self._port, self._notice, self._windows = plane, port, notice, windows
        self._names, self._control, self._config, self._store = names, control, config, store
        self._log, self._are_stored, self._log_line = log, are_stored, log_line
        self._deadline_ms = self._next_tell_ms = 0

    def run(self, deadline_ms: int, *, is_ready: bool) -> None:
        """Hand over what is open, if the configuration says so, or nothing is. `is_ready`: no copy is under way, and
        the windows know every copy. Raises OSError and HandOverError."""
        self._deadline_ms = deadline_ms
        self._next_tell_ms = monotonic_ms() + TELL_MS
        targets = targets_of(self._plane, self._config())
        has_open = bool(lib.rmq_pop_counts_of(self._windows).open)
        if has_open and not self._config().pop_export_at_stop:
            return
        if targets is None and has_open:
            topic = names.revive_topic(self._config().broker_cluster_name)
            raise HandOverError(f"the topic {topic} has no queues")
        if targets is None:
            return
        if not is_ready:
            raise HandOverError("the start has not ended, or copies of messages are under way")
        ends = [int(self._plane.queue(slot).max_offset) for _, slot, _ in targets.revive]
        if has_open or self._notice.waits:
            self._write(targets, has_open=has_open)
        self._commit_handled(targets, ends)

    # ---- records ----

    def _write(self, targets: Targets, *, has_open: bool) -> None:
        began_ms, log_end = monotonic_ms(), int(self._plane.watermarks.append_offset)
        points = CheckPoints(
            self._plane, self._port, self._windows, self._names.all(), self._config().broker_name, targets, wall_ms()
        )
        before = self._notice.now if self._notice.waits else RecordNotice(log_end)
        endings = self._endings(points) if self._notice.waits else []
        if has_open:  # a death on the way leaves records that the next stop has to find
            self._notice.keep(RecordNotice(before.since, wall_ms() + lib.RMQ_POP_INVISIBLE_MS_MAX))
        try:
            self._append_all(points, endings, has_open=has_open)
        finally:
            if has_open:
                self._notice.keep(RecordNotice(before.since, max(before.until_ms, points.due_ms)))
        self._check_time("the records are not on the disk")
        self._log().sync(log_end, points.log_end)  # the log may have new files since the start
        self._commit()
        text = f"pop: {points.messages} open messages are in the log for a RocketMQ broker, in {points.records} records"
        self._log_line(f"{text} ({monotonic_ms() - began_ms} ms)")

    def _append_all(self, points: CheckPoints, endings: list[Ending], *, has_open: bool) -> None:
        if has_open:  # these messages would get other receipts, which their check points do not name
            for _, window in self._names.all():
                lib.rmq_pop_leave_returned(self._windows, window.place, LONG_MAX)
        while has_open:
            requests, count = points.fill()
            if not count:
                break
            self._append(points, requests, count)
        self._wait_for(points, in_flight=0)
        while endings:
            requests, count = points.acknowledge(endings)
            self._append(points, requests, count)
            endings = endings[count:]
        self._wait_for(points, in_flight=0)

    def _append(self, points: CheckPoints, requests: Any, count: int) -> None:
        """Submit a batch, and wait for the one before: write stores a batch while the next one is made."""
        points.submit(requests, count)
        self._wait_for(points, in_flight=count)

    def _wait_for(self, points: CheckPoints, *, in_flight: int) -> None:
        while points.take_answers() > in_flight:
            self._wait(f"{points.messages} of {lib.rmq_pop_counts_of(self._windows).open} open messages are in the log")
        if points.refused:
            raise HandOverError(f"write refuses a record (cause {points.refused})")

    def _wait(self, progress: str) -> None:
        now_ms = self._check_time(progress)
        if now_ms >= self._next_tell_ms:
            self._next_tell_ms = now_ms + TELL_MS
            self._log_line(f"pop: {progress}")
        time.sleep(STEP_S)

    def _check_time(self, progress: str) -> int:
        now_ms = monotonic_ms()
        if now_ms >= self._deadline_ms:
            raise HandOverError(f"the time of the stop is over: {progress}")
        return now_ms

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
        return endings_of(points, dict(self._names.all()), found, now_ms)

    def _check_scan(self) -> None:
        self._check_time("the records that wait in the timer are not compared")

    # ---- offsets ----

    def _commit(self) -> None:
        """Report next offsets. Open messages of orderly groups lie behind them."""
        rows = ffi.new("struct rmq_offset_commit[]", COMMITS)
        start_id, count = int(self._plane.watermarks.start_id), 0
        for _, window in self._names.all():
            following = int(self._names.native(window).next_offset)
            if following <= int(self._names.native(window).committed):
                continue
            rows[count].group_id, rows[count].queue_slot, rows[count].offset = *window[2:], following
            lib.rmq_pop_set_committed(self._windows, window.place, following, start_id)
            count += 1
            if count == COMMITS:
                self._report(rows, count)
                count = 0
        self._report(rows, count)
        while not self._are_stored():
            self._wait("control has not stored the consumer offsets")

    def _report(self, rows: Any, count: int) -> None:
        done = 0
        while done < count:
            done += self._port.commit(rows + done, count - done)
            if done < count:
                self._wait("control has not stored the consumer offsets")

    def _commit_handled(self, targets: Targets, ends: list[int]) -> None:
        group_id = self._plane.group_find(REVIVE_GROUP)
        slots = [queue[1] for queue in targets.revive]
        known = [-1 if group_id is None else self._plane.offset_get(group_id, slot) for slot in slots]
        are_own = [queue[2] == queue_id for queue_id, queue in enumerate(targets.revive)]
        offsets = tuple(end - 1 if is_own else -1 for end, is_own in zip(ends, are_own, strict=True))
        handled = HandledAsk(targets.revive_topic, offsets)
        if all(offset <= before for offset, before in zip(handled.offsets, known, strict=True)):
            return
        refusals: list[RequestError | None] = []
        self._control.handled(handled, monotonic_ms(), refusals.append)
        while not refusals:
            self._control.turn(monotonic_ms())
            self._wait("control has not stored the offset of the revive group")
        if refusals[0] is not None:
            raise HandOverError(f"the offset of the revive group cannot be stored: {refusals[0]}")
