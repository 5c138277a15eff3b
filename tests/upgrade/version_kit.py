"""A broker that changes its version over the same store and ports, and senders that go on meanwhile."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ringmq.loadtest.load.running import RunningBroker, interpreter
from ringmq.loadtest.replication.pairs import progress_of
from ringmq.loadtest.replication.remote import GET_BROKER_HA_STATUS, Remote
from ringmq.loadtest.stock import free_broker_port
from ringmq.remoting.codes import RequestCode
from tests.conformance.wire import send_fields, shortened
from tests.raw_client import SEND_BATCH, RawClient
from tests.staging import batch_body, bodies_of, make_topic
from tests.waiting import wait_until

TOPIC = "Upgrade"
QUEUES = 2
GROUP = "readers"
SETTINGS = [QUEUES, QUEUES, 7]
"""Of the topic: read and write queues; of the group: retries."""
AGAIN_S = 0.02
EVERY_S = 0.002
"""Between two sends: the store stays small however slow the machine is."""
Settings = Mapping[str, object]


class Member:
    """One broker of a group: `run` starts it as a version (the interpreter of its environment)."""

    def __init__(self, store: Path, settings: Settings, namesrv: str = "") -> None:
        self.store = store
        self.settings = settings
        self.namesrv = namesrv
        self.broker: RunningBroker | None = None
        self._port, self._namesrv_port = free_broker_port(), 0 if namesrv else free_broker_port()

    def run(self, python: str, **more: object) -> RunningBroker:
        """Stop the running version cleanly, and start this version on the same store and ports."""
        self.stop()
        with interpreter(python):
            self.broker = RunningBroker(
                self.store, {**self.settings, **more}, port=self._port, namesrv_port=self._namesrv_port,
                namesrv=self.namesrv,
            )  # fmt: skip
        return self.broker

    def stop(self) -> None:
        """A clean stop, as a service manager asks for it."""
        if self.broker is not None:
            assert self.broker.stop() == 0, self.broker.log_tail()
            self.broker = None

    def close(self) -> None:
        """The end of the test."""
        if self.broker is not None:
            self.broker.close()


class Senders:
    """One connection that sends all the time, through every restart. It keeps the acknowledged messages."""

    def __init__(self, address: str) -> None:
        self.acknowledged: list[bytes] = []
        self._address = address
        self._running = threading.Event()
        self._idle = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._running.set()
        self._thread.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is sent in this block."""
        self._running.clear()
        assert self._idle.wait(60)
        try:
            yield
        finally:
            self._idle.clear()
            self._running.set()

    def wait_for_more(self, count: int = 50) -> None:
        """Until so many more sends are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{count} more sends are acknowledged")

    def close(self) -> None:
        """End."""
        self._ended = True
        self._running.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        number = 0
        client: RawClient | None = None
        while not self._ended:
            if not self._running.is_set():
                self._idle.set()
                self._running.wait()
                continue
            number += 1
            body = b"%d " % number + b"x" * (number * 7 % 600)
            try:
                if client is None:
                    client = RawClient(self._address, timeout_s=20)
                if client.send(TOPIC, body, number % QUEUES).code == 0:
                    self.acknowledged.append(body)
                time.sleep(EVERY_S)  # a span: it bounds the rate
            except (OSError, AssertionError):  # the broker changes its version
                if client is not None:
                    client.close()
                client = None
                time.sleep(AGAIN_S)  # poll
        if client is not None:
            client.close()


class Expected:
    """The content that a store has to show in every version: messages, a topic's settings, group offsets, batches."""

    def __init__(self) -> None:
        self.offset = -1
        self.batches: list[bytes] = []

    def fill(self, address: str, *, batch_bytes: int = 0) -> None:
        """Topics, a group, and so many bytes of batches of 32."""
        make_topic(address, TOPIC, QUEUES)
        make_topic(address, "Batches", 1)
        with RawClient(address) as client:
            group = json.dumps({"groupName": GROUP, "retryQueueNums": 3, "retryMaxTimes": 7}).encode()
            assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0
            for number in range(batch_bytes // (32 * 1000)):
                rows = [b"%d/%d " % (number, row) + b"r" * 990 for row in range(32)]
                fields = shortened(send_fields("Batches", 0, {}, batch=True))
                assert client.ask(SEND_BATCH, fields, batch_body(rows)).code == 0
                self.batches += rows

    def commit(self, address: str, offset: int) -> None:
        """Let the group commit an offset."""
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": offset}
        with RawClient(address) as client:
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
        self.offset = offset

    def check(self, address: str, acknowledged: Sequence[bytes], *, is_slave: bool = False) -> None:
        """Everything is there: acknowledged messages at least once, batches exactly once."""
        wanted = set(acknowledged)
        wait_until(lambda: wanted <= set(bodies_of(address, TOPIC, QUEUES)), f"{address} shows all messages")
        count = len(self.batches)
        wait_until(lambda: len(bodies_of(address, "Batches", 1)) >= count, f"{address} shows {count} rows of batches")
        assert sorted(bodies_of(address, "Batches", 1)) == sorted(self.batches)
        with RawClient(address) as client:

            def settings() -> list[int]:
                topics = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG, {}).body)["topicConfigTable"]
                groups = json.loads(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}).body)
                topic, group = topics.get(TOPIC, {}), groups["subscriptionGroupTable"].get(GROUP, {})
                named = (topic.get("readQueueNums"), topic.get("writeQueueNums"), group.get("retryMaxTimes"))
                return [value or 0 for value in named]

            if is_slave:  # the tables come from the master every ten seconds
                wait_until(lambda: settings() == SETTINGS, "the slave has the settings")
            assert settings() == SETTINGS
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}

            def offset() -> int:
                answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
                return int(answer.ext_fields["offset"]) if answer.code == 0 else -1

            if is_slave:
                wait_until(lambda: offset() == self.offset, "the slave has the group's offset")
            assert offset() == self.offset


def wait_in_sync(master: RunningBroker) -> int:
    """Until the one slave has all that the master has; the log's end. Nothing may be sent meanwhile."""
    remote = Remote(master.port)
    try:

        def is_in_sync() -> bool:
            return progress_of(remote.ask(GET_BROKER_HA_STATUS).json()).is_caught_up

        wait_until(is_in_sync, "the slave is in sync")
        return progress_of(remote.ask(GET_BROKER_HA_STATUS).json()).end
    finally:
        remote.close()


def log_bytes(store: Path, end: int) -> bytes:
    """The log up to an offset."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[:end]
