"""Queries about a cluster: its brokers, topics, queues, their bounds, offsets by time. Sends and receives nothing.

For planners and tools. Clients that move messages have `RouteTable` and `QueueOffsets` of their own. All methods
raise `RingmqError`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ringmq.client.arguments import check_numbers, check_optional
from ringmq.client.connections.name_servers import NameServers, RouteTable, parse_name_servers
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.consuming.offsets import QueueOffsets
from ringmq.client.errors import BrokerError, ClientClosedError, RouteError
from ringmq.client.runtimes.runtime import gather
from ringmq.client.settings import TIMEOUT_MS_MAX, ConnectionSettings
from ringmq.remoting.admin_bodies import TopicStats, decode_topic_list
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.errors import BadBody
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.response_headers import GetBrokerRuntimeInfoResponseHeader


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The location of a RingMQ broker's store, as the broker reports it.

    `root` is the path on the broker's host in the boot `boot_id`. Device and inode are those of `<root>/commitlog`.
    """

    root: str
    boot_id: str
    device: int
    inode: int


class Cluster:
    """Asks name servers and brokers. Use it on one event loop, as an async context manager."""

    def __init__(
        self, namesrv: str | Sequence[str], *, timeout_ms: int = 5000, settings: ConnectionSettings | None = None
    ) -> None:
        check_numbers(1, TIMEOUT_MS_MAX, timeout_ms=timeout_ms)
        check_optional(ConnectionSettings, settings=settings)
        self._name_server_addresses = parse_name_servers(namesrv)
        self._timeout_ms = timeout_ms
        self._settings = settings
        self._started = False

    async def __aenter__(self) -> Self:
        self._client = RemotingClient(self._settings)
        self._name_servers = NameServers(self._client, self._name_server_addresses, self._timeout_ms)
        self._routes = RouteTable(self._name_servers)
        self._offsets = QueueOffsets(self._client, self._routes, self._timeout_ms)
        self._started = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._started:
            self._started = False
            await self._client.close()

    async def brokers(self) -> dict[str, str]:
        """Return broker name -> the address for reads: the master's, or a slave's if no master is registered."""
        self._check_started()
        info = await self._name_servers.fetch_cluster()
        return {name: data.any_addr for name, data in sorted(info.brokers.items()) if data.any_addr is not None}

    async def topics(self) -> list[str]:
        """Return every registered topic, the brokers' own included."""
        self._check_started()
        return sorted(await self._name_servers.fetch_topics())

    async def system_topics(self, address: str) -> set[str]:
        """Return the broker's own topics."""
        self._check_started()
        answer = await self._client.call(
            address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, timeout_ms=self._timeout_ms
        )
        try:
            return set(decode_topic_list(answer.body))
        except BadBody as garbled:
            raise BrokerError(address, answer.code, f"its list of system topics does not parse: {garbled}") from None

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the topic's readable queues as the name server knows them now, none for an unknown topic."""
        self._check_started()
        route = await self._routes.fetch(topic)
        return () if route is None else route.read_queues

    async def bounds(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return the current (first offset, offset behind the last message) of each readable queue of the topic.

        The result is empty if the topic is unknown.
        """
        self._check_started()
        route = await self._routes.fetch(topic)
        if route is None:
            return {}
        brokers = sorted({queue.broker_name for queue in route.read_queues})
        found: dict[MessageQueue, tuple[int, int]] = {}
        for known in await gather(*(self._topic_stats(route, broker) for broker in brokers)):
            found |= known
        # a broker tells of as many queues as can be written; those that can still be read are asked for one by one
        rest = [queue for queue in route.read_queues if queue not in found]
        for queue, bounds in zip(rest, await gather(*map(self._queue_bounds, rest)), strict=True):
            found[queue] = bounds
        return {queue: found[queue] for queue in route.read_queues}

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after the time.

        If all messages are older it is the queue's end or more.
        """
        self._check_started()
        return await self._offsets.search(queue, timestamp_ms)

    async def store_folder(self, address: str) -> StoreFolder | None:
        """Return the location of a broker's store, None if the broker does not report it, like stock brokers."""
        self._check_started()
        answer = await self._client.call(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=self._timeout_ms)
        told = GetBrokerRuntimeInfoResponseHeader.decode(answer.ext_fields)
        device, inode = told.commit_log_device or "", told.commit_log_inode or ""
        if not (told.store_root and told.boot_id and device.isdecimal() and inode.isdecimal()):
            return None
        return StoreFolder(told.store_root, told.boot_id, int(device), int(inode))

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosedError("the client is not started or is closed")

    async def _topic_stats(self, route: TopicRoute, broker: str) -> dict[MessageQueue, tuple[int, int]]:
        address = route.read_address(broker)
        if address is None:
            raise RouteError(f"broker {broker} of topic {route.topic} is not registered", may_pass=True)
        answer = await self._client.call(
            address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": route.topic}, timeout_ms=self._timeout_ms
        )
        try:
            stats = TopicStats.decode(answer.body)
        except BadBody as garbled:
            raise BrokerError(
                address, answer.code, f"its statistics of {route.topic} do not parse: {garbled}"
            ) from None
        return {queue: (entry.min_offset, entry.max_offset) for queue, entry in stats.offsets.items()}

    async def _queue_bounds(self, queue: MessageQueue) -> tuple[int, int]:
        first, end = await gather(self._offsets.min_offset(queue), self._offsets.max_offset(queue))
        return first, end
