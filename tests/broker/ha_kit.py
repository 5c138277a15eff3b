"""A master for requests of replication, and the claims of its slaves."""

import zlib
from typing import Any

import pytest

from ringmq.ha import handshake
from ringmq.ha.handshake import HandshakeAnswer, PeerClaim
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.ha_bodies import HaStatus
from tests.broker.fakes import Harness, make_harness, peer

FILE_BYTES = 65_536
LOG = bytes(range(256)) * 40  # 10,240 bytes
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "maxMessageSize": "4194304",
    "haAllowedNetworks": "10.0.0.0/24;127.0.0.0/8",
}


@pytest.fixture
def master() -> Harness:
    harness = make_harness({**SETTINGS, "brokerRole": "SYNC_MASTER", "haListenPort": "10912", "haRoom": "east"})
    harness.store.log = LOG
    marks = harness.plane.watermarks
    marks.append_offset, marks.flushed_offset, marks.start_id = len(LOG), len(LOG), 0xABC
    harness.plane.confirm = 9000
    return harness


def claim(log: bytes = LOG, **fields: Any) -> PeerClaim:
    """The claim of a slave with this log that was asked for windows up to the master's end."""
    end = min(len(log), len(LOG))
    tail = ((0, end, zlib.crc32(log[:end])),) if log else ()
    return PeerClaim(
        **{
            "cluster": "GoldCluster", "broker_name": "wire-a", "broker_id": 1, "start_id": "1f", "min_offset": 0,
            "max_offset": len(log), "file_bytes": FILE_BYTES, "broker_addr": "10.0.0.9:10911", "ha_port": 5555,
            "room": "west", "tail": tail,
        }
        | fields
    )  # fmt: skip


def shake(harness: Harness, request: PeerClaim, host: str = "", *, proves: bool = True) -> HandshakeAnswer:
    """From the host that the claim names, or from `host`. A slave that has to prove its claim does so at once."""
    connection = peer(1)._replace(host=host or request.broker_addr.rpartition(":")[0] or "10.0.0.9")
    answer = harness.ask(RequestCode.HA_HANDSHAKE, body=handshake.body(request), connection=connection)
    assert answer.code == 0, answer.remark
    said = handshake.answer_of(answer.body)
    if proves and said.verdict == handshake.REFUSE and harness.broker.replication.proofs.wanted is not None:
        harness.broker.replication.proof_ended("", 0)
        return shake(harness, request, host, proves=False)
    return said


def status(harness: Harness) -> HaStatus:
    return HaStatus.decode(harness.ask(RequestCode.HA_STATUS).body)
