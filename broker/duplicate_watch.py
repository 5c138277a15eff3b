"""Detects another broker that is registered at a name server by this broker's name and id. No IO.

Two brokers of one name and id take turns: each registration replaces the other's address, and clients follow the
current route. Answers to registrations do not show it. So a broker reads the route right before a registration. If it
has another address, the other broker has registered since.
"""

from __future__ import annotations

from msgspec import Struct, field

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.log_throttle import LogThrottle
from ringmq.remoting.namesrv_headers import GetRouteInfoRequestHeader
from ringmq.remoting.route import TopicRouteData

LOOK_EVERY_MS = 5000
LINES_PER_MINUTE = 10


class DuplicateWatch(Struct):
    """State per name server. `own_address`: the host:port under which this broker registers."""

    broker_name: str
    own_address: str
    others: dict[str, str] = field(default_factory=dict)
    """Name server -> address of the other broker that the latest check has found."""
    _looked_ms: dict[str, int] = field(default_factory=dict)
    _lines: LogThrottle = field(default_factory=lambda: LogThrottle(LINES_PER_MINUTE))

    def due_request(self, name_server: str, now_ms: int) -> RemotingCommand | None:
        """The request to send before a registration. None if the last check is recent.

        It asks for the route of the topic that every broker has under its own name. That is the smallest answer with
        the addresses, from any version of a name server.
        """
        looked_ms = self._looked_ms.get(name_server)
        if looked_ms is not None and now_ms - looked_ms < LOOK_EVERY_MS:
            return None
        self._looked_ms[name_server] = now_ms
        header = GetRouteInfoRequestHeader(topic=self.broker_name, accept_standard_json_only=True)
        return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())

    def on_answer(self, name_server: str, answer: RemotingCommand | None, broker_id: int, now_ms: int) -> str | None:
        """Apply the answer to a check. `answer`: None or an error if there is none. `broker_id`: this broker's, which
        follows its side. Returns a log line, or None."""
        if answer is None or answer.code:
            return None
        try:
            brokers = TopicRouteData.decode(answer.body).broker_datas
        except RemotingError:
            return None
        own = next((broker for broker in brokers if broker.broker_name == self.broker_name), None)
        found = self.own_address if own is None else own.broker_addrs.get(broker_id, self.own_address)
        if found == self.own_address:
            self.others.pop(name_server, None)
            return None
        self.others[name_server] = found
        text = (
            f"name server {name_server}: another broker is registered as {self.broker_name}:{broker_id} at "
            f"{found}, this broker is at {self.own_address}. Clients reach either broker: stop one of them, or give it "
            "another brokerName"
        )
        return self._lines.line(text, now_ms)
