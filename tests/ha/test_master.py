"""A master and slaves that are plain sockets: who is waited for, what a slave is sent, what happens when ha dies."""

import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_broker_port
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.ha.raw_slave import RawSlave, ha_port
from tests.raw_client import RawClient
from tests.waiting import wait_until

SEGMENT_BYTES = 1 << 20
SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "maxMessageSize": 131_072,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
SYNC = {**SMALL, "brokerRole": "SYNC_MASTER", "slaveTimeout": 120_000, "haHousekeepingInterval": 600_000}
NOT_ENOUGH = ResponseCode.SYSTEM_ERROR


def offset_of(answer: RemotingCommand) -> int:
    """Where the message of a send's answer lies in the log."""
    return int(answer.ext_fields["msgId"][-16:], 16)


def log_of(store: Path) -> bytes:
    """The master's log up to its end, from its first file on."""
    files = sorted((store / "commitlog").iterdir())
    first = int(files[0].name)
    return b"".join(file.read_bytes() for file in files)[: read_watermarks(store).append_offset - first]


@contextmanager
def sending(client: RawClient, body: bytes, paused: RawSlave | None = None) -> Iterator[list[RemotingCommand]]:
    """One send on a thread; the list has its answer once it is there. A slave that is `paused` reads on afterwards."""
    answers: list[RemotingCommand] = []
    thread = threading.Thread(target=lambda: answers.append(client.send("TopicA", body)))
    with paused.paused() if paused else nullcontext():
        thread.start()
        yield answers
    thread.join(60)
    assert answers, "the send was never answered"


def test_a_master_that_waits_for_nobody_starts_ha_at_the_first_connection(tmp_path: Path) -> None:
    port = free_broker_port()
    with RunningBroker(tmp_path / "store", SMALL, port=port) as broker:
        assert "ha" not in broker.worker_pids()
        assert ha_port(broker) == port + 1, "haListenPort is by default listenPort + 1"
        client = RawClient(broker.address)
        sent = [client.send("TopicA", random.Random(index).randbytes(3000)) for index in range(100)]
        assert {answer.code for answer in sent} == {ResponseCode.SUCCESS}
        with RawSlave(ha_port(broker)) as slave:
            end = read_watermarks(broker.store).append_offset
            wait_until(lambda: slave.end == end, "the slave has everything")
            assert "ha" in broker.worker_pids()
            assert slave.log == log_of(broker.store)
            assert client.send("TopicA", b"one more").code == ResponseCode.SUCCESS
            wait_until(lambda: slave.end > end and slave.reported == slave.end, "it follows")
            assert broker.stop() == 0
    assert slave.wrong is None


def test_a_send_is_answered_when_a_slave_has_it_and_not_before(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SYNC) as broker:
        client = RawClient(broker.address)
        refused = client.send("TopicA", b"nobody is there")
        assert refused.code == NOT_ENOUGH, refused.remark
        assert read_watermarks(broker.store).append_offset == 0, "it was not stored"
        with RawSlave(ha_port(broker)) as slave:
            wait_until(lambda: client.send("TopicA", b"first").code == ResponseCode.SUCCESS, "the slave counts")
            end = read_watermarks(broker.store).append_offset
            with sending(client, b"second", slave) as answers:
                wait_until(lambda: read_watermarks(broker.store).append_offset > end, "it is appended")
                time.sleep(0.3)  # span: a wrong answer would be here by now
                assert not answers
            assert answers[0].code == ResponseCode.SUCCESS
            assert slave.reported > offset_of(answers[0])
            assert broker.stop() == 0


def test_a_lost_slave_answers_who_waits_for_it_at_once(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SYNC) as broker:
        client, slave = RawClient(broker.address), RawSlave(ha_port(broker))
        wait_until(lambda: client.send("TopicA", b"first").code == ResponseCode.SUCCESS, "the slave counts")
        slave.reports = False
        with sending(client, b"second") as answers:
            wait_until(lambda: slave.end > slave.reported, "the slave has it and says nothing")
            slave.close()
            wait_until(lambda: answers, "the answer")
        assert answers[0].code == ResponseCode.SLAVE_NOT_AVAILABLE, "long before slaveTimeout"


def test_a_half_open_connection_beside_the_new_one_acknowledges_nothing(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {**SYNC, "inSyncReplicas": 3}) as broker:
        client = RawClient(broker.address)
        with RawSlave(ha_port(broker)), RawSlave(ha_port(broker)) as second:
            wait_until(lambda: second.start_offset is not None or second.connections, "both are connected")
            time.sleep(0.2)  # span: both have reported long ago
            assert client.send("TopicA", b"x").code == NOT_ENOUGH, "two connections of one host are one replica"


def test_acknowledged_is_replicated_while_ha_is_killed_under_load(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SYNC) as broker:
        slave = RawSlave(ha_port(broker), comes_back=True, delay_s=0.002)
        wait_until(lambda: RawClient(broker.address).send("TopicA", b"?").code == ResponseCode.SUCCESS, "it counts")
        codes: list[int] = []
        early: list[int] = []
        done = threading.Event()

        def produce(seed: int) -> None:
            client, dice = RawClient(broker.address), random.Random(seed)
            while not done.is_set():
                answer = client.send("TopicA", dice.randbytes(dice.randrange(1, 5000)), queue_id=seed % 4)
                codes.append(answer.code)
                if answer.code == ResponseCode.SUCCESS and slave.reported <= offset_of(answer):
                    early.append(offset_of(answer))

        producers = [threading.Thread(target=produce, args=(seed,)) for seed in range(6)]
        for thread in producers:
            thread.start()
        for _ in range(4):
            settled = codes.count(ResponseCode.SUCCESS) + 200
            wait_until(lambda goal=settled: codes.count(ResponseCode.SUCCESS) >= goal, "sends are answered again")
            broker.signal_worker("ha", signal.SIGKILL)
        settled = codes.count(ResponseCode.SUCCESS) + 200
        wait_until(lambda: codes.count(ResponseCode.SUCCESS) >= settled, "sends are answered after the last death")
        done.set()
        for thread in producers:
            thread.join(60)
        wait_until(lambda: slave.end == read_watermarks(broker.store).append_offset, "the slave has everything")
        assert not early, f"{len(early)} of {len(codes)} sends were answered before the slave had them"
        assert slave.connections >= 5
        assert slave.wrong is None
        assert slave.log == log_of(broker.store)
        assert set(codes) <= {ResponseCode.SUCCESS, NOT_ENOUGH, ResponseCode.SLAVE_NOT_AVAILABLE}
        assert broker.stop() == 0
        slave.close()


def test_an_empty_slave_gets_what_is_there_or_the_newest_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        client = RawClient(broker.address)
        for index in range(35):
            client.send("TopicA", random.Random(index).randbytes(100_000))
        assert broker.stop() == 0
    files = sorted(store.glob("commitlog/*"))
    files[0].unlink()
    for newest, start in ((False, SEGMENT_BYTES), (True, 3 * SEGMENT_BYTES)):
        settings = {**SMALL, "haStartFromNewestFile": newest}
        with RunningBroker(store, settings) as broker, RawSlave(ha_port(broker)) as slave:
            wait_until(lambda: slave.end == read_watermarks(store).append_offset, "the slave has everything")
            assert slave.start_offset == start
            assert slave.log == log_of(store)[start - SEGMENT_BYTES :]


def test_junk_on_the_ha_port_changes_nothing(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SYNC) as broker, RawSlave(ha_port(broker)) as slave:
        client, dice = RawClient(broker.address), random.Random(3)
        wait_until(lambda: client.send("TopicA", b"first").code == ResponseCode.SUCCESS, "the slave counts")
        worker = broker.worker_pids()["ha"]
        for turn in range(60):
            with socket.create_connection(("127.0.0.1", ha_port(broker))) as link:
                end = read_watermarks(broker.store).append_offset
                said = dice.choice(
                    (dice.randbytes(dice.randrange(1, 5000)), b"GET / HTTP/1.1\r\n\r\n",
                     struct.pack(">4q", 0, end, end + 1, -1), struct.pack(">q", -1), b"")
                )  # fmt: skip
                link.sendall(said)
            assert client.send("TopicA", b"%d" % turn).code == ResponseCode.SUCCESS, said[:40]
        assert broker.worker_pids()["ha"] == worker
        assert slave.connections == 1
        os.kill(worker, 0)
