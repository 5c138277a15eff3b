"""Registration with name servers: decides the time and kind of each request. No IO.

REGISTER_BROKER (103) announces the broker with all of its topics: at the start, periodically as a sign of life, and
after a change. It never carries a part of the topics, because a stock name server with
deleteTopicWithBrokerRegistration drops topics that a 103 omits. REGISTER_TOPIC_IN_NAMESRV (217) announces one changed
topic alone (`enableSingleTopicRegister`). A deleted topic needs 103. So does a name server that refuses 217; the
refusal counts until its connection ends.

Changes during a call go into the next one. A name server that does not answer is called again with growing pauses, and
then gets the whole table; the others do not wait. A name server whose connection ends forgets the broker. It gets the
whole table at once, and with growing pauses if that happens again and again.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.identity import Identity
from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.flags import PERM_READ_WRITE
from ringmq.remoting.namesrv_headers import (
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
)
from ringmq.remoting.register_body import body_crc32, encode_register_body, wrap_register_body
from ringmq.remoting.route import MASTER_ID, QueueData, TopicRouteData

RETRY_FIRST_MS = 500
SINGLE_TOPICS_MAX = 64
"""Changes that wait for one name server. If there are more, one whole table costs less than a request for each."""
SINGLE_FAULTS_MAX = 2
"""Requests for single topics in a row without an answer after which the name server gets whole tables."""


class Call(Struct, frozen=True):
    """One registration to make: the whole table (`topics` None), or one request for each named topic."""

    address: str
    topics: frozenset[str] | None


class _Server(Struct):
    next_ms: int = 0
    busy: bool = False
    failures: int = 0
    answered_ms: int = 0
    losses: int = 0
    """Times in a row that the connection ended before the pause that preceded it was over."""
    registered: bool = False
    full: bool = True
    topics: set[str] = field(default_factory=set)
    registered_change: int = 0
    pending_change: int = 0
    is_single: bool = False
    """True if the running call is for single topics."""
    refuses_single: bool = False
    single_faults: int = 0

    @property
    def is_urgent(self) -> bool:
        """True if there are changes, and the name server answers."""
        return (self.full or bool(self.topics)) and not self.failures


class Registration(Struct):
    """State per name server address."""

    period_ms: int
    """registerNameServerPeriod. It may change at any time."""
    servers: dict[str, _Server] = field(default_factory=dict)
    single_topics: bool = True
    """True if a changed topic may be registered alone. It may change at any time."""
    _change: int = 0

    @classmethod
    def of(cls, config: BrokerConfig) -> Registration:
        """The registration for namesrvAddr. Without an address there is nothing to do."""
        addresses = [address for address in config.namesrv_addr.split(";") if address]
        registration = cls(config.register_name_server_period, {address: _Server() for address in addresses})
        registration.apply_config(config)
        return registration

    def apply_config(self, config: BrokerConfig) -> None:
        """Apply the live properties."""
        self.period_ms = config.register_name_server_period
        # A name server takes a slave's 103 without its topics. A 217 has no broker id: it would change the master's.
        self.single_topics = config.enable_single_topic_register and config.broker_id == MASTER_ID

    def changed(self, topics: Iterable[str] | None = None) -> int:
        """Record changed topics. None = any topics, or deletions. Returns the number of the change, for
        `is_registered`."""
        names = None if topics is None else set(topics)
        for server in self.servers.values():
            if names is None:
                server.full = True
            else:
                server.topics |= names
        self._change += 1
        return self._change

    def is_registered(self, change: int) -> bool:
        """True if every answering name server knows the change."""
        return all(server.registered_change >= change or server.failures for server in self.servers.values())

    def due(self, now_ms: int) -> list[Call]:
        """Registrations to make now. Their name servers are busy until `finished`."""
        calls = []
        for address, server in self.servers.items():
            if server.busy or (now_ms < server.next_ms and not server.is_urgent):
                continue
            server.is_single = self._suits_single(server, now_ms)
            calls.append(Call(address, frozenset(server.topics) if server.is_single else None))
            server.busy, server.full, server.pending_change = True, False, self._change
            server.topics.clear()
        return calls

    def _suits_single(self, server: _Server, now_ms: int) -> bool:
        if not self.single_topics or server.refuses_single or len(server.topics) > SINGLE_TOPICS_MAX:
            return False
        return not server.full and server.registered and now_ms < server.next_ms

    def finished(self, address: str, ok: bool, now_ms: int) -> None:
        """Record the end of a call to `address`. Single topics are no sign of life: the whole table stays due as
        before."""
        server = self.servers[address]
        server.busy = False
        if ok:
            server.failures, server.registered, server.registered_change = 0, True, server.pending_change
            server.answered_ms = now_ms
            if server.is_single:
                server.single_faults = 0
            else:
                server.next_ms = now_ms + self.period_ms
        else:
            server.single_faults += server.is_single
            server.refuses_single = server.single_faults >= SINGLE_FAULTS_MAX
            pause_ms = RETRY_FIRST_MS << min(server.failures, 6)
            server.failures += 1
            server.full = True
            server.next_ms = now_ms + min(pause_ms, self.period_ms)

    def refused(self, address: str) -> None:
        """`address` has refused a request for a single topic. The whole table follows at once, and for later changes,
        too."""
        server = self.servers[address]
        server.busy, server.full, server.refuses_single = False, True, True

    def lost(self, address: str, now_ms: int) -> None:
        """The connection to `address` has ended between two calls. A running call uses a new one."""
        server = self.servers[address]
        server.refuses_single, server.single_faults = False, 0
        if server.busy or server.failures:
            return
        is_quick = now_ms - server.answered_ms < RETRY_FIRST_MS << min(server.losses, 6)
        server.losses = server.losses + 1 if is_quick else 0
        pause_ms = RETRY_FIRST_MS << min(server.losses - 1, 6) if server.losses else 0
        server.next_ms = min(server.next_ms, now_ms + pause_ms)

    def expedite(self, now_ms: int, within_ms: int) -> None:
        """Call all answering name servers again within `within_ms`, because their data may have changed."""
        for server in self.servers.values():
            if server.registered and not server.failures:
                server.next_ms = min(server.next_ms, now_ms + within_ms)

    def next_ms(self) -> int | None:
        """Time of the next call. None without name servers."""
        times = [0 if server.is_urgent else server.next_ms for server in self.servers.values()]
        return min(times, default=None)


def register_command(config: BrokerConfig, identity: Identity, topics: TopicTable) -> RemotingCommand:
    """103 with all topics. If the broker forbids reads or writes, its registered topics do so, too."""
    return finish(register_steps(config, identity, topics, topics.body_steps()))


def register_steps(
    config: BrokerConfig, identity: Identity, topics: TopicTable, text: Steps[bytes]
) -> Steps[RemotingCommand]:
    """`register_command` in steps. `text`: steps to the text of all topics."""
    if _is_limited(config):
        table = topics.body()
        table.topics = {name: _limited(topic, config.broker_permission) for name, topic in table.topics.items()}
        body = encode_register_body(table)
    else:
        body = wrap_register_body((yield from text))
        yield
    header = RegisterBrokerRequestHeader(
        broker_name=config.broker_name,
        broker_addr=identity.address,
        cluster_name=config.broker_cluster_name,
        ha_server_addr=identity.ha_address(config),
        broker_id=config.broker_id,
        enable_acting_master=False,
        compressed=False,
        body_crc32=body_crc32(body),
    )
    return RemotingCommand.request(RequestCode.REGISTER_BROKER, header.encode(), body)


def register_topic_command(config: BrokerConfig, topic: TopicConfig) -> RemotingCommand:
    """217 with the queues of one topic. Its permission is limited as in 103."""
    perm = topic.perm & config.broker_permission if _is_limited(config) else topic.perm
    queues = QueueData(config.broker_name, topic.read_queue_nums, topic.write_queue_nums, perm, topic.topic_sys_flag)
    body = TopicRouteData([queues]).encode(standard_json=False)
    header = RegisterTopicRequestHeader(topic=topic.topic_name)
    return RemotingCommand.request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header.encode(), body)


def unregister_command(config: BrokerConfig, identity: Identity) -> RemotingCommand:
    """104."""
    header = UnregisterBrokerRequestHeader(
        broker_name=config.broker_name,
        broker_addr=identity.address,
        cluster_name=config.broker_cluster_name,
        broker_id=config.broker_id,
    )
    return RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header.encode())


def _is_limited(config: BrokerConfig) -> bool:
    return config.broker_permission & PERM_READ_WRITE != PERM_READ_WRITE


def _limited(topic: TopicConfig, permission: int) -> TopicConfig:
    return TopicConfig(
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm & permission,
        topic.topic_filter_type,
        topic.topic_sys_flag,
        topic.order,
        topic.attributes,
    )
