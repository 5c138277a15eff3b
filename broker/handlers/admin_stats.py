"""Statistics for operators: topics (202, 300), groups (208, 303, 343, 345), connections (203, 204, 328)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.handlers.group_progress import GroupProgress
from ringmq.broker.handlers.long_bodies import concatenated, member_name, separated
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.request import Connection as Peer
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.body_cache import BodyCache
from ringmq.broker.tables.consumers import ConsumerTable, Member
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.producers import ProducerTable
from ringmq.broker.tables.protocols import StoreProtocol
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.statistics import Statistics
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting import admin_headers as headers
from ringmq.remoting import json_body
from ringmq.remoting.admin_bodies import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    TopicOffset,
    TopicStats,
    encode_group_list,
    encode_topic_list,
)
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message_queue import MessageQueue


class StatsRequests(Struct, frozen=True):
    """The handlers of statistics, with the parts that they need."""

    live: LiveConfig
    identity: Identity
    store: StoreProtocol
    tables: PlaneTables
    topics: TopicTable
    consumers: ConsumerTable
    producers: ProducerTable
    offsets: OffsetTable
    producers_body: BodyCache
    statistics: Statistics
    progress: GroupProgress

    def topic_stats(self, request: Request) -> Answer | Slices:
        """202."""
        topic = headers.GetTopicStatsInfoRequestHeader.decode(request.command.ext_fields).topic
        config = self.topics.get(topic)
        if config is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return Slices(self._topic_stats(request, topic, config.queue_count), is_large=True, is_reading=True)

    def _topic_stats(self, request: Request, topic: str, queues: int) -> Steps[Answer]:
        def entries() -> Iterator[bytes]:
            for queue_id in range(queues):
                low, high = self._bounds(topic, queue_id)
                last_ms = max(0, self.store.store_time(topic, queue_id, high - 1)) if high > 0 else 0
                one = TopicStats({self._queue(topic, queue_id): TopicOffset(low, high, last_ms)}).encode_entries()
                yield one

        table = yield from concatenated(separated(entries()))
        put = self.statistics.topic(topic, of_bytes=False)
        put_tps = 0.0 if put is None else put[0].tps
        head, tail = TopicStats({}, put_tps).encode().split(b"{}", 1)
        return request.reply(body=b"".join((head, b"{", table, b"}", tail)))

    def consume_stats(self, request: Request) -> Slices:
        """208: progress of a group on the given topics, by default on all for which it has offsets.

        As in stock, a topic that a group with members does not subscribe to (any more) is left out, unless the request
        lists it. Queues that the group pops have their open messages, too, which stock lacks.
        """
        return Slices(self._consume_stats(request), is_reading=True)

    def _consume_stats(self, request: Request) -> Steps[Answer]:
        header = headers.GetConsumeStatsRequestHeader.decode(request.command.ext_fields)
        group = header.consumer_group
        if header.topic_list:
            topics = list(dict.fromkeys(filter(None, header.topic_list.split(";"))))
        else:
            topics = [header.topic] if header.topic else self.offsets.topics_of(group)
            online = self.consumers.get(group)
            if online is not None and online.subscriptions:
                topics = [topic for topic in topics if topic in online.subscriptions]
        stats = ConsumeStats({})
        for topic in topics:
            config = self.topics.get(topic)
            if config is not None:
                yield from self.progress.add(stats, group, config)
        return request.reply(body=stats.encode())

    def consume_time_span(self, request: Request) -> Answer | Slices:
        """303: per queue, the times of its first, last and last consumed message, and the time lag of the group."""
        header = headers.QueryConsumeTimeSpanRequestHeader.decode(request.command.ext_fields)
        topic = header.topic
        config = self.topics.get(topic)
        if config is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")

        def spans() -> Iterator[bytes]:
            for queue_id in range(config.write_queue_nums):
                yield json_body.write_body(self._time_span(request, header.group, self._queue(topic, queue_id)))

        return _list_answer(request, "consumeTimeSpanSet", spans())

    def _time_span(self, request: Request, group: str, queue: MessageQueue) -> dict[str, object]:
        topic, queue_id = queue.topic, queue.queue_id
        low, high = self._bounds(topic, queue_id)
        store_time = self.store.store_time
        first_ms = store_time(topic, queue_id, low)
        offset = self.offsets.get(group, topic, queue_id)
        next_ms = store_time(topic, queue_id, max(0, offset)) if offset < high else 0
        return {
            "consumeTimeStamp": store_time(topic, queue_id, offset - 1) if offset > 0 else first_ms,
            "delayTime": request.now_ms - next_ms if next_ms > 0 else 0,
            "maxTimeStamp": store_time(topic, queue_id, high - 1) if high > 0 else -1,
            "messageQueue": queue,
            "minTimeStamp": first_ms,
        }

    def groups_of_topic(self, request: Request) -> Answer:
        """300: groups that subscribe to the topic or have offsets for it.

        As in stock (`ConsumerManager.registerConsumer`), the list contains the topic's own name if any group ever
        subscribed to it. Tools show that name as a group of unknown state.
        """
        topic = headers.QueryTopicConsumeByWhoRequestHeader.decode(request.command.ext_fields).topic
        groups = {*self.consumers.groups_on(topic), *self.offsets.groups_on(topic)}
        if topic in self.consumers.ever_subscribed:
            groups.add(topic)
        return request.reply(body=encode_group_list(sorted(groups)))

    def topics_of_group(self, request: Request) -> Answer:
        """343: topics for which the group has offsets."""
        group = headers.QueryTopicsByConsumerRequestHeader.decode(request.command.ext_fields).group
        return request.reply(body=encode_topic_list(self.offsets.topics_of(group), self.identity.address))

    def subscription_of_group(self, request: Request) -> Answer:
        """345."""
        header = headers.QuerySubscriptionByConsumerRequestHeader.decode(request.command.ext_fields)
        if header.topic is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "the field topic is missing")
        online = self.consumers.get(header.group)
        subscription = None if online is None else online.subscriptions.get(header.topic)
        bean: dict[str, object] = {"group": header.group}
        if subscription is not None:
            bean["subscriptionData"] = subscription.to_json()
        bean["topic"] = header.topic
        return request.reply(body=json_body.write_body(bean))

    def consumer_connections(self, request: Request) -> Answer | Slices:
        """203."""
        group = headers.GetConsumerConnectionListRequestHeader.decode(request.command.ext_fields).consumer_group
        online = self.consumers.get(group)
        if online is None:
            return request.reply(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        rest = ConsumerConnection(
            [], online.consume_type, online.message_model, online.consume_from_where, online.subscriptions
        )
        tail = rest.encode().removeprefix(b'{"connectionSet":[]')
        return _list_answer(request, "connectionSet", _connections(online.members), tail)

    def producer_connections(self, request: Request) -> Answer | Slices:
        """204."""
        group = headers.GetProducerConnectionListRequestHeader.decode(request.command.ext_fields).producer_group
        members = self.producers.get(group)
        if members is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return _list_answer(request, "connectionSet", _connections(members))

    def all_producers(self, request: Request) -> Slices:
        """328."""

        def steps() -> Steps[Answer]:
            return request.reply(body=(yield from self.producers_body.steps()))

        return Slices(steps(), is_shared=True, is_reading=True)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        state = self.tables.queue(topic, queue_id)
        return (0, 0) if state is None else (state.min_offset, state.max_offset)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.live.config.broker_name, queue_id)


def _list_answer(request: Request, name: str, entries: Iterator[bytes], tail: bytes = b"}") -> Slices:
    """An answer whose first or only member is a long list. `tail` follows the list."""

    def steps() -> Steps[Answer]:
        text = yield from concatenated(separated(entries))
        return request.reply(body=b"".join((b"{", member_name(name), b"[", text, b"]", tail)))

    return Slices(steps(), is_large=True, is_reading=True)


def _connections(members: dict[Peer, Member]) -> Iterator[bytes]:
    for peer, member in list(members.items()):
        yield json_body.write_body(
            Connection(member.client_id, peer.address, member.language, member.version).to_json()
        )
