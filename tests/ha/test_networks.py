"""Real brokers: the peers that may connect to the replication port, and the slaves whose longer log holds writes."""

import socket
import struct
import urllib.request
from pathlib import Path

import pytest

from ringmq.ha import handshake
from ringmq.ha.handshake import PeerClaim
from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.store.write_hold import HOLD_FILE, read_hold
from tests.ha.raw_slave import RawSlave, ha_port
from tests.ha.test_master import SEGMENT_BYTES, SMALL, SYNC
from tests.raw_client import RawClient
from tests.waiting import wait_until

LONGER = struct.pack(">Q", 500_000_000)
"""Says that a log of 500 MB is here."""
FILE_BYTES = {**SMALL, "mappedFileSizeCommitLog": 1 << 30}


def connection_ends(broker: RunningBroker, data: bytes) -> None:
    """Send it to the replication port; the connection is closed by the broker."""
    with socket.create_connection(("127.0.0.1", ha_port(broker)), timeout=60) as link:
        link.sendall(data)
        assert link.recv(1) == b""


def refused(broker: RunningBroker, reason: str) -> float:
    """Of the metric ringmq_ha_refused_total."""
    with urllib.request.urlopen(f"{broker.metrics_url}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    start = "ringmq_ha_refused_total{"
    return next(float(line.split()[-1]) for line in lines if line.startswith(start) and f'reason="{reason}"' in line)


@pytest.mark.parametrize("networks", ["", "10.0.0.0/8;127.0.0.1"])
def test_a_longer_log_holds_writes_only_where_its_network_is_named(tmp_path: Path, networks: str) -> None:
    with RunningBroker(tmp_path / "store", {**FILE_BYTES, "haAllowedNetworks": networks}) as broker:
        with RawClient(broker.address) as client:
            assert client.send("TopicA", b"before").code == ResponseCode.SUCCESS
            connection_ends(broker, LONGER)
            if networks:
                wait_until(lambda: client.send("TopicA", b"?").code == ResponseCode.SERVICE_NOT_AVAILABLE, "it holds")
            else:
                wait_until(lambda: "haAllowedNetworks does not name" in broker.log_tail(), "the line")
                for _ in range(3):
                    connection_ends(broker, LONGER)
                    assert client.send("TopicA", b"after").code == ResponseCode.SUCCESS
                assert refused(broker, "unnamed") == 4
        assert broker.stop() == 0
    assert (tmp_path / "store" / "config" / HOLD_FILE).exists() == bool(networks)


def test_a_wrong_list_keeps_slaves_out_and_says_so(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {**SYNC, "haAllowedNetworks": "10.0.0.0/8"}) as broker:
        with RawSlave(ha_port(broker), comes_back=True) as slave, RawClient(broker.address) as client:
            wait_until(lambda: slave.connections >= 3, "it tries again")
            assert client.send("TopicA", b"nobody follows").code == ResponseCode.SYSTEM_ERROR
            line = "a connection from 127.0.0.1 to the replication port is closed: haAllowedNetworks"
            assert broker.log_path.read_text().count(line) == 1, "one line for all of them"
            assert refused(broker, "network") >= 3
            assert slave.start_offset is None
        assert broker.stop() == 0


def test_a_named_slave_that_hands_no_records_over_holds_nobody_up(tmp_path: Path) -> None:
    """Request 270002 with a checksum that differs, and with nothing behind it: its broker's port has no listener."""
    with RunningBroker(tmp_path / "store", {**SMALL, "haAllowedNetworks": "127.0.0.0/8"}) as broker:
        with RawClient(broker.address) as client:
            assert client.send("TopicA", b"before").code == ResponseCode.SUCCESS
            end = read_watermarks(broker.store).append_offset
            claim = PeerClaim(
                cluster="DefaultCluster", broker_name="broker-a", broker_id=1, start_id="1f", min_offset=0,
                max_offset=end + 1000, file_bytes=SEGMENT_BYTES, broker_addr="127.0.0.1:9", tail=((0, end, 77),),
            )  # fmt: skip
            answer = handshake.answer_of(client.ask(RequestCode.HA_HANDSHAKE, {}, handshake.body(claim)).body)
            assert (answer.verdict, "being checked" in answer.reason) == (handshake.REFUSE, True)
            wait_until(lambda: "cannot be verified" in broker.log_tail(), "the line")
            assert client.send("TopicA", b"after").code == ResponseCode.SUCCESS
            wait_until(lambda: refused(broker, "proof") == 1, "it is counted")
        assert broker.stop() == 0
    assert read_hold(tmp_path / "store") == ()
