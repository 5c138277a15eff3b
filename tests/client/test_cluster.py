"""Questions about a cluster: brokers, topics, bounds by one request per topic and broker, where a store is."""

import pytest

from ringmq.client.cluster import Cluster, StoreFolder
from ringmq.client.errors import BrokerError, ConnectError, RouteError
from ringmq.remoting.admin_bodies import TopicOffset, TopicStats, encode_topic_list
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.route import BrokerData, ClusterInfo
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, Rule, ok, refuse

SLAVE = "127.0.0.9:10911"


def rules(cluster: FakeCluster) -> Rule:
    """Name server and brokers that answer what `FakeCluster` does not know; queue 3 can be read but not written."""

    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return ok(request, encode_topic_list([*cluster.topics, "TBW102"]))
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {name: BrokerData("c", name, {0: b.address, 1: SLAVE}) for name, b in cluster.brokers.items()}
            brokers["slave-only"] = BrokerData("c", "slave-only", {1: SLAVE})
            brokers["nobody"] = BrokerData("c", "nobody", {})
            return ok(request, ClusterInfo(brokers, {"c": list(brokers)}).encode())
        if request.code == RequestCode.GET_TOPIC_STATS_INFO:
            topic = request.ext_fields["topic"]
            offsets = {
                MessageQueue(topic, broker.name, queue): TopicOffset(0, len(broker.queues[topic, queue]), 0)
                for queue in range(3)
            }
            return ok(request, TopicStats(offsets).encode())
        return None

    return rule


async def test_brokers_topics_and_bounds() -> None:
    async with FakeCluster(("a", "b"), {"T": 4}) as fake, Cluster(fake.namesrv) as cluster:
        fake.rules.append(rules(fake))
        for queue_id, count in ((1, 3), (3, 5)):
            for _ in range(count):
                fake.brokers["b"].store(MessageExt("T", b"", queue_id=queue_id))
        addresses = {name: broker.address for name, broker in fake.brokers.items()}
        assert await cluster.brokers() == {**addresses, "slave-only": SLAVE}
        assert await cluster.topics() == ["T", "TBW102"]
        assert [(q.broker_name, q.queue_id) for q in await cluster.queues("T")] == [
            (name, queue) for name in "ab" for queue in range(4)
        ]
        bounds = await cluster.bounds("T")
        assert {tuple(q[1:]): ends for q, ends in bounds.items() if ends != (0, 0)} == {
            ("b", 1): (0, 3),
            ("b", 3): (0, 5),
        }
        assert len(bounds) == 8
        for broker in fake.brokers.values():
            assert len(broker.asked(RequestCode.GET_TOPIC_STATS_INFO)) == 1
            assert len(broker.asked(RequestCode.GET_MAX_OFFSET)) == 1, "for the queue that cannot be written"
        assert await cluster.bounds("Unknown") == {}
        assert await cluster.queues("Unknown") == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"ringmqStoreRoot": "/s", "ringmqBootId": "b", "ringmqCommitLogDevice": "x"}, None),
        (
            {
                "ringmqStoreRoot": "/s",
                "ringmqBootId": "b",
                "ringmqCommitLogDevice": "5",
                "ringmqCommitLogInode": str((1 << 64) - 1),
            },
            StoreFolder("/s", "b", 5, (1 << 64) - 1),
        ),
    ],
)
async def test_what_a_broker_says_of_its_store(fields: dict[str, str], expected: StoreFolder | None) -> None:
    async with FakeCluster() as fake, Cluster(fake.namesrv) as cluster:
        fake.rules.append(
            lambda broker, request: (
                ok(request, **fields) if request.code == RequestCode.GET_BROKER_RUNTIME_INFO else None
            )
        )
        assert await cluster.store_folder(fake.broker.address) == expected


async def test_what_goes_wrong_is_named() -> None:
    async with FakeCluster(("a",), {"T": 1}) as fake, Cluster(fake.namesrv) as cluster:
        with pytest.raises(BrokerError, match=f"{fake.broker.address} answered 3"):
            await cluster.bounds("T")
        fake.rules.append(lambda broker, request: ok(request, b"{") if request.code in (202, 305) else None)
        with pytest.raises(BrokerError, match="statistics of T do not parse"):
            await cluster.bounds("T")
        with pytest.raises(BrokerError, match="list of system topics does not parse"):
            await cluster.system_topics(fake.broker.address)
        fake.rules.insert(0, lambda broker, request: refuse(request, 1, "no lists") if request.code == 206 else None)
        with pytest.raises(BrokerError, match="answered 1: no lists"):
            await cluster.topics()
        fake.rules.insert(0, lambda broker, request: ok(request, b"{") if request.code == 106 else None)
        with pytest.raises(RouteError, match=f"name server {fake.namesrv}"):
            await cluster.brokers()
    async with Cluster("127.0.0.1:1") as nobody:
        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
            await nobody.topics()
