"""Errors between bytes and commands. Each names the field and the limit that it violates.

Two families, by consequence:

* `FrameError`: the byte stream has no frame borders any more, or no answer could name its request. The connection is
  closed without an answer, as RocketMQ's reader does (`NettyDecoder.decode`).
* `RequestError`: the frame is valid, its content is not. The answer has `code`, and `str(error)` as remark.
"""

from __future__ import annotations

from typing import Self


class RemotingError(Exception):
    """Base of all errors of the codecs. `field` names the faulty field, `limit` the violated bound, if any."""

    def __init__(self, message: str, *, field: str, limit: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.limit = limit

    def without_traceback(self) -> Self:
        """Return a copy without traceback, cause and context.

        A traceback references frames of functions, and these reference local variables. So an object that stores an
        error of its own method is part of a cycle. The cycle stays in memory until the garbage collector runs.
        """
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        return copy


class FrameError(RemotingError):
    """The stream is broken: close the connection.

    `commands_before` holds the complete commands in front of the bad bytes in the same `FrameDecoder.feed`.
    """

    commands_before: tuple[object, ...] = ()
    first_bytes: bytes = b""
    """The first bytes of the bad frame, at most 16."""


class FrameTooLarge(FrameError):
    """A frame's length is over the limit."""

    def __init__(self, frame_bytes: int, max_frame_bytes: int) -> None:
        super().__init__(
            f"frame of {frame_bytes} bytes is over the limit of {max_frame_bytes}",
            field="frame length",
            limit=max_frame_bytes,
        )


class BadFrame(FrameError):
    """Lengths that contradict each other, or an unknown serialize type."""


class BadHeader(FrameError):
    """The header bytes do not parse, and the opaque is unknown."""


class EncodeError(RemotingError):
    """A command of this process cannot be put on the wire."""


class RequestError(RemotingError):
    """The request is answered with `code` (a `ResponseCode` value) and the message as remark."""

    def __init__(self, message: str, *, field: str, code: int, limit: int | None = None) -> None:
        super().__init__(message, field=field, limit=limit)
        self.code = code


class UnreadableHeader(RequestError):
    """The header bytes do not parse, but the opaque is known. The frames behind it are not affected.

    `commands_before` is as in `FrameError`.
    """

    commands_before: tuple[object, ...] = ()

    def __init__(self, cause: BadHeader, *, request_code: int, flag: int, opaque: int, is_json: bool) -> None:
        super().__init__(str(cause), field=cause.field, code=1, limit=cause.limit)
        self.request_code = request_code
        self.flag = flag
        self.opaque = opaque
        self.is_json = is_json


class MissingField(RequestError):
    """A required header field is absent, or null (an empty binary value)."""

    def __init__(self, header: str, field: str) -> None:
        super().__init__(f"{header}: the required field {field} is missing", field=field, code=1)


class BadField(RequestError):
    """A header field cannot be read as its type."""

    def __init__(self, header: str, field: str, value: str, wanted: str, code: int = 1) -> None:
        super().__init__(f"{header}: the field {field} = {value[:64]!r} is not {wanted}", field=field, code=code)


class BadBody(RequestError):
    """A request or answer body does not parse."""
