"""Thousands of polls of one connection: their frames go out in one piece, and their answers are read as they come."""

import contextlib
import re
import socket
import threading
from types import TracebackType
from typing import NamedTuple

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from tests.pop.pop_client import PopClient, pop_fields
from tests.raw_client import RawClient

FIRST_OPAQUE = 1_000_000
"""All opaques have the same number of digits."""
INVISIBLE_MS = 3_600_000
_CODE, _OPAQUE = re.compile(rb'"code":(\d+)'), re.compile(rb'"opaque":(\d+)')


class Reply(NamedTuple):
    """An answer to a poll. `bodies`: of its messages."""

    opaque: int
    code: int
    bodies: list[bytes]


class Crowd:
    """The polls of one group for all queues of a topic, at one connection. Each wants one message."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self._client, self._group, self._topic = PopClient(address, group, topic), group, topic
        self._next, self._bytes, self._sender = FIRST_OPAQUE, bytearray(), threading.Thread()
        self.is_closed = False
        """True if the broker has closed the connection."""

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._client.raw.socket.shutdown(socket.SHUT_RDWR)
        if self._sender.ident is not None:
            self._sender.join()
        self._client.raw.close()

    def begin(self, count: int, poll_ms: int, *, is_same: bool = False) -> None:
        """Send polls, or one of them (`is_same`) so often. A thread sends them: a read worker takes no more while
        nobody reads its answers."""
        fields = pop_fields(self._group, self._topic, 1, INVISIBLE_MS, -1, pollTime=poll_ms)
        texts = {name: str(value) for name, value in fields.items()}
        frame = encode_frame(RemotingCommand.request(RequestCode.POP_MESSAGE, texts, b"", opaque=FIRST_OPAQUE))
        before, named, behind = frame.partition(b'"opaque":%d' % FIRST_OPAQUE)
        assert named
        opaques = [self._next + number * (not is_same) for number in range(count)]
        self._next = opaques[-1] + 1
        data = b"".join(b'%s"opaque":%d%s' % (before, opaque, behind) for opaque in opaques)
        self._sender = threading.Thread(target=self._client.raw.send_bytes, args=(data,))
        self._sender.start()

    def replies(self, count: int) -> list[Reply]:
        """The next answers; fewer if the connection is closed. Raises TimeoutError if none comes for 30 s."""
        found = list[Reply]()
        while len(found) < count and (frame := self._frame()):
            header = frame[8 : 8 + int.from_bytes(frame[5:8])]
            code, opaque = _CODE.search(header), _OPAQUE.search(header)
            assert code and opaque
            bodies = list[bytes]()
            if not int(code[1]):
                bodies = [one.body for one in self._client.taken(decode_frame(frame))]
            found.append(Reply(int(opaque[1]), int(code[1]), bodies))
        return found

    def _frame(self) -> bytes:
        """The next frame. b"": the connection is closed."""
        while len(self._bytes) < 4 or len(self._bytes) < 4 + int.from_bytes(self._bytes[:4]):
            try:
                more = self._client.raw.socket.recv(1 << 20)
            except ConnectionResetError:
                more = b""
            if not more:
                self.is_closed = True
                return b""
            self._bytes += more
        size = 4 + int.from_bytes(self._bytes[:4])
        frame = bytes(self._bytes[:size])
        del self._bytes[:size]
        return frame


def waiting(address: str, group: str, topic: str) -> int:
    """The number of polls that wait. -1: the worker does not answer now."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": -1}
    with RawClient(address) as asker:
        answer = asker.ask(RequestCode.POLLING_INFO, fields)
    return int(answer.ext_fields["pollingNum"]) if answer.code == 0 else -1
