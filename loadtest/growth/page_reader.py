"""Reads a page of tens of MB without looking at it, over a persistent connection.

A real scraper runs on another machine. This one shares the broker's processors. So the kernel discards the bytes in
place (MSG_TRUNC) and wakes the reader once for each chunk (SO_RCVLOWAT). Only the end of a chunk is copied.
"""

import socket
from http.client import HTTPException
from typing import Self

KEPT_BYTES = 4096
READ_BYTES = 1 << 20
HEAD_BYTES_MAX = 1 << 16


class PageReader:
    """One connection to an HTTP/1.1 server that answers in chunks."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """`address` is host:port."""
        host, _, port = address.rpartition(":")
        self._host = host
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._nowhere = bytearray(READ_BYTES)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def last_of(self, path: str) -> bytes:
        """Return the last bytes of the page, KEPT_BYTES of them if one chunk has so many.

        Raises OSError, HTTPException.
        """
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        status = self._line()
        head = [status]
        while line := self._line():
            head.append(line.lower())
        if status.split()[1:2] != [b"200"] or b"transfer-encoding: chunked" not in head:
            told = b", ".join(head)[:200].decode("latin-1")
            raise HTTPException(f"{path}: a page in chunks was expected, not {told}")
        found = b""
        while length := self._length():
            kept = min(length, KEPT_BYTES)
            self._skip(length - kept)
            found = (found + self._take(kept))[-KEPT_BYTES:]
            self._take(2)
        self._line()
        return found

    def _wake_at(self, count: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, min(count, READ_BYTES)))

    def _length(self) -> int:
        line = self._line()
        if not line or line.strip(b"0123456789abcdefABCDEF"):
            raise HTTPException(f"a chunk's length was expected, not {line[:40]!r}")
        return int(line, 16)

    def _more(self) -> None:
        piece = self._socket.recv(KEPT_BYTES)
        if not piece:
            raise HTTPException("the server closed the connection within a page")
        self._read += piece

    def _line(self) -> bytes:
        while b"\r\n" not in self._read:
            if len(self._read) > HEAD_BYTES_MAX:
                raise HTTPException(f"a line of more than {HEAD_BYTES_MAX} bytes")
            self._more()
        line, _, self._read = self._read.partition(b"\r\n")
        return line

    def _take(self, count: int) -> bytes:
        while len(self._read) < count:
            self._more()
        taken, self._read = self._read[:count], self._read[count:]
        return taken

    def _skip(self, count: int) -> None:
        there = min(count, len(self._read))
        self._read = self._read[there:]
        count -= there
        self._wake_at(count)
        while count:
            skipped = self._socket.recv_into(self._nowhere, min(count, READ_BYTES), socket.MSG_TRUNC)
            if not skipped:
                raise HTTPException("the server closed the connection within a page")
            count -= skipped
            self._wake_at(count)
