"""Routes of the topics for which consumers ask assignments (`TopicRouteInfoManager`). No IO.

The first request for a topic waits until a name server has answered. Further requests get the known route, which is
asked for again every loadBalancePollNameServerInterval. A topic without a route is not kept.

Any client may name any topic. So the tables are bounded, a topic without a route replaces none with a route, and one
host has at most half of the places for waiting requests. One request to a name server is in flight at a time.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec import Struct, field

from ringmq.broker.assignment.topic_queues import TopicQueues
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.request import Connection, Request
from ringmq.broker.tables.shares import Shares
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.namesrv_headers import GetRouteInfoRequestHeader

ROUTES_MAX = 1000
"""Topics with a known route. A further topic replaces the one whose last request is the oldest."""
ROUTE_BROKERS_MAX = 131_072
"""Pairs of a topic and a broker name in all routes, some 13 MB."""
WAITING_MAX = 64
"""A waiting request keeps one of the 128 places that a read worker has for requests to control (RMQ_COLD_TOTAL), so
waiting ones leave half of them to others. A Java client without a result asks again within a second."""
HOST_WAITING_MAX = WAITING_MAX // 2
ASK_TIMEOUT_MS = 1000
WAIT_MAX_MS = 2500
"""A client gives up its request after 3 s. Within this time, two name servers can be asked."""
ABSENT_MS = 1000
"""Time for which a topic without a route is not asked for again."""
ABSENT_MAX = 1000
SERVERS_PAUSE_MS = 1000
"""Pause after the last of all name servers has not answered."""
IDLE_MS = 600_000
"""Time after the last request for a topic at which its route is dropped. Consumers ask every 20 s."""


class RouteAsk(Struct, frozen=True):
    """A request to send to a name server now."""

    address: str
    topic: str

    def command(self) -> RemotingCommand:
        """The request (105)."""
        header = GetRouteInfoRequestHeader(topic=self.topic, accept_standard_json_only=True)
        return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())


class _Known(Struct):
    queues: TopicQueues
    used_ms: int


class _First(Struct):
    """A topic that is asked for the first time, with the requests that wait for it."""

    tries: int = 0
    requests: list[Request] = field(default_factory=list)


class TopicRoutes:
    """The routes, and the schedule of requests for them. The caller sends what `due` returns, and reports its end by
    `found`, `absent`, `unusable` or `failed`."""

    def __init__(self, live: LiveConfig) -> None:
        self._live = live
        self._servers = [address for address in live.config.namesrv_addr.split(";") if address]
        self._server = 0
        self._failures = 0
        """Requests in a row that no name server has answered."""
        self._paused_until_ms = 0
        self._known: OrderedDict[str, _Known] = OrderedDict()
        """In the order of their last requests."""
        self._brokers = 0
        self._absent: OrderedDict[str, int] = OrderedDict()
        """Topic -> time of the answer that it has no route, or no readable queue."""
        self._first: OrderedDict[str, _First] = OrderedDict()
        self._waiting = 0
        self._shares = Shares()
        self._settled: list[Request] = []
        self._round: deque[str] = deque()
        """Topics whose routes are asked for again in this round."""
        self._next_round_ms = 0
        self._was_first = False
        self._ask: RouteAsk | None = None

    def __len__(self) -> int:
        return len(self._known)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a route."""
        return self._waiting

    # ---- requests of consumers ----

    def get(self, topic: str, now_ms: int) -> TopicQueues | None:
        """The queues of a topic. None if no route is known."""
        known = self._known.get(topic)
        if known is None:
            return None
        known.used_ms = now_ms
        self._known.move_to_end(topic)
        return known.queues

    def wait(self, request: Request, topic: str) -> bool:
        """Keep a request until the route of its topic is known, at most WAIT_MAX_MS. False if it must be answered now:
        a name server has just had no route, none answers, or there is no place."""
        now_ms = request.now_ms
        absent_ms = self._absent.get(topic)
        if absent_ms is not None and now_ms - absent_ms < ABSENT_MS:
            return False
        if not self._servers or now_ms < self._paused_until_ms or self._waiting >= WAITING_MAX:
            return False
        if self._shares.of_host(request.connection) >= HOST_WAITING_MAX:
            return False
        self._first.setdefault(topic, _First()).requests.append(request)
        self._waiting += 1
        self._shares.add(request.connection)
        return True

    def take_settled(self, now_ms: int) -> list[Request]:
        """Requests whose wait is over, to run a second time."""
        if self._waiting:
            for topic in list(self._first):
                late = [one for one in self._first[topic].requests if now_ms - one.now_ms >= WAIT_MAX_MS]
                self._leave(topic, late)
                self._settled += late
        settled, self._settled = self._settled, []
        for request in settled:
            request.now_ms, request.is_again = now_ms, True
        return settled

    def release_all(self) -> None:
        """Settle every waiting request, because the broker stops."""
        for topic in list(self._first):
            self._settle(topic)

    def drop(self, connection: Connection) -> None:
        """Drop the requests of a connection that has ended."""
        if self._shares.of_connection(connection):
            for topic in list(self._first):
                gone = [one for one in self._first[topic].requests if one.connection == connection]
                self._leave(topic, gone)

    # ---- requests to name servers ----

    def due(self, now_ms: int) -> RouteAsk | None:
        """The request to send now. None if there is none, or if one is in flight."""
        if self._ask is not None or not self._servers or now_ms < self._paused_until_ms:
            return None
        topic = self._next_topic(now_ms)
        if topic is None:
            return None
        self._ask = RouteAsk(self._servers[self._server], topic)
        return self._ask

    def _next_topic(self, now_ms: int) -> str | None:
        """First requests and those of the round take turns, so that neither holds up the other."""
        if not self._round and now_ms >= self._next_round_ms:
            self._next_round_ms = now_ms + self._live.config.load_balance_poll_name_server_interval
            self._forget_idle(now_ms)
            self._round.extend(self._known)
        while self._round and self._round[0] not in self._known:
            self._round.popleft()
        if self._first and not (self._was_first and self._round):
            self._was_first = True
            return next(iter(self._first))
        self._was_first = False
        return self._round.popleft() if self._round else None

    def _forget_idle(self, now_ms: int) -> None:
        while self._known:
            topic, known = next(iter(self._known.items()))
            if now_ms - known.used_ms < IDLE_MS:
                return
            self._forget(topic)

    def found(self, queues: TopicQueues, now_ms: int) -> None:
        """A name server has answered with a route. Without a readable queue, the next request asks again."""
        topic = self._answered()
        if not len(queues):
            self._note_absent(topic, now_ms)
        known = self._known.get(topic)
        used_ms = now_ms if known is None or topic in self._first else known.used_ms
        if known is not None:
            self._brokers += len(queues.broker_names) - len(known.queues.broker_names)
            known.queues, known.used_ms = queues, used_ms
        else:
            self._known[topic] = _Known(queues, used_ms)
            self._brokers += len(queues.broker_names)
        while len(self._known) > 1 and (len(self._known) > ROUTES_MAX or self._brokers > ROUTE_BROKERS_MAX):
            self._forget(next(iter(self._known)))
        self._settle(topic)

    def absent(self, now_ms: int) -> None:
        """A name server has no route of the topic. Stock keeps that of a retry topic."""
        topic = self._answered()
        if topic in self._known and not names.is_retry_topic(topic):
            self._forget(topic)
        self._note_absent(topic, now_ms)
        self._settle(topic)

    def unusable(self, now_ms: int) -> None:
        """A name server has answered with an error, or with a route beyond the limits. A known route stays."""
        topic = self._answered()
        self._note_absent(topic, now_ms)
        self._settle(topic)

    def failed(self, now_ms: int) -> None:
        """The name server has not answered: the next one is asked. Known routes stay. Once all have failed, nothing is
        asked for a while."""
        assert self._ask is not None
        topic, self._ask = self._ask.topic, None
        self._server = (self._server + 1) % len(self._servers)
        self._failures += 1
        if self._failures >= len(self._servers):
            self._failures, self._paused_until_ms = 0, now_ms + SERVERS_PAUSE_MS
            self.release_all()
        elif topic in self._first:
            self._first[topic].tries += 1
            if self._first[topic].tries >= len(self._servers):
                self._settle(topic)

    def _answered(self) -> str:
        assert self._ask is not None
        topic, self._ask, self._failures = self._ask.topic, None, 0
        return topic

    def _note_absent(self, topic: str, now_ms: int) -> None:
        self._absent[topic] = now_ms
        self._absent.move_to_end(topic)
        if len(self._absent) > ABSENT_MAX:
            self._absent.popitem(last=False)

    def _forget(self, topic: str) -> None:
        self._brokers -= len(self._known.pop(topic).queues.broker_names)

    def _settle(self, topic: str) -> None:
        first = self._first.get(topic)
        if first is not None:
            self._settled += first.requests
            self._leave(topic, first.requests)

    def _leave(self, topic: str, gone: list[Request]) -> None:
        """These requests of a topic wait no longer."""
        if not gone:
            return
        for request in gone:
            self._shares.remove(request.connection)
        self._waiting -= len(gone)
        first = self._first[topic]
        left = {id(request) for request in gone}
        first.requests = [request for request in first.requests if id(request) not in left]
        if not first.requests:
            del self._first[topic]
