"""A failed fdatasync: writes are refused with the cause until a restart, reads go on, nothing acknowledged is lost."""

import errno
import os
from pathlib import Path

import pytest

from ringmq.ipc.exit_status import EXIT_UNCLEAN_STOP
from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import decode_messages
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from ringmq.store.verify import verify
from tests.conformance.wire import send_fields, shortened
from tests.drill.settings import SMALL_STORE
from tests.drill.sync_switch import SyncSwitch
from tests.raw_client import SEND_V2, RawClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
REFUSED = (
    f"the store refuses writes: fsync of the commit log failed: {os.strerror(errno.EIO)}; "
    "an operator has to restart the broker"
)
REFUSED_BY_QUEUES = REFUSED.replace("the commit log", "a consume queue or index file")
SETTINGS = {
    **SMALL_STORE,
    "flushIntervalCommitLog": 20,
    "flushCommitLogLeastPages": 0,
}


def send(client: RawClient, body: bytes, **pairs: str) -> RemotingCommand:
    return client.send("Faulty", body, pairs={"KEYS": body.decode(), **pairs})


def read_all(client: RawClient) -> list[bytes]:
    bodies: list[bytes] = []
    while (answer := client.pull("Faulty", 0, len(bodies))).code == 0:
        bodies += [bytes(message.body) for message in decode_messages(answer.body)]
    return bodies


def is_refused(answer: RemotingCommand | None, remark: str = REFUSED) -> bool:
    return answer is not None and (answer.code, answer.remark) == (14, remark)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_failed_fsync_ends_writing_until_a_restart(tmp_path: Path, flush: str) -> None:
    store, switch = tmp_path / "store", SyncSwitch(tmp_path)
    settings = {**SETTINGS, "flushDiskType": flush}
    with RunningBroker(store, settings, environment=switch.environment) as broker, RawClient(broker.address) as client:
        acknowledged = [b"%d" % number for number in range(20)]
        for body in acknowledged:
            assert send(client, body).code == 0
        wait_until(
            lambda: read_watermarks(store).flushed_offset == read_watermarks(store).append_offset, "all is synced"
        )
        durable = read_watermarks(store).flushed_offset
        switch.fail()
        fields = shortened(send_fields("Faulty", 0, {}))
        client.send_request(SEND_V2, fields, b"on its way")
        on_its_way = client.receive()
        if flush == "SYNC_FLUSH":
            assert is_refused(on_its_way), "what waits for the sync is refused with the cause"
        else:
            assert on_its_way is not None and on_its_way.code == 0, "async flush promises the page cache only"
            acknowledged.append(b"on its way")
            wait_until(lambda: read_watermarks(store).store_fault, "the background sync has failed")
        switch.heal()  # the disk would work again: that changes nothing
        for wait in ("true", "false"):
            assert is_refused(send(client, b"later", WAIT=wait))
        syncs = read_watermarks(store)
        assert syncs.flushed_offset == durable, "never retried, never called durable"
        assert syncs.store_fault_errno == errno.EIO
        wait_until(lambda: read_all(client) == acknowledged, "reads go on")
        assert (store / "ringmq.failed").read_text().startswith("fdatasync of the commit log failed")
        refusing_flush = broker.worker_pids()["flush"]
        os.kill(refusing_flush, 9)  # a new flush worker does not try again either
        wait_until(lambda: broker.worker_pids().get("flush", refusing_flush) != refusing_flush, "flush is back")
        assert is_refused(send(client, b"later"))
        assert read_watermarks(store).flushed_offset == durable
        broker.stop()
    assert (store / "abort").exists(), "the store is not called clean"
    with RunningBroker(store, settings, environment=switch.environment) as broker, RawClient(broker.address) as client:
        assert "the last run ended with a failed fsync" in broker.log_tail(20_000)
        assert "the log is read from the disk" in broker.log_tail(20_000)
        assert not (store / "ringmq.failed").exists()
        bodies = read_all(client)
        assert bodies[: len(acknowledged)] == acknowledged
        assert set(bodies[len(acknowledged) :]) <= {b"on its way"}, "nothing that was refused at once is there"
        assert send(client, b"works again").code == 0
        wait_until(lambda: read_all(client) == [*bodies, b"works again"], "and is read")
        assert broker.stop() == 0
    found = MessageStore(StoreConfig.from_properties(store, {name: str(value) for name, value in settings.items()}))
    report = verify(found, found.queue_end())
    assert (report.errors, report.findings) == (0, [])


def test_a_failed_fsync_of_a_queue_outlives_dispatch_and_the_stop(tmp_path: Path) -> None:
    store, switch = tmp_path / "store", SyncSwitch(tmp_path)
    told = "fsync of a consume queue or index file failed"
    with RunningBroker(store, SETTINGS, environment=switch.environment) as broker, RawClient(broker.address) as client:
        bodies = [b"%d" % number for number in range(20)]
        for body in bodies:
            assert send(client, body).code == 0
        switch.fail_queues()
        bodies.append(b"its unit is not on disk")
        assert send(client, bodies[-1]).code == 0
        marker = store / "ringmq.failed"
        wait_until(lambda: marker.exists() and marker.read_text().startswith(told), "dispatch has left word of it")
        switch.heal()
        assert is_refused(send(client, b"later"), REFUSED_BY_QUEUES)
        os.kill(broker.worker_pids()["dispatch"], 9)
        wait_until(lambda: broker.log_tail(20_000).count(f"{told}: {os.strerror(errno.EIO)}") == 2, "and its successor")
        assert is_refused(send(client, b"later"), REFUSED_BY_QUEUES)
        assert broker.stop() == EXIT_UNCLEAN_STOP
    assert (store / "abort").exists() and (store / "ringmq.failed").exists()
    with RunningBroker(store, SETTINGS, environment=switch.environment) as broker, RawClient(broker.address) as client:
        assert "(checkpoint)" in broker.log_tail(20_000) and "the log is read from the disk" in broker.log_tail(20_000)
        wait_until(lambda: read_all(client) == bodies, "nothing acknowledged is lost")
        bodies.append(b"works again")
        assert send(client, bodies[-1]).code == 0
        wait_until(lambda: read_all(client) == bodies, "and is read")
        assert broker.stop() == 0


def test_a_failed_last_fsync_of_a_queue_is_not_a_clean_stop(tmp_path: Path) -> None:
    store, switch = tmp_path / "store", SyncSwitch(tmp_path)
    with RunningBroker(store, SETTINGS, environment=switch.environment) as broker, RawClient(broker.address) as client:
        assert send(client, b"first").code == 0
        switch.fail_queues()
        assert send(client, b"last").code == 0
        assert broker.stop() == EXIT_UNCLEAN_STOP
    assert (store / "abort").exists() and (store / "ringmq.failed").exists()
