"""The parts that RocketMQ's records of open messages share (`native/src/pop/pop_log_records.h`)."""

from __future__ import annotations

import json
from typing import Any

from ringmq.ipc.plane import NONE, Plane
from ringmq.native import ffi
from ringmq.pop.record_targets import Targets


class LogTexts:
    """Texts of records, each as it is and as text of JSON."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def put(self, to: Any, text: str) -> None:
        """Add a text. Its place goes to a struct rmq_pop_log_text."""
        raw, quoted = text.encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()
        to.at, to.length = len(self._bytes), len(raw)
        self._bytes += raw
        to.json_at, to.json_length = len(self._bytes), len(quoted)
        self._bytes += quoted

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)


class LogRoom:
    """Fills a struct rmq_pop_log_room, and owns its arrays."""

    def __init__(self, native: Any, plane: Plane) -> None:
        self._native = native
        self._kept: tuple[Any, ...] = ()
        settings = plane.header.settings
        ffi.memmove(native.born_host, settings.store_host, 16)
        native.born_port, native.born_v6 = int(settings.store_port), int(settings.store_host_bytes == 16)

    def set_targets(self, targets: Targets) -> None:
        """Set the queues."""
        native = self._native
        slots = ffi.new("uint32_t[]", [slot for _, slot, _ in targets.revive])
        ids = ffi.new("uint32_t[]", [queue_id for _, _, queue_id in targets.revive])
        native.revive_slots, native.revive_ids, native.revive_queues = slots, ids, len(slots)
        native.revive_topic_id = targets.revive[0][0]
        native.timer_topic_id, native.timer_slot = (0, NONE) if targets.timer is None else targets.timer[:2]
        native.precision_ms = targets.precision_ms
        self._kept = slots, ids
