"""RocketMQ's records of open messages go into the log, and the consumer offsets that belong to them to control.

The methods that take time are steps. A step yields what it waits for, or "" between two parts of its work. Numbers in
the text tell a wait that goes on from one in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.pop.check_points import CheckPoints, Ending, HandOverError
from ringmq.pop.offsets import Offsets
from ringmq.pop.questions import HandledAsk, PopAsks
from ringmq.pop.record_targets import Targets
from ringmq.pop.revive_records import REVIVE_GROUP
from ringmq.pop.window_names import Key, Window
from ringmq.remoting.errors import RequestError
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.services.log_view import LogView

COMMITS = 512
SYNC_BYTES_MAX = 65_536
"""Bytes that the flush worker may leave for a while (flushCommitLogLeastPages)."""
RECORDS_WAIT = "the records are not on the disk"
COMMITS_WAIT = "control has not stored the consumer offsets"
Steps = Generator[str, None, None]


class RecordLog:
    """The way of one worker to write and to control. No other user of the port may have requests in flight.

    `log`: opens the log to read. `offsets`: those of the port.
    """

    def __init__(
        self, *, plane: Plane, port: Port, windows: Any, control: PopAsks, config: Callable[[], BrokerConfig],
        log: Callable[[], LogView], offsets: Offsets,
    ) -> None:  # fmt: skip
        self._plane, self._port, self._windows = plane, port, windows
        self._control, self._config, self._log, self._offsets = control, config, log, offsets

    def ends(self, targets: Targets) -> list[int]:
        """The next offset of each revive queue."""
        return [int(self._plane.queue(slot).max_offset) for _, slot, _ in targets.revive]

    def points(self, targets: Targets, windows: Iterable[tuple[Key, Window]] = ()) -> CheckPoints:
        """Requests for records, made now. `windows`: those whose open messages get check points."""
        broker = self._config().broker_name
        return CheckPoints(self._plane, self._port, self._windows, windows, broker, targets, wall_ms())

    # ---- records ----

    def append(self, points: CheckPoints, requests: Any, count: int, progress: Callable[[], str]) -> Steps:
        """Submit a batch, and wait for the one before: write stores a batch while the next one is made. Raises
        HandOverError."""
        points.submit(requests, count)
        yield from self.settle(points, progress, in_flight=count)

    def acknowledge(self, points: CheckPoints, endings: Sequence[Ending], progress: Callable[[], str]) -> Steps:
        """Store acknowledgements. Raises HandOverError."""
        while endings:
            try:
                requests, count = points.acknowledge(endings)
            except HandOverError:
                yield from self.settle(points, progress)
                raise
            yield from self.append(points, requests, count, progress)
            endings = endings[count:]
        yield from self.settle(points, progress)

    def settle(self, points: CheckPoints, progress: Callable[[], str], *, in_flight: int = 0) -> Steps:
        """Wait until at most `in_flight` records are not stored. Raises HandOverError: write has refused one, or the
        caller has thrown it into the step.

        No record is with write then: the next user of the port would take its answer for one of its own.
        """
        given_up: HandOverError | None = None
        while points.take_answers() > (0 if points.refused or given_up else in_flight):
            try:
                yield progress()
            except HandOverError as error:
                given_up = error
        if given_up is not None:
            raise given_up
        if points.refused:
            raise HandOverError(f"write refuses a record (cause {points.refused})")

    def sync(self, begin: int, end: int) -> Steps:
        """Bring the log between these offsets to the disk. Raises OSError.

        The flush worker does most of it: a sync of many bytes may take longer than a stop, and cannot be ended.
        """
        marks = self._plane.watermarks
        yield RECORDS_WAIT
        while (left := end - int(marks.flushed_offset)) > SYNC_BYTES_MAX:
            yield f"{RECORDS_WAIT}: {left} bytes of the log are left"
        if int(marks.flushed_offset) < end:
            self._log().sync(begin, end)  # the log may have new files since the start

    # ---- offsets ----

    def commit(self, rows: Iterable[tuple[int, int, int]]) -> Steps:
        """Commit consumer offsets: group id, queue slot, offset. They are in control's table at the end.

        A row is taken in the step that reports it: no pass over the offsets comes between. Raises OSError.
        """
        left, reported = iter(rows), 0
        while True:
            while not self._offsets.has_room(COMMITS):
                yield self._commits_wait(reported)
            part = list(islice(left, COMMITS))
            if not part:
                break
            self._offsets.publish(part)
            reported += len(part)
        while self._offsets.unstored:
            yield self._commits_wait(reported)

    def _commits_wait(self, reported: int) -> str:
        return f"{COMMITS_WAIT}: {reported} are reported, {self._offsets.unstored} are left"

    def save(self) -> Steps:
        """Have control write the consumer offsets of its table to the disk. Raises HandOverError."""
        yield from self._asked(self._control.save_offsets, "the consumer offsets cannot be saved")

    def commit_handled(self, targets: Targets, ends: list[int]) -> Steps:
        """Have the offset of the revive group follow the records before `ends`. Raises HandOverError."""
        group_id = self._plane.group_find(REVIVE_GROUP)
        slots = [queue[1] for queue in targets.revive]
        known = [-1 if group_id is None else self._plane.offset_get(group_id, slot) for slot in slots]
        are_own = [queue[2] == queue_id for queue_id, queue in enumerate(targets.revive)]
        offsets = tuple(end - 1 if is_own else -1 for end, is_own in zip(ends, are_own, strict=True))
        if all(offset <= before for offset, before in zip(offsets, known, strict=True)):
            return
        asked = HandledAsk(targets.revive_topic, offsets)
        yield from self._asked(
            lambda now_ms, then: self._control.handled(asked, now_ms, then),
            "the offset of the revive group cannot be stored",
        )

    def _asked(self, ask: Callable[[int, Callable[[RequestError | None], None]], None], failure: str) -> Steps:
        """Ask control, and wait for its answer."""
        refusals: list[RequestError | None] = []
        ask(monotonic_ms(), refusals.append)
        while not refusals:
            self._control.turn(monotonic_ms())
            yield "control has not answered"
        if refusals[0] is not None:
            raise HandOverError(f"{failure}: {refusals[0]}")
