"""Log lines of requests that took longer than ringmqSlowRequestMs: sends, with the times of their stages, and requests
that control or a service has answered.

Readers put such sends into rings of 64. Control empties the rings four times a second, adds its own requests and writes
at most LINES_PER_SECOND.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from ringmq.broker.requests.request import Request
from ringmq.ipc.invariant import check_invariant
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.remoting.codes import RequestCode

LINES_PER_SECOND = 10
OWN_MAX = lib.RMQ_SLOW_SLOTS
"""Slow requests of control's own between two ticks that may get a line."""
_NAMES = {code.value: code.name for code in RequestCode}
DROPPED_COUNTER = 0
"""Counter of control's role, or of `services`: slow requests without a line. Readers count those that a full ring
dropped.
"""


class Slow(Protocol):
    """A slow request with its log line."""

    def line(self) -> str: ...


class SlowRequest(Struct, frozen=True):
    """struct rmq_slow_request. Times in us since the request was received. 0 = the request did not reach the stage, or
    does not wait there."""

    received_wall_ms: int
    topic: str
    queue_id: int
    code: int
    answer_code: int
    client: str
    size_bytes: int
    queued_us: int
    appended_us: int
    durable_us: int
    answered_us: int

    def line(self) -> str:
        """The log line."""
        stages = {"queued": self.queued_us, "appended": self.appended_us, "kept": self.durable_us}
        told = ", ".join(f"{name} {us / 1000:.1f} ms" for name, us in stages.items() if us)
        return (
            f"slow send: {self.answered_us / 1000:.1f} ms ({told or 'not appended'}), topic {self.topic}, "
            f"queue {self.queue_id}, {self.size_bytes} bytes from {self.client}, code {self.code}, "
            f"answer {self.answer_code}, received {_clock(self.received_wall_ms)}"
        )


class SlowControlRequest(Struct, frozen=True):
    """A request that waited for control or ran long there. `took_us`: since it was received."""

    received_wall_ms: int
    code: int
    client: str
    size_bytes: int
    took_us: int

    def line(self) -> str:
        """The log line."""
        known = _NAMES.get(self.code)
        name = f" ({known})" if known else ""
        return (
            f"slow request: {self.took_us / 1000:.1f} ms, code {self.code}{name}, {self.size_bytes} bytes "
            f"from {self.client}, received {_clock(self.received_wall_ms)}"
        )


def slow_request(request: Request, took_us: int) -> SlowControlRequest:
    """The slow request with this time since it was received."""
    began_ms = time.time_ns() // 1_000_000 - took_us // 1000
    code, client = request.command.code, request.connection.address
    return SlowControlRequest(began_ms, code, client, request.frame_bytes, took_us)


def _clock(wall_ms: int) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(wall_ms / 1000))}.{wall_ms % 1000:03d}"


class SlowRequests:
    """The log lines of slow requests, limited per second."""

    def __init__(self) -> None:
        self._second = 0
        self._lines = 0
        self._silent = 0
        self._own: list[SlowControlRequest] = []
        self.dropped = 0
        """Number of slow requests without a line."""

    def add(self, request: SlowControlRequest) -> None:
        """Add a request of control's own."""
        if len(self._own) < OWN_MAX:
            self._own.append(request)
        else:
            self._leave_out()

    def own(self) -> list[SlowControlRequest]:
        """The added requests. They are removed."""
        own, self._own = self._own, []
        return own

    def _leave_out(self) -> None:
        self._silent += 1
        self.dropped += 1

    def due_lines(self, requests: Iterable[Slow], now_ms: int) -> Iterator[str]:
        """The lines to write now. A later line counts those beyond the limit of this second."""
        for request in requests:
            if now_ms // 1000 != self._second:
                self._second, self._lines = now_ms // 1000, 0
            if self._lines >= LINES_PER_SECOND:
                self._leave_out()
                continue
            self._lines += 1
            more = f"; {self._silent} more slow requests have no line" if self._silent else ""
            self._silent = 0
            yield request.line() + more


def take(plane: Plane) -> Iterator[SlowRequest]:
    """Empty the readers' rings."""
    for reader in plane.readers:
        ring = plane.header.ports.port[reader.port].slow
        slots = ffi.cast("struct rmq_slow_request *", plane.struct.base + ring.slots_at)
        waiting = int(ring.head - ring.tail)
        check_invariant(
            0 <= waiting <= lib.RMQ_SLOW_SLOTS, "head - tail <= RMQ_SLOW_SLOTS", waiting=waiting, port=reader.port
        )
        head = ring.head  # up to the present head: readers may add faster than this loop takes
        while ring.tail < head:
            request = _request(plane, slots[ring.tail & (lib.RMQ_SLOW_SLOTS - 1)])
            ring.tail += 1
            yield request


def _request(plane: Plane, slow: Any) -> SlowRequest:
    topic = plane.topic(slow.topic_id)
    name = bytes(ffi.buffer(topic.name, topic.name_length)).decode("utf-8", "replace")
    host = ipaddress.ip_address(bytes(slow.host)[: 16 if slow.v6 else 4])
    return SlowRequest(
        slow.received_wall_ms, name, slow.queue_id, slow.code, slow.answer_code, f"{host}:{slow.port}", slow.bytes,
        slow.queued_us, slow.appended_us, slow.durable_us, slow.answered_us,
    )  # fmt: skip
