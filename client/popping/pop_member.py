"""A member of a group that pops: its connections, its heartbeats and its requests, from `start` to `close`.

The base of all consumers by POP. A consumer gives it its arguments and the requests that its brokers forward to it, and
uses its parts:

* `receiving.receive(count, wait_ms, invisible_ms)` returns messages of one topic and master, decompressed. Calls may
  run at once. `receiving.close()` ends their waits: they return [].
* `settling.ack(messages)`, `change_invisible(message, ms)`, `reject(message)`: the ends of messages, and their
  renewal. `change_invisible` replaces `message.receipt`, so one of these runs for a message at a time.
  `change_invisible(message, 0)` lets others have it at once.
* `settling.begin_give_back(messages)`: the same in the background, for messages that no handler has seen.

A consumer closes in this order: `receiving.close()`, its own work, `close(drain_s)`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from ringmq.client.connections.heartbeat import Heartbeats, unregister_client
from ringmq.client.connections.identity import new_client_id, now_ms
from ringmq.client.connections.name_servers import NameServers, RouteTable
from ringmq.client.connections.remoting_client import Deferred, RemotingClient
from ringmq.client.consuming.expression_checks import check_expressions
from ringmq.client.consuming.member_description import MemberDescription
from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.consuming.subscriptions import Topics, subscriptions
from ringmq.client.popping.masters import Masters
from ringmq.client.popping.receiving import Receiving
from ringmq.client.popping.settling import Settling
from ringmq.client.runtimes.runtime import Task, create_task
from ringmq.client.runtimes.waiting import stop_all
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand

log = logging.getLogger("ringmq.client")

Serve = Callable[[str, RemotingCommand], RemotingCommand | Deferred | None]
"""(address, request) of a broker -> the answer, None for codes that the consumer does not serve."""


class PopMember:
    """See above. `start` sets the attributes without a value here."""

    client: RemotingClient
    receiving: Receiving
    settling: Settling

    def __init__(
        self,
        topics: Topics,
        name_servers: Sequence[str],
        group: str,
        consume_from: ConsumeFrom,
        settings: ConnectionSettings,
        *,
        ordered: bool,
    ) -> None:
        self.group = group
        self.client_id = new_client_id()
        self.subscriptions = subscriptions(topics, group, now_ms(), with_retry=False)
        self.settings = settings
        self.description = MemberDescription(
            group, self.client_id, name_servers, consume_from, False, ordered, False, is_popping=True
        )
        self._name_servers = name_servers
        self._consume_from = consume_from
        self._ordered = ordered
        self._tasks: list[Task[None]] = []

    def open(self, serve: Serve) -> None:
        """Make the parts, without a request. `serve` answers requests that brokers send, beside a change of members."""
        timeout_ms = self.settings.request_timeout_ms
        self.client = RemotingClient(self.settings, on_server_request=lambda a, r: _serve(serve, a, r))
        self._routes = RouteTable(NameServers(self.client, self._name_servers, timeout_ms))
        self._masters = Masters(self.client, self._routes, self.subscriptions)
        self._heartbeats = Heartbeats(
            self.client,
            self._routes,
            lambda: self.description.heartbeat(self.subscriptions.values()),
            masters_only=True,
        )
        self.settling = Settling(self.client, self._routes, self.group, timeout_ms)
        self.receiving = Receiving(
            self.client, self._masters, self.settling, self.group, self.subscriptions, self._consume_from, timeout_ms,
            ordered=self._ordered,
        )  # fmt: skip

    async def join(self) -> None:
        """Join the group at the masters that are known. Others learn of the member by their first pop's heartbeat.

        Raises `BrokerError` if a broker refuses an SQL92 expression.
        """
        if (failed := await self._masters.fetch()) is not None:
            log.warning("group %s waits for its routes: %s", self.group, failed)
        known = {topic: self._routes.known(topic) for topic in self.subscriptions}
        masters = {topic: route.master_addresses() for topic, route in known.items() if route is not None}
        await check_expressions(self.client, self.client_id, self.group, self.subscriptions.values(), masters)
        await self._heartbeats.send_to_all()
        self._tasks = [
            create_task(self._routes.refresh_forever(), name="ringmq routes"),
            create_task(self._heartbeats.send_forever(), name="ringmq heartbeats"),
        ]

    async def close(self, drain_s: float) -> None:
        """Wait for acknowledgements and changes under way, then leave the group and close the connections."""
        async with AsyncExitStack() as last:  # done upwards, whatever fails or is cancelled before
            last.push_async_callback(self.client.close)
            last.push_async_callback(self._leave)
            last.push_async_callback(self._heartbeats.close)
            last.push_async_callback(stop_all, self._tasks)
            last.callback(self.receiving.close)
            if late := await self.settling.drain(drain_s):
                log.warning("group %s: %d requests had no answer after %g s", self.group, late, drain_s)

    async def _leave(self) -> None:
        leave = {"clientID": self.client_id, "consumerGroup": self.group}
        await unregister_client(self.client, self._routes.master_addresses(), leave)


def _serve(serve: Serve, address: str, request: RemotingCommand) -> RemotingCommand | Deferred | None:
    if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:  # the broker shares out messages, not queues
        return RemotingCommand.response_to(request, 0)
    return serve(address, request)
