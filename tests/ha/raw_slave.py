"""A slave without a store: takes a master's stream in on a thread of its own and says how far it has come."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

from ringmq.broker.config.run_config import read_run_config
from ringmq.ipc.segment import plane_name, segment_path
from ringmq.loadtest.load.running import RunningBroker

CONNECT_AGAIN_S = 0.02


def ha_port(broker: RunningBroker) -> int:
    """The port that the broker's HA listener is really bound to."""
    return read_run_config(segment_path(plane_name(broker.store), "config")).ha_listen_port


class RawSlave:
    """Keeps the log in memory. `reports`: false = it takes everything in and says nothing more."""

    def __init__(self, port: int, offset: int = 0, *, comes_back: bool = False, delay_s: float = 0.0) -> None:
        self.start_offset: int | None = None
        """Where the stream began."""
        self.log = bytearray()
        self.reported = 0
        """Largest offset that was said, as soon as it may be on the wire."""
        self.connections = 0
        self.heartbeats = 0
        self.wrong: str | None = None
        self.reports = True
        self._reads = True
        self._rests = threading.Event()
        self._port, self._asked, self._comes_back, self._delay_s = port, offset, comes_back, delay_s
        self._closing = False
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="slave")
        self._thread.start()

    @property
    def end(self) -> int:
        """Where its log ends."""
        return self._asked if self.start_offset is None else self.start_offset + len(self.log)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It reads nothing meanwhile. A read that is under way has ended when this begins."""
        self._reads = False
        assert self._rests.wait(60), "the slave goes on reading"
        try:
            yield
        finally:
            self._rests.clear()
            self._reads = True

    def reset(self) -> None:
        """The connection ends by a reset, as when its process is killed."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """End connection and thread."""
        self._closing = True
        self.reset()
        self._thread.join(60)

    def __enter__(self) -> "RawSlave":
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closing and self.wrong is None:
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=60) as self._socket:
                    self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.connections += 1
                    self._follow(self._socket)
            except OSError:
                pass
            if not self._comes_back:
                return
            time.sleep(CONNECT_AGAIN_S)  # span: as long as a slave may take to come back

    def _follow(self, link: socket.socket) -> None:
        self._report(link, force=True)
        buffer = bytearray()
        link.settimeout(0.1)
        while not self._closing:
            if not self._reads:
                self._rests.set()
                time.sleep(0.01)  # poll
                continue
            try:
                data = link.recv(1 << 20)
            except TimeoutError:
                self._report(link)
                continue
            if not data:
                return
            buffer += data
            self._take_frames(buffer)
            self._report(link)

    def _take_frames(self, buffer: bytearray) -> None:
        while len(buffer) >= 12:
            offset, length = struct.unpack_from(">QI", buffer)
            if len(buffer) < 12 + length:
                return
            if self.start_offset is None:
                self.start_offset = offset
            if offset != self.end:
                self.wrong = f"a frame at {offset} where {self.end} comes next"
                raise ConnectionAbortedError(self.wrong)
            self.log += buffer[12 : 12 + length]
            self.heartbeats += not length
            del buffer[: 12 + length]

    def _report(self, link: socket.socket, *, force: bool = False) -> None:
        if force or (self.reports and self.end > self.reported):
            time.sleep(self._delay_s)  # span: the slave's disk
            self.reported = max(self.reported, self.end)
            link.sendall(struct.pack(">Q", self.end))
