"""Consumers of a group of brokers whose master dies and comes back: where they read and commit, in which order."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.client import ConsumeFrom, Consumer, MessageExt, Producer, PullOptions, compose_message
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_broker_port, free_port
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.ha_bodies import HaStatus
from ringmq.remoting.json_body import read_object, write_body
from ringmq.store.config_files import load_config
from tests.conformance.servers import RingmqProcess
from tests.raw_client import RawClient
from tests.waiting import wait_until

SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 131_072,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "brokerName": "group",
    "flushConsumerOffsetInterval": 100,
}
SLAVE = {**SMALL, "brokerRole": "SLAVE", "brokerId": 1, "ringmqSlaveSyncPeriod": 500}
LITTLE = PullOptions(batch_count=4, buffered_max=4)
"""Nearly nothing is in the consumer's hands when a broker dies."""


class Group:
    """A name server, a master and a slave."""

    def __init__(self, home: Path) -> None:
        self.home = home
        port = free_port()
        self.names = RingmqProcess(home / "names", "namesrv", "--port", str(port))
        self.namesrv = f"127.0.0.1:{port}"
        self.master_port = free_broker_port()
        try:
            self.start_master()
            self.slave = RunningBroker(home / "slave" / "store", SLAVE, namesrv=self.namesrv)
        except BaseException:
            self.close()
            raise

    def start_master(self) -> None:
        self.master = RunningBroker(self.home / "master" / "store", SMALL, namesrv=self.namesrv, port=self.master_port)

    def ask(self, broker: RunningBroker, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        with RawClient(broker.address) as client:
            return client.ask(code, fields, body)

    def status(self, broker: RunningBroker) -> HaStatus:
        return HaStatus.decode(self.ask(broker, RequestCode.HA_STATUS).body)

    def committed(self, broker: RunningBroker, group: str, topic: str) -> int:
        """Sum of a group's offsets on the queues of a topic."""
        table = read_object(self.ask(broker, RequestCode.GET_ALL_CONSUMER_OFFSET).body, "offsets")["offsetTable"]
        return sum(table.get(f"{topic}@{group}", {}).values())

    def wait_equal(self) -> None:
        """Until the slave has dispatched all that its master has."""
        wait_until(
            lambda: self.status(self.slave).confirm_offset == self.status(self.master).append_offset,
            "the slave has the master's log",
        )

    def wait_topic(self, topic: str) -> None:
        """Until the slave's readers have the topic's settings."""
        wait_until(lambda: self.knows(topic), f"the slave knows {topic}")

    def knows(self, topic: str) -> bool:
        return self.ask(self.slave, RequestCode.GET_TOPIC_CONFIG, topic=topic).code == 0

    def has_no_master(self) -> bool:
        """The slave has heard from the name server that its master is gone."""
        master = self.status(self.slave).master
        return master is not None and not master.is_registered

    def close(self) -> None:
        for broker in (getattr(self, "slave", None), getattr(self, "master", None)):
            if broker is not None:
                broker.close()
        self.names.kill()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    group = Group(tmp_path_factory.mktemp("reading"))
    try:
        yield group
    finally:
        group.close()


async def send(group: Group, topic: str, first: int, count: int) -> None:
    async with Producer(group.namesrv) as producer:
        await producer.send_all([compose_message(topic, b"%d" % number) for number in range(first, first + count)])


async def take(consumer: Consumer, received: list[MessageExt], count: int) -> None:
    async with asyncio.timeout(60):
        while len({message.body for message in received}) < count:
            received += await consumer.poll(timeout_ms=1000)
    consumer.ack(received)


def assert_in_order(received: list[MessageExt]) -> None:
    """Each queue's messages came in their order; what came twice came again from an earlier place on, without a gap."""
    queues: dict[int, list[int]] = defaultdict(list)
    for message in received:
        queues[message.queue_id].append(message.queue_offset)
    for queue_id, offsets in queues.items():
        highest = -1
        for before, offset in zip([-1, *offsets], offsets, strict=False):
            assert offset == before + 1 or offset <= highest, (queue_id, before, offset)
            highest = max(highest, offset)


async def test_a_consumer_goes_on_at_the_slave_and_returns_to_the_master(group: Group) -> None:
    topic, name = "Survives", "g_survives"
    await send(group, topic, 0, 200)
    group.wait_topic(topic)
    received: list[MessageExt] = []
    async with Consumer(topic, group.namesrv, name, consume_from=ConsumeFrom.FIRST, options=LITTLE) as consumer:
        await take(consumer, received, 100)
        await consumer.commit()
        group.wait_equal()
        await asyncio.to_thread(
            wait_until, lambda: 0 < group.committed(group.slave, name, topic) < 200, "the slave has the offsets"
        )
        group.master.kill_all()
        await take(consumer, received, 200)
        await asyncio.to_thread(wait_until, group.has_no_master, "the slave knows that its master is gone")
        await consumer.commit()
        await asyncio.to_thread(wait_until, lambda: group.committed(group.slave, name, topic) == 200, "committed there")
        group.start_master()
        await send(group, topic, 200, 100)
        await take(consumer, received, 300)
    assert sorted(int(message.body) for message in {m.body: m for m in received}.values()) == list(range(300))
    assert_in_order(received)
    # its route may have been the old one: what it committed to the slave last, the slave hands to the master
    await asyncio.to_thread(wait_until, lambda: group.committed(group.master, name, topic) == 300, "committed")


async def test_what_was_committed_to_the_slave_is_known_to_the_master_when_it_is_back(group: Group) -> None:
    """Stock: the master's older offsets overwrite the slave's, and whoever comes next gets the messages again."""
    topic, name = "Handed", "g_handed"
    await send(group, topic, 0, 80)
    group.wait_topic(topic)
    received: list[MessageExt] = []
    async with Consumer(topic, group.namesrv, name, consume_from=ConsumeFrom.FIRST, options=LITTLE) as consumer:
        await take(consumer, received, 40)
        await consumer.commit()
        group.wait_equal()
        await asyncio.to_thread(
            wait_until, lambda: 0 < group.committed(group.slave, name, topic) < 80, "the slave has the offsets"
        )
        group.master.kill_all()
        await take(consumer, received, 80)
    await asyncio.to_thread(wait_until, lambda: group.committed(group.slave, name, topic) == 80, "committed there")
    group.start_master()
    await asyncio.to_thread(wait_until, lambda: group.committed(group.master, name, topic) == 80, "handed over")
    late: list[MessageExt] = []
    await send(group, topic, 80, 8)
    async with Consumer(topic, group.namesrv, name, consume_from=ConsumeFrom.FIRST, options=LITTLE) as consumer:
        await take(consumer, late, 8)
    assert sorted(int(message.body) for message in late) == list(range(80, 88)), "nothing again"


async def test_settings_reach_the_slaves_files_and_what_is_deleted_goes(group: Group) -> None:
    create = {
        "topic": "Set", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip
    assert group.ask(group.master, RequestCode.UPDATE_AND_CREATE_TOPIC, **create).code == 0
    settings = SubscriptionGroupConfig("g_set", which_broker_when_consume_slowly=5)
    body = write_body(settings.to_json())
    assert group.ask(group.master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == 0
    group.wait_topic("Set")
    await send(group, "Set", 0, 3)
    await asyncio.to_thread(group.wait_equal)
    queues = group.slave.store / "consumequeue" / "Set"
    await asyncio.to_thread(wait_until, queues.is_dir, "the slave has dispatched the messages")
    workers = group.slave.worker_pids()

    def saved(file: str, table: str, name: str) -> dict[str, object] | None:
        found: dict[str, object] | None = load_config(group.slave.store, file)[table].get(name)
        return found

    def is_saved() -> bool:
        found = saved("subscriptionGroup.json", "subscriptionGroupTable", "g_set")
        return found is not None and found["whichBrokerWhenConsumeSlowly"] == 5

    wait_until(is_saved, "the group is in the slave's file")
    topic = saved("topics.json", "topicConfigTable", "Set")
    assert topic is not None
    assert (topic["readQueueNums"], topic["writeQueueNums"]) == (3, 2)
    assert (group.slave.store / "config" / "delayOffset.json").exists()
    assert group.ask(group.master, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Set").code == 0
    assert group.ask(group.master, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g_set").code == 0
    wait_until(lambda: not group.knows("Set"), "the topic is gone from the slave")
    wait_until(lambda: saved("subscriptionGroup.json", "subscriptionGroupTable", "g_set") is None, "and the group")
    assert saved("topics.json", "topicConfigTable", "Set") is None
    wait_until(lambda: not queues.exists(), "its queues are gone from the slave's disk")
    assert group.slave.worker_pids() == workers, "nobody has died of it"
