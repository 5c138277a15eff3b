"""The route registry: brokers tell it what they have, clients ask where a topic lives.

A pure state machine. Time comes in as `now_ms`, connections are numbers that the shell gave out, and what has
to happen outside (closing a connection) is returned. Rules: `RouteInfoManager`, spec remoting 6.

    topics    topic -> broker name -> QueueData
    brokers   broker name -> BrokerData (cluster, address by broker id)
    clusters  cluster -> broker names
    live      (cluster, address) -> LiveBroker (last seen, DataVersion, connection)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.flags import PERM_READ_WRITE, Perm, TopicSysFlag
from ringmq.remoting.names import SYSTEM_TOPIC_PREFIX
from ringmq.remoting.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRouteData

DEFAULT_EXPIRY_MS = 120_000
"""A broker that names no timeout is dropped after this silence."""
_SYNC_MEMBER_PREFIX = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """What identifies a live broker."""

    cluster: str
    addr: str


@dataclass(slots=True)
class LiveBroker:
    """When a broker was last heard of and what it said then. `connection` is None for none of ours."""

    last_update_ms: int
    expiry_ms: int
    data_version: DataVersion
    connection: int | None
    ha_server_addr: str
    host: str = ""
    """Which host registered it; "" when that is not known."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One REGISTER_BROKER. `enable_acting_master` is None when the request lacked it (old brokers)."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    table: TopicConfigTable
    expiry_ms: int = DEFAULT_EXPIRY_MS
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    connection: int | None = None
    host: str = ""
    """The peer's address, as the connection has it."""

    @property
    def address(self) -> BrokerAddress:
        """The key into the live table."""
        return BrokerAddress(self.cluster, self.broker_addr)


@dataclass(frozen=True, slots=True)
class Registered:
    """What a slave wants to know; empty for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class RouteRegistry:
    """All of the name server's knowledge about brokers and topics."""

    delete_topic_with_registration: bool = False
    support_acting_master: bool = False
    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    live: dict[BrokerAddress, LiveBroker] = field(default_factory=dict)

    # ---- brokers ----

    def register(self, registration: Registration, now_ms: int) -> Registered | None:
        """Take a broker's registration; None when it is refused: an address that never registered may not
        begin with a single topic, which is taken for the update of a topic by a broker that the server
        forgot."""
        name, broker_id = registration.broker_name, registration.broker_id
        self.clusters.setdefault(registration.cluster, set()).add(name)
        broker = self.brokers.get(name)
        first = broker is None
        if broker is None:
            broker = self.brokers[name] = BrokerData(registration.cluster, name, {})
        broker.enable_acting_master = registration.enable_acting_master is True
        broker.zone_name = registration.zone_name
        for other in [i for i, addr in broker.broker_addrs.items() if addr == registration.broker_addr]:
            if other != broker_id:
                del broker.broker_addrs[other]
        if self._is_outdated(registration, broker):
            self.live.pop(registration.address, None)
            return Registered()
        if broker_id not in broker.broker_addrs and len(registration.table.topics) == 1:
            if not broker.broker_addrs:
                self._drop_name(registration.cluster, name)
            return None
        first = first or not broker.broker_addrs.get(broker_id)
        broker.broker_addrs[broker_id] = registration.broker_addr
        self._take_topics(registration, broker, first)
        self.live[registration.address] = LiveBroker(
            now_ms,
            registration.expiry_ms,
            registration.table.data_version.copy(),
            registration.connection,
            registration.ha_server_addr,
            registration.host,
        )
        return self._answer_for(registration, broker)

    def unregister(self, address: BrokerAddress, broker_name: str) -> None:
        """Forget a broker's address, and its name and topics with its last address."""
        self.live.pop(address, None)
        broker = self.brokers.get(broker_name)
        if broker is None:
            return
        for broker_id in [i for i, addr in broker.broker_addrs.items() if addr == address.addr]:
            del broker.broker_addrs[broker_id]
        if broker.broker_addrs:
            self._wipe_if_masterless(broker)
            return
        self._drop_name(address.cluster, broker_name)
        self._drop_topics_of(broker_name, list(self.topics))

    def drop_connection(self, connection: int) -> None:
        """Forget every broker that registered over this connection last."""
        for address in [key for key, live in self.live.items() if live.connection == connection]:
            self._forget(address)

    def expire(self, now_ms: int) -> list[int]:
        """Forget brokers that were silent for too long; returns their connections, to be closed."""
        late = [key for key, live in self.live.items() if live.last_update_ms + live.expiry_ms < now_ms]
        connections = [self.live[key].connection for key in late]
        for address in late:
            self._forget(address)
        return [connection for connection in connections if connection is not None]

    def holder(self, registration: Registration) -> tuple[str, LiveBroker] | None:
        """(address, entry) of the live broker that has the name and id of `registration`."""
        broker = self.brokers.get(registration.broker_name)
        addr = None if broker is None else broker.broker_addrs.get(registration.broker_id)
        if broker is None or addr is None:
            return None
        live = self.live.get(BrokerAddress(broker.cluster, addr))
        return None if live is None else (addr, live)

    def live_under(self, address: BrokerAddress, broker_name: str) -> LiveBroker | None:
        """The live broker that `unregister` with these arguments would forget."""
        broker = self.brokers.get(broker_name)
        own = None if broker is None else self.live.get(BrokerAddress(broker.cluster, address.addr))
        return own or self.live.get(address)

    def heard_from(self, address: BrokerAddress, now_ms: int) -> None:
        """A broker's heartbeat or question refreshes its time."""
        live = self.live.get(address)
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, address: BrokerAddress) -> DataVersion | None:
        """What the broker registered last."""
        live = self.live.get(address)
        return None if live is None else live.data_version

    # ---- topics ----

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic lives, None if no registered broker has it. A copy: the caller may change it."""
        queues = self.topics.get(topic)
        if not queues:
            return None
        found = [self.brokers[name] for name in queues if name in self.brokers]
        if not found:
            return None
        brokers = [replace(broker, broker_addrs=dict(broker.broker_addrs)) for broker in found]
        route = TopicRouteData([replace(queue) for queue in queues.values()], brokers)
        if self.support_acting_master and not topic.startswith(_SYNC_MEMBER_PREFIX):
            _promote_acting_masters(route)
        return route

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add queues of known brokers to a topic; stops at the first unknown broker, as stock does."""
        by_broker = dict(self.topics.get(topic, {}))
        for queue in queues:
            if queue.broker_name not in self.brokers:
                return
            by_broker[queue.broker_name] = queue
        if by_broker:
            self.topics[topic] = by_broker

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, of one cluster or everywhere."""
        if not cluster:
            self.topics.pop(topic, None)
            return
        for name in self.clusters.get(cluster, set()):
            self._drop_topics_of(name, [topic])

    def set_write_perm(self, broker_name: str, writable: bool) -> int:
        """Add or wipe the write permission of a broker's queues, here only and until its next change; how
        many topics.
        """
        count = 0
        for queues in self.topics.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queue.perm = int(PERM_READ_WRITE) if writable else queue.perm & ~Perm.WRITE
                count += 1
        return count

    # ---- views ----

    def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        return ClusterInfo(self.brokers, {cluster: sorted(names) for cluster, names in self.clusters.items()})

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster and broker names, which are topics too, and the address of some broker."""
        names = [name for cluster, brokers in self.clusters.items() for name in (cluster, *sorted(brokers))]
        addrs = [broker.any_addr for broker in self.brokers.values() if broker.broker_addrs]
        return names, addrs[0] if addrs else None

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics that any broker of the cluster has."""
        brokers = self.clusters.get(cluster, set())
        return [topic for topic, queues in self.topics.items() if not brokers.isdisjoint(queues)]

    def topics_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Topics by the sysFlag of their first queue data; None means either."""

        def fits(flags: int, bit: int, wanted: bool | None) -> bool:
            return wanted is None or bool(flags & bit) == wanted

        return [
            topic
            for topic, queues in self.topics.items()
            for flags in [next(iter(queues.values())).topic_sys_flag]
            if fits(flags, TopicSysFlag.UNIT, unit) and fits(flags, TopicSysFlag.UNIT_SUB, unit_sub)
        ]

    # ---- inside ----

    def _is_outdated(self, registration: Registration, broker: BrokerData) -> bool:
        """Another address holds the id and has a newer state version."""
        holder = broker.broker_addrs.get(registration.broker_id)
        if holder is None or holder == registration.broker_addr:
            return False
        live = self.live.get(BrokerAddress(registration.cluster, holder))
        new = registration.table.data_version.state_version
        return live is not None and live.data_version.state_version > new

    def _take_topics(self, registration: Registration, broker: BrokerData, first: bool) -> None:
        """Only the master speaks for the topics, or the lowest slave of brokers that know acting masters."""
        master = registration.broker_id == MASTER_ID
        prime_slave = (
            registration.enable_acting_master is not None
            and not master
            and registration.broker_id == min(broker.broker_addrs)
        )
        if not (master or prime_slave):
            return
        name, table = broker.broker_name, registration.table
        if self.delete_topic_with_registration:
            self._drop_topics_of(name, [topic for topic in self.topics if topic not in table.topics])
        changed = first or self.data_version(registration.address) != table.data_version
        wipe_write = prime_slave and broker.enable_acting_master
        for topic in table.topics.values():
            if changed or name not in self.topics.get(topic.topic_name, {}):
                self._take_topic(name, topic, wipe_write)

    def _take_topic(self, broker_name: str, topic: TopicConfig, wipe_write: bool) -> None:
        self.topics.setdefault(topic.topic_name, {})[broker_name] = QueueData(
            broker_name,
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm & ~Perm.WRITE if wipe_write else topic.perm,
            topic.topic_sys_flag,
        )

    def _answer_for(self, registration: Registration, broker: BrokerData) -> Registered:
        master = broker.master_addr
        if registration.broker_id == MASTER_ID or master is None:
            return Registered()
        live = self.live.get(BrokerAddress(registration.cluster, master))
        return Registered() if live is None else Registered(live.ha_server_addr, master)

    def _forget(self, address: BrokerAddress) -> None:
        for broker in list(self.brokers.values()):
            if broker.cluster == address.cluster and address.addr in broker.broker_addrs.values():
                self.unregister(address, broker.broker_name)
                return
        self.live.pop(address, None)

    def _drop_name(self, cluster: str, broker_name: str) -> None:
        del self.brokers[broker_name]
        names = self.clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self.clusters.pop(cluster, None)

    def _drop_topics_of(self, broker_name: str, topics: list[str]) -> None:
        for topic in topics:
            queues = self.topics.get(topic, {})
            queues.pop(broker_name, None)
            if not queues:
                self.topics.pop(topic, None)

    def _wipe_if_masterless(self, broker: BrokerData) -> None:
        if broker.enable_acting_master and MASTER_ID not in broker.broker_addrs:
            self.set_write_perm(broker.broker_name, False)


def _promote_acting_masters(route: TopicRouteData) -> None:
    """Show the lowest slave of a read-only broker without a master as its master."""
    read_only = {queue.broker_name for queue in route.queue_datas if not queue.perm & Perm.WRITE}
    for broker in route.broker_datas:
        addrs = broker.broker_addrs
        if addrs and MASTER_ID not in addrs and broker.enable_acting_master and broker.broker_name in read_only:
            addrs[MASTER_ID] = addrs.pop(min(addrs))
