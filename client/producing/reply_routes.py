"""Routes of replies to their requester. A broker pushes a reply only to clients that it knows by a heartbeat.

Repliers send to any broker that has the cluster's reply topic.
"""

import logging
import time

from ringmq.client.connections.heartbeat import Heartbeats
from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.errors import RingmqError
from ringmq.client.runtimes.runtime import Task, timeout, wait
from ringmq.remoting.names import reply_topic

log = logging.getLogger("ringmq.client")

HEARTBEAT_WAIT_S = 1.0  # for a broker's first answer; a question does not wait for one that is silent
ASK_AGAIN_S = 30.0  # for the route of a reply topic that was not there


class ReplyRoutes:
    """Registers this client with brokers.

    It waits for each broker once. Rounds and new connections send later heartbeats.
    """

    def __init__(self, client: RemotingClient, routes: RouteTable, heartbeats: Heartbeats) -> None:
        self._client = client
        self._routes = routes
        self._heartbeats = heartbeats
        self._greetings: dict[str, Task[bool]] = {}  # address -> the first
        self._ask_again: dict[str, float] = {}  # reply topic -> when

    async def open(self, topic: str) -> None:
        """Send heartbeats to the topic's masters, and to all others that may get a reply. Raises `RouteError`."""
        route = await self._routes.for_sending(topic)
        addresses = route.master_addresses()
        for cluster in route.clusters:
            replies = await self._reply_route(reply_topic(cluster))
            addresses |= set() if replies is None else replies.master_addresses()
        lost = self._client.lost & addresses
        self._client.try_again(lost)  # greeted as soon as they are connected
        for address in addresses - lost - self._greetings.keys():
            self._greetings[address] = self._heartbeats.begin(address)
        under_way = [self._greetings[address] for address in addresses - lost if not self._greetings[address].done()]
        await wait(under_way, HEARTBEAT_WAIT_S)
        for greeting in under_way:
            if greeting.done() and not greeting.cancelled():
                greeting.result()  # raises what a request hook raised

    async def _reply_route(self, topic: str) -> TopicRoute | None:
        """Return the route of a reply topic, which is refreshed like the others from then on."""
        route = self._routes.known(topic)
        if route is None and time.monotonic() >= self._ask_again.get(topic, 0.0):
            try:
                async with timeout(HEARTBEAT_WAIT_S):
                    route = await self._routes.fetch(topic)
            except (RingmqError, TimeoutError) as error:
                log.info("route of topic %s: %s; replies over other brokers may get lost", topic, error or "no answer")
            if route is None:
                self._ask_again[topic] = time.monotonic() + ASK_AGAIN_S
        return route
