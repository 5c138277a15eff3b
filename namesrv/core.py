"""The route registry: brokers register their topics, clients ask for the route of a topic.

A pure state machine. Time comes in as `now_ms`, and connections are numbers that the shell assigns. Effects outside,
such as closing a connection, are return values. Rules: `RouteInfoManager`, spec remoting 6.

    topics    topic -> broker name -> QueueData
    brokers   broker name -> BrokerData (cluster, address by broker id)
    clusters  cluster -> broker names
    live      (cluster, address) -> LiveBroker (last seen, DataVersion, connection)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from msgspec import Struct, field, structs

from ringmq.namesrv.live_brokers import BrokerAddress, Displaced, LiveBroker
from ringmq.remoting.config_beans import DataVersion, TopicConfigTable
from ringmq.remoting.flags import PERM_READ_WRITE, Perm, TopicSysFlag
from ringmq.remoting.names import SYSTEM_TOPIC_PREFIX
from ringmq.remoting.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRouteData

DEFAULT_EXPIRY_MS = 120_000
"""The silence after which a broker is dropped that names no timeout itself."""
EXPIRY_MS_MAX = 86_400_000
"""The longest silence that a broker may ask for."""
NAME_CHARS_MAX = 255
"""The longest name of a topic, and the longest text about the broker in a registration."""
_SYNC_MEMBER_PREFIX = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"


class NoRoomError(Exception):
    """A registration is refused because a table is full. The message names the bound."""


class Bounds(Struct):
    """Limits of the tables. One host's brokers have at most half of each table, so no host can keep the others out."""

    brokers: int = 4096
    """Addresses of brokers, each id counted."""
    topics: int = 262_144
    queue_datas: int = 1_048_576
    """Pairs of a topic and a broker name with that topic."""


class Registration(Struct, frozen=True):
    """One REGISTER_BROKER. `enable_acting_master` is None when the request lacked the field (old brokers)."""

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


class Registered(Struct, frozen=True):
    """The addresses in the answer to a slave, None for a master. `left_out` counts the topics beyond a bound."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    left_out: int = 0


Owner = tuple[BrokerAddress, LiveBroker]
"""The registration by which a broker name has its address.

Any host may register another name at the same address, and `live` holds the last registration only.
"""


class RouteRegistry(Struct):
    """All of the name server's knowledge about brokers and topics."""

    delete_topic_with_registration: bool = False
    support_acting_master: bool = False
    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    live: dict[BrokerAddress, LiveBroker] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    broker_count: int = 0
    """The number of addresses in `brokers`."""
    queue_data_count: int = 0
    """The number of entries of all topics."""
    _names_at: dict[BrokerAddress, dict[str, Owner]] = field(default_factory=dict)
    """Address -> the broker names at that address, in the order of their registration.

    The cluster is that of `BrokerData`: a registration under another cluster does not change it.
    """
    _topics_of: dict[str, dict[str, None]] = field(default_factory=dict)
    """Broker name -> its topics."""
    _displaced: Displaced = field(default_factory=Displaced)
    _connections: set[int] = field(default_factory=set)
    """Connections that have registered a broker. Closing any other connection costs no walk over the tables."""

    # ---- brokers ----

    def register(self, registration: Registration, now_ms: int) -> Registered | None:
        """Add a broker's registration, or refuse it with None. Raises NoRoomError, and then changes nothing.

        An address that never registered may not begin with a single topic. Such a request updates one topic of a
        broker that this server has forgotten.
        """
        name, broker_id = registration.broker_name, registration.broker_id
        self._check_room(registration)
        self.clusters.setdefault(registration.cluster, set()).add(name)
        broker = self.brokers.get(name)
        first = broker is None
        if broker is None:
            broker = self.brokers[name] = BrokerData(registration.cluster, name, {})
        broker.enable_acting_master = registration.enable_acting_master is True
        broker.zone_name = registration.zone_name
        for other in [i for i, addr in broker.broker_addrs.items() if addr == registration.broker_addr]:
            if other != broker_id:
                self._drop_addr(broker, other)
        if self._is_outdated(registration, broker):
            self.live.pop(registration.address, None)
            return Registered()
        if broker_id not in broker.broker_addrs and len(registration.table.topics) == 1:
            if not broker.broker_addrs:
                self._drop_name(registration.cluster, name)
            return None
        first = first or not broker.broker_addrs.get(broker_id)
        since_ms = self._displace(registration, broker, now_ms)
        self._put_addr(broker, broker_id, registration.address)
        left_out = self._take_topics(registration, broker, first)
        # A broker asks by its version whether to register again. Topics that were left out are to be tried again.
        version = DataVersion() if left_out else registration.table.data_version.copy()
        live = LiveBroker(
            now_ms,
            min(registration.expiry_ms, EXPIRY_MS_MAX),
            version,
            registration.connection,
            registration.ha_server_addr,
            registration.host,
            since_ms,
        )
        self._own(broker, registration.address, live)
        if registration.connection is not None:
            self._connections.add(registration.connection)
        return structs.replace(self._answer_for(registration, broker), left_out=left_out)

    def unregister(
        self, address: BrokerAddress, broker_name: str, may: Callable[[LiveBroker], bool] = lambda live: True
    ) -> None:
        """Forget a broker's address, and its name and topics with its last address.

        Another host may have registered a displaced broker of the same name and address. That broker stays unless
        `may` allows the caller to unregister it.
        """
        self._displaced.unregister(address, broker_name, may)
        self._drop_address_of(address, broker_name)
        live = self.live.get(address)
        if live is not None and address not in self._names_at and may(live):
            del self.live[address]

    def drop_connection(self, connection: int) -> None:
        """Forget every broker whose last registration came over this connection."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._displaced.forget_connection(connection)
        self._forget(lambda live: live.connection == connection)

    def expire(self, now_ms: int) -> list[int]:
        """Forget the brokers that were silent for too long. Return their connections, which the caller closes."""
        self._displaced.expire(now_ms)
        late = self._forget(lambda live: live.last_update_ms + live.expiry_ms < now_ms)
        return list(dict.fromkeys(live.connection for live in late if live.connection is not None))

    def holder(self, registration: Registration) -> tuple[str, LiveBroker] | None:
        """Return (address, entry) of the live broker with the name and id of `registration`."""
        broker = self.brokers.get(registration.broker_name)
        addr = None if broker is None else broker.broker_addrs.get(registration.broker_id)
        owner = None if broker is None or addr is None else self._owner(broker, addr)
        return None if owner is None else (owner[0].addr, owner[1])

    def live_under(self, address: BrokerAddress, broker_name: str) -> LiveBroker | None:
        """Return the live broker that `unregister` with these arguments would forget."""
        broker = self.brokers.get(broker_name)
        if broker is None or address.addr not in broker.broker_addrs.values():
            return self.live.get(address)
        owner = self._owner(broker, address.addr)
        return None if owner is None else owner[1]

    def heard_from(self, address: BrokerAddress, now_ms: int) -> None:
        """Refresh the time of a broker that has sent a heartbeat or a query."""
        live = self.live.get(address)
        if live is not None:
            live.last_update_ms = now_ms
        for key, own in self._names_at.get(address, {}).values():
            if key == address:
                own.last_update_ms = now_ms

    def data_version(self, address: BrokerAddress) -> DataVersion | None:
        """The DataVersion of the broker's last registration."""
        live = self.live.get(address)
        return None if live is None else live.data_version

    # ---- topics ----

    def route(self, topic: str) -> TopicRouteData | None:
        """Return a topic's route, None if no registered broker has the topic. The caller may change the copy."""
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

    def register_topic(self, topic: str, queues: Iterable[QueueData], host: str = "") -> None:
        """Add queues of known brokers to a topic, or none if one of the brokers is unknown, as stock does.

        Raises NoRoomError when the topic does not fit. Then nothing is changed.
        """
        taken = {queue.broker_name: queue for queue in queues}
        if not all(name in self.brokers for name in taken):
            return
        have = self.topics.get(topic, {})
        fresh = len(taken.keys() - have.keys())
        new_topics, new_pairs = self._room(host)
        if fresh and (len(topic) > NAME_CHARS_MAX or fresh > new_pairs or (not have and not new_topics)):
            raise NoRoomError(self.full_text(1))
        for queue in taken.values():
            self._put_queue(topic, queue)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, of one cluster or everywhere."""
        if not cluster:
            for name in list(self.topics.get(topic, ())):
                self._drop_topics_of(name, [topic])
            return
        for name in self.clusters.get(cluster, set()):
            self._drop_topics_of(name, [topic])

    def set_write_perm(self, broker_name: str, writable: bool) -> int:
        """Add or remove the write permission of a broker's queues and return the number of topics.

        The change holds here only, until the broker's next registration.
        """
        topics = self._topics_of.get(broker_name, {})
        for topic in topics:
            queue = self.topics[topic][broker_name]
            queue.perm = int(PERM_READ_WRITE) if writable else queue.perm & ~Perm.WRITE
        return len(topics)

    # ---- views ----

    def writable_topics(self, broker_name: str) -> int:
        """Return the number of topics whose queues on this broker have the write permission."""
        queues = (self.topics[topic][broker_name] for topic in self._topics_of.get(broker_name, {}))
        return sum(bool(queue.perm & Perm.WRITE) for queue in queues)

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(self.brokers, {cluster: sorted(names) for cluster, names in self.clusters.items()})

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return cluster and broker names, which are topics too, and the address of some broker."""
        names = [name for cluster, brokers in self.clusters.items() for name in (cluster, *sorted(brokers))]
        addrs = [broker.any_addr for broker in self.brokers.values() if broker.broker_addrs]
        return names, addrs[0] if addrs else None

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics of all brokers of the cluster."""
        brokers = self.clusters.get(cluster, set())
        return [topic for topic, queues in self.topics.items() if not brokers.isdisjoint(queues)]

    def topics_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Return the topics whose first queue data has these bits of sysFlag. None accepts both values."""

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
        """True if another address holds the id with a newer state version."""
        holder = broker.broker_addrs.get(registration.broker_id)
        if holder is None or holder == registration.broker_addr:
            return False
        live = self.live.get(BrokerAddress(registration.cluster, holder))
        new = registration.table.data_version.state_version
        return live is not None and live.data_version.state_version > new

    def _take_topics(self, registration: Registration, broker: BrokerData, first: bool) -> int:
        """Replace the broker's topics and return the number of topics that did not fit.

        Only the master's topics count, or the lowest slave's of brokers that know acting masters. Known topics always
        fit.
        """
        master = registration.broker_id == MASTER_ID
        prime_slave = (
            registration.enable_acting_master is not None
            and not master
            and registration.broker_id == min(broker.broker_addrs)
        )
        if not (master or prime_slave):
            return 0
        name, table = broker.broker_name, registration.table
        have = self._topics_of.get(name, {})
        if self.delete_topic_with_registration:
            self._drop_topics_of(name, [topic for topic in have if topic not in table.topics])
        changed = first or self.data_version(registration.address) != table.data_version
        wipe_write = prime_slave and broker.enable_acting_master
        new_topics, new_pairs = self._room(registration.host)
        left_out = 0
        for topic in table.topics.values():
            known = topic.topic_name in self._topics_of.get(name, {})
            if known and not changed:
                continue
            if not known:
                is_new = topic.topic_name not in self.topics
                if len(topic.topic_name) > NAME_CHARS_MAX or new_pairs <= 0 or (is_new and new_topics <= 0):
                    left_out += 1
                    continue
                new_pairs, new_topics = new_pairs - 1, new_topics - is_new
            perm = topic.perm & ~Perm.WRITE if wipe_write else topic.perm
            queues = topic.read_queue_nums, topic.write_queue_nums
            self._put_queue(topic.topic_name, QueueData(name, *queues, perm, topic.topic_sys_flag))
        return left_out

    # ---- bounds ----

    def _check_room(self, registration: Registration) -> None:
        """Raise NoRoomError if the registration would add an address beyond a bound, or has too long texts."""
        said = {
            "brokerName": registration.broker_name,
            "brokerAddr": registration.broker_addr,
            "clusterName": registration.cluster,
            "haServerAddr": registration.ha_server_addr,
            "zoneName": registration.zone_name or "",
        }
        for what, text in said.items():
            if len(text) > NAME_CHARS_MAX:
                raise NoRoomError(f"{what} has {len(text)} characters, at most {NAME_CHARS_MAX} are kept")
        half = self.bounds.brokers // 2
        if registration.address not in self.live and len(self.live) >= self.bounds.brokers:
            mine = sum(live.host == registration.host for live in self.live.values())
            if mine >= self.bounds.brokers or len(self.live) >= 2 * self.bounds.brokers:
                raise NoRoomError(f"ringmqMaxBrokers = {self.bounds.brokers}: {len(self.live)} addresses are live")
        broker = self.brokers.get(registration.broker_name)
        if broker is not None and registration.broker_id in broker.broker_addrs:
            names = self.clusters.get(registration.cluster, set())
            if registration.broker_name in names or len(self.clusters) < self.bounds.brokers:
                return
            raise NoRoomError(f"ringmqMaxBrokers = {self.bounds.brokers} clusters are known")
        if self.broker_count >= self.bounds.brokers:
            raise NoRoomError(f"ringmqMaxBrokers = {self.bounds.brokers} brokers are registered")
        if self.broker_count >= half and self._brokers_of(registration.host) >= half:
            raise NoRoomError(f"host {registration.host} has registered {half} brokers, half of ringmqMaxBrokers")

    def _displace(self, registration: Registration, broker: BrokerData, now_ms: int) -> int:
        """Set aside the live broker whose id `registration` claims over another connection.

        Return the time since when the new broker has registered this address.
        """
        place = broker.broker_name, registration.broker_id
        back = self._displaced.take(place, registration.address, registration.connection)
        addr = broker.broker_addrs.get(registration.broker_id)
        owner = None if addr is None else self._owner(broker, addr)
        if owner is None:
            return now_ms if back is None else back.since_ms
        holder, live = owner
        if live.connection == registration.connection:
            return live.since_ms if holder == registration.address else now_ms
        self._displaced.keep(place, holder, structs.replace(live, data_version=DataVersion()), self.bounds.brokers)
        return now_ms if back is None else back.since_ms

    def _restore(self, broker: BrokerData, broker_id: int) -> None:
        """Give an id back to its displaced, still connected broker after the broker that claimed the id is gone."""
        found = self._displaced.take_first((broker.broker_name, broker_id))
        if found is not None:
            address, live = found
            self._put_addr(broker, broker_id, address)
            self._own(broker, address, live)

    def _brokers_of(self, host: str) -> int:
        return sum(live.host == host for names in self._names_at.values() for _, live in names.values())

    def _room(self, host: str) -> tuple[int, int]:
        """Return the numbers of new topics, and of new pairs of topic and broker name, that `host` may add."""
        topics, pairs = self.bounds.topics - len(self.topics), self.bounds.queue_datas - self.queue_data_count
        if topics <= self.bounds.topics // 2 or pairs <= self.bounds.queue_datas // 2:
            used = self._queue_datas_of(host)
            topics, pairs = (
                min(topics, self.bounds.topics // 2 - used),
                min(pairs, self.bounds.queue_datas // 2 - used),
            )
        return max(0, topics), max(0, pairs)

    def _queue_datas_of(self, host: str) -> int:
        names = {name for at in self._names_at.values() for name, (_, live) in at.items() if live.host == host}
        return sum(len(self._topics_of.get(name, ())) for name in names)

    def full_text(self, left_out: int) -> str:
        """Return the log line for `left_out` topics that did not fit, with the bounds."""
        bounds = self.bounds
        return (
            f"{left_out} topics do not fit: {len(self.topics)} topics of ringmqMaxTopics = {bounds.topics} and "
            f"{self.queue_data_count} entries of ringmqMaxQueueDatas = {bounds.queue_datas} are kept, one host has at "
            f"most half of each, and a name has at most {NAME_CHARS_MAX} characters"
        )

    def _put_addr(self, broker: BrokerData, broker_id: int, address: BrokerAddress) -> None:
        if broker.broker_addrs.get(broker_id) != address.addr:
            self._drop_addr(broker, broker_id)
            broker.broker_addrs[broker_id] = address.addr
            self.broker_count += 1

    def _own(self, broker: BrokerData, address: BrokerAddress, live: LiveBroker) -> None:
        self.live[address] = live
        self._names_at.setdefault(BrokerAddress(broker.cluster, address.addr), {})[broker.broker_name] = address, live

    def _owner(self, broker: BrokerData, addr: str) -> Owner | None:
        """Return the live registration by which the broker name has this address."""
        return self._names_at.get(BrokerAddress(broker.cluster, addr), {}).get(broker.broker_name)

    def _drop_addr(self, broker: BrokerData, broker_id: int) -> None:
        """Forget an id's address. The live entry goes with the last name at the address."""
        addr = broker.broker_addrs.pop(broker_id, None)
        if addr is None:
            return
        self.broker_count -= 1
        if addr in broker.broker_addrs.values():
            return
        address = BrokerAddress(broker.cluster, addr)
        names = self._names_at.get(address, {})
        owner = names.pop(broker.broker_name, None)
        if not names:
            self._names_at.pop(address, None)
        if owner is not None and self.live.get(owner[0]) is owner[1]:
            left = [live for key, live in names.values() if key == owner[0]]
            if left:
                self.live[owner[0]] = left[-1]
            else:
                del self.live[owner[0]]

    def _put_queue(self, topic: str, queue: QueueData) -> None:
        queues = self.topics.setdefault(topic, {})
        self.queue_data_count += queue.broker_name not in queues
        queues[queue.broker_name] = queue
        self._topics_of.setdefault(queue.broker_name, {})[topic] = None

    def _answer_for(self, registration: Registration, broker: BrokerData) -> Registered:
        master = broker.master_addr
        if registration.broker_id == MASTER_ID or master is None:
            return Registered()
        live = self.live.get(BrokerAddress(registration.cluster, master))
        return Registered() if live is None else Registered(live.ha_server_addr, master)

    def _forget(self, goes: Callable[[LiveBroker], bool]) -> list[LiveBroker]:
        """Forget the registrations for which `goes` is true, and the addresses of their names."""
        late = [live for live in self.live.values() if goes(live)]
        for address, names in list(self._names_at.items()):
            for name, (_, live) in list(names.items()):
                if goes(live):
                    late.append(live)
                    self._drop_address_of(address, name)
        for address in [address for address, live in self.live.items() if goes(live)]:
            del self.live[address]
        return late

    def _drop_address_of(self, address: BrokerAddress, broker_name: str) -> None:
        """Forget the address under one name. The broker that it displaced gets its id back."""
        broker = self.brokers.get(broker_name)
        if broker is None:
            return
        for broker_id in [i for i, addr in broker.broker_addrs.items() if addr == address.addr]:
            self._drop_addr(broker, broker_id)
            self._restore(broker, broker_id)
        if broker.broker_addrs:
            self._wipe_if_masterless(broker)
            return
        self._drop_name(address.cluster, broker_name)
        self._drop_topics_of(broker_name, list(self._topics_of.get(broker_name, ())))

    def _drop_name(self, cluster: str, broker_name: str) -> None:
        broker = self.brokers.pop(broker_name)
        for known in {cluster, broker.cluster}:
            names = self.clusters.get(known, set())
            names.discard(broker_name)
            if not names:
                self.clusters.pop(known, None)

    def _drop_topics_of(self, broker_name: str, topics: list[str]) -> None:
        own = self._topics_of.get(broker_name, {})
        for topic in topics:
            queues = self.topics.get(topic, {})
            if queues.pop(broker_name, None) is not None:
                self.queue_data_count -= 1
                own.pop(topic, None)
            if not queues:
                self.topics.pop(topic, None)
        if not own:
            self._topics_of.pop(broker_name, None)

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
