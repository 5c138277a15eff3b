"""A broker in a thread that answers each request with the bytes that a test gives: for blocking clients."""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.frame import FrameDecoder

Script = Callable[[RemotingCommand], bytes | None]
"""Request -> the bytes to send; None hangs up."""


class ScriptedBroker:
    """Listens on the loopback; connections are served one after the other. `requests` holds what was asked."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[RemotingCommand] = []
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return  # closed by __exit__
            self.connections += 1
            with peer:
                self._talk(peer)

    def _talk(self, peer: socket.socket) -> None:
        decoder = FrameDecoder()
        try:
            while data := peer.recv(1 << 16):
                for request in decoder.feed(data):
                    self.requests.append(request)
                    answer = self._script(request)
                    if answer is None:
                        return
                    peer.sendall(answer)
        except ConnectionError:
            return


def pull_answer(
    request: RemotingCommand,
    code: int,
    next_offset: int,
    *,
    body: bytes = b"",
    remark: str | None = None,
    bounds: tuple[int, int] = (0, 1000),
    kind: SerializeType = SerializeType.ROCKETMQ,
) -> bytes:
    """The frame that answers a pull."""
    fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(bounds[0]),
        "maxOffset": str(bounds[1]),
    }
    answer = RemotingCommand.response_to(request, code, remark, fields, body)
    answer.serialize_type = kind
    return encode_frame(answer)
