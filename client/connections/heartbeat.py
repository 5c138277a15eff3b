"""Heartbeats, by which brokers learn the groups and subscriptions of a connection.

Every broker of every known route gets a heartbeat when a connection to it is made, and every 30 s after that. A
broker forgets a connection that was silent for 120 s.
"""

import logging
from collections.abc import Callable, Set

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.client.runtimes.runtime import Task, create_task, gather, shield, sleep, wait
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.heartbeat import HeartbeatData

log = logging.getLogger("ringmq.client")

HEARTBEAT_INTERVAL_S = 30.0
HEARTBEAT_TIMEOUT_MS = 3000
CLOSE_TIMEOUT_S = 1.0
LEAVE_TIMEOUT_MS = 1000


async def unregister_client(client: RemotingClient, addresses: Set[str], fields: dict[str, str]) -> None:
    """Unregister a client from all connected brokers. A broker that misses the request sees the connection close."""
    connected = addresses & set(client.connected_addresses())
    answers = await gather(
        *(client.call(a, RequestCode.UNREGISTER_CLIENT, fields, timeout_ms=LEAVE_TIMEOUT_MS) for a in connected),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, Exception):
            log.info("leaving a group (%s): %s", fields, answer)


class Heartbeats:
    """Sends heartbeats with the content of `describe` to the brokers of the route table."""

    def __init__(
        self,
        client: RemotingClient,
        routes: RouteTable,
        describe: Callable[[], HeartbeatData],
        *,
        masters_only: bool = False,
    ) -> None:
        self._client = client
        self._routes = routes
        self._describe = describe
        self._masters_only = masters_only
        self._under_way: set[Task[bool]] = set()
        self.is_member = True
        """False for a client that must not be known to brokers yet: only `send_to` and `send_to_all` send then."""
        client.on_connected = self._send_first_heartbeat

    async def send_to(self, address: str) -> bool:
        """Send one heartbeat now.

        False (and a log line) if the broker refused it. Continues if the caller stops waiting.
        """
        return await shield(self.begin(address))

    def begin(self, address: str) -> Task[bool]:
        """Return `send_to` as a task of its own."""
        task = create_task(self._send(address))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _send(self, address: str) -> bool:
        body = self._describe().encode()
        try:
            await self._client.call(address, RequestCode.HEART_BEAT, body=body, timeout_ms=HEARTBEAT_TIMEOUT_MS)
        except RingmqError as error:
            level = logging.WARNING if isinstance(error, BrokerError) else logging.INFO
            log.log(level, "heartbeat to %s failed: %s", address, error)
            return False
        return True

    async def send_to_all(self) -> None:
        """Send one heartbeat to every broker of the known routes, all at the same time."""
        await gather(*(self.send_to(address) for address in self._addresses()))

    async def send_forever(self) -> None:
        """Send heartbeats every 30 s until the owner cancels the task."""
        while True:
            await sleep(HEARTBEAT_INTERVAL_S)
            if not self.is_member:
                continue
            try:
                await self.send_to_all()
            except Exception:  # a hook's fault, or ours, must not end the heartbeats silently
                log.exception("a round of heartbeats failed; the next one follows")

    async def close(self) -> None:
        """Stop, and wait for heartbeats in flight.

        A broker serves requests in parallel. A heartbeat that overtakes the unregistration would make the client a
        member again.
        """
        self._client.on_connected = None
        if self._under_way:
            await wait(self._under_way, timeout=CLOSE_TIMEOUT_S)
        for task in list(self._under_way):
            task.cancel()
        await gather(*self._under_way, return_exceptions=True)

    def _addresses(self) -> set[str]:
        if self._masters_only:
            return self._routes.master_addresses()
        return self._routes.all_addresses()

    def _send_first_heartbeat(self, address: str) -> None:
        """Send a heartbeat over a new connection, whose client the broker does not know yet."""
        if self.is_member and address in self._addresses():
            self.begin(address)
