"""The way back to a version of RingMQ that knows no records of open messages: nothing in the log says what is open.

A version without them reads consumer offsets alone. It refuses a store with a check point that no acknowledgement ends.
So the order is: consumer offsets at the first open message of each window, their file, acknowledgements for all check
points that wait in the timer, their flush, the offset of the revive group. A death between two of them makes the next
owner give messages again, and loses none: no offset passes over a message before its check point ends.

An open message with a check point that waits in the timer ends with its window, which begins anew at the first open
message. Its receipts are void: a later check point of the same pop would be ended by the acknowledgement of the first.

A group whose members pull would commit offsets behind that message again. While such a group has a message open before
its offset, nothing of this is done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.pop.check_points import CheckPoints, Ending, HandOverError
from ringmq.pop.copy_targets import origin_topic
from ringmq.pop.open_pops import OpenPop, OpenPops
from ringmq.pop.pull_modes import pulled
from ringmq.pop.record_log import RecordLog, Steps
from ringmq.pop.record_notice import LATE_MS, KeptNotice
from ringmq.pop.record_scan import RecordScan, timer_read_ms
from ringmq.pop.record_targets import Targets, targets_of
from ringmq.pop.revive_records import Acks
from ringmq.pop.window_names import Key, Window, WindowNames
from ringmq.remoting.errors import BadBody, RequestError
from ringmq.services.kit.clocks import wall_ms
from ringmq.store.config_files import ConfigFileError
from ringmq.store.message_store import MessageStore

PART = 8192
"""Records that are read before their acknowledgements are stored. Each takes some 0.7 KB meanwhile."""
LOOK = 64
"""Records, and windows, of a step: some 20 us each."""


class WayBack:
    """One run, when no copy is under way and the windows know every copy. `store`: opens the store to read.
    `end_notice`: no check point waits in the timer any more, but for those of changes that come yet."""

    def __init__(
        self, *, plane: Plane, windows: Any, names: WindowNames, records: RecordLog, notice: KeptNotice,
        config: Callable[[], BrokerConfig], store: Callable[[], MessageStore], log_line: Callable[[str], None],
        end_notice: Callable[[], None],
    ) -> None:  # fmt: skip
        self._plane, self._windows, self._names = plane, windows, names
        self._records, self._notice, self._config, self._store = records, notice, config, store
        self._log_line, self._end_notice = log_line, end_notice

    def steps(self) -> Steps:
        """Go. Messages that are open stay where they are, but for those with a check point. Raises OSError and
        HandOverError."""
        targets = targets_of(self._plane, self._config())
        read_ms = min(timer_read_ms(Path(self._config().store_path_root_dir)), wall_ms() - LATE_MS)
        yield from self._dispatched()
        ends = [] if targets is None else self._records.ends(targets)
        yield from self._rewind()
        if targets is None:
            return
        if self._notice.now.until_ms:
            yield from self._acknowledge_all(targets, read_ms)
        yield from self._records.commit_handled(targets, ends)

    def _dispatched(self) -> Steps:
        """Wait until queues have what is in the log now, such as records that have left the timer."""
        marks = self._plane.watermarks
        end = int(marks.append_offset)
        while (left := end - int(marks.dispatched_offset)) > 0:
            yield f"records of the log are in no queue yet: {left} bytes are left"

    # ---- offsets ----

    def _rewind(self) -> Steps:
        """Commit the first open message of each window whose group has a consumer offset behind it."""
        behind = []
        for number, (key, window) in enumerate(list(self._names.all()), 1):
            if self._is_there(window.window_id) and self._first_open(window.place) < self._committed(window.place):
                behind.append((key, window))
            if number % LOOK == 0:
                yield ""
        if not behind:
            return
        self._check_pulled(behind)
        start_id = int(self._plane.watermarks.start_id)

        def rows() -> Iterator[tuple[int, int, int]]:
            for _, window in behind:
                if self._is_there(window.window_id):
                    first = self._first_open(window.place)
                    lib.rmq_pop_set_committed(self._windows, window.place, first, start_id)
                    yield window.group_id, window.queue_slot, first

        yield from self._records.commit(rows())
        yield from self._records.save()

    def _check_pulled(self, behind: Iterable[tuple[Key, Window]]) -> None:
        """Members that pull would commit offsets behind the first open message again. Without its check point the death
        of its consumer would lose it. Raises HandOverError."""
        try:
            pairs = pulled(Path(self._config().store_path_root_dir))
        except (ConfigFileError, BadBody) as error:
            raise HandOverError(f"the modes of groups cannot be read: {error}") from error
        for key, window in behind:
            pair = origin_topic(key), key.group
            if pair in pairs and self._is_there(window.window_id) and self._open_messages(window.place):
                text = f"group {key.group} pulls topic {pair[0]}, and consumers have messages before its offset"
                raise HandOverError(f"{text}: wait until none is open (ringmq pop drain --wait SECONDS)")

    def _open_messages(self, place: int) -> int:
        return int(lib.rmq_pop_open_messages(self._windows, place))

    def _is_there(self, window_id: int) -> bool:
        """False if the window has ended between two steps."""
        return self._names.named(window_id) is not None

    def _first_open(self, place: int) -> int:
        return int(lib.rmq_pop_first_open(self._windows, place))

    def _committed(self, place: int) -> int:
        return int(lib.rmq_pop_window_at(self._windows, place).committed)

    # ---- records that wait in the timer ----

    def _acknowledge_all(self, targets: Targets, read_ms: int) -> Steps:
        begin, count, acked = int(self._plane.watermarks.append_offset), 0, 0
        points, found = self._records.points(targets), OpenPops()
        scan = RecordScan(self._store(), lambda topic, queue_id: -1)
        delay_ms = self._config().timer_max_delay_sec * 1000
        for record in scan.timed_steps(read_ms, delay_ms, self._notice.now.since):
            if record is None:
                yield ""
                continue
            found.add(*record)
            count += 1
            if count % PART == 0:
                acked += yield from self._acknowledge(points, found, count)
                found = OpenPops()
            elif count % LOOK == 0:
                yield ""
        acked += yield from self._acknowledge(points, found, count)
        if acked:
            yield from self._records.sync(begin, points.log_end)
            self._log_line(f"pop: {acked} check points that wait in the timer are acknowledged for other versions")
        self._end_notice()

    def _acknowledge(self, points: CheckPoints, found: OpenPops, count: int) -> Generator[str, None, int]:
        """Acknowledge the check points of these records. Returns their number."""
        endings = []
        for one in found.all():
            self._end_window(points, one)
            if one.offsets:
                acks = Acks(one.pop, tuple(sorted(one.offsets)))
                endings.append(Ending(acks, one.revive_queue, one.pop.pop_time_ms + one.invisible_ms))
        text = f"{count} records that wait in the timer are compared"
        yield from self._records.acknowledge(points, endings, lambda: text)
        return len(endings)

    def _end_window(self, points: CheckPoints, one: OpenPop) -> None:
        """Begin the window of an open pop anew. Its consumer offset is at its first open message."""
        pop = one.pop
        window = self._names.by_name(Key(pop.group, pop.topic, pop.queue_id))
        if window is None or not points.open(window.place, pop.start_offset, pop.pop_time_ms):
            return
        try:
            self._names.begin_at(window, self._first_open(window.place))
        except RequestError as error:
            raise HandOverError(f"a window of {pop.group} cannot begin anew: {error}") from error
