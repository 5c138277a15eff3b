"""Routes from name servers, refreshed regularly.

Name servers share nothing. A client uses one of them until it fails, then the next (`NettyRemotingClient`).
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from ringmq.client.arguments import check_kinds
from ringmq.client.connections.connection import split_address
from ringmq.client.connections.remoting_client import RemotingClient, note_seen
from ringmq.client.connections.routes import TopicRoute, parse_route, route_from_template
from ringmq.client.errors import (
    BrokerError,
    ConnectError,
    NameServerTimeoutError,
    RequestTimeoutError,
    RingmqError,
    RouteError,
    of_name_server,
)
from ringmq.client.runtimes.runtime import Task, create_task, shield, sleep, timeout
from ringmq.remoting.admin_bodies import decode_topic_list
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.errors import BadBody
from ringmq.remoting.names import AUTO_CREATE_TOPIC
from ringmq.remoting.route import MASTER_ID, ClusterInfo

T = TypeVar("T")

log = logging.getLogger("ringmq.client")

REFRESH_INTERVAL_S = 30.0
NEW_TOPIC_QUEUES = 4  # of a topic that the broker makes at a send (`defaultTopicQueueNums` of the producer)


def parse_name_servers(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return ("host:port", ...) of "host:port;host:port" or a sequence. Raises ValueError, or TypeError."""
    check_kinds((str, Iterable), namesrv=text)
    addresses = text.split(";") if isinstance(text, str) else list(text)
    for address in addresses:
        check_kinds(str, namesrv=address)
    cleaned = tuple(address.strip() for address in addresses if address.strip())
    if not cleaned:
        raise ValueError("no name server address given")
    for address in cleaned:
        split_address(address)
    return cleaned


class NameServers:
    """Requests to the first name server that answers."""

    def __init__(self, client: RemotingClient, addresses: Sequence[str], timeout_ms: int = 3000) -> None:
        self._client = client
        self._addresses = list(addresses)
        self._timeout_ms = timeout_ms

    @property
    def addresses(self) -> str:
        """All addresses, for messages."""
        return ";".join(self._addresses)

    async def fetch_route(self, topic: str) -> TopicRoute | None:
        """Return the topic's current route, None if no broker has registered it.

        Raises `RingmqError` without an answer.
        """
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            return await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, lambda body: parse_route(topic, body))
        except BrokerError as refused:
            if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise

    async def fetch_topics(self) -> list[str]:
        """Return every registered topic, the system's own included. Raises `RingmqError`."""
        return await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, decode_topic_list)

    async def fetch_cluster(self) -> ClusterInfo:
        """Return every registered broker with its addresses. Raises `RingmqError`."""
        return await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}, ClusterInfo.decode)

    async def know_no_master(self) -> bool:
        """True if the name servers know no master at all. False without an answer. Raises `RingmqError`."""
        try:
            return not any(MASTER_ID in broker.broker_addrs for broker in (await self.fetch_cluster()).brokers.values())
        except BrokerError:
            return False

    async def _ask(self, code: RequestCode, fields: dict[str, str], decode: Callable[[bytes], T]) -> T:
        """Return the first answer that can be read. "Topic unknown" is an answer, too."""
        error: RingmqError | None = None
        for address in list(self._addresses):
            try:
                answer = await self._client.call(address, code, fields, timeout_ms=self._timeout_ms)
                return decode(answer.body)
            except BrokerError as refused:
                if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                    raise
                error = refused
            except (ConnectError, RequestTimeoutError) as failed:
                error = failed
            except BadBody as garbled:
                error = RouteError(f"name server {address}: {garbled}")
            self._addresses.remove(address)  # the next call starts with another one
            self._addresses.append(address)
        assert error is not None
        raise of_name_server(error) from error


class RouteTable:
    """Routes of the topics in use: fetched on first use, refreshed every 30 s and when a request hints at a change."""

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._routes: dict[str, TopicRoute] = {}
        self._fetching: dict[str, Task[TopicRoute | None]] = {}

    def known(self, topic: str) -> TopicRoute | None:
        """Return the route in the table, without a request."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        """Return the topics in the table."""
        return list(self._routes)

    def all_addresses(self) -> set[str]:
        """Return the broker addresses of all routes in the table."""
        return {address for route in self._routes.values() for address in route.all_addresses()}

    def master_addresses(self) -> set[str]:
        """Return the addresses of the masters of all routes in the table."""
        return {address for route in self._routes.values() for address in route.master_addresses()}

    async def fetch(self, topic: str, until: float | None = None) -> TopicRoute | None:
        """Fetch a route now. Concurrent calls share one request. Without an answer the old route stays.

        Raises `RequestTimeoutError` at monotonic time `until`.
        """
        task = self._fetching.get(topic)
        if task is None:
            task = self._fetching[topic] = create_task(self._name_servers.fetch_route(topic))
            task.add_done_callback(note_seen)
            task.add_done_callback(lambda _: self._fetching.pop(topic, None))
        route = await self._in_time(shield(task), until)
        if route is not None:
            self._routes[topic] = route
        return route

    async def for_sending(self, topic: str, until: float | None = None) -> TopicRoute:
        """Return the topic's route, or for an unknown topic the route that its first send will create.

        Raises `RouteError`, and `RequestTimeoutError` like `fetch`.
        """
        route = self._routes.get(topic) or await self.fetch(topic, until)
        if route is not None and route.write_queues:
            return route
        if route is not None:
            raise RouteError(f"no master that allows writing is registered for topic {topic} now", may_pass=True)
        template = await self.fetch(AUTO_CREATE_TOPIC, until)
        if template is None:
            if await self._in_time(self._name_servers.know_no_master(), until):
                raise RouteError("no master is registered at the name server now", may_pass=True)
            template = await self.fetch(AUTO_CREATE_TOPIC, until)  # one may have come between the questions
        if template is not None:
            route = route_from_template(topic, template, NEW_TOPIC_QUEUES)
            if route.write_queues:
                self._routes[topic] = route
                return route
        raise RouteError(
            f"no broker takes messages for topic {topic}: it does not exist, and automatic creation is off"
        )

    async def refresh(self) -> None:
        """Fetch the route of every topic in the table once. After a failure the old route stays."""
        for topic in self.topics():
            try:
                await self.fetch(topic)
            except RingmqError as error:
                log.warning("route of topic %s could not be refreshed: %s", topic, error)
            except Exception:  # a hook's fault, or ours, must not end the refreshing silently
                log.exception("route of topic %s could not be refreshed", topic)

    async def refresh_forever(self) -> None:
        """Refresh until the owner cancels the task."""
        while True:
            await sleep(REFRESH_INTERVAL_S)
            await self.refresh()

    async def _in_time(self, asking: Awaitable[T], until: float | None) -> T:
        if until is None:
            return await asking
        left_s = max(0.0, until - time.monotonic())
        try:
            async with timeout(left_s):
                return await asking
        except TimeoutError:
            raise NameServerTimeoutError(self._name_servers.addresses, int(left_s * 1000)) from None
