"""What clients say about themselves: heartbeats (34), leaving (35), members (38), subscription checks (46), queue
locks (41, 42).

A heartbeat is answered only after the plane shows what it implies, so that a pull behind it is not refused.
"""

from __future__ import annotations

from ringmq.broker.core import Broker
from ringmq.broker.request import Answer, Request
from ringmq.broker.tables.consumers import Member
from ringmq.remoting import heartbeat, json_body, names
from ringmq.remoting.client_headers import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.flags import TopicSysFlag
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData
from ringmq.remoting.response_headers import HeartbeatResponseHeader
from ringmq.remoting.subscription import EXPRESSION_TAG


def heart_beat(broker: Broker, request: Request) -> Answer:
    """Register the client's groups; V2 heartbeats are told whether they must send their subscriptions again."""
    data = HeartbeatData.decode(request.command.body, broker.consumers.subscription)
    if not _is_registered(broker, request, data):
        broker.refuse_new(f"client {data.client_id}")
    sub_change = data.fingerprint == 0
    for consumer in data.consumers:
        if not _register_consumer(broker, request, data, consumer):
            continue
        if data.fingerprint and broker.consumers.fingerprint_changed(consumer.group_name, data.fingerprint):
            sub_change = True
        online = broker.consumers.get(consumer.group_name)
        if data.without_sub and online is not None and not online.subscriptions:
            sub_change = True
    for group in data.producer_groups:
        broker.producers.register(group, request.connection, _member(request, data.client_id))
    ext = HeartbeatResponseHeader(is_support_heart_beat_v2=True, is_sub_change=sub_change)
    return request.reply(ext_fields=ext.encode())


def _is_registered(broker: Broker, request: Request, data: HeartbeatData) -> bool:
    """The connection is a member of a group that its heartbeat names."""
    consuming = (broker.consumers.get(consumer.group_name) for consumer in data.consumers)
    if any(group is not None and request.connection in group.members for group in consuming):
        return True
    return any(request.connection in (broker.producers.get(group) or ()) for group in data.producer_groups)


def _register_consumer(broker: Broker, request: Request, data: HeartbeatData, consumer: ConsumerData) -> bool:
    """One group; False when it does not exist and may not be made (stock skips it silently)."""
    now_ms = request.now_ms
    config = broker.find_group(consumer.group_name, now_ms)
    if config is None:
        return False
    order = any(
        topic is not None and topic.order
        for topic in (broker.topics.get(subscription.topic) for subscription in consumer.subscriptions)
    )
    sys_flag = int(TopicSysFlag.UNIT_SUB) if consumer.unit_mode else 0
    retry = names.retry_topic(consumer.group_name)
    if retry not in broker.deletions:  # the next heartbeat makes it: what is on disk now goes
        broker.topics.create_for_group(retry, config.retry_queue_nums, sys_flag, order, now_ms)
    broker.consumers.register(
        request.connection,
        _member(request, data.client_id),
        consumer,
        with_subscriptions=not (data.fingerprint and data.without_sub),
        notify=broker.notifies(consumer.group_name),
    )
    return True


def _member(request: Request, client_id: str) -> Member:
    return Member(client_id, request.command.language or "JAVA", request.command.version, request.now_ms)


def unregister_client(broker: Broker, request: Request) -> Answer:
    """The client leaves one producer group, one consumer group or both."""
    header = UnregisterClientRequestHeader.decode(request.command.ext_fields)
    if header.producer_group is not None:
        broker.producers.unregister(header.producer_group, request.connection)
    if header.consumer_group is not None:
        notify = broker.notifies(header.consumer_group)
        broker.consumers.unregister(header.consumer_group, request.connection, notify=notify)
    return request.reply()


def consumer_list(broker: Broker, request: Request) -> Answer:
    """Client ids of a group's members; an empty list must be an error, or clients give up all their queues."""
    group = GetConsumerListByGroupRequestHeader.decode(request.command.ext_fields).consumer_group
    online = broker.consumers.get(group)
    ids = [] if online is None else online.client_ids()
    if not ids:
        return request.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
    return request.reply(body=heartbeat.encode_consumer_ids(ids))


def check_client_config(broker: Broker, request: Request) -> Answer:
    """Whether the broker can filter by the subscription's expression."""
    value = json_body.read_request(request.command.body, "CheckClientRequestBody")
    subscription = json_body.mapping(value, "subscriptionData")
    kind = json_body.text(subscription, "expressionType", EXPRESSION_TAG)
    if kind not in ("", EXPRESSION_TAG):
        remark = f"The broker does not support consumer to filter message by {kind[:32]}"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark)
    return request.reply()


def lock_queues(broker: Broker, request: Request) -> Answer:
    """The queues that the client holds now, newly locked or renewed."""
    batch = heartbeat.LockBatch.decode(request.command.body)
    if not broker.locks.is_any_live(batch.consumer_group, request.now_ms):
        broker.refuse_new(f"a lock of group {batch.consumer_group}")
    held = broker.locks.lock(batch.consumer_group, batch.client_id, batch.queues, request.now_ms)
    return request.reply(body=heartbeat.encode_locked(held))


def unlock_queues(broker: Broker, request: Request) -> Answer:
    """Give locks back."""
    batch = heartbeat.LockBatch.decode(request.command.body)
    broker.locks.unlock(batch.consumer_group, batch.client_id, batch.queues)
    return request.reply()
