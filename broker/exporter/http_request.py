"""Heads of HTTP requests: a bounded parser.

Bodies are not read, so a request that announces one ends its connection.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD_BYTES_MAX = 16_384
"""Request line and fields of one request. Prometheus sends 300 bytes, a browser with cookies some thousand."""
FIELDS_MAX = 100
METHODS = ("GET", "HEAD")
VERSIONS = ("HTTP/1.0", "HTTP/1.1")
END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request without its body."""

    path: str
    """Without the query."""
    with_body: bool = True
    """False for HEAD."""
    in_chunks: bool = True
    """The answer may come in chunks (HTTP/1.1)."""
    keep: bool = True
    """The connection may carry another request."""


class BadRequest(Exception):
    """The head is refused; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def take_request(received: bytearray) -> Request | None:
    """Take the first request out of `received`. None while its head is incomplete. Raises BadRequest."""
    while received.startswith(b"\r\n"):  # RFC 9112, 2.2: empty lines in front of a request are ignored
        del received[:2]
    end = received.find(END, 0, HEAD_BYTES_MAX + len(END))
    if end < 0:
        if len(received) >= HEAD_BYTES_MAX:
            raise BadRequest(431, f"the head of a request is over {HEAD_BYTES_MAX} bytes")
        return None
    head = bytes(received[:end])
    del received[: end + len(END)]
    line, *fields = head.decode("latin-1").split("\r\n")
    return _request(line, _values(fields))


def _request(line: str, fields: dict[str, str]) -> Request:
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequest(400, "the first line is not that of an HTTP request")
    method, target, version = words
    if version not in VERSIONS:
        raise BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
    if method not in METHODS:
        raise BadRequest(501, "only GET and HEAD are served here")
    modern = version == "HTTP/1.1"
    closes = "close" in fields.get("connection", "").lower() or not modern
    brings_body = fields.get("content-length", "0") != "0" or "transfer-encoding" in fields
    return Request(target.partition("?")[0], method == "GET", modern, not closes and not brings_body)


def _values(fields: list[str]) -> dict[str, str]:
    if len(fields) > FIELDS_MAX:
        raise BadRequest(431, f"the head of a request has {len(fields)} fields, over {FIELDS_MAX}")
    values = {}
    for field in fields:
        name, colon, value = field.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400, "a field of the head has no name")
        values[name.lower()] = value.strip()
    return values
