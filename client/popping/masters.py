"""The masters of the subscribed topics, in turn: a pop asks one of them for all queues of one topic."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.errors import RingmqError
from ringmq.client.popping.pop_decoding import PopTarget
from ringmq.client.runtimes.runtime import gather

SILENT_FOR_S = 30.0
"""The time in which a master that has not answered is asked only if all others are lost."""
FETCH_INTERVAL_S = 0.5


class Masters:
    """Targets of pops. The routes are those of the table, so they follow its refreshes."""

    def __init__(self, client: RemotingClient, routes: RouteTable, topics: Iterable[str]) -> None:
        self._client = client
        self._routes = routes
        self._topics = tuple(topics)
        self._seen: list[TopicRoute | None] = [None] * len(self._topics)
        self._targets: tuple[PopTarget, ...] = ()
        self._turn = 0
        self._silent: dict[str, float] = {}  # address -> until when
        self._fetched_at = float("-inf")
        self._failed: RingmqError | None = None  # of the last fetch

    def in_turn(self) -> list[PopTarget]:
        """Return the reachable targets, all if none is reachable. Another one is the first each time."""
        targets = self._known()
        if not targets:
            return []
        if self._client.lost or self._silent:
            targets = self._reachable(targets) or targets
        self._turn += 1
        first = self._turn % len(targets)
        return [*targets[first:], *targets[:first]]

    @property
    def is_one(self) -> bool:
        """True if there is one target in all, reachable or not."""
        return len(self._topics) == len(self._known()) == 1

    @property
    def has_no_route(self) -> bool:
        """True if a topic has no route yet."""
        return any(self._routes.known(topic) is None for topic in self._topics)

    def note_silent(self, address: str) -> None:
        """Avoid a master for a while that has not answered in time."""
        self._silent[address] = time.monotonic() + SILENT_FOR_S

    async def fetch(self) -> RingmqError | None:
        """Fetch the routes, at most twice a second. Returns the failure of a name server, None without one.

        A topic without a route is no failure: its first message may make it.
        """
        now = time.monotonic()
        if now - self._fetched_at >= FETCH_INTERVAL_S:
            self._fetched_at = now
            answers = await gather(*map(self._routes.fetch, self._topics), return_exceptions=True)
            self._failed = None
            for answer in answers:
                if isinstance(answer, RingmqError):
                    self._failed = answer
                elif isinstance(answer, BaseException):
                    raise answer
        return self._failed

    def _known(self) -> tuple[PopTarget, ...]:
        for topic, seen in zip(self._topics, self._seen, strict=True):
            if self._routes.known(topic) is not seen:
                self._seen = [self._routes.known(topic) for topic in self._topics]
                routes = [route for route in self._seen if route is not None]
                self._targets = tuple(target for route in routes for target in targets_of(route))
                break
        return self._targets

    def _reachable(self, targets: tuple[PopTarget, ...]) -> tuple[PopTarget, ...]:
        lost = self._client.lost & {target.address for target in targets}
        if lost:
            self._client.try_again(lost)
        now = time.monotonic()
        self._silent = {address: until for address, until in self._silent.items() if until > now}
        return tuple(t for t in targets if t.address not in lost and t.address not in self._silent)


def targets_of(route: TopicRoute) -> list[PopTarget]:
    """Return the masters that have readable queues of a topic, in the order of their names."""
    names = sorted({queue.broker_name for queue in route.read_queues})
    addresses = [(name, route.master_address(name)) for name in names]
    return [PopTarget(route.topic, name, address) for name, address in addresses if address is not None]
