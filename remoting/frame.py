"""Bytes in, commands out: the stream side of the codec, without a socket.

The decoder keeps at most one incomplete frame, judged by its first 8 bytes before the rest is kept, so a peer
costs at most `max_frame_bytes`.
"""

from __future__ import annotations

from ringmq.remoting.command import MAX_FRAME_BYTES, RemotingCommand, check_prefix, decode_payload
from ringmq.remoting.errors import FrameError

__all__ = ["FIRST_BYTES", "FrameDecoder"]

FIRST_BYTES = 16
"""Of a bad frame, kept for the log."""


class FrameDecoder:
    """Cuts a byte stream into commands.

    After a `FrameError` the stream has no frame borders any more: every further `feed` raises the same error,
    and the owner closes the connection.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._wanted = 8
        self._error: FrameError | None = None
        self._at = 0
        """Where in the buffer the frame at hand begins."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[RemotingCommand]:
        """The commands completed by `data`, in order; none is a normal answer.

        Raises `FrameError` on junk; commands that stood complete before it are in `error.commands_before`.
        """
        if self._error is not None:
            raise self._error
        self._buffer += data
        if len(self._buffer) < self._wanted:
            return []
        commands: list[RemotingCommand] = []
        try:
            self._cut(commands)
        except FrameError as error:
            error.commands_before = tuple(commands)
            error.first_bytes = bytes(self._buffer[self._at : self._at + FIRST_BYTES])
            self._error = error
            self._buffer = bytearray()  # not clear(): the traceback may still hold views of the old one
            raise
        return commands

    def _cut(self, commands: list[RemotingCommand]) -> None:
        at, available = 0, len(self._buffer)
        with memoryview(self._buffer) as view:
            self._wanted = 8
            while available - at >= 8:
                self._at = at
                with view[at:] as rest:
                    frame_bytes = check_prefix(rest, self._max_frame_bytes)
                if available - at < frame_bytes:
                    self._wanted = frame_bytes
                    break
                with view[at + 4 : at + frame_bytes] as payload:
                    commands.append(decode_payload(payload))
                at += frame_bytes
        del self._buffer[:at]
