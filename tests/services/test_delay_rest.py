"""When the worker `delay` may end: the last message may have nothing to follow it at once."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.services.delay import delivery as shell
from ringmq.services.delay.schedule import Level, Schedule
from ringmq.services.kit.loop import ServiceLoop

REST_MS, TURN_MS = 30_000, 100


class IdleDelivery(shell.Delivery):
    """A delivery between messages. `units`: those that are due at the next turn."""

    is_idle = True

    def __init__(self) -> None:
        self.units = self.offset = 0
        parts: Any = SimpleNamespace(
            turn=lambda now_ms: False, take=set, want=lambda slot: None, collect=lambda: True, batch=parts_of_batch(),
            read=lambda slot, lane: self.units, next_offset=lambda lane: self.offset, publish_aimed=self.publish,
            queue=lambda slot: SimpleNamespace(max_offset=self.offset),
        )  # fmt: skip
        self._topics = self._arrivals = self._republisher = self._plane = parts
        self._schedule, self._saved, self._next_due = Schedule([Level(1000, 0)]), parts, [0]
        self._wall_ms, self._last_wall_ms, self._save_at_ms = lambda: 1, 0, 1 << 60

    def turn(self, mono_ms: int) -> bool:
        self._schedule.levels[0].look_ms = 0 if self.units else None
        return super().turn(mono_ms)

    def publish(self, count: int, lane: int) -> None:
        self.offset, self.units = self.offset + count, 0
        self._schedule.levels[0].look_ms = None

    def _with_targets(self, due: int, now_ms: int) -> int:
        return due


def parts_of_batch() -> Any:
    return SimpleNamespace(units=None, records=None)


def test_the_worker_ends_a_while_after_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "lib", SimpleNamespace(rmq_due_units=lambda units, records, count, *_: count))
    block, part = SimpleNamespace(progress=0), IdleDelivery()
    plane: Any = SimpleNamespace(role=lambda _: block, deactivate=lambda _: None, is_held=lambda role, now_ms: False)
    loop, ended_ms = ServiceLoop(plane, 0, [part], rest_after_ms=REST_MS), 0
    for now_ms in range(TURN_MS, 4 * REST_MS, TURN_MS):
        part.units = int(now_ms == REST_MS)
        if not loop.turn(now_ms) and loop.may_rest(now_ms):
            ended_ms = now_ms
            break
    assert part.offset == 1 and ended_ms == 2 * REST_MS
