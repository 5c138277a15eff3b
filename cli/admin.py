"""Operators' requests: the servers to ask, and their answers combined."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from ringmq.client.connections.name_servers import parse_name_servers
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.errors import BrokerError, RingmqError, RouteError, of_name_server
from ringmq.client.namespaces import with_namespace, without_namespace
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.admin_bodies import (
    ConsumerConnection,
    ConsumeStats,
    GroupConfigTable,
    TopicStats,
    decode_delays,
    decode_group_list,
    decode_queue_offsets,
    decode_topic_list,
)
from ringmq.remoting.admin_headers import CreateTopicRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.json_body import read_object, write_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import AUTO_CREATE_TOPIC, dlq_topic, pop_retry_topic, retry_topic
from ringmq.remoting.route import ClusterInfo, TopicRouteData

TIMEOUT_MS = 5000
TOPICS_A_REQUEST = 16
"""Names of a list in a header: at most some 4 KB."""
ROUTE_WAIT_S = 3.0
"""The wait for the route of a created topic: brokers register the topic right after they answer."""


def no_route(topic: str) -> str:
    """The error text for a topic that the name servers do not know."""
    return (
        f"topic {topic} has no route: no registered broker has it; "
        f"see ringmq topic list for names, make it with ringmq topic create {topic}"
    )


def no_group(group: str) -> str:
    """The error text for a group that no broker knows."""
    return f"group {group} does not exist on any broker; see ringmq group list for names"


def _again(group: str, topic: str) -> list[str]:
    """The topics in which messages of a topic come again to the pops of a group. Names are those on the wire."""
    return [pop_retry_topic(group, topic, is_v2=is_v2) for is_v2 in (False, True)]


@dataclass(slots=True)
class Admin:
    """One connection set to a cluster."""

    client: RemotingClient
    name_servers: Sequence[str]
    namespace: str = ""
    """Namespace of all names. `client` translates header fields, this class translates bodies."""

    # ---- name servers ----

    async def ask_name_server(self, code: RequestCode, **fields: str) -> RemotingCommand:
        """Return the first answer of any name server. Raises `RingmqError`."""
        error: RingmqError | None = None
        for address in self.name_servers:
            try:
                return await self.client.call(address, code, fields, timeout_ms=TIMEOUT_MS)
            except BrokerError as refused:
                raise of_name_server(refused) from refused
            except RingmqError as failed:
                error = failed
        assert error is not None
        raise of_name_server(error) from error

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers."""
        return ClusterInfo.decode((await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def masters(self, cluster: str | None = None) -> list[str]:
        """Return the addresses of the masters of one cluster or of all. Raises `RouteError` if there are none."""
        info = await self.cluster_info()
        names = info.clusters.get(cluster, []) if cluster else sorted(info.brokers)
        found = [info.brokers[name].master_addr for name in names if name in info.brokers]
        addresses = [address for address in found if address]
        if not addresses:
            asked = ", ".join(self.name_servers)
            if cluster and info.clusters:
                raise RouteError(f"no broker is registered in cluster {cluster}; there is {', '.join(info.clusters)}")
            raise RouteError(f"no broker is registered at {asked}: start one (ringmq broker --namesrv {asked})")
        return addresses

    async def topics(self) -> list[str]:
        """Return all topics with a route, of the namespace if there is one."""
        answer = await self.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return list(self._own_names(decode_topic_list(answer.body)))

    async def route(self, topic: str) -> TopicRouteData | None:
        """Return the topic's route, None if the topic has none."""
        try:
            answer = await self.ask_name_server(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, acceptStandardJsonOnly="true"
            )
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return TopicRouteData.decode(answer.body)

    async def route_masters(self, topic: str) -> list[str]:
        """Return the masters of a topic's route. Raises `RouteError` if the topic has no route."""
        route = await self.route(topic)
        if route is None:
            raise RouteError(no_route(topic))
        return [address for broker in route.broker_datas if (address := broker.any_addr)]

    # ---- topics ----

    async def topic_on(self, address: str, topic: str) -> TopicConfig | None:
        """Return the topic's configuration on one broker, None if the broker has no such topic."""
        try:
            answer = await self._call(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        if not answer.body:
            return None
        return replace(TopicConfig.from_json(read_object(answer.body, "TopicConfig")), topic_name=topic)

    async def create_topic(self, config: TopicConfig, addresses: Iterable[str]) -> bool:
        """Create or change a topic on every given broker. True if the topic had a route within ROUTE_WAIT_S."""
        return await self.put_topic(config.topic_name, dict.fromkeys(addresses, config))

    async def put_topic(self, topic: str, configs: Mapping[str, TopicConfig]) -> bool:
        """Create or change a topic, on each broker as given. True if the topic had a route within ROUTE_WAIT_S."""
        for address, config in configs.items():
            await self._put_topic(address, config)
        deadline = time.monotonic() + ROUTE_WAIT_S
        while await self.route(topic) is None:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _put_topic(self, address: str, config: TopicConfig) -> None:
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=",".join(f"+{key}={value}" for key, value in config.attributes.items()),
        )
        await self._call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic on all brokers, then in all name servers."""
        await self._call_all(await self.masters(cluster), RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        fields = {"topic": topic} | ({"clusterName": cluster} if cluster else {})
        await self._call_all(self.name_servers, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)

    async def topic_stats(self, topic: str) -> TopicStats:
        """Return the offsets of all queues of a topic."""
        stats = TopicStats({})
        for address in await self.route_masters(topic):
            answer = await self._call(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            part = TopicStats.decode(answer.body)
            stats.offsets |= part.offsets
            stats.put_tps += part.put_tps
        return stats

    # ---- groups ----

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Return the groups of all brokers, of the namespace if there is one."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for address in await self.masters():
            found = await self._wire_groups(address) | found
        return {name: found[wire_name] for name, wire_name in self._own_names(found).items()}

    async def group_on(self, address: str, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration on one broker, None if the broker has no such group."""
        found = (await self._wire_groups(address)).get(with_namespace(self.namespace, group))
        return None if found is None else replace(found, group_name=group)

    async def _wire_groups(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        answer = await self._call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return GroupConfigTable.decode(answer.body).groups

    async def create_group(self, config: SubscriptionGroupConfig, addresses: Iterable[str]) -> None:
        """Create or change a group on every given broker."""
        wire_name = with_namespace(self.namespace, config.group_name)
        body = write_body(replace(config, group_name=wire_name).to_json())
        await self._call_all(addresses, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def delete_group(self, group: str, clean_offset: bool, cluster: str | None = None) -> None:
        """Delete a group and its retry and dead-letter topics, as mqadmin does."""
        fields = {"groupName": group, "cleanOffset": "true" if clean_offset else "false"}
        await self._call_all(await self.masters(cluster), RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        for topic in (retry_topic(group), dlq_topic(group)):
            await self.delete_topic(topic, cluster)

    async def reset_offsets(self, group: str, topic: str, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Let a group go on at the first message of each queue that is not older, on all brokers of the topic. -1: at
        the end. Returns the offsets. Raises `RouteError` if the topic has no route."""
        fields = {"topic": topic, "group": group, "timestamp": str(timestamp_ms), "isForce": "true", "queueId": "-1"}
        offsets: dict[MessageQueue, int] = {}
        for address in await self.route_masters(topic):
            answer = await self._call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
            for queue, offset in decode_queue_offsets(answer.body).items():
                offsets[queue._replace(topic=without_namespace(self.namespace, queue.topic))] = offset
        return offsets

    async def progress(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return the group's progress on all brokers, also where messages come again to its pops."""
        stats = ConsumeStats({})
        for address in await self.masters():
            for part in await self._progress_on(address, group, topic):
                for queue, entry in part.offsets.items():
                    stats.offsets[queue._replace(topic=without_namespace(self.namespace, queue.topic))] = entry
                stats.consume_tps += part.consume_tps
        return stats

    async def _progress_on(self, address: str, group: str, topic: str | None) -> list[ConsumeStats]:
        """The progress on one broker. Without a list of topics, a broker leaves out those that no member subscribes
        to, and no member subscribes to topics in which messages come again to pops."""
        wire_group = with_namespace(self.namespace, group)
        try:
            if topic is not None:
                wire_topic = with_namespace(self.namespace, topic)
                return [await self._stats_of(address, group, [wire_topic, *_again(wire_group, wire_topic)])]
            listed = await self._call(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group})
            known = set(decode_topic_list(listed.body))
            found = [await self._stats_of(address, group)]
        except BrokerError as error:
            if error.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
                return []
            raise
        shown = {queue.topic for queue in found[0].offsets}
        more = sorted({again for name in known for again in _again(wire_group, name)} & known - shown)
        for start in range(0, len(more), TOPICS_A_REQUEST):
            found.append(await self._stats_of(address, group, more[start : start + TOPICS_A_REQUEST]))
        return found

    async def _stats_of(self, address: str, group: str, wire_topics: Sequence[str] = ()) -> ConsumeStats:
        fields = {"consumerGroup": group} | ({"topicList": ";".join(wire_topics)} if wire_topics else {})
        stats = ConsumeStats.decode((await self._call(address, RequestCode.GET_CONSUME_STATS, fields)).body)
        if wire_topics:  # older brokers do not know the field
            stats.offsets = {queue: entry for queue, entry in stats.offsets.items() if queue.topic in wire_topics}
        return stats

    async def delays(self, group: str, topics: Iterable[str]) -> dict[MessageQueue, int]:
        """Return by queue the age in ms of the oldest message that the group has not consumed. 0: there is none."""
        found: dict[MessageQueue, int] = {}
        masters = await self.masters()
        for topic in topics:
            for address in masters:
                try:
                    fields = {"topic": topic, "group": group}
                    answer = await self._call(address, RequestCode.QUERY_CONSUME_TIME_SPAN, fields)
                except BrokerError as error:
                    if error.code == ResponseCode.TOPIC_NOT_EXIST:
                        continue
                    raise
                found |= {queue._replace(topic=topic): ms for queue, ms in decode_delays(answer.body).items()}
        return found

    async def groups_on(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have consumed it. Raises `RouteError` if it has no route."""
        found: set[str] = set()
        for address in await self.route_masters(topic):
            answer = await self._call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            found |= set(decode_group_list(answer.body))
        return sorted(self._own_names(found))

    async def connections(self, group: str) -> ConsumerConnection | None:
        """Return the group's connected members, None for an offline group."""
        merged: ConsumerConnection | None = None
        for address in await self.masters():
            try:
                answer = await self._call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
            except BrokerError as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    continue
                raise
            part = ConsumerConnection.decode(answer.body)
            if merged is None:
                merged = part
                continue
            known = {connection.client_id for connection in merged.connections}
            merged.connections += [entry for entry in part.connections if entry.client_id not in known]
        return merged

    def _own_names(self, wire_names: Iterable[str]) -> dict[str, str]:
        """Return name within the namespace -> name on the wire. Names outside the namespace are left out."""
        own = {without_namespace(self.namespace, name): name for name in wire_names if self._is_own(name)}
        return dict(sorted(own.items()))

    def _is_own(self, wire_name: str) -> bool:
        return not self.namespace or without_namespace(self.namespace, wire_name) != wire_name

    async def _call(
        self, address: str, code: RequestCode, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return await self.client.call(address, code, fields, body, timeout_ms=TIMEOUT_MS)

    async def _call_all(
        self, addresses: Iterable[str], code: RequestCode, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        for address in addresses:
            await self._call(address, code, fields, body)


@asynccontextmanager
async def open_admin(namesrv: str, settings: ConnectionSettings | None = None) -> AsyncIterator[Admin]:
    """Yield an `Admin` for a list of name servers. Raises ValueError for an invalid list."""
    client = RemotingClient(settings)
    try:
        yield Admin(client, parse_name_servers(namesrv), settings.namespace if settings else "")
    finally:
        await client.close()
