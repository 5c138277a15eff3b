"""One answer on its way: the bytes of its head and its pieces, sent as far as the socket takes them.

At most one piece of a page is kept for each connection, and the kernel keeps at most UNSENT_BYTES_MAX that it has not
sent, so a slow reader holds little memory.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from ringmq.broker.exporter.text import CONTENT_TYPE

UNSENT_BYTES_MAX = 512 << 10
PLAIN = "text/plain; charset=utf-8"
Buffer = bytes | memoryview


class Answer:
    """What is left of an answer. `closes`: the connection ends behind it."""

    def __init__(self, head: bytes, pieces: Iterable[Buffer] = (), *, in_chunks: bool = False, closes: bool) -> None:
        self.closes = closes
        self._pieces: Iterator[Buffer] = iter(pieces)
        self._in_chunks = in_chunks
        self._between = b""
        self._left: list[Buffer] = [head]
        self._is_first, self._is_last = True, False

    def send(self, connection: socket.socket) -> int:
        """Send what is left of the current piece, else the next piece. The bytes that the socket took.

        Raises BlockingIOError when it takes none now, and OSError when the peer is gone.
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
        """Everything is with the kernel."""
        return self._is_last and not self._left

    def _next_piece(self) -> None:
        """Append the next piece. It ends the life of the piece before, whose buffer the next one may reuse."""
        piece = next(self._pieces, None)
        if piece is None:
            self._is_last = True
            if self._in_chunks:
                self._left.append(b"%s0\r\n\r\n" % self._between)
            return
        if self._in_chunks:
            self._left.append(b"%s%x\r\n" % (self._between, len(piece)))
            self._between = b"\r\n"
        self._left.append(piece)


def whole(status: int, kind: str, body: bytes, *, with_body: bool = True, keep: bool = True) -> Answer:
    """An answer of known length."""
    head = _head(status, keep, f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n")
    return Answer(head + body if with_body else head, closes=not keep)


def as_json(good: bool, value: dict[str, Any], *, with_body: bool, keep: bool) -> Answer:
    """200 or 503 with an object."""
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps(value).encode() + b"\n"
    return whole(status, "application/json", body, with_body=with_body, keep=keep)


def page(pieces: Iterable[Buffer], *, with_body: bool, in_chunks: bool, keep: bool) -> Answer:
    """A page whose length is not known before it is made. Without chunks the end of the connection ends it."""
    keep = keep and in_chunks
    fields = f"Content-Type: {CONTENT_TYPE}\r\n" + ("Transfer-Encoding: chunked\r\n" if in_chunks else "")
    chunks = in_chunks and with_body
    return Answer(_head(200, keep, fields), pieces if with_body else (), in_chunks=chunks, closes=not keep)


def _head(status: int, keep: bool, fields: str) -> bytes:
    line = f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}\r\nServer: RingMQ\r\n"
    return (line + fields + ("" if keep else "Connection: close\r\n") + "\r\n").encode()
