"""Bytes in, commands out: the stream side of the codec, without a socket.

The decoder checks the first 8 bytes of a frame before it stores the rest. So a peer costs at most `max_frame_bytes`
beyond the bytes that the decoder's owner has pushed and not taken yet.
"""

from __future__ import annotations

from ringmq.remoting.command import MAX_FRAME_BYTES, RemotingCommand, check_prefix, decode_payload
from ringmq.remoting.errors import FrameError, UnreadableHeader

__all__ = ["FIRST_BYTES", "FrameDecoder"]

FIRST_BYTES = 16
"""The number of bytes of a bad frame that are saved for the log."""
_COMPACT_BYTES = 65_536
"""The size of taken frames at which they are removed from the buffer. An otherwise empty buffer is cleared at once."""


class FrameDecoder:
    """Cuts a byte stream into commands.

    After a `FrameError` the stream has no frame borders any more: every further `feed` or `take` raises the same
    error, and the owner closes the connection.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        self._buffer = bytearray()
        self._at = 0
        """The position of the current frame in the buffer."""
        self._wanted = 8
        """The bytes of the current frame that must arrive before the decoder looks at the frame again."""
        self._error: FrameError | None = None

    @property
    def buffered_bytes(self) -> int:
        """The bytes that are not taken yet."""
        return len(self._buffer) - self._at

    @property
    def allocated_bytes(self) -> int:
        """The memory of the buffer: a bytearray allocates in advance, and taken bytes stay for a time."""
        return self._buffer.__alloc__()

    @property
    def is_ready(self) -> bool:
        """True if `take` may find a command or an error."""
        return self._error is not None or self.buffered_bytes >= self._wanted

    def feed(self, data: bytes | bytearray | memoryview) -> list[RemotingCommand]:
        """Return the commands completed by `data`, in order, often none.

        Raises `FrameError` on invalid bytes, and `UnreadableHeader` for one frame that cannot be read.
        `error.commands_before` holds the complete commands before them.
        """
        commands: list[RemotingCommand] = []
        self.push(data)
        try:
            while (command := self.take()) is not None:
                commands.append(command)
        except (FrameError, UnreadableHeader) as error:
            if commands:
                error.commands_before = tuple(commands)
            raise
        return commands

    def push(self, data: bytes | bytearray | memoryview) -> None:
        """Store `data` for `take`."""
        if self._error is None:
            self._buffer += data

    def take(self) -> RemotingCommand | None:
        """Return the next command, None if its bytes are incomplete.

        Raises `FrameError` on invalid bytes. After an `UnreadableHeader` the next call returns the command behind it.
        """
        if self._error is not None:
            raise self._error.without_traceback()
        if self.buffered_bytes < self._wanted:
            return None
        try:
            return self._next()
        except FrameError as error:
            error.first_bytes = bytes(self._buffer[self._at : self._at + FIRST_BYTES])
            self._error = error.without_traceback()
            self._buffer, self._at = bytearray(), 0  # not clear(): the traceback may still hold views of the old one
            raise

    def _next(self) -> RemotingCommand | None:
        at = self._at
        with memoryview(self._buffer) as view:
            with view[at:] as rest:
                frame_bytes = check_prefix(rest, self._max_frame_bytes, self._max_header_bytes)
            if len(self._buffer) - at < frame_bytes:
                self._wanted = frame_bytes
                return None
            fault: UnreadableHeader | None = None
            try:
                with view[at + 4 : at + frame_bytes] as payload:
                    command = decode_payload(payload)
            except UnreadableHeader as error:
                fault = error.without_traceback()  # views of the buffer go with the traceback
        self._pass(frame_bytes)
        if fault is not None:
            raise fault
        return command

    def _pass(self, frame_bytes: int) -> None:
        """Go on behind the current frame."""
        self._at, self._wanted = self._at + frame_bytes, 8
        if self._at >= _COMPACT_BYTES or self._at == len(self._buffer):
            del self._buffer[: self._at]
            self._at = 0
