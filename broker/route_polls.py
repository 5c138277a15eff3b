"""Control's requests for routes to the name servers. `TopicRoutes` decides the time and the topic of each.

They have connections and threads of their own: a registration may take registerBrokerTimeoutMills, and consumers wait
for their first route.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.broker.assignment.routes import ASK_TIMEOUT_MS, RouteAsk, TopicRoutes
from ringmq.broker.assignment.topic_queues import TopicQueues
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.requests.request import Request
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RemotingError


class RoutePolls:
    """Asks for routes, one request at a time. `ControlLoop` owns it. `tell` gets lines about unusable answers."""

    def __init__(self, routes: TopicRoutes, calls: OutboundCalls, tell: Callable[[str], None]) -> None:
        self._routes = routes
        self._calls = calls
        self._tell = tell
        self._ask: RouteAsk | None = None

    def turn(self, now_ms: int) -> list[Request]:
        """Handle the end of the last request, and send the one that is due. Returns requests of consumers to run a
        second time."""
        for outcome in self._calls.outcomes():
            self._on_outcome(outcome, now_ms)
        self._calls.lost()  # the next request connects again
        settled = self._routes.take_settled(now_ms)
        ask = self._routes.due(now_ms)
        if ask is not None:
            self._ask = ask
            self._calls.call(ask.address, ask.command(), ASK_TIMEOUT_MS)
        return settled

    def release_all(self, now_ms: int) -> list[Request]:
        """Every request that waits, because the broker stops."""
        self._routes.release_all()
        return self._routes.take_settled(now_ms)

    def close(self, timeout_s: float) -> None:
        """End the connections."""
        self._calls.close(timeout_s)

    def _on_outcome(self, outcome: Outcome, now_ms: int) -> None:
        ask, self._ask = self._ask, None
        if ask is None:
            return
        answer = outcome.answer
        if answer is None:
            self._routes.failed(now_ms)
        elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.absent(now_ms)
        elif answer.code:
            self._unusable(ask, str(outcome.error), now_ms)
        else:
            try:
                queues = TopicQueues.decode(ask.topic, answer.body)
            except RemotingError as error:
                self._unusable(ask, str(error), now_ms)
            else:
                self._routes.found(queues, now_ms)

    def _unusable(self, ask: RouteAsk, why: str, now_ms: int) -> None:
        self._tell(f"name server {ask.address}: the route of topic {ask.topic[:80]!r} is not used: {why[:200]}")
        self._routes.unusable(now_ms)
