"""Offsets that a reader outside a group commits to the group, so that tools show its progress as the group's."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ringmq.client.connections.name_servers import NameServers, RouteTable, parse_name_servers
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.offsets import QueueOffsets
from ringmq.client.errors import BrokerError, RouteError
from ringmq.remoting.admin_headers import CreateTopicRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.flags import PERM_READ_WRITE
from ringmq.remoting.json_body import write_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import AUTO_CREATE_TOPIC, retry_topic

RETRY_QUEUES = 1
"""As many as the default of a new group."""

log = logging.getLogger("ringmq.client")


class OffsetCommitter:
    """Commits to one group without membership. A broker that does not know the group creates it, with a retry topic.

    Runs on one event loop until `close`.
    """

    def __init__(self, namesrv: str | Sequence[str], group: str) -> None:
        self._group = group
        self._client = RemotingClient()
        self._routes = RouteTable(NameServers(self._client, parse_name_servers(namesrv)))
        self._offsets = QueueOffsets(self._client, self._routes)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the next offset of each queue. All are tried, then the first `RingmqError` is raised."""
        answers = await asyncio.gather(*map(self._commit, offsets, offsets.values()), return_exceptions=True)
        for answer in answers:
            if answer is not None:
                raise answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._offsets.commit(self._group, queue, offset)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self._make_group(error.address)
            await self._offsets.commit(self._group, queue, offset)
        except RouteError:
            if await self._routes.fetch(queue.topic) is None:  # the broker may have moved since the route was asked for
                raise
            await self._offsets.commit(self._group, queue, offset)

    async def _make_group(self, address: str) -> None:
        """Consoles find the brokers of a group by the route of its retry topic, which else a heartbeat creates."""
        body = write_body(SubscriptionGroupConfig(self._group).to_json())
        await self._client.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        retry = CreateTopicRequestHeader(
            topic=retry_topic(self._group),
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=RETRY_QUEUES,
            write_queue_nums=RETRY_QUEUES,
            perm=int(PERM_READ_WRITE),
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        try:
            await self._client.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, retry.encode())
        except BrokerError as error:
            log.warning("consoles may not find group %s, its retry topic is not created: %s", self._group, error)
