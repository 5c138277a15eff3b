"""The broker port of a master without a broker: answers the private handshake as a test wants."""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from ringmq.ha import handshake
from ringmq.ha.handshake import HandshakeAnswer, PeerClaim
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.frame import FrameDecoder

Judge = Callable[[PeerClaim], HandshakeAnswer | None]
"""None: this broker is stock."""


def answer(verdict: str, offset: int = 0, *, confirm_offset: int = 0, start_id: str = "abc") -> HandshakeAnswer:
    """What a master says."""
    return HandshakeAnswer(verdict, offset, "as the test wants", start_id, 0, 0, confirm_offset)


class FakeMasterBroker:
    """Serves connections from threads; `claims` are what slaves have said, in order."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.claims: list[PeerClaim] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._links: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self._links.append(link)
                threading.Thread(target=self._talk, args=(link,), daemon=True).start()

    def _talk(self, link: socket.socket) -> None:
        decoder = FrameDecoder(1 << 24)
        with contextlib.suppress(OSError):
            while data := link.recv(65_536):
                for request in decoder.feed(data):
                    link.sendall(encode_frame(self._answer(request)))

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        assert request.code == RequestCode.HA_HANDSHAKE
        claim = handshake.claim_of(bytes(request.body))
        self.claims.append(claim)
        said = self.judge(claim)
        if said is None:
            return RemotingCommand.response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=handshake.body(said))

    def __enter__(self) -> "FakeMasterBroker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for link in self._links:
            link.close()
