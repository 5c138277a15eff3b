"""Bulk pulls over one blocking socket: many pulls in flight, answers in order of arrival, bodies without a copy.

For readers with a known range of offsets (Spark tasks). Consumers use `QueueReader`. The broker commits, holds and
filters nothing: each request has its own subscription ("*"), like those of RocketMQ's `DefaultMQPullConsumer`. So the
broker needs to know no member of the group. A pull costs a few microseconds here, a message none.
"""

import socket
import struct
from collections.abc import Mapping
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self

from ringmq.client.connections.connection import split_address
from ringmq.client.errors import ConnectError, RequestTimeoutError
from ringmq.remoting.codes import VERSION_V5_3_3, LanguageCode, RequestCode, ResponseCode, SerializeType
from ringmq.remoting.command import MAX_FRAME_BYTES, RemotingCommand, check_prefix, decode_payload
from ringmq.remoting.errors import BadHeader, RemotingError, UnreadableHeader
from ringmq.remoting.flags import PullSysFlag
from ringmq.remoting.message_queue import MessageQueue

RECEIVE_BYTES = 2 << 20
UNREADABLE = -1
"""The code of an answer whose header cannot be read. No broker sends it."""

_FIXED = struct.Struct(">IIhBhiiii")  # frame length, header length and type, then the binary header without entries
_ENTRY = struct.Struct(">H")
_LENGTH = struct.Struct(">i")
_HEADER_FIXED_BYTES = _FIXED.size - 8


class PullStatus(Enum):
    """The outcome of a pull."""

    FOUND = "messages came"
    NOTHING_MATCHED = "there is no message up to next_offset"
    NOT_YET = "the queue ends at or below the offset"
    MOVED = "the offset is outside the queue"
    BUSY = "the broker has no time now"
    GO_AWAY = "the broker is leaving"
    UNKNOWN_TOPIC = "the broker has no such topic"
    REFUSED = "any other answer"


_STATUSES: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NOTHING_MATCHED,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NOT_YET,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.MOVED,
    ResponseCode.SYSTEM_ERROR: PullStatus.BUSY,
    ResponseCode.SYSTEM_BUSY: PullStatus.BUSY,
    ResponseCode.FLOW_CONTROL: PullStatus.BUSY,
    ResponseCode.GO_AWAY: PullStatus.GO_AWAY,
    ResponseCode.TOPIC_NOT_EXIST: PullStatus.UNKNOWN_TOPIC,
}


class PullAnswer(NamedTuple):
    """The answer to the pull `number`. Offsets are -1 if the broker named none.

    `body` holds records as in the log, in queue order. It is valid until the next call of `PullConnection.answers`.
    """

    number: int
    status: PullStatus
    code: int
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int
    body: memoryview


class PullConnection:
    """A connection to the broker at `address`, for pulls in the name of `group`.

    Raises `ConnectError` and `RequestTimeoutError`. After an error the connection cannot be used any more.
    """

    def __init__(
        self, address: str, group: str, *, connect_timeout_ms: int = 3000, answer_timeout_ms: int = 10_000
    ) -> None:
        self.address = address
        self._group = group
        self._answer_timeout_ms = answer_timeout_ms
        self._queue_entries: dict[MessageQueue, bytes] = {}
        self._outgoing: list[bytes] = []
        self._last_number = 0
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        self._begin = self._end = 0  # of what was received and not yet cut
        try:
            self._socket = socket.create_connection(split_address(address), connect_timeout_ms / 1000)
        except TimeoutError:
            raise ConnectError(address, f"no answer to connect within {connect_timeout_ms} ms") from None
        except OSError as error:
            raise ConnectError(address, error.strerror or str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(answer_timeout_ms / 1000)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def ask(self, queue: MessageQueue, offset: int, count: int) -> int:
        """Queue a pull of up to `count` messages of `queue` from `offset` on, and return its number.

        `answers` sends it.
        """
        entries = self._queue_entries.get(queue)
        if entries is None:
            entries = self._queue_entries[queue] = self._entries_of(queue)
        self._last_number += 1
        entries += _entry(b"queueOffset", b"%d" % offset) + _entry(b"maxMsgNums", b"%d" % count)
        header_bytes = _HEADER_FIXED_BYTES + len(entries)
        head = _FIXED.pack(
            4 + header_bytes,
            SerializeType.ROCKETMQ << 24 | header_bytes,
            RequestCode.PULL_MESSAGE,
            LanguageCode.PYTHON,
            VERSION_V5_3_3,
            self._last_number,
            0,  # flag: a request
            0,  # no remark
            len(entries),
        )
        self._outgoing += (head, entries)
        return self._last_number

    def answers(self) -> list[PullAnswer]:
        """Send the queued pulls and return all answers, at least one. Earlier bodies become invalid."""
        try:
            if self._outgoing:
                outgoing, self._outgoing = self._outgoing, []
                self._socket.sendall(b"".join(outgoing))
            self._make_room()
            while True:
                received = self._socket.recv_into(self._received[self._end :])
                if not received:
                    raise ConnectError(self.address, "closed by the broker", sent=True)
                self._end += received
                answers = self._cut()
                if answers:
                    return answers
                self._make_room()
        except TimeoutError:
            raise RequestTimeoutError(self.address, self._answer_timeout_ms) from None
        except OSError as error:
            raise ConnectError(self.address, error.strerror or str(error), sent=True) from error
        except RemotingError as error:
            raise ConnectError(self.address, f"a broken frame came: {error}", sent=True) from error

    def _make_room(self) -> None:
        """Move the incomplete frame to the front, of a larger buffer if it does not fit."""
        rest = self._received[self._begin : self._end]
        frame_bytes = check_prefix(rest[:8], MAX_FRAME_BYTES) if len(rest) >= 8 else 8
        if frame_bytes > len(self._received):
            self._received = memoryview(bytearray(frame_bytes))
        self._received[: len(rest)] = rest  # memmove: the two may overlap
        self._begin, self._end = 0, len(rest)

    def _cut(self) -> list[PullAnswer]:
        answers = []
        received, at, end = self._received, self._begin, self._end
        while end - at >= 8:
            frame_bytes = check_prefix(received[at : at + 8], MAX_FRAME_BYTES)
            if end - at < frame_bytes:
                break
            body_at = at + 8 + int.from_bytes(received[at + 5 : at + 8], "big")
            try:
                command = decode_payload(received[at + 4 : body_at])
            except UnreadableHeader as error:
                command = RemotingCommand.unreadable(error)
                command.code, command.remark = UNREADABLE, f"the answer cannot be read: {error}"
            if command.is_response:  # a broker's own requests need no answer from a reader
                answers.append(_answer(command, received[body_at : at + frame_bytes]))
            at += frame_bytes
        self._begin = at
        return answers

    def _entries_of(self, queue: MessageQueue) -> bytes:
        fields = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "sysFlag": str(int(PullSysFlag.SUBSCRIPTION)),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
            "ringmqBulk": "true",  # to RingMQ: bounded by bytes alone (docs/spark.md); stock ignores it
        }
        return b"".join(_entry(name.encode(), value.encode()) for name, value in fields.items())


def _entry(name: bytes, value: bytes) -> bytes:
    return _ENTRY.pack(len(name)) + name + _LENGTH.pack(len(value)) + value


def _answer(command: RemotingCommand, body: memoryview) -> PullAnswer:
    fields = command.ext_fields
    return PullAnswer(
        command.opaque,
        _STATUSES.get(command.code, PullStatus.REFUSED),
        command.code,
        command.remark or "",
        _offset(fields, "nextBeginOffset"),
        _offset(fields, "minOffset"),
        _offset(fields, "maxOffset"),
        body,
    )


def _offset(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "-1")
    try:
        return int(text)
    except ValueError:
        raise BadHeader(f"field {name} is {text[:40]!r}, no number", field=name) from None
