"""Which member of a broker's group a consumer asks: the one that the last answer named, the one that is there."""

import asyncio

from ringmq.client import ConsumeFrom, Consumer, MessageExt
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import encode_message
from ringmq.remoting.route import BrokerData, QueueData, TopicRouteData
from tests.client.fake_broker import FakeBroker, FakeCluster, ok, pulled

MASTER, SLAVE = "a", "b"


class Group:
    """The fake cluster's two brokers as one master and one slave; `has_master` is what the name server says."""

    def __init__(self) -> None:
        self.cluster = FakeCluster((MASTER, SLAVE), topics={"T": 1})
        self.has_master = True
        self.cluster.rules += [self.route, self.pull]
        self.suggested = {MASTER: "0", SLAVE: "0"}
        self.slave_is_empty = False

    @property
    def slave(self) -> FakeBroker:
        return self.cluster.brokers[SLAVE]

    @property
    def master(self) -> FakeBroker:
        return self.cluster.brokers[MASTER]

    def route(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or request.ext_fields["topic"] != "T":
            return None
        addresses = {1: self.slave.address} | ({0: self.master.address} if self.has_master else {})
        route = TopicRouteData([QueueData(MASTER, 1, 1, 6)], [BrokerData("c", MASTER, addresses)])
        return ok(request, route.encode(standard_json=True))

    def pull(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        """A master gives one message at a time and names the member to ask next, a slave too unless it has nothing."""
        if request.code != RequestCode.PULL_MESSAGE or request.ext_fields["topic"] != "T":
            return None
        offset, queue = int(request.ext_fields["queueOffset"]), self.master.queues["T", 0]
        if broker is self.slave and self.slave_is_empty:
            answer = pulled(request, ResponseCode.PULL_RETRY_IMMEDIATELY, offset, len(queue))
        elif offset >= len(queue):
            return None  # held, as usual
        else:
            found = encode_message(queue[offset])
            answer = pulled(request, ResponseCode.SUCCESS, offset + 1, len(queue), found)
        answer.ext_fields["suggestWhichBrokerId"] = self.suggested[broker.name]
        return answer

    def pulls(self, broker: FakeBroker) -> list[int]:
        """Offsets that a member was asked for."""
        asked = broker.asked(RequestCode.PULL_MESSAGE)
        return [int(request.ext_fields["queueOffset"]) for request in asked if request.ext_fields["topic"] == "T"]

    def fill(self, count: int) -> None:
        """Both have the same messages."""
        for number in range(count):
            for broker in (self.master, self.slave):
                broker.store(MessageExt("T", b"%d" % number, {}, queue_id=0))


async def take(consumer: Consumer, count: int) -> None:
    async with asyncio.timeout(60):
        for _ in range(count):
            assert consumer.ack(await consumer.poll(1)) == 1


async def test_the_member_that_an_answer_names_is_asked_next() -> None:
    group = Group()
    group.suggested = {MASTER: "1", SLAVE: "0"}
    async with group.cluster:
        group.fill(4)
        async with Consumer("T", group.cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            await take(consumer, 4)
        assert group.pulls(group.master)[:2] == [0, 2]
        assert group.pulls(group.slave)[:2] == [1, 3]


async def test_a_slave_that_has_nothing_sends_back_to_the_master() -> None:
    group = Group()
    group.suggested, group.slave_is_empty = {MASTER: "1", SLAVE: "0"}, True
    async with group.cluster:
        group.fill(3)
        async with Consumer("T", group.cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            await take(consumer, 3)
        assert group.pulls(group.slave)[:2] == [1, 2]
        assert group.pulls(group.master)[:3] == [0, 1, 2]


async def test_a_consumer_finds_the_slave_of_a_dead_master_and_commits_there() -> None:
    group = Group()
    async with group.cluster:
        group.fill(4)
        async with Consumer("T", group.cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            await take(consumer, 1)
            group.has_master = False
            await group.cluster.shut(group.master)
            await take(consumer, 3)
        assert group.pulls(group.slave)
        assert group.slave.committed["g", "T", 0] == 4


async def test_a_master_that_is_back_is_looked_for_when_its_slave_names_it() -> None:
    """The route without the master is some seconds old by then."""
    group = Group()
    group.has_master = False
    async with group.cluster:
        async with Consumer("T", group.cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            group.has_master, group.slave_is_empty = True, True
            group.fill(1)
            await take(consumer, 1)
            assert group.pulls(group.master)
        assert len(group.pulls(group.slave)) < 10, "not asked in a tight loop"
