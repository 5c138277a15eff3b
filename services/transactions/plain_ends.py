"""Takes plain ends of transactions out of the inbox in C, and hands those that C leaves to the service.

`native/src/services/plain_ends.h` says which are plain. An end that is not plain stays in the inbox for the service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ringmq.broker.requests.records import plain_request
from ringmq.broker.requests.request import Request
from ringmq.services.transactions.ends import End, end_of_row


class EndService(Protocol):
    """The service, as this module needs it."""

    def take_plain(self, room: int) -> int:
        """Take plain ends from the front of the inbox. Returns their number."""

    def send_plain(self) -> Iterator[Any]:
        """Send plain ends whose time has come. Yields those for `take` (struct rmq_plain_end)."""

    def take(self, request: Request, end: End) -> None:
        """Take an end that is a commit or a rollback. Its answer follows."""


class PlainEnds:
    """Implements PlainRequests of the intake. Without room in the service, ends stay in the inbox for `on_request`,
    which refuses them."""

    def __init__(self, service: EndService) -> None:
        self._service = service

    def take(self, room: int, reader_of: Callable[[int, int], int | None], now_ms: int) -> tuple[int, list[Request]]:
        """See PlainRequests."""
        count = self._service.take_plain(room)
        taken: list[Request] = []
        for row in self._service.send_plain():
            reader = reader_of(row.record.role, row.record.role_generation)
            if reader is None:
                continue
            request, end = request_of_row(row, reader, now_ms)
            self._service.take(request, end)
            taken.append(request)
        return count, taken


def request_of_row(row: Any, reader: int, now_ms: int) -> tuple[Request, End]:
    """The request in a struct rmq_plain_end."""
    return plain_request(row.record, row.asked, reader, now_ms), end_of_row(row)
