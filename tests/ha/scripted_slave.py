"""A slave under the control of a test: it reads while `reads` is set, and reports when the test calls `report`."""

import socket
import struct
import threading
import time

from ringmq.ha.handshake import PeerClaim, body
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.ha_bodies import HaStatus
from tests.ha.raw_slave import ha_port
from tests.raw_client import RawClient

HEADER = struct.Struct(">QI")


class ScriptedSlave:
    """One connection from `host`, another address of the loopback: another replica. Its log is a count of bytes."""

    def __init__(self, broker: RunningBroker, host: str = "127.0.0.1", *, room: str = "", level: str = "") -> None:
        self.end = 0
        """Log offset behind the bytes read so far."""
        self.reads = True
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.bind((host, 0))
        self._socket.connect(("127.0.0.1", ha_port(broker)))
        self._socket.setblocking(False)
        if level:
            self._introduce(broker, room, level)
        self.report(0)
        self._closing = False
        self._thread = threading.Thread(target=self._read, daemon=True, name=f"slave {host}")
        self._thread.start()

    def report(self, offset: int | None = None) -> None:
        """Report `offset`, by default `end`."""
        self._socket.send(struct.pack(">Q", self.end if offset is None else offset))

    def close(self) -> None:
        """Close the connection."""
        self._closing = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> "ScriptedSlave":
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def _introduce(self, broker: RunningBroker, room: str, level: str) -> None:
        """The private handshake of a RingMQ slave with an empty log, brokerId 1."""
        claim = PeerClaim(
            cluster="DefaultCluster", broker_name="broker-a", broker_id=1, start_id="51a7e", min_offset=0, max_offset=0,
            file_bytes=1 << 20, ha_port=self._socket.getsockname()[1], room=room, report_level=level,
        )  # fmt: skip
        with RawClient(broker.address) as client:
            assert client.ask(RequestCode.HA_HANDSHAKE, {}, body(claim)).code == 0

    def _read(self) -> None:
        buffer = bytearray()
        while not self._closing:
            try:
                data = self._socket.recv(1 << 20) if self.reads else None
            except BlockingIOError:
                data = None
            if not data:
                time.sleep(0.001)  # poll
                continue
            buffer += data
            while len(buffer) >= HEADER.size:
                offset, length = HEADER.unpack_from(buffer)
                if len(buffer) < HEADER.size + length:
                    break
                del buffer[: HEADER.size + length]
                self.end = offset + length


def status(broker: RunningBroker) -> HaStatus:
    """What the broker says of its replication (request 270005)."""
    with RawClient(broker.address) as client:
        return HaStatus.decode(client.ask(RequestCode.HA_STATUS, {}).body)
