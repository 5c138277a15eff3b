"""Membership of a consumer group: this member's share of the subscribed queues.

The member asks for the members (38) of each topic and computes its share: at start, when the broker reports a change
of members (40), after a broken connection, and every 20 s. Without an answer nothing changes.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ringmq.client.connections.heartbeat import Heartbeats, unregister_client
from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.consuming.allocation import AllocationStrategy
from ringmq.client.consuming.expression_checks import check_expressions
from ringmq.client.errors import BrokerError, RingmqError, RouteError
from ringmq.client.runtimes.runtime import gather
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.errors import BadBody
from ringmq.remoting.heartbeat import decode_consumer_ids
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import is_retry_topic
from ringmq.remoting.subscription import EXPRESSION_TAG, SubscriptionData

log = logging.getLogger("ringmq.client")

REBALANCE_INTERVAL_S = 20.0
MISSING_TOPIC_INTERVAL_S = 0.5  # a topic that the first send makes should not wait for the next round
WARN_AGAIN_S = 30.0  # of a failure that lasts: each round meets it again

Assignment = dict[MessageQueue, bool]
"""Queue -> True if it appeared after the start."""


class GroupMember:
    """One client's membership of one group.

    `allocate` divides the queues. Without it every queue belongs to each member. `before_joining` is awaited with
    the queues of each topic that exists at the start, before the first heartbeat. `on_assignment` is awaited with each
    new assignment. Its False asks for another round soon.
    """

    def __init__(
        self,
        group: str,
        client_id: str,
        client: RemotingClient,
        routes: RouteTable,
        heartbeats: Heartbeats,
        topics: Callable[[], list[str]],
        before_joining: Callable[[Sequence[MessageQueue]], Awaitable[None]],
        on_assignment: Callable[[Assignment], Awaitable[bool]],
        allocate: AllocationStrategy | None,
    ) -> None:
        self._allocate = allocate
        self._group = group
        self._client_id = client_id
        self._client = client
        self._routes = routes
        self._heartbeats = heartbeats
        self._topics = topics
        self._before_joining = before_joining
        self._on_assignment = on_assignment
        self._again = Signal()
        self._asked_again = False
        self._greeted: set[str] = set()  # brokers that have our heartbeat on the present connection
        self._owned: dict[str, list[MessageQueue]] = {}
        self._seen_at_start: set[MessageQueue] | None = None
        self._warned: dict[str, float] = {}  # failure -> when it was logged last
        client.on_disconnected = self._note_disconnected

    def trigger(self) -> None:
        """Start another round soon."""
        self._asked_again = True
        self._again.wake()

    async def run(self) -> None:
        """Update the assignment until the owner cancels the task."""
        while True:
            try:
                complete = await self.rebalance()
            except Exception:  # a fault of ours must not end the membership silently
                log.exception("rebalance of group %s failed; trying again", self._group)
                complete = False
            if not self._asked_again:
                await self._again.wait(REBALANCE_INTERVAL_S if complete else MISSING_TOPIC_INTERVAL_S)

    async def rebalance(self) -> bool:
        """Run one round. False if a topic has no route, an answer is missing or a queue could not be given up.

        After False another round follows soon.
        """
        self._asked_again = False
        complete = True
        routes: list[TopicRoute] = []
        for topic in self._topics():
            route = await self._route(topic)
            if route is not None:
                routes.append(route)
            elif not is_retry_topic(topic):
                complete = False
        if self._seen_at_start is None:
            await gather(*(self._before_joining(route.read_queues) for route in routes))
            self._heartbeats.is_member = True
        await self._send_first_heartbeat({address for route in routes for address in route.all_addresses()})
        if self._seen_at_start is None:
            self._seen_at_start = {queue for route in routes for queue in route.read_queues}
        for route in routes:
            if self._allocate is None:
                self._owned[route.topic] = list(route.read_queues)
                continue
            try:
                members = await self._members(route)
            except RingmqError as error:
                log.info("members of group %s on topic %s: %s", self._group, route.topic, error)
                complete = False
                continue
            self._owned[route.topic] = self._allocate(self._client_id, route.read_queues, members)
        queues = [queue for topic in self._topics() for queue in self._owned.get(topic, [])]
        taken = await self._on_assignment({queue: queue not in self._seen_at_start for queue in queues})
        return complete and taken

    async def check_expressions(self, subscriptions: Iterable[SubscriptionData]) -> None:
        """Have brokers check expressions that they evaluate. Raises `BrokerError` if a broker refuses one."""
        checked = [wanted for wanted in subscriptions if wanted.expression_type != EXPRESSION_TAG]
        routes = {wanted.topic: await self._route(wanted.topic) for wanted in checked}
        addresses = {topic: route.all_addresses() for topic, route in routes.items() if route is not None}
        await check_expressions(self._client, self._client_id, self._group, checked, addresses)

    async def leave(self) -> None:
        """Unregister from every broker, so that the other members take the queues at once."""
        leave = {"clientID": self._client_id, "consumerGroup": self._group}
        await unregister_client(self._client, self._routes.all_addresses(), leave)

    async def _route(self, topic: str) -> TopicRoute | None:
        route = self._routes.known(topic)
        if route is None:
            try:
                route = await self._routes.fetch(topic)
                self._warned.clear()
            except RingmqError as error:
                self._warn(topic, str(error))
        return route

    def _warn(self, topic: str, failure: str) -> None:
        """Log a failure once for all topics that have it, then seldom."""
        now = time.monotonic()
        if failure not in self._warned or now - self._warned[failure] >= WARN_AGAIN_S:
            self._warned[failure] = now
            log.warning("group %s waits for the route of topic %s: %s", self._group, topic, failure)

    async def _send_first_heartbeat(self, addresses: set[str]) -> None:
        """Send a heartbeat before asking for members: a list without this member would take all its queues away."""
        missing = [address for address in addresses if address not in self._greeted]
        answers = await gather(*(self._heartbeats.send_to(a) for a in missing))
        for address, accepted in zip(missing, answers, strict=True):
            if accepted:
                self._greeted.add(address)

    async def _members(self, route: TopicRoute) -> list[str]:
        addresses = sorted(route.all_addresses() & self._greeted)
        if not addresses:  # a broker that refused our heartbeat has a list without us
            raise RouteError(f"no broker of topic {route.topic} is registered that took our heartbeat")
        address = random.choice(addresses)
        answer = await self._client.call(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}
        )
        try:
            return decode_consumer_ids(answer.body)
        except BadBody as error:
            raise BrokerError(address, answer.code, f"member list cannot be decoded: {error}") from error

    def _note_disconnected(self, address: str) -> None:
        self._greeted.discard(address)
        self.trigger()
