"""Requests about clients: heartbeats (34), leaving (35), members (38), subscription checks (46), queue locks (41, 42).

A heartbeat is answered only after the plane has its changes, so that a following pull is not refused.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.handlers.client_limits import ClientLimits, check_heartbeat
from ringmq.broker.requests.request import Answer, Connection, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.consumers import ConsumerTable, Member
from ringmq.broker.tables.filter_programs import FilterPrograms
from ringmq.broker.tables.locks import QueueLocks
from ringmq.broker.tables.membership import Membership
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.producers import ProducerTable
from ringmq.broker.tables.retry_topics import RetryTopics
from ringmq.broker.tables.topics import TopicTable
from ringmq.filters.errors import FilterError
from ringmq.remoting import heartbeat, json_body
from ringmq.remoting.client_headers import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import TopicSysFlag
from ringmq.remoting.heartbeat import CLUSTERING, CONSUME_PASSIVELY, ConsumerData, HeartbeatData, LockBatch
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.response_headers import HeartbeatResponseHeader
from ringmq.remoting.subscription import EXPRESSION_SQL92, EXPRESSION_TAG

SMALL_BODY_BYTES = 32_768
"""Limit of a small heartbeat. A larger one waits for a slot for large requests."""
STEP_NAMES = 64


class ClientRequests(Struct, frozen=True):
    """The handlers of requests about clients, with the parts that they need."""

    live: LiveConfig
    topics: TopicTable
    consumers: ConsumerTable
    producers: ProducerTable
    locks: QueueLocks
    new_entries: NewEntries
    retry_topics: RetryTopics
    membership: Membership
    limits: ClientLimits
    filters: FilterPrograms
    hold_send_back_worker: Callable[[int], None]
    """Starts the worker that stores what consumers send back, and keeps it for some seconds. A client waits 3 s for its
    answer. On a busy machine the worker's start may take that long."""

    def heart_beat(self, request: Request) -> Slices:
        """Register the client's groups. The answer to a V2 heartbeat says if the client must send its subscriptions
        again."""
        return Slices(self._beat(request), is_large=len(request.command.body) > SMALL_BODY_BYTES)

    def _beat(self, request: Request) -> Steps[Answer]:
        value = heartbeat.read_heartbeat(request.command.body)
        check_heartbeat(self.live.config, value)
        data = HeartbeatData.without_consumers(value)
        yield
        if not self._is_known(request.connection):
            self.new_entries.refuse_when_short(f"client {data.client_id}")
        sub_change = data.fingerprint == 0
        member = Member(data.client_id, request.command.language or "JAVA", request.command.version, request.now_ms)
        for entry in json_body.objects(value, "consumerDataSet"):
            consumer, order = ConsumerData.without_subscriptions(entry), False
            for number, subscription in enumerate(json_body.objects(entry, "subscriptionDataSet"), 1):
                topic = self.topics.get(consumer.add_subscription(subscription, self.consumers.subscription).topic)
                order = order or (topic is not None and topic.order)
                if number % STEP_NAMES == 0:
                    yield
            is_known = yield from self._register_consumer(request, member, data, consumer, order)
            yield
            if not is_known:
                continue
            if data.fingerprint and self.consumers.fingerprint_changed(consumer.group_name, data.fingerprint):
                sub_change = True
            online = self.consumers.get(consumer.group_name)
            if data.without_sub and online is not None and not online.subscriptions:
                sub_change = True
        for number, group in enumerate(data.producer_groups, 1):
            self.limits.check_producer(group, request.connection)
            self.producers.register(group, request.connection, member)
            if number % STEP_NAMES == 0:
                yield
        ext = HeartbeatResponseHeader(is_support_heart_beat_v2=True, is_sub_change=sub_change)
        return request.reply(ext_fields=ext.encode())

    def _is_known(self, connection: Connection) -> bool:
        """True if the connection is a member of some group."""
        return connection in self.consumers.connections() or connection in self.producers.connections()

    def _register_consumer(
        self, request: Request, member: Member, data: HeartbeatData, consumer: ConsumerData, order: bool
    ) -> Steps[bool]:
        """Register one group. False if it does not exist and may not be made (stock skips it silently).

        `order`: the group subscribes to a topic that is consumed in order.
        """
        if self.new_entries.group_of(consumer.group_name) is None:
            return False
        yield from self.limits.check_consumer(consumer, request.connection)
        config = self.new_entries.group_of(consumer.group_name)  # it may have been deleted in between
        if config is None:
            return False
        sys_flag = int(TopicSysFlag.UNIT_SUB) if consumer.unit_mode else 0
        self.retry_topics.make_for_consumer(config, sys_flag, order, request.now_ms)
        with_subscriptions = not (data.fingerprint and data.without_sub)
        change = yield from self.consumers.register(
            request.connection, member, consumer, with_subscriptions=with_subscriptions
        )
        yield from self.membership.following(consumer.group_name, change)
        if consumer.consume_type == CONSUME_PASSIVELY and consumer.message_model == CLUSTERING:
            self.hold_send_back_worker(self.live.config.channel_expired_timeout // 1000)
        return True

    def unregister_client(self, request: Request) -> Slices:
        """The client leaves one producer group, one consumer group or both."""
        header = UnregisterClientRequestHeader.decode(request.command.ext_fields)
        return Slices(self._unregister(request, header))

    def _unregister(self, request: Request, header: UnregisterClientRequestHeader) -> Steps[Answer]:
        if header.producer_group is not None:
            self.producers.unregister(header.producer_group, request.connection)
        if header.consumer_group is not None:
            yield from self.membership.leaving(header.consumer_group, request.connection)
        return request.reply()

    def consumer_list(self, request: Request) -> Answer:
        """Client ids of a group's members. An empty list must be an error, or clients give up all their queues."""
        group = GetConsumerListByGroupRequestHeader.decode(request.command.ext_fields).consumer_group
        online = self.consumers.get(group)
        ids = [] if online is None else online.client_ids()
        if not ids:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.reply(body=heartbeat.encode_consumer_ids(ids))

    def lock_queues(self, request: Request) -> Slices:
        """Lock queues or renew their locks. The answer has the queues that the client holds now, and no queue that does
        not exist here."""
        return Slices(self._lock(request), is_large=len(request.command.body) > SMALL_BODY_BYTES)

    def _lock(self, request: Request) -> Steps[Answer]:
        value = heartbeat.read_lock_batch(request.command.body)
        batch = LockBatch.without_queues(value)
        if not self.locks.is_any_live(batch.consumer_group, request.now_ms):
            self.new_entries.refuse_when_short(f"a lock of group {batch.consumer_group}")
        yield
        held, refusal = list[MessageQueue](), None
        group, client = batch.consumer_group, batch.client_id
        for number, entry in enumerate(json_body.items(value, "mqSet"), 1):
            queue = heartbeat.lock_queue(entry)
            if self._may_be_locked(queue) and self.locks.is_free(group, client, queue, request.now_ms):
                try:
                    self.limits.check_lock(group, queue, request.connection)
                except RequestError as error:
                    refusal = refusal or error
                else:
                    self.locks.lock(group, client, queue, request.connection, request.now_ms)
                    held.append(queue)
            if number % STEP_NAMES == 0:
                yield
        if refusal is not None and not held:  # an error would cost the client the locks that it has renewed
            raise refusal
        return request.reply(body=heartbeat.encode_locked(held))

    def _may_be_locked(self, queue: MessageQueue) -> bool:
        """True for a queue that clients of this broker can read. Stock locks any name, which fills the table."""
        topic = self.topics.get(queue.topic)
        return (
            topic is not None
            and queue.broker_name == self.live.config.broker_name
            and 0 <= queue.queue_id < topic.read_queue_nums
        )

    def unlock_queues(self, request: Request) -> Slices:
        """Release locks."""
        return Slices(self._unlock(request), is_large=len(request.command.body) > SMALL_BODY_BYTES)

    def _unlock(self, request: Request) -> Steps[Answer]:
        value = heartbeat.read_lock_batch(request.command.body)
        batch = LockBatch.without_queues(value)
        yield
        for number, entry in enumerate(json_body.items(value, "mqSet"), 1):
            self.locks.unlock(batch.consumer_group, batch.client_id, heartbeat.lock_queue(entry))
            if number % STEP_NAMES == 0:
                yield
        return request.reply()

    def check_client_config(self, request: Request) -> Slices:
        """Answer with an error if the broker cannot filter by the subscription's expression."""
        return Slices(self._check(request))

    def _check(self, request: Request) -> Steps[Answer]:
        value = json_body.read_request(request.command.body, "CheckClientRequestBody")
        subscription = json_body.mapping(value, "subscriptionData")
        kind = json_body.text(subscription, "expressionType", EXPRESSION_TAG)
        if kind in ("", EXPRESSION_TAG):
            return request.reply()
        if kind != EXPRESSION_SQL92 or not self.live.config.enable_property_filter:
            remark = f"The broker does not support consumer to filter message by {kind[:32]}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        try:
            yield from self.filters.compiling(json_body.text(subscription, "subString", ""))
        except FilterError as error:
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.reply()
