"""When the worker may end: slots that pass are no work. Messages are, though nothing may follow them at once."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.native import ffi
from ringmq.services.kit.loop import ServiceLoop
from ringmq.timer.core import Progress, TimerCore, TimerSettings
from ringmq.timer.delivery import RETRY_MS, SETTLE_MS, Delivery
from ringmq.timer.follower import Follower
from ringmq.timer.read_time import ReadTime
from ringmq.timer.saver import IDLE_SAVE_MS, Saver

REST_MS, STEP_MS, TURN_MS = 30_000, 1000, 100


class Wheel(SimpleNamespace):
    """A wheel without units. A walk is over at once."""

    walking_ms: int | None = None

    def begin_walk(self, slot_ms: int, until_ms: int, required_ms: int) -> None:
        self.walking_ms = slot_ms

    def walk(self, reader: object, units: int) -> tuple[int, int] | None:
        slot_ms, self.walking_ms = self.walking_ms, None
        return None if slot_ms is None else (slot_ms, slot_ms + STEP_MS)


class IdleDelivery(Delivery):
    """No message waits. The timer topic gets `units` records before the next turn, whose messages are recalled."""

    is_idle = True

    def __init__(self) -> None:
        self.now_ms, self.units = 1_000_000, 0
        settings = TimerSettings(STEP_MS, 100, False, False, False, 75, 1000)
        wheel: Any = Wheel(
            next_ms=lambda slot_ms: None, next_used=lambda *_: None, next_large=lambda *_: None,
            close=lambda slot_ms: None, needs_walk=lambda slot_ms: False, is_left_out=lambda slot_ms: False,
            count=lambda slot_ms: 0, set_delivered=lambda offsets: None,
            work=SimpleNamespace(write_ms=0, open_ms=0, read_ms=0),
        )  # fmt: skip
        self.core = TimerCore(settings, Progress(self.now_ms, 0, 0), wheel, 0, 0, self.now_ms)
        parts: Any = SimpleNamespace(
            settings=lambda: settings, topics=SimpleNamespace(is_complete=True), take=lambda: None, is_waiting=False,
            collect=lambda: SimpleNamespace(stored=0, has_settled=False), want=lambda slot: None, reader=None,
            queue_slot=0, flow=SimpleNamespace(pause_ms=lambda now_ms: 0, is_settling=False),
            queue=lambda slot: SimpleNamespace(max_offset=0),
            port=SimpleNamespace(has_answers=False), is_waiting_for_room=False, has_more=False, is_blocked=False,
            log_offset=-1, watermarks=ffi.new("struct rmq_watermarks *"), note=lambda offset: None,
            enqueue=lambda offset, limit: offset + self.units,
        )  # fmt: skip
        self._store = self._enqueuer = self._statistics = self._arrivals = self._publisher = self._plane = parts
        self._queue, self._rebuild, self._slots, self._read_time = parts, parts, wheel, ReadTime()
        self._wall_ms = lambda: self.now_ms
        self._save_at_ms = self._check_at_ms = 1 << 60
        self._poll_ms = SETTLE_MS

    def turn(self, mono_ms: int) -> bool:
        self._early_save_at_ms = self._save_at_ms
        self.now_ms += TURN_MS
        has_more = super().turn(mono_ms)
        self.units = 0
        return has_more

    def _write_words(self) -> None:
        """Nobody reads them."""


class IdleFollower(Follower):
    """The timer topic gets `units` records before the next turn."""

    is_idle = True

    def __init__(self) -> None:
        self.units, self._offset, self._save_at_ms, self._role = 0, 0, 1 << 60, 0
        parts: Any = SimpleNamespace(
            take=lambda: None, note=lambda offset: None, has_more=False, want=lambda slot: None, queue_slot=0,
            role=lambda role: SimpleNamespace(counters=[0] * 64), tally=SimpleNamespace(enqueued=0),
        )  # fmt: skip
        self._arrivals = self._rebuild = self._enqueuer = self._queue = self._plane = self._slots = parts

    def _look_at_master(self) -> None:
        """It has said all."""

    def _enqueue(self) -> int:
        units, self.units = self.units, 0
        return self._offset + units


def rests_at(part: Any, works_at_ms: int) -> int:
    """The time at which the worker ends, if a message comes at this time. 0: it does not end."""
    block = SimpleNamespace(progress=0)
    plane: Any = SimpleNamespace(role=lambda _: block, deactivate=lambda _: None, is_held=lambda role, now_ms: False)
    loop = ServiceLoop(plane, 0, [part], rest_after_ms=REST_MS)
    for now_ms in range(TURN_MS, 4 * REST_MS, TURN_MS):
        part.units = int(now_ms == works_at_ms)
        if not loop.turn(now_ms) and loop.may_rest(now_ms):
            return now_ms
    return 0


@pytest.mark.parametrize("part", [IdleDelivery, IdleFollower])
def test_the_worker_ends_a_while_after_the_last_message(part: type[Any]) -> None:
    assert REST_MS <= rests_at(part(), 0) <= REST_MS + 2 * TURN_MS, "slots pass, and no message comes"
    late_ms = rests_at(part(), REST_MS) - REST_MS
    assert REST_MS <= late_ms <= REST_MS + 2 * TURN_MS, "a message that comes late begins the time anew"


def test_a_wait_for_a_rolled_delete_polls_less_and_less() -> None:
    """A slow disk or a lost replica may keep its copy for minutes from the timer topic."""
    part = IdleDelivery()
    deletes = part.core._rolled_deletes
    for units in (0, 1, 0):
        deletes.submitted(1, part.now_ms)
        pauses = list[int]()
        while not pauses or (not units and len(pauses) < 10):
            part.units = units
            if not part.turn(0):
                pauses.append(part.sleep_ms(0))
        polls = [SETTLE_MS << number for number in range(6)]
        assert pauses == ([SETTLE_MS] if units else [*polls, *[RETRY_MS] * (10 - len(polls))])
        deletes.refused()
        while part.turn(0):
            pass
        assert part.sleep_ms(0) > RETRY_MS


def test_a_save_of_what_is_on_disk_keeps_no_worker_from_its_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at the end of the time of rest may fall into such a save. The next look is 30 s later."""
    store: Any = SimpleNamespace(
        plane=None, root=None, slots=SimpleNamespace(files=SimpleNamespace(log_begin=0)), saver_view=None,
        log_line=None, wall_ms=None,
    )  # fmt: skip
    saver, futures = Saver(store, 0), list[Future[None]]()

    def begin(*_: object) -> None:
        futures.append(Future())
        saver._saving = futures[-1]

    snapshot: Any = object
    monkeypatch.setattr(saver, "_begin", begin)
    saver.turn(0, "new", snapshot)
    assert not saver.is_saved("new"), "it is not on disk before the thread has ended"
    futures[0].set_result(None)
    saver.turn(1, "new", snapshot)
    assert saver.is_saved("new") and len(futures) == 1
    saver.turn(IDLE_SAVE_MS, "new", snapshot)
    assert len(futures) == 2 and saver.is_saved("new") and not saver.is_saved("newer")
    futures[1].set_result(None)
    saver.turn(IDLE_SAVE_MS + 1, "newer", snapshot)
    assert len(futures) == 3 and not saver.is_saved("newer")
