"""HTTP/1.1 of one connection, by h11: parses requests and frames their answers. No IO.

Bodies are not read, so a request that announces one ends its connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import cast

import h11
from msgspec import Struct

HEAD_BYTES_MAX = 16_384
"""Request line and fields of one request. Prometheus sends 300 bytes, a browser with cookies some thousand."""
METHODS = (b"GET", b"HEAD")
VERSIONS = (b"1.0", b"1.1")
Buffer = bytes | memoryview


class Request(Struct, frozen=True):
    """One request without its body."""

    path: str
    """The path without the query."""
    with_body: bool = True
    """False for HEAD: the answer has no body."""


class BadRequest(Exception):
    """The head is refused; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class HttpProtocol:
    """The state of one connection: request, answer, next request. A refused request is the last one."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.SERVER, HEAD_BYTES_MAX)
        self.with_body = True
        """False if the request is a HEAD, also a refused one: the answer has no body."""

    def receive(self, data: bytes) -> None:
        """Accept bytes that the peer has sent."""
        self._h11.receive_data(data)

    def next_request(self) -> Request | None:
        """The next request. None while its head is incomplete. Raises BadRequest."""
        self.with_body = True
        try:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                return None
            request = cast(h11.Request, event)
            self.with_body = request.method != b"HEAD"
            if request.http_version not in VERSIONS:
                raise BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
            if request.method not in METHODS:
                raise BadRequest(501, "only GET and HEAD are served here")
            self._h11.next_event()  # the end of the request, or a piece of a body that is not read
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint, str(error)) from error
        return Request(request.target.decode("latin-1").partition("?")[0], self.with_body)

    def head(self, status: int, kind: str, length: int | None) -> bytes:
        """The head of the answer. `length`: bytes of the body. None: pieces end it."""
        fields = [("Server", "RingMQ"), ("Content-Type", kind)]
        if length is not None:
            fields.append(("Content-Length", str(length)))
        if self._h11.their_state is not h11.DONE:
            fields.append(("Connection", "close"))
        reason = HTTPStatus(status).phrase
        return self._h11.send(h11.Response(status_code=status, headers=fields, reason=reason)) or b""

    def piece(self, data: Buffer) -> Iterable[Buffer]:
        """One piece of the body with its framing. `data` is passed through, not copied."""
        framed = self._h11.send_with_data_passthrough(h11.Data(data=cast(bytes, data)))
        return cast(list[Buffer], framed or [])

    def end(self) -> bytes:
        """The bytes behind the last piece."""
        return self._h11.send(h11.EndOfMessage()) or b""

    @property
    def is_last(self) -> bool:
        """True if the connection carries no request after this one. Valid after `end`."""
        return not (self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE)

    def start_next(self) -> bool:
        """Wait for the next request. True when bytes of it are already here."""
        self._h11.start_next_cycle()
        return bool(self._h11.trailing_data[0])
