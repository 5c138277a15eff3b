"""The broker port of a slave without a broker: hands bytes of a log over, as request 270004 asks."""

import contextlib
import socket
import threading
from types import TracebackType

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.ha_bodies import HaReadLogRequestHeader, HaReadLogResponseHeader


class FakeSlaveLog:
    """Serves `log`, which begins at offset 0 and may be changed, until it is closed."""

    def __init__(self, log: bytes = b"") -> None:
        self.log = log
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
        assert request.code == RequestCode.HA_READ_LOG
        asked = HaReadLogRequestHeader.decode(request.ext_fields)
        data = self.log[asked.offset : asked.offset + asked.max_bytes]
        if not data:
            return RemotingCommand.response_to(request, ResponseCode.INVALID_PARAMETER, "not in the log")
        fields = HaReadLogResponseHeader(offset=asked.offset, max_offset=len(self.log)).encode()
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, None, fields, data)

    def close(self) -> None:
        """Nobody is there any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()

    def __enter__(self) -> "FakeSlaveLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def one_record_more(log: bytes, record: bytes) -> bytes:
    """The log with a copy of `record`, whose physical offset is that of its place there."""
    return log + record[:28] + len(log).to_bytes(8, "big") + record[36:]
