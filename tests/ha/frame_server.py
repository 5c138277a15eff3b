"""A broker port without a broker: answers each frame as a subclass says."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.frame import FrameDecoder


class FrameServer(ABC):
    """Serves connections from threads until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._links: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @abstractmethod
    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """The answer to one request."""

    def close(self) -> None:
        """End the listener and every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()

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
                    link.sendall(encode_frame(self.answer(request)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
