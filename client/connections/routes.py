"""The queues of a topic and their brokers, and the choice of the next message's queue. No IO.

Rules of RocketMQ's clients (`MQClientInstance.topicRouteData2TopicPublishInfo`): write queues count only if the queue
data allows writing and the broker has an address for id 0. Read queues count if the queue data allows reading.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ringmq.remoting.flags import Perm
from ringmq.remoting.json_body import bad_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.route import MASTER_ID, TopicRouteData

QUEUES_PER_TOPIC_MAX = 65536  # a lying name server must not make us build an endless list
_NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """One topic's queues. `addresses` maps broker name to broker id to "host:port". The brokers are of `clusters`."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()

    def master_address(self, broker_name: str) -> str | None:
        """Return the address of the broker's master, None if no master is registered."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def read_address(self, broker_name: str, suggested_id: int = MASTER_ID) -> str | None:
        """Return the address for pulls: the suggested member, a slave's next one, the master, or the first slave.

        The rule of RocketMQ's `MQClientInstance.findBrokerAddressInSubscribe`, but for a deterministic choice at the
        end.
        """
        members = self.addresses.get(broker_name, {})
        wanted = (suggested_id, suggested_id + 1, MASTER_ID) if suggested_id != MASTER_ID else (MASTER_ID,)
        found = next((members[broker_id] for broker_id in wanted if broker_id in members), None)
        return found or (members[min(members)] if members else None)

    def master_addresses(self) -> set[str]:
        """Return the addresses of all masters."""
        return {members[MASTER_ID] for members in self.addresses.values() if MASTER_ID in members}

    def all_addresses(self) -> set[str]:
        """Return every broker address of the topic, slaves included."""
        return {address for members in self.addresses.values() for address in members.values()}


def parse_route(topic: str, body: bytes) -> TopicRoute:
    """Return the route in an answer to request 105. Raises `BadBody` naming the fault."""
    data = TopicRouteData.decode(body)
    addresses = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
    write: list[MessageQueue] = []
    read: list[MessageQueue] = []
    for entry in sorted(data.queue_datas, key=lambda entry: entry.broker_name):
        name = entry.broker_name
        if max(entry.write_queue_nums, entry.read_queue_nums) > QUEUES_PER_TOPIC_MAX:
            raise bad_body(f"route of topic {topic}: over {QUEUES_PER_TOPIC_MAX} queues on {name}", "queueDatas")
        if entry.perm & Perm.WRITE and MASTER_ID in addresses.get(name, {}):
            write += [MessageQueue(topic, name, i) for i in range(entry.write_queue_nums)]
        if entry.perm & Perm.READ and addresses.get(name):
            read += [MessageQueue(topic, name, i) for i in range(entry.read_queue_nums)]
    clusters = frozenset(broker.cluster for broker in data.broker_datas)
    return TopicRoute(topic, tuple(write), tuple(read), addresses, clusters)


def route_from_template(topic: str, template: TopicRoute, queue_count_max: int) -> TopicRoute:
    """Return the route of a topic that a first send creates.

    It has the template's queues, at most `queue_count_max` of each broker.
    """
    write = tuple(
        MessageQueue(topic, q.broker_name, q.queue_id) for q in template.write_queues if q.queue_id < queue_count_max
    )
    return TopicRoute(topic, write, (), template.addresses, template.clusters)


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue of all messages with this sharding key, by the rule of `SelectMessageQueueByHash`.

    The rule is Java's hash of the text, modulo the number of queues.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return queues[abs(hashed - (1 << 32) if hashed >> 31 else hashed) % len(queues)]


class QueueChooser:
    """Chooses a topic's write queues in turn. A random `start` per process keeps producers from choosing in step.

    A set of lost addresses is examined once: another set must be another object. `missing` are the lost addresses
    that affected the last choice.
    """

    __slots__ = ("_lost", "_reachable", "_route", "_turn", "missing")

    def __init__(self, start: int) -> None:
        self._turn = start
        self._route: TopicRoute | None = None
        self._lost: Set[str] = _NOBODY
        self._reachable: tuple[MessageQueue, ...] = ()
        self.missing = _NOBODY

    def choose(
        self,
        route: TopicRoute,
        avoid_broker: str | None = None,
        slow_brokers: Set[str] = frozenset(),
        lost: Set[str] = frozenset(),
    ) -> MessageQueue | None:
        """Return the next queue, None without write queues.

        The choice avoids `avoid_broker` if there is another broker, `slow_brokers` if that leaves a queue, and
        masters at `lost` addresses unless all are lost.
        """
        queues = route.write_queues
        if lost is not self._lost or route is not self._route:
            self._look_through(route, lost)
        if self.missing:
            queues = self._reachable or queues
        if not queues:
            return None
        turn, count, second_best = self._turn, len(queues), 0
        for step in range(1, count + 1):
            queue = queues[(turn + step) % count]
            if queue.broker_name != avoid_broker:
                if not slow_brokers or queue.broker_name not in slow_brokers:
                    self._turn = turn + step
                    return queue
                second_best = second_best or step
        self._turn = turn + (second_best or 1)
        return queues[self._turn % count]

    def _look_through(self, route: TopicRoute, lost: Set[str]) -> None:
        masters = {queue: route.master_address(queue.broker_name) for queue in route.write_queues} if lost else {}
        self.missing = frozenset([found for found in masters.values() if found is not None and found in lost])
        self._reachable = tuple(queue for queue, address in masters.items() if address not in lost)
        self._route, self._lost = route, lost
