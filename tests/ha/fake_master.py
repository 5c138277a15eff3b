"""A master without a broker: its HA port, and what it says there."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from types import TracebackType

Script = Callable[[int, int], Iterable[bytes]]
"""(number of the connection, first report) -> pieces to say; the connection stays open behind the last one."""


class FakeMaster:
    """Answers every connection as `script` says, from a thread; `reports` holds what each slave connection reported."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.reports: list[list[int]] = []
        self._links: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                reports: list[int] = []
                self.reports.append(reports)
                self._links.append(link)
                threading.Thread(target=self._talk, args=(len(self._links) - 1, link, reports), daemon=True).start()

    def _talk(self, number: int, link: socket.socket, reports: list[int]) -> None:
        with contextlib.suppress(OSError):
            stream = link.makefile("rb")
            first = stream.read(8)
            if len(first) < 8:
                return
            reports += struct.unpack(">q", first)
            threading.Thread(target=self._send_log, args=(number, link, reports[0]), daemon=True).start()
            while len(data := stream.read(8)) == 8:
                reports += struct.unpack(">q", data)

    def _send_log(self, number: int, link: socket.socket, first_report: int) -> None:
        with contextlib.suppress(OSError):
            for piece in self._script(number, first_report):
                link.sendall(piece)

    @property
    def last_report(self) -> int:
        """The newest report of all, -1 = none yet."""
        return next((reports[-1] for reports in reversed(self.reports) if reports), -1)

    def cut(self) -> None:
        """Close the connections that stand."""
        for link in list(self._links):  # whoever is cut may be back before the loop has ended
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End; whoever connects from now on is refused."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(
                socket.SHUT_RDWR
            )  # closing alone leaves the call that waits for a connection one more
        self._listener.close()
        self.cut()
        for link in self._links:
            link.close()

    def __enter__(self) -> "FakeMaster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
