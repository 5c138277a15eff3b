"""A topic that was deleted and made again keeps to its new life through a reboot."""

import signal
from pathlib import Path

import pytest

from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.message import decode_messages
from tests.drill.settings import SMALL_STORE
from tests.raw_client import RawClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
DELETE_TOPIC, MAX_OFFSET = 215, 30
SETTINGS = SMALL_STORE


def read_all(client: RawClient) -> list[bytes]:
    bodies: list[bytes] = []
    while (answer := client.pull("Again", 0, len(bodies))).code == 0:
        bodies += [bytes(message.body) for message in decode_messages(answer.body)]
    return bodies


def max_offset(client: RawClient, queue_id: int = 0) -> int:
    return int(client.ask(MAX_OFFSET, {"topic": "Again", "queueId": queue_id}).ext_fields["offset"])


def reboot(broker: RunningBroker, store: Path) -> None:
    """Everything dies, and the next start cannot trust the page cache: index files newer than the checkpoint go."""
    broker.kill_all()
    (store / "ringmq.boot").unlink()


def test_a_topic_made_again_gets_nothing_back_by_a_reboot(tmp_path: Path) -> None:
    store, new = tmp_path / "store", [b"new %d" % number for number in range(10)]
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        for number in range(100):
            assert client.send("Again", b"old %d" % number, pairs={"KEYS": "k"}).code == 0
        assert client.ask(DELETE_TOPIC, {"topic": "Again"}).code == 0
        wait_until(lambda: not (store / "consumequeue" / "Again").exists(), "its queues are gone")
        wait_until(lambda: client.send("Again", new[0]).code == 0, "its name is free")
        for body in new[1:]:
            assert client.send("Again", body).code == 0
        wait_until(lambda: read_all(client) == new, "all is dispatched")
        reboot(broker, store)
    for more in (b"after one reboot", b"after two"):
        with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
            assert "(checkpoint)" in broker.log_tail(20_000)
            marks = read_watermarks(store)
            assert marks.dispatched_offset == marks.append_offset, "ready means that all can be read"
            assert (max_offset(client), read_all(client)) == (len(new), new)
            new.append(more)
            assert client.send("Again", more).code == 0
            wait_until(lambda: read_all(client) == new, "its offsets go on")
            reboot(broker, store)
    broker.close()


@pytest.mark.parametrize("end", ["stop", "kill", "reboot"])
def test_a_topic_made_again_stays_empty_over_a_start(tmp_path: Path, end: str) -> None:
    """Nothing says that it has lost units: its queues have none yet, or one of them has."""
    store = tmp_path / "store"
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        for number in range(20):
            assert client.send("Again", b"old %d" % number, queue_id=number % 2).code == 0
        wait_until(lambda: max_offset(client) == 10, "all is dispatched")
        assert client.ask(DELETE_TOPIC, {"topic": "Again"}).code == 0
        wait_until(lambda: client.send("Again", b"new", queue_id=1).code == 0, "its name is free")
        assert client.send("Other", b"from here on the log is of others").code == 0
        if end == "stop":
            assert broker.stop() == 0
        else:
            broker.kill_all()
    if end == "reboot":
        (store / "ringmq.boot").unlink()
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        assert (max_offset(client), read_all(client)) == (0, [])
        assert max_offset(client, 1) == 1
        assert client.send("Again", b"first").code == 0
        wait_until(lambda: read_all(client) == [b"first"], "its offsets begin at 0")
        assert broker.stop() == 0


def test_a_deletion_outlives_a_stop_before_its_queues_are_gone(tmp_path: Path) -> None:
    store = tmp_path / "store"

    def make(client: RawClient, new: bytes) -> None:
        wait_until(lambda: client.send("Again", new).code == 0, "its name is free")
        wait_until(lambda: max_offset(client) == 1, "its offsets begin anew")
        assert read_all(client) == [new]

    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        for number in range(5):
            assert client.send("Again", b"old %d" % number).code == 0
        wait_until(lambda: max_offset(client) == 5, "all is dispatched")
        broker.signal_worker("write", signal.SIGSTOP)  # queues stay while write may hold a request
        assert client.ask(DELETE_TOPIC, {"topic": "Again"}).code == 0
        broker.kill_all()
    assert (store / "consumequeue" / "Again").exists()
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        make(client, b"second life")
        assert client.ask(DELETE_TOPIC, {"topic": "Again"}).code == 0
        assert broker.stop() == 0
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        make(client, b"third life")
        assert not (store / "config" / "ringmqDeletions.json").exists(), "no later start takes what is there now"
        assert broker.stop() == 0
