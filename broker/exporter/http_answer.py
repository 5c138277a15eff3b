"""One answer: the bytes of its head and its pieces, sent as far as the socket accepts them.

A connection holds at most one piece of a page, and the kernel holds at most UNSENT_BYTES_MAX unsent bytes. So a slow
reader takes little memory.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from ringmq.broker.exporter.http_protocol import Buffer, HttpProtocol
from ringmq.broker.exporter.text import CONTENT_TYPE

UNSENT_BYTES_MAX = 512 << 10
PLAIN = "text/plain; charset=utf-8"


class Answer:
    """An answer that is being sent: the part that the socket has not accepted yet."""

    def __init__(self, protocol: HttpProtocol, begin: list[Buffer], pieces: Iterable[Buffer] = ()) -> None:
        """`begin` (bytes that are framed already) is sent first, then `pieces`."""
        self._protocol = protocol
        self._left = begin
        self._pieces: Iterator[Buffer] = iter(pieces)
        self._is_first, self._is_last = True, False

    def send(self, connection: socket.socket) -> int:
        """Send the rest of the current piece, or the next piece. Returns the number of bytes that the socket has
        accepted.

        Raises BlockingIOError if it accepts none now, and OSError if the peer is gone.
        """
        if self._is_first or not self._left:  # the head goes out together with the first piece
            self._is_first = False
            self._next_piece()
        if not self._left:
            return 0
        sent = left = connection.sendmsg(self._left, (), 0 if self._is_last else socket.MSG_MORE)
        while self._left and left >= len(self._left[0]):
            left -= len(self._left.pop(0))
        if left:
            self._left[0] = memoryview(self._left[0])[left:]
        return sent

    @property
    def is_done(self) -> bool:
        """True if all bytes are with the kernel."""
        return self._is_last and not self._left

    def _next_piece(self) -> None:
        """Append the next piece. It ends the life of the previous piece, whose buffer it may reuse."""
        piece = next(self._pieces, None)
        if piece is not None:
            self._left += self._protocol.piece(piece)
            return
        self._is_last = True
        if end := self._protocol.end():
            self._left.append(end)


def whole(protocol: HttpProtocol, status: int, kind: str, body: bytes, *, with_body: bool = True) -> Answer:
    """An answer of known length."""
    begin: list[Buffer] = [protocol.head(status, kind, len(body))]
    if with_body:
        begin += protocol.piece(body)
    return Answer(protocol, begin)


def as_json(protocol: HttpProtocol, good: bool, value: dict[str, Any], *, with_body: bool) -> Answer:
    """An answer with status 200 or 503 and an object."""
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps(value).encode() + b"\n"
    return whole(protocol, status, "application/json", body, with_body=with_body)


def page(protocol: HttpProtocol, pieces: Iterable[Buffer]) -> Answer:
    """A page whose length is unknown before it is made: chunks, or for HTTP/1.0 the end of the connection, end it."""
    return Answer(protocol, [protocol.head(HTTPStatus.OK, CONTENT_TYPE, None)], pieces)
