"""The bench's pairs of master and slave: each kind of row works, and counts, on short runs."""

import os
import socket
import struct
from pathlib import Path

import pytest

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.measuring.measurement import RINGMQ
from ringmq.loadtest.replication.link_loss import link_loss_row
from ringmq.loadtest.replication.name_server_proxy import NameServerProxy
from ringmq.loadtest.replication.pairs import SYNC_MASTER, progress_of, start_pair
from ringmq.loadtest.replication.rows import BATCH, messages_of, replicated_row
from ringmq.loadtest.replication.stall import stall_row, tcp_bytes


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(
        build_tools(),
        tmp_path,
        sorted(os.sched_getaffinity(0)),
        None,
        seconds=0.3,
        warmup_s=0.0,  # the messages may be sent within any
        messages_max=20_000,
        stall_s=1.0,
        stock_warmup_s=0.4,
        settle_ms=60_000,
    )


def test_messages_for_so_much_log() -> None:
    assert messages_of(1_274_000_000, 1024) == 1_000_000
    assert messages_of(1, 1024) == 1000


def test_a_slave_that_has_not_reported_is_not_caught_up_with_an_empty_log() -> None:
    """A master refuses sends until then."""
    connection = {"slaveAckOffset": 0, "inSync": False}
    status = {"haConnectionInfo": [connection], "masterCommitLogMaxOffset": 0}
    assert not progress_of(status).is_caught_up
    connection["inSync"] = True
    assert progress_of(status).is_caught_up
    assert not progress_of(status | {"masterCommitLogMaxOffset": 1}).is_caught_up
    assert not progress_of(status | {"haConnectionInfo": None}).is_caught_up


@pytest.mark.io_uring
def test_our_pair_is_measured_with_equal_logs(context: Context) -> None:
    pair = start_pair(RINGMQ, context.folder / "pair", SYNC_MASTER, context.cpus)
    try:
        measured = replicated_row("smoke", "batch", BATCH)(context, pair)
        assert measured.ok, measured.note
        assert measured.values["messages_per_s"] > 0
        assert any(name.startswith("slave ") for name in measured.raw["server_cpu"]) or pair.cpu_seconds()["slave"] > 0
        with (pair.slave.store / "commitlog" / f"{0:020d}").open("r+b") as log:  # type: ignore[union-attr]
            log.seek(100)
            log.write(b"#")
        assert not pair.same_logs()
    finally:
        pair.close()
    assert not (context.folder / "pair").exists()


def test_parked_requests_end_with_the_link(context: Context) -> None:
    measured = link_loss_row(context, RINGMQ)
    assert measured.ok, measured.note
    assert set(measured.values) == {"reset_ms", "close_ms", "silence_first_ms", "silence_later_ms"}
    assert measured.values["silence_first_ms"] >= 2900


@pytest.mark.io_uring
def test_a_stopped_slave_catches_up(context: Context) -> None:
    measured = stall_row(context, RINGMQ)
    assert measured.ok, measured.note
    assert measured.values["behind_mib"] > 0
    assert tcp_bytes() >= 0


def test_a_slave_is_shown_the_link_for_the_masters_ha_port() -> None:
    """The name server's answers are changed, requests pass as they are."""
    frame = struct.pack(">i", 30) + b"haServerAddr=127.0.0.1:12345\n."
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        NameServerProxy(int(listener.getsockname()[1]), 12345, 54321) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as slave,
        listener.accept()[0] as name_server,
    ):
        slave.sendall(frame)
        assert name_server.recv(100) == frame
        name_server.sendall(frame)
        assert slave.recv(100) == frame.replace(b"12345", b"54321")
    with pytest.raises(ValueError, match="differ in length"):
        NameServerProxy(1, 9999, 54321)
