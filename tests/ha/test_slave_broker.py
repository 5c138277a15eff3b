"""A slave broker behind a master that is a script: streams, deaths, restarts in place, and what clients see."""

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_master import FakeMaster
from golden_streams import FILE_BYTES, LOG_END, links, master_log
from receiver_kit import frame, frames

from ringmq.broker.requests.request import REJECTED
from ringmq.ipc.watermark import Watermarks, read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock.ports import free_port
from ringmq.remoting.codes import RequestCode
from ringmq.store.store_task import CUT, StoreTask, write_task
from tests.raw_client import RawClient
from tests.waiting import wait_until

SLAVE = {
    "brokerRole": "SLAVE",
    "brokerId": 1,
    "brokerName": "ha-a",
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def stock_stream(number: int, first_report: int) -> Iterator[bytes]:
    """What a stock master has: an empty slave gets its newest file."""
    log = master_log()
    start = first_report or LOG_END - LOG_END % FILE_BYTES
    yield frames(log[start:LOG_END], start, FILE_BYTES)


def whole_stream(number: int, first_report: int) -> Iterator[bytes]:
    """The log from where the slave wants it."""
    yield frames(master_log()[first_report:LOG_END], first_report, FILE_BYTES)


def slave_log(store: Path, start: int, end: int) -> bytes:
    files = sorted((store / "commitlog").iterdir())
    base = int(files[0].name)
    return b"".join(path.read_bytes() for path in files)[start - base : end - base]


def marks(broker: RunningBroker) -> Watermarks:
    return read_watermarks(broker.store)


def wait_for_log(broker: RunningBroker, end: int) -> None:
    wait_until(lambda: marks(broker).dispatched_offset == end, f"the slave has dispatched {end}")


def test_a_slave_follows_over_file_ends_deaths_and_reconnects(tmp_path: Path) -> None:
    started = threading.Event()

    def in_pieces(number: int, first_report: int) -> Iterator[bytes]:
        """Each connection brings some more, and ends in the middle of a record."""
        stop = min(LOG_END, first_report + 90_001)
        yield frames(master_log()[first_report:stop], first_report, FILE_BYTES)
        assert started.wait(60)
        if number in (1, 3):
            broker.signal_worker("ha", signal.SIGKILL)
            broker.signal_worker("write", signal.SIGKILL)  # its replacement leaves the log to ha again
        elif stop < LOG_END:
            wait_until(lambda: marks(broker).append_offset > stop - 5000, "it has taken the piece")
            master.cut()

    with (
        FakeMaster(in_pieces) as master,
        RunningBroker(tmp_path / "store", {**SLAVE, "haMasterAddress": master.address}, namesrv=None) as broker,
    ):
        started.set()
        wait_for_log(broker, LOG_END)
        wait_until(lambda: master.last_report == LOG_END, "the slave has reported it")
        assert all(reports == sorted(reports) for reports in master.reports)
        assert broker.stop() == 0
    assert slave_log(tmp_path / "store", 0, LOG_END) == master_log()[:LOG_END]


def test_an_empty_slave_begins_at_the_masters_newest_file(tmp_path: Path) -> None:
    start = LOG_END - LOG_END % FILE_BYTES
    with (
        FakeMaster(stock_stream) as master,
        RunningBroker(tmp_path / "store", {**SLAVE, "haMasterAddress": master.address}, namesrv=None) as broker,
    ):
        pid = broker.process.pid
        wait_for_log(broker, LOG_END)
        assert broker.process.pid == pid and broker.process.poll() is None
        assert marks(broker).min_offset == start
        assert master.reports[0] == [0] and master.reports[-1][0] == start
        assert broker.stop() == 0
        assert "rebase" in broker.log_tail()
    assert slave_log(tmp_path / "store", start, LOG_END) == master_log()[start:LOG_END]


def test_a_restarted_slave_goes_on_where_it_was(tmp_path: Path) -> None:
    def half(number: int, first_report: int) -> Iterator[bytes]:
        yield frames(master_log()[first_report:200_000], first_report, FILE_BYTES)

    store = tmp_path / "store"
    with (
        FakeMaster(half) as master,
        RunningBroker(store, {**SLAVE, "haMasterAddress": master.address}, namesrv=None) as broker,
    ):
        wait_until(lambda: marks(broker).append_offset > 190_000, "half of the log is there")
        torn = marks(broker).append_offset
        assert torn < 200_000
        broker.kill_all()
    with (
        FakeMaster(whole_stream) as master,
        RunningBroker(store, {**SLAVE, "haMasterAddress": master.address}, namesrv=None) as broker,
    ):
        wait_for_log(broker, LOG_END)
        assert master.reports[0][0] == torn
        assert f"the log ends at {torn}" in broker.log_path.read_text()
        assert broker.stop() == 0
    assert slave_log(store, 0, LOG_END) == master_log()[:LOG_END]


def test_junk_costs_the_connection_alone(tmp_path: Path) -> None:
    junk = [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(0, bytes(4096)), frame(5), frame(0, b"")[:7], b"\xff" * 64]

    def lies_then_truth(number: int, first_report: int) -> Iterator[bytes]:
        assert first_report == 0
        if number < len(junk):
            yield junk[number]
            if number == 3:
                master.cut()
        else:
            yield from whole_stream(number, first_report)

    with (
        FakeMaster(lies_then_truth) as master,
        RunningBroker(tmp_path / "store", {**SLAVE, "haMasterAddress": master.address}, namesrv=None) as broker,
    ):
        wait_for_log(broker, LOG_END)
        assert len(master.reports) == len(junk) + 1
        assert broker.stop() == 0
        told = broker.log_path.read_text()
        assert "are no record" in told and "the stream starts at 5" in told
    assert slave_log(tmp_path / "store", 0, LOG_END) == master_log()[:LOG_END]


def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    with (
        FakeMaster(whole_stream) as master,
        RunningBroker(tmp_path / "store", {**SLAVE, "haMasterAddress": master.address}, namesrv=None) as broker,
    ):
        with RawClient(broker.address) as client:
            for topic in ("TBW102", "not/legal"):
                answer = client.send(topic, b"x")
                assert (answer.code, answer.remark) == (2, REJECTED)
            ended = client.ask(RequestCode.END_TRANSACTION, {"commitOrRollback": 8})
            assert (ended.code, "this broker is a slave" in (ended.remark or "")) == (11, True)
            staged = client.ask(RequestCode.STAGED_WRITES, {"operation": "describe"})
            assert (staged.code, "this broker is a slave" in (staged.remark or "")) == (14, True)
        wait_for_log(broker, LOG_END)
        assert broker.stop() == 0
    assert slave_log(tmp_path / "store", 0, LOG_END) == master_log()[:LOG_END]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_is_reported_survives(tmp_path: Path, flush: str) -> None:
    """Killed in the middle of a stream: what was reported is there at the next start."""

    def slowly(number: int, first_report: int) -> Iterator[bytes]:
        log = master_log()[first_report:LOG_END]
        stream = frames(log, first_report, FILE_BYTES, body_max=1500)
        for at in range(0, len(stream), 4000):
            yield stream[at : at + 4000]

    store = tmp_path / "store"
    with FakeMaster(slowly) as master:
        settings = {**SLAVE, "haMasterAddress": master.address, "flushDiskType": flush}
        with RunningBroker(store, settings, namesrv=None) as broker:
            wait_until(lambda: master.last_report > 100_000, "some of it is reported")
            broker.kill_all()
            reported = master.last_report
        with RunningBroker(store, settings, namesrv=None) as broker:
            wait_until(lambda: len(master.reports) == 2 and master.reports[1], "it is back")
            assert master.reports[1][0] >= reported
            wait_for_log(broker, LOG_END)
            assert broker.stop() == 0
    assert slave_log(store, 0, LOG_END) == master_log()[:LOG_END]


def test_the_recorded_stream_read_by_read(tmp_path: Path) -> None:
    recorded = links("classic-async")
    with (
        FakeMaster(lambda number, first_report: recorded[number].sent if number < len(recorded) else ()) as master,
        RunningBroker(tmp_path / "store", {**SLAVE, "haMasterAddress": master.address}, namesrv=None) as broker,
    ):
        ends = [link.first_report for link in recorded[1:]] + [410_372]
        for end in ends:
            wait_for_log(broker, end)
            wait_until(lambda end=end: master.last_report == end, "it is reported")  # type: ignore[misc]
            master.cut()
        assert [reports[0] for reports in master.reports[:3]] == [link.first_report for link in recorded]
        assert broker.stop() == 0
    assert slave_log(tmp_path / "store", 0, 410_372) == master_log()[:410_372]


def test_an_order_that_a_crash_left_behind_is_performed_at_the_next_start(tmp_path: Path) -> None:
    store, cut_at = tmp_path / "store", 300_000
    with FakeMaster(whole_stream) as master:
        settings = {**SLAVE, "haMasterAddress": master.address}
        with RunningBroker(store, settings, namesrv=None) as broker:
            wait_for_log(broker, LOG_END)
            broker.kill_all()
        write_task(store, StoreTask(CUT, cut_at))
        with RunningBroker(store, settings, namesrv=None) as broker:
            wait_for_log(broker, LOG_END)
            assert cut_at - 5000 < master.reports[1][0] <= cut_at
            assert broker.stop() == 0
    assert slave_log(store, 0, LOG_END) == master_log()[:LOG_END]
    saved = b"".join(path.read_bytes() for path in sorted((store / "salvage").iterdir()))
    assert master_log()[cut_at : 3 * FILE_BYTES] in saved


def is_closed_at_once(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as other:
        return other.recv(1) == b""


def test_a_slave_has_a_replication_port_and_closes_its_connections(tmp_path: Path) -> None:
    """The port is its own from the start on, so a promotion cannot fail because another process has taken it."""
    port = free_port()
    with RunningBroker(tmp_path / "store", {**SLAVE, "haListenPort": port}, namesrv=None) as broker:
        assert is_closed_at_once(port)
        broker.signal_worker("ha", signal.SIGKILL)
        assert is_closed_at_once(port), "by the next process"
        assert broker.stop() == 0
