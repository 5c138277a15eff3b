"""Stock's tools and clients against a RingMQ master and its RingMQ slave: status, and reading on without the master."""

import re
from collections.abc import Iterator

import pytest

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.ha_bodies import HaStatus
from ringmq.remoting.json_body import read_object
from tests.conformance.replication import Group, RingmqNode
from tests.conformance.stock_client import StockClient
from tests.raw_client import RawClient
from tests.waiting import wait_until

TOPIC = "ReadOn"
QUEUES = 4
PARTS = 200
CONSUMERS = "ReadOnGroup"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def group(stock_client: StockClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    group = Group(tmp_path_factory.mktemp("both-ours"), "ringmq", "ringmq")
    try:
        group.start_slave()
        stock_client.call("fill", group.namesrv, topic=TOPIC, queues=QUEUES, start=0, count=PARTS)
        group.wait_equal()
        yield group
    finally:
        group.close()


def ask(node: RingmqNode, code: int) -> bytes:
    with RawClient(node.address) as client:
        return bytes(client.ask(code, {}).body)


def nodes(group: Group) -> tuple[RingmqNode, RingmqNode]:
    assert isinstance(group.master, RingmqNode)
    assert isinstance(group.slave, RingmqNode)
    return group.master, group.slave


def test_mqadmin_shows_master_and_slave(group: Group, stock_client: StockClient) -> None:
    master, slave = nodes(group)
    names = ["-n", group.namesrv]

    def status() -> HaStatus:
        return HaStatus.decode(ask(master, RequestCode.HA_STATUS))

    end = status().append_offset
    wait_until(lambda: [one.reported_offset for one in status().slaves] == [end], "the slave's report of the whole log")
    text = stock_client.call("mqadmin", group.namesrv, command=["haStatus", "-b", master.address, *names])
    assert re.search(rf"#MasterAddr\s+{master.address}", text), text
    assert re.search(rf"#MasterCommitLogMaxOffset\s+{end}\s+#SlaveNum\s+1\s+#InSyncSlaveNum\s+1", text), text
    assert re.search(rf"127\.0\.0\.1:\d+\s+{end}\s+0\s+[\d.]+\s+OK\s+{end}", text), text
    text = stock_client.call("mqadmin", group.namesrv, command=["haStatus", "-b", slave.address, *names])
    assert re.search(rf"#CommitLogMaxOffset\s+{end}", text), text
    assert re.search(r"#MasterAddr\s+127\.0\.0\.1:\d+", text), text
    listed = stock_client.call("mqadmin", group.namesrv, command=["clusterList", *names])
    assert master.address in listed and slave.address in listed


def test_a_consumer_reads_on_from_the_slave_of_a_killed_master(group: Group, stock_client: StockClient) -> None:
    """What the dead master had is read to its end, each queue in order; offsets go to the slave."""
    master, slave = nodes(group)
    wanted = stock_client.call("readTopics", group.namesrv, topics=[TOPIC])
    ends = {str(queue): 0 for queue in range(QUEUES)}
    for message in wanted:
        ends[str(message["queueId"])] = max(ends[str(message["queueId"])], message["queueOffset"] + 1)
    topics = slave.store / "config" / "topics.json"
    wait_until(lambda: topics.exists() and TOPIC in topics.read_text(), "the slave knows the topic")
    reading = stock_client.submit(
        "consumeSlowly", group.namesrv, topic=TOPIC, group=CONSUMERS, count=len(wanted), pauseMs=50, seconds=90
    )

    def committed(node: RingmqNode) -> int:
        table = read_object(ask(node, RequestCode.GET_ALL_CONSUMER_OFFSET), "offsets")["offsetTable"]
        return sum(table.get(f"{TOPIC}@{CONSUMERS}", {}).values())

    wait_until(lambda: committed(master) > 0, "it reads")
    before = committed(master)
    assert before < len(wanted), "there is something left to read"
    master.kill()
    received = reading.result(120)
    assert {queue: sorted(set(offsets)) for queue, offsets in received.items()} == {
        queue: list(range(end)) for queue, end in ends.items()
    }
    assert committed(slave) >= len(wanted) - 1, "all but what its one thread had in hand at the end"
