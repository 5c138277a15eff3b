"""Acknowledgements of messages that have a check point in the log (`native/src/pop/pop_log_acks.h`).

C writes the records, one batch at a time, and answers behind them. Without a revive topic it writes none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import ffi, lib
from ringmq.pop.log_room import LogRoom, LogTexts
from ringmq.pop.record_notice import NONE, KeptNotice, RecordNotice
from ringmq.pop.record_targets import Targets, targets_of
from ringmq.services.kit.log_lines import LogLines

LOOK_MS = 1000
"""Time between two looks for the queues of the records."""
LONGER_MS = 3_600_000
"""The notice reaches so much further than a change needs, so that few changes write it."""


class LogAcks:
    """Owns the struct. Its records have the first bytes of the port's arena."""

    def __init__(
        self, plane: Plane, port: Port, notice: KeptNotice, config: Callable[[], BrokerConfig],
        log_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plane, self._config, self._notice = plane, config, notice
        self._lines = LogLines(log_line)
        self.native = native = lib.rmq_pop_log_acks_open()
        if native == ffi.NULL:
            raise MemoryError("no memory for acknowledgements that wait for their records")
        self._shared = LogRoom(native.room, plane)
        arena = ffi.from_buffer(port.arena, require_writable=True)
        native.room.arena, native.room.arena_end = arena, lib.RMQ_POP_LOG_ARENA_BYTES
        native.port, native.until_ms = port.number, notice.now.until_ms
        self._kept: tuple[Any, ...] = (arena,)
        self._targets: Targets | None = None
        self._next_look_ms = self._told = 0
        self._look()  # the plane has the topics of a start before any worker runs

    def turn(self, now_ms: int) -> None:
        """Look for the queues, and log what write has refused."""
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_MS
        self._look()
        if (refused := int(self.native.refused)) > self._told:
            cause, self._told = int(self.native.refused_cause), refused
            text = "a RocketMQ broker that gets this store after a kill gives these messages again"
            self._lines(f"pop: write refuses records of acknowledgements (cause {cause}): {text}")

    def _look(self) -> None:
        found = targets_of(self._plane, self._config())
        if found is not None and found != self._targets:
            self._set(found)

    def _set(self, targets: Targets) -> None:
        native, texts = self.native, LogTexts()
        texts.put(native.room.broker, self._config().broker_name)
        texts.put(native.room.revive_topic, targets.revive_topic)
        content = bytes(texts)
        room = ffi.new("uint8_t[]", len(content) + lib.RMQ_POP_LOG_NAMES_BYTES)
        room[0 : len(content)] = content
        native.texts = native.room.texts = room
        native.texts_bytes = len(content)
        native.names[0].length = 0  # those of the last record were in the texts of before
        self._shared.set_targets(targets)
        self._kept = self._kept[0], room
        self._targets = targets

    def extend(self, due_ms: int) -> None:
        """Have the next start look for check points that are due then. Raises OSError."""
        if due_ms > self.native.until_ms:
            until_ms = due_ms + LONGER_MS
            self._notice.extend(until_ms)
            self.native.until_ms = until_ms  # the notice may be longer, but for a while

    def end_notice(self) -> None:
        """All check points of the log have ended: the next one that a change makes needs another notice. Changes that
        wait have asked for the one of before. Raises OSError."""
        if self.is_idle:
            self._notice.lower(NONE)
            self.native.until_ms = 0
        else:
            self._notice.lower(RecordNotice(self._notice.now.since, self.native.until_ms))

    def hold(self, is_held: bool) -> bool:
        """Send nothing more to write while other records need the port. True if acknowledgements may go on, and some
        wait."""
        goes_on = bool(self.native.is_held) and not is_held
        self.native.is_held = is_held
        return goes_on and not self.is_idle

    @property
    def is_idle(self) -> bool:
        """True if no acknowledgement waits."""
        return bool(self.native.to == self.native.ended)

    @property
    def is_answered(self) -> bool:
        """True if no record is with write."""
        return not self.native.flying

    @property
    def lacks_room(self) -> bool:
        """True if an answer waits for room in a ring, which rings no bell."""
        return bool(self.native.lacks_room)

    def close(self) -> None:
        """Free the struct. No call may follow."""
        lib.rmq_pop_log_acks_close(self.native)
        self.native = ffi.NULL
