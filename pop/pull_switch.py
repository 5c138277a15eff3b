"""Groups that leave POP for a topic: from now on their members pull it.

Control asks before it sets the mode. What is open gets RocketMQ's check points in the log (`ringmq.pop.open_records`).
Then the consumer offsets go behind all messages that were given: one store in the memory that the worker shares with
control. So members that pull see no message at once that a consumer of before holds. It stays open here: a late
acknowledgement counts, and at its time the message goes to the topic of retries, which the members pull, too.

A death before the store has changed nothing but the log, and records there name messages that are open. Behind the
store the offsets may move though the mode stays: pops go on behind them, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from msgspec import Struct, field

from ringmq.broker.requests.holder_asks import LeaveAsk
from ringmq.ipc.asks import Ask
from ringmq.native import lib
from ringmq.pop.check_points import CheckPoints, HandOverError
from ringmq.pop.offsets import Offsets
from ringmq.pop.open_records import Ends, OpenRecords, Steps
from ringmq.pop.window_names import Key, Window, WindowNames
from ringmq.remoting.names import pop_retry_topic

LEAVES_MAX = 64
"""Groups and topics that wait, or whose check points are remembered."""
KEPT_MS = 60_000
"""Time for which check points are remembered behind the last ask. Another ask finds most of the work done."""
LOOK_MS = 10
"""Time between two looks at what is under way."""
TELL_MS = 1000
"""Time between two log lines about it."""


class _Leave(Struct):
    """A group that leaves POP for a topic. `asks`: those that wait, each with the time at which it is void."""

    group: str
    topic: str
    asks: list[tuple[Ask, int]] = field(default_factory=list)
    chosen: dict[Key, Window] = field(default_factory=dict)
    points: CheckPoints | None = None
    forget_ms: int = 0

    @property
    def name(self) -> str:
        """For log lines."""
        return f"group {self.group} of topic {self.topic}"


class PullSwitch:
    """Does one switch after the other. `answer`: gives control the answer to an ask, empty or the reason why nothing
    has changed."""

    def __init__(
        self, names: WindowNames, windows: object, records: OpenRecords, offsets: Offsets,
        answer: Callable[[Ask, str], None], log_line: Callable[[str], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:  # fmt: skip
        self._names, self._windows, self._records, self._offsets = names, windows, records, offsets
        self._answer, self._log_line, self._clock_ns = answer, log_line, clock_ns
        self._leaves: dict[tuple[str, str], _Leave] = {}
        self._leave: _Leave | None = None
        """The one that is under way."""
        self._steps: Steps | None = None
        self._now_ms = self._tell_ms = self._began_ms = 0
        self._goes_on = False

    @property
    def is_busy(self) -> bool:
        """True if something is under way, or waits."""
        return self._leave is not None or any(leave.asks for leave in self._leaves.values())

    def on_leave(self, record: Ask, now_ms: int) -> None:
        """Take an RMQ_INBOX_LEAVE."""
        asked = LeaveAsk.decode(record.payload)
        leave = self._leaves.get((asked.group, asked.topic))
        if leave is None and len(self._leaves) >= LEAVES_MAX:
            self._answer(record, f"{LEAVES_MAX} groups leave POP at a time, the limit")
            return
        if leave is None:
            leave = self._leaves[asked.group, asked.topic] = _Leave(asked.group, asked.topic)
        leave.asks.append((record, asked.until_ns))
        leave.forget_ms = now_ms + KEPT_MS

    def turn(self, now_ms: int) -> bool:
        """Go on. True if more may follow at once."""
        self._now_ms = now_ms
        self._answer_late()
        self._begin_next()
        if self._leave is None or self._steps is None:
            return False
        leave = self._leave
        try:
            self._goes_on = next(self._steps)
        except StopIteration:
            self._leave = self._steps = None
        except (HandOverError, OSError) as error:
            self._leave = self._steps = None
            self._fail(leave, str(error))
        else:
            self._tell(leave)
        return self._leave is None or self._goes_on

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next turn is due. Answers of write and of the disk ring the bell."""
        return LOOK_MS if self.is_busy else 1000

    def finish(self) -> bool:
        """A turn of the stop: what is under way ends. True once the port is free."""
        if self._leave is not None and self._steps is not None:
            self._steps.close()
            self._fail(self._leave, "the worker stops")
            self._leave = self._steps = None
        return self._records.finish()

    # ---- inside ----

    def _begin_next(self) -> None:
        for key, leave in list(self._leaves.items()):
            if self._leave is None and leave.asks:
                self._leave, self._steps = leave, self._go(leave)
                self._began_ms, self._tell_ms = self._now_ms, self._now_ms + TELL_MS
            if leave is not self._leave and not leave.asks and self._now_ms >= leave.forget_ms:
                del self._leaves[key]

    def _go(self, leave: _Leave) -> Steps:
        chosen = self._windows_of(leave)
        ends: Ends = {window: int(self._names.native(window).next_offset) for window in chosen.values()}
        if any(lib.rmq_pop_open_messages(self._windows, window.place) for window in chosen.values()):
            if leave.points is None or leave.chosen != chosen:
                leave.points, leave.chosen = self._records.points(chosen), chosen
            ends = yield from self._records.write(leave.points, chosen, lambda: self._now_ms)
        yield from self._report(leave, ends)

    def _windows_of(self, leave: _Leave) -> dict[Key, Window]:
        retries = (pop_retry_topic(leave.group, leave.topic, is_v2=is_v2) for is_v2 in (False, True))
        return {
            key: window for topic in (leave.topic, *retries) for key, window in self._names.of(leave.group, topic)
        }  # fmt: skip

    def _report(self, leave: _Leave, ends: Ends) -> Generator[bool, None, None]:
        """The moment of the switch, if an ask still waits for it."""
        while not self._offsets.has_room(len(ends)):
            yield False
        self._answer_late()
        if not leave.asks:
            return
        self._offsets.pass_over(ends)
        for record, _ in leave.asks:
            self._answer(record, "")
        leave.asks.clear()
        if leave.points is not None:
            text = f"{leave.points.messages} open messages are in the log, in {leave.points.records} records"
            self._log_line(f"pop: {leave.name} pulls from now on: {text} ({self._now_ms - self._began_ms} ms)")
        del self._leaves[leave.group, leave.topic]

    def _answer_late(self) -> None:
        """Refuse asks whose time is over. What they have begun goes on: the next ask finds it."""
        now_ns = self._clock_ns()
        for leave in self._leaves.values():
            late = [record for record, until_ns in leave.asks if now_ns >= until_ns]
            if late:
                leave.asks = [ask for ask in leave.asks if now_ns < ask[1]]
            for record in late:
                self._answer(record, f"{self._progress(leave)}; ask again in some seconds")

    def _fail(self, leave: _Leave, reason: str) -> None:
        try:
            self._records.give_up()
        except OSError as error:
            reason = f"{reason}; {error}"
        for record, _ in leave.asks:
            self._answer(record, reason)
        self._log_line(f"pop: {leave.name} goes on with POP: {reason}")
        self._leaves.pop((leave.group, leave.topic), None)

    def _tell(self, leave: _Leave) -> None:
        if self._now_ms >= self._tell_ms:
            self._tell_ms = self._now_ms + TELL_MS
            self._log_line(f"pop: {leave.name} leaves POP: {self._progress(leave)}")

    def _progress(self, leave: _Leave) -> str:
        chosen = self._windows_of(leave).values()
        opened = sum(int(lib.rmq_pop_open_messages(self._windows, window.place)) for window in chosen)
        done = 0 if leave.points is None else leave.points.messages
        return f"{done} open messages are in the log, {opened} are open"
