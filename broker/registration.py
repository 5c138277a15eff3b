"""Registration with name servers: when to say what (REGISTER_BROKER 103, UNREGISTER_BROKER 104). No IO.

Every name server is told everything at the start and periodically as a sign of life, and of a changed topic at once
(that topic alone, `registerIncrementBrokerData`). Changes while a call is under way go into the next one. A name
server that does not answer is tried again with growing pauses, and then told everything; the others do not wait.
One whose connection ends forgets what came over it: it is told everything at once, with growing pauses where that
happens again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.core import Identity
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig, TopicConfigTable
from ringmq.remoting.flags import PERM_READ_WRITE
from ringmq.remoting.namesrv_headers import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from ringmq.remoting.register_body import body_crc32, encode_register_body

RETRY_FIRST_MS = 500


@dataclass(frozen=True, slots=True)
class Call:
    """One registration to be made; `topics` None = all."""

    address: str
    topics: frozenset[str] | None


@dataclass(slots=True)
class _Server:
    next_ms: int = 0
    busy: bool = False
    failures: int = 0
    answered_ms: int = 0
    losses: int = 0
    """Times in a row that the connection did not outlive the pause before it."""
    registered: bool = False
    full: bool = True
    topics: set[str] = field(default_factory=set)
    told: int = 0
    telling: int = 0

    @property
    def is_hurried(self) -> bool:
        """There is news, and the name server is up."""
        return (self.full or bool(self.topics)) and not self.failures


@dataclass(slots=True)
class Registration:
    """State per name server address."""

    period_ms: int
    """registerNameServerPeriod; may change at any time."""
    servers: dict[str, _Server] = field(default_factory=dict)
    _news: int = 0

    @classmethod
    def of(cls, config: BrokerConfig) -> Registration:
        """From namesrvAddr; no address means nothing to do."""
        addresses = [address for address in config.namesrv_addr.split(";") if address]
        return cls(config.register_name_server_period, {address: _Server() for address in addresses})

    def changed(self, topics: Iterable[str] | None = None) -> int:
        """Topics have changed (None: all may have). The number of the news, for `is_told`."""
        names = None if topics is None else set(topics)
        for server in self.servers.values():
            if names is None:
                server.full = True
            else:
                server.topics |= names
        self._news += 1
        return self._news

    def is_told(self, news: int) -> bool:
        """Every name server that answers knows the news."""
        return all(server.told >= news or server.failures for server in self.servers.values())

    def due(self, now_ms: int) -> list[Call]:
        """Registrations to make now; their name servers are busy until `finished`."""
        calls = []
        for address, server in self.servers.items():
            if server.busy or (now_ms < server.next_ms and not server.is_hurried):
                continue
            full = server.full or not server.registered or now_ms >= server.next_ms
            calls.append(Call(address, None if full else frozenset(server.topics)))
            server.busy, server.full, server.telling = True, False, self._news
            server.topics.clear()
        return calls

    def finished(self, address: str, ok: bool, now_ms: int) -> None:
        """The call to `address` has ended."""
        server = self.servers[address]
        server.busy = False
        if ok:
            server.failures, server.registered, server.told = 0, True, server.telling
            server.answered_ms = now_ms
            server.next_ms = now_ms + self.period_ms
        else:
            pause_ms = RETRY_FIRST_MS << min(server.failures, 6)
            server.failures += 1
            server.full = True
            server.next_ms = now_ms + min(pause_ms, self.period_ms)

    def lost(self, address: str, now_ms: int) -> None:
        """The connection to `address` has ended between two calls. A call under way uses a new one."""
        server = self.servers[address]
        if server.busy or server.failures:
            return
        is_quick = now_ms - server.answered_ms < RETRY_FIRST_MS << min(server.losses, 6)
        server.losses = server.losses + 1 if is_quick else 0
        pause_ms = RETRY_FIRST_MS << min(server.losses - 1, 6) if server.losses else 0
        server.next_ms = min(server.next_ms, now_ms + pause_ms)

    def hurry(self, now_ms: int, within_ms: int) -> None:
        """Call again within `within_ms` whoever answers: what it knows may have changed."""
        for server in self.servers.values():
            if server.registered and not server.failures:
                server.next_ms = min(server.next_ms, now_ms + within_ms)

    def next_ms(self) -> int | None:
        """When the next call is due, None without name servers."""
        times = [0 if server.is_hurried else server.next_ms for server in self.servers.values()]
        return min(times, default=None)


def register_command(config: BrokerConfig, identity: Identity, topics: TopicConfigTable) -> RemotingCommand:
    """103 with the topics given. While the broker may not be read or written, its topics say so."""
    permission = config.broker_permission
    if permission & PERM_READ_WRITE != PERM_READ_WRITE:
        table = {name: _limited(topic, permission) for name, topic in topics.topics.items()}
        topics = TopicConfigTable(table, topics.data_version, topics.mapping_data_version)
    body = encode_register_body(topics)
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


def unregister_command(config: BrokerConfig, identity: Identity) -> RemotingCommand:
    """104."""
    header = UnregisterBrokerRequestHeader(
        broker_name=config.broker_name,
        broker_addr=identity.address,
        cluster_name=config.broker_cluster_name,
        broker_id=config.broker_id,
    )
    return RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header.encode())


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
