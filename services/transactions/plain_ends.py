"""Takes plain ends of transactions out of the inbox in C, and hands those that C leaves to the service.

`native/src/services/plain_ends.h` says which are plain. An end that is not plain stays in the inbox for the service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ringmq.broker.requests.records import plain_request
from ringmq.broker.requests.request import Request
from ringmq.native import lib


class EndService(Protocol):
    """The service, as this module needs it."""

    def take_plain(self, room: int) -> int:
        """Take plain ends from the front of the inbox. Returns their number."""

    def send_ends(self) -> Iterator[Any]:
        """Send the ends whose time has come. Yields those that C leaves (struct rmq_plain_end)."""

    def take_left(self, request: Request, row: Any) -> None:
        """Take an end that C has left. Its answer follows."""


class PlainEnds:
    """Implements PlainRequests of the intake. Without room in the service, ends stay in the inbox for `on_request`,
    which refuses them."""

    def __init__(self, service: EndService) -> None:
        self._service = service

    def take(self, room: int, reader_of: Callable[[int, int], int | None], now_ms: int) -> tuple[int, list[Request]]:
        """See PlainRequests."""
        count = self._service.take_plain(room)
        told: list[Request] = []
        for row in self._service.send_ends():
            reader = reader_of(row.record.role, row.record.role_generation)
            if reader is None:
                continue
            request = plain_request(row.record, row.asked, reader, now_ms)
            told.append(request)
            if row.why != lib.RMQ_END_SLOW:
                self._service.take_left(request, row)
        return count, told
