"""A slave's worker ha in this process: handshake, confirm offset, verdicts and faults, behind a scripted master."""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import pytest
from fake_master import FakeMaster
from fake_master_broker import FakeMasterBroker, answer
from golden_streams import FILE_BYTES, LOG_END, master_log
from receiver_kit import frames

from ringmq.ha import handshake, slave_core, slave_shell
from ringmq.ha.control_messages import AcceptedNews, LinkNews, Master, Verdict, command_bytes, news_of
from ringmq.ha.handshake import UNKNOWN_EPOCH, HandshakeAnswer, PeerClaim
from ringmq.ha.slave_events import NO_LIMIT
from ringmq.ha.slave_shell import SlaveShell
from ringmq.ipc.asks import Inbox
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTART_STORE
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.ipc.supervisor import make_event_fds
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import ffi, lib
from ringmq.store.store_task import CUT, REBASE, StoreTask, read_task
from ringmq.store.tenure_file import TENURE_FILE, EpochStart, Owner, TenureRecord, write_tenure
from tests.waiting import wait_until

ROLES = [lib.RMQ_ROLE_CONTROL, lib.RMQ_ROLE_FLUSH, lib.RMQ_ROLE_DISPATCH, lib.RMQ_ROLE_HA]


def whole_stream(number: int, first_report: int) -> Iterator[bytes]:
    yield frames(master_log()[first_report:LOG_END], first_report, FILE_BYTES)


class Slave:
    """A plane, a store with four empty files, and the shell on a thread."""

    def __init__(self, root: Path, **more: str) -> None:
        root.mkdir()
        self.root = root
        capacity = Capacity(64, 64, 64, 64, 64, 64, 64, 64)
        name, tenure = f"test-{uuid.uuid4().hex[:12]}", Tenure(TenureState.SLAVE)
        self.plane = Plane.create(name, capacity, root.stat(), 0x51A7E, tenure=tenure)
        self._event_fds = make_event_fds(ROLES)
        self.plane.set_event_fds(self._event_fds)
        settings = self.plane.header.settings
        settings.segment_bytes, settings.populate_window_bytes = FILE_BYTES, 65_536
        settings.ha_heartbeat_ms, settings.ha_housekeeping_ms = 5000, 120_000
        folder = os.fsencode(root / "commitlog")
        settings.commit_log_path = folder
        lib.rmq_folder_make(folder)
        for number in range(5):
            assert lib.rmq_segment_create(os.fsencode(root), folder, number * FILE_BYTES, FILE_BYTES) == 0
        self.marks = self.plane.watermarks
        self.marks.confirm_policy = lib.RMQ_CONFIRM_APPENDED | lib.RMQ_CONFIRM_LIMITED
        error = ffi.new("int *")
        self.receiver = lib.rmq_receiver_open(self.plane.struct, error)
        assert self.receiver != ffi.NULL
        properties = {
            "storePathRootDir": str(root), "brokerIP1": "127.0.0.1", "listenPort": "10911", "brokerRole": "SLAVE",
            "brokerId": "1", "mappedFileSizeCommitLog": str(FILE_BYTES), "haRoom": "east", **more,
        }  # fmt: skip
        self._tell_control, self.plane.ha_event_put = self.plane.ha_event_put, self._hear  # type: ignore[method-assign]
        self.accepted: list[AcceptedNews] = []
        self.why_not = ""
        """The reason for which control rejects each master."""
        self.shell = SlaveShell(self.plane, properties, self.receiver)
        self.status: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.status = self.shell.run()

    def _hear(self, data: bytes) -> bool:
        """Control's answer to an accepted slave. Other events go on."""
        news = news_of(data)
        if not isinstance(news, AcceptedNews):
            return self._tell_control(data)
        self.accepted.append(news)
        return self.plane.ha_command_put(command_bytes(Verdict(news.attempt, self.why_not)))

    def follow(self, master: FakeMaster, broker: FakeMasterBroker | None = None) -> None:
        """What control orders when it knows the master."""
        order = Master(master.address, broker.address if broker else "")
        assert self.plane.ha_command_put(command_bytes(order))

    def link_events(self) -> list[str]:
        """What control has been told."""
        events = []
        while (record := Inbox(self.plane).take()) is not None:
            news = news_of(record.payload)
            assert isinstance(news, LinkNews)
            events.append(news.event)
        return events

    def ended(self) -> int | None:
        """Wait for the worker's end; its exit status."""
        self._thread.join(60)
        return self.status

    def __enter__(self) -> "Slave":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.marks.stop_requested = lib.RMQ_STOP_WRITE
        self.plane.wake(lib.RMQ_ROLE_HA)
        self._thread.join(60)
        self.shell.close()
        lib.rmq_receiver_close(self.receiver)
        remove_segments(self.plane.name)
        for descriptor in self._event_fds.values():
            os.close(descriptor)


def test_an_accepted_slave_follows_and_shows_what_its_master_confirms(tmp_path: Path) -> None:
    confirmed = [0]
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT, confirm_offset=confirmed[0])) as broker,
    ):
        slave.follow(master, broker)
        wait_until(lambda: slave.marks.append_offset == LOG_END, "the log is here")
        wait_until(lambda: master.last_report == LOG_END, "it is reported")
        assert slave.marks.confirm_limit == 0
        claim = broker.claims[0]
        assert (claim.operation, claim.broker_id, claim.room, claim.report_level) == ("join", 1, "east", "cached")
        assert (claim.start_id, claim.broker_addr, claim.empty) == ("51a7e", "127.0.0.1:10911", True)
        for confirmed[0] in (100_000, 300_000):
            wait_until(lambda: slave.marks.confirm_limit == confirmed[0], "the master's confirm offset comes over")
        assert {claim.operation for claim in broker.claims[1:]} == {"confirm"}
        assert slave.plane.header.replication.link.state == lib.RMQ_HA_TRANSFER
        slave.marks.stop_requested = lib.RMQ_STOP_WRITE
        assert slave.ended() == EXIT_CLEAN


def test_a_body_with_a_wrong_crc_is_appended_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = bytearray(master_log()[:LOG_END])
    log[11] ^= 1  # of the CRC of the first record

    def stream(number: int, first_report: int) -> Iterator[bytes]:
        yield frames(bytes(log[first_report:]), first_report, FILE_BYTES)

    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT)) as broker,
    ):
        slave.follow(master, broker)
        counters = slave.plane.role(lib.RMQ_ROLE_HA).counters
        wait_until(lambda: slave.marks.append_offset == LOG_END, "the log is here")
        wait_until(lambda: counters[lib.RMQ_RECEIVE_BAD_BODIES], "the body is found")
        assert counters[lib.RMQ_RECEIVE_BAD_BODIES] == 1
    first = tmp_path / "store" / "commitlog" / ("0" * 20)
    assert first.read_bytes()[:90] == log[:90], "byte for byte"
    (line,) = [text for text in caplog.messages if "wrong CRC" in text]
    assert "the record at log offset 0 (topic" in line


def test_a_lost_link_shows_nothing_more_until_the_master_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT, confirm_offset=300_000)) as broker,
    ):

        def decide(claim: PeerClaim) -> HandshakeAnswer:
            if claim.operation == "join":
                limits.append(slave.marks.confirm_limit)
            return answer(handshake.ACCEPT, confirm_offset=300_000)

        slave.follow(master, broker)
        wait_until(lambda: master.last_report == LOG_END, "the log is here")
        broker.decide = decide
        master.cut()
        wait_until(lambda: len(limits) == 1, "it is there again")
        monkeypatch.setattr(slave_core, "MASTER_UNKNOWN_MS", 50)
        master.close()
        wait_until(lambda: slave.marks.confirm_limit == NO_LIMIT, "what is here may be read when the master is gone")
        events = slave.link_events()
        assert events[:2] == ["transfer", "closed"] and events[-1] == "closed"
    assert limits == [300_000]


def test_the_second_handshake_carries_checksums_of_the_tail(tmp_path: Path) -> None:
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT)) as broker,
    ):
        slave.follow(master, broker)
        wait_until(lambda: master.last_report == LOG_END, "the log is here")
        master.cut()
        wait_until(lambda: len(master.reports) == 2 and master.reports[1], "it is back")
        again = [claim for claim in broker.claims if claim.operation == "join"][1]
        assert (again.min_offset, again.max_offset) == (0, LOG_END)
        assert len(again.tail) >= 3
        for offset, length, crc in again.tail:
            assert crc == lib.rmq_crc32(master_log()[offset : offset + length], length)
        assert again.tail[0][0] + again.tail[0][1] == LOG_END


@pytest.mark.parametrize(
    ("file", "epoch"),
    [
        (TenureRecord(False, 65537, history=(EpochStart(65537, LOG_END - 1),)), 65537),
        (TenureRecord(False, 65537, history=(EpochStart(65537, LOG_END),)), 0),
        (None, UNKNOWN_EPOCH),
        ("{", UNKNOWN_EPOCH),
    ],
)
def test_a_master_learns_the_last_epoch(tmp_path: Path, file: TenureRecord | str | None, epoch: int) -> None:
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT)) as broker,
    ):
        slave.follow(master, broker)
        wait_until(lambda: master.last_report == LOG_END, "the log is here")
        if isinstance(file, TenureRecord):
            write_tenure(slave.root, Owner("DefaultCluster", "broker-a", 1), file)
        elif file is not None:
            (slave.root / "config").mkdir()
            (slave.root / "config" / TENURE_FILE).write_text(file)
        master.cut()
        wait_until(lambda: len(master.reports) == 2 and master.reports[1], "it is back")
        joins = [claim for claim in broker.claims if claim.operation == "join"]
        assert [claim.last_epoch for claim in joins] == [UNKNOWN_EPOCH, epoch]


def test_a_stock_master_is_followed_without_a_limit(tmp_path: Path) -> None:
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: None) as broker,
    ):
        slave.follow(master, broker)
        wait_until(lambda: slave.marks.append_offset == LOG_END, "the log is here")
        assert slave.marks.confirm_limit == NO_LIMIT
        assert len(broker.claims) == 1


def test_no_stream_begins_before_the_name_servers_say_whom_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_core, "MASTER_UNKNOWN_MS", 20)
    with (
        Slave(tmp_path / "store", namesrvAddr="127.0.0.1:9876") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT)) as broker,
    ):
        slave.follow(master)
        wait_until(lambda: slave.link_events() == ["waits"], "control is told what is waited for")
        assert not any(master.reports)
        slave.follow(master, broker)
        wait_until(lambda: master.last_report == LOG_END, "the log is here")


def test_an_address_that_is_none_fails_the_attempt_alone(tmp_path: Path, log_text: Callable[[], str]) -> None:
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT)) as broker,
    ):
        assert slave.plane.ha_command_put(command_bytes(Master(master.address, "nonsense")))
        wait_until(lambda: "no handshake with master nonsense: " in log_text(), "it says what is wrong")
        assert slave.plane.ha_command_put(command_bytes(Master("")))
        slave.follow(master, broker)
        wait_until(lambda: master.last_report == LOG_END, "the log is here")


def test_a_control_that_knows_less_takes_nothing_from_a_stream_that_runs(tmp_path: Path) -> None:
    """Started again it says the configured HA address, and the broker's not before a name server has answered."""
    with (
        Slave(tmp_path / "store", namesrvAddr="127.0.0.1:9876") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT)) as broker,
    ):
        slave.follow(master, broker)
        wait_until(lambda: master.last_report == LOG_END, "the log is here")
        slave.follow(master)
        broker.decide = lambda claim: answer(handshake.ACCEPT, confirm_offset=300_000)
        wait_until(lambda: slave.marks.confirm_limit == 300_000, "the confirm offset comes over as before")
        master.cut()
        wait_until(lambda: len(master.reports) == 2 and master.reports[1], "it is back")


@pytest.mark.parametrize(("verdict", "action"), [(handshake.START_AT, REBASE), (handshake.CUT, CUT)])
def test_a_verdict_about_the_log_ends_the_worker_with_an_order(tmp_path: Path, verdict: str, action: str) -> None:
    with (
        Slave(tmp_path / "store", haAllowedNetworks="127.0.0.1") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.ACCEPT)) as broker,
    ):
        slave.follow(master, broker)
        wait_until(lambda: master.last_report == LOG_END, "the log is here")
        broker.decide = lambda claim: answer(verdict, 2 * FILE_BYTES)
        master.cut()
        assert slave.ended() == EXIT_RESTART_STORE
        assert read_task(slave.root) == StoreTask(action, 2 * FILE_BYTES)


def test_a_held_slave_takes_nothing_and_shows_what_both_have(tmp_path: Path) -> None:
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: answer(handshake.HOLD, 5000, confirm_offset=4000)) as broker,
    ):
        slave.follow(master, broker)
        wait_until(lambda: slave.marks.confirm_limit == 4000, "the common part may be read")
        wait_until(lambda: "held" in slave.link_events(), "control is told")
        assert not any(master.reports)
        assert slave.marks.append_offset == 0


def test_a_fault_of_the_store_ends_the_link_until_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_text: Callable[[], str]
) -> None:
    monkeypatch.setattr(slave_shell, "FAULT_REST_MS", 50)
    half = 200_000

    def in_halves(number: int, first_report: int) -> Iterator[bytes]:
        stop = half if number == 0 else LOG_END
        yield frames(master_log()[first_report:stop], first_report, FILE_BYTES)

    with Slave(tmp_path / "store") as slave, FakeMaster(in_halves) as master:
        slave.follow(master)
        wait_until(lambda: master.last_report > half - 5000, "half of it is here")
        slave.marks.store_fault, slave.marks.store_fault_errno = lib.RMQ_FAULT_DISK_FULL, 28
        slave.plane.wake(lib.RMQ_ROLE_HA)
        wait_until(lambda: slave.plane.header.replication.link.state == lib.RMQ_HA_FREE, "the link is given up")
        reported = [list(reports) for reports in master.reports]
        wait_until(lambda: "No space left on device" in log_text(), "it says why")
        assert master.reports == reported and len(reported) == 1
        slave.marks.store_fault = 0
        wait_until(lambda: master.last_report == LOG_END, "it goes on")
        assert len(master.reports) == 2


@pytest.mark.parametrize("is_stock", [False, True])
def test_control_decides_before_the_first_report(tmp_path: Path, is_stock: bool) -> None:
    with (
        Slave(tmp_path / "store") as slave,
        FakeMaster(whole_stream) as master,
        FakeMasterBroker(lambda claim: None if is_stock else answer(handshake.ACCEPT)) as broker,
    ):
        slave.why_not = "an older epoch"
        slave.follow(master, broker)
        wait_until(lambda: "held" in slave.link_events(), "control is told of the rejected master")
        assert slave.accepted[0] == AcceptedNews(1, master.address, broker.address, is_stock)
        assert not any(master.reports)
