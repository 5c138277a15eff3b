"""Requests about positions: consumer offsets (14, 15, 43, 222), bounds of queues (30, 31), times (29, 32)."""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.broker.core import Broker
from ringmq.broker.handlers.long_bodies import concatenated, separated
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.remoting import client_headers as headers
from ringmq.remoting.admin_bodies import encode_queue_offsets
from ringmq.remoting.admin_headers import ResetOffsetRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message_queue import MessageQueue

STEP_QUEUES = 32
"""Each may ask the store for an offset by time."""


def query_consumer_offset(broker: Broker, request: Request) -> Answer:
    """14. Beyond stock's rules: an empty queue that begins at 0 answers 0 unless setZeroIfNotFound is false, so that
    a group made in the same instant as the first message does not start behind it."""
    header = headers.QueryConsumerOffsetRequestHeader.decode(request.command.ext_fields)
    broker.offsets.drain(request.now_ms)
    offset = broker.offsets.get(header.consumer_group, header.topic, header.queue_id)
    if offset >= 0:
        return _offset(request, offset)
    if header.set_zero_if_not_found is False:
        remark = "Not found, do not set to zero, maybe this group boot first"
        return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
    if _starts_at_zero(broker, header.topic, header.queue_id):
        return _offset(request, 0)
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)


def _starts_at_zero(broker: Broker, topic: str, queue_id: int) -> bool:
    """The queue begins at 0, and its first message is still in memory or not there yet."""
    state = broker.tables.queue(topic, queue_id)
    if state is None or state.min_offset > 0:
        return False
    if state.max_offset == 0:
        return True
    units = broker.store.queue_units(topic, queue_id, 0, 1)
    return bool(units) and broker.plane.confirm_offset() - units[0][0] <= broker.identity.memory_window_bytes


def update_consumer_offset(broker: Broker, request: Request) -> Answer:
    """15. What pulls have committed before must not come behind it: a member that leaves commits by 15 last."""
    header = headers.UpdateConsumerOffsetRequestHeader.decode(request.command.ext_fields)
    broker.offsets.drain(request.now_ms)
    group, topic = header.consumer_group, header.topic
    if group not in broker.groups:
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
    if topic not in broker.topics:
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
    if header.queue_id is None:
        return request.reply(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
    if header.commit_offset is None:
        return request.reply(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
    if broker.offsets.has_reset(group, topic, header.queue_id):
        return request.reply(remark="Offset has been previously reset")
    broker.offsets.put(group, topic, header.queue_id, header.commit_offset, request.now_ms)
    if broker.config.broker_role == "SLAVE":
        broker.offsets.committed_here.add((group, topic, header.queue_id))
    return request.reply()


def all_consumer_offsets(broker: Broker, request: Request) -> Slices:
    """43."""

    def steps() -> Steps[Answer]:
        return request.reply(body=(yield from broker.offsets_body.steps()))

    return Slices(steps(), is_shared=True, is_reading=True)


def max_offset(broker: Broker, request: Request) -> Answer:
    """30: the next offset that a message can be read at; 0 for an unknown queue."""
    header = headers.GetMaxOffsetRequestHeader.decode(request.command.ext_fields)
    state = broker.tables.queue(header.topic, header.queue_id)
    return _offset(request, 0 if state is None else state.max_offset)


def min_offset(broker: Broker, request: Request) -> Answer:
    """31; 0 for an unknown queue."""
    header = headers.GetMinOffsetRequestHeader.decode(request.command.ext_fields)
    state = broker.tables.queue(header.topic, header.queue_id)
    return _offset(request, 0 if state is None else state.min_offset)


def offset_by_time(broker: Broker, request: Request) -> Answer:
    """29."""
    header = headers.SearchOffsetRequestHeader.decode(request.command.ext_fields)
    upper = (header.boundary_type or "").lower() == "upper"
    return _offset(request, broker.store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper))


def earliest_store_time(broker: Broker, request: Request) -> Answer:
    """32; -1 when the queue has no message."""
    header = headers.GetEarliestMsgStoretimeRequestHeader.decode(request.command.ext_fields)
    state = broker.tables.queue(header.topic, header.queue_id)
    first = 0 if state is None else state.min_offset
    time_ms = broker.store.store_time(header.topic, header.queue_id, first)
    return request.reply(ext_fields={"timestamp": str(time_ms)})


def reset_offset(broker: Broker, request: Request) -> Answer | Slices:
    """222 with resets kept by the broker: the next pull of each queue is sent there."""
    if broker.config.broker_role == "SLAVE":
        return request.reply(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
    header = ResetOffsetRequestHeader.decode(request.command.ext_fields)
    topic = broker.topics.get(header.topic)
    if topic is None:
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
    if header.group not in broker.groups:
        remark = f"Group {header.group} does not exist"
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    one = header.queue_id if header.queue_id is not None and header.queue_id >= 0 else None
    if one is not None and one >= topic.read_queue_nums:  # no pull could ever take it
        remark = (
            f"queueId[{one}] is illegal, topic:[{topic.topic_name}] topicConfig.readQueueNums:[{topic.read_queue_nums}]"
        )
        return request.reply(ResponseCode.INVALID_PARAMETER, remark)
    return Slices(_reset(broker, request, header, range(topic.read_queue_nums) if one is None else (one,), one))


def _reset(
    broker: Broker, request: Request, header: ResetOffsetRequestHeader, queue_ids: Sequence[int], one: int | None
) -> Steps[Answer]:
    targets: dict[int, int] = {}
    for number, queue_id in enumerate(queue_ids, 1):
        if one is not None and header.offset is not None and header.offset != -1:
            state = broker.tables.queue(header.topic, queue_id)
            low, high = (0, 0) if state is None else (state.min_offset, state.max_offset)
            if not low <= header.offset <= high + 1:
                remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
                return request.reply(ResponseCode.SYSTEM_ERROR, remark)
            targets[queue_id] = header.offset
        else:
            targets[queue_id] = _reset_target(broker, header.topic, queue_id, header.timestamp)
        if number % STEP_QUEUES == 0:
            yield
    if not targets:
        return request.reply(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
    for number, (queue_id, offset) in enumerate(targets.items(), 1):
        broker.offsets.set_reset(header.group, header.topic, queue_id, offset, request.now_ms)
        if number % STEP_QUEUES == 0:
            yield
    broker.publish_group(header.group)
    name = broker.config.broker_name
    entries = (
        encode_queue_offsets({MessageQueue(header.topic, name, queue_id): offset})[len(b'{"offsetTable":{') : -2]
        for queue_id, offset in targets.items()
    )
    table = yield from concatenated(separated(entries))
    return request.reply(body=b'{"offsetTable":{%s}}' % table)


def _reset_target(broker: Broker, topic: str, queue_id: int, timestamp_ms: int) -> int:
    if timestamp_ms < 0:
        state = broker.tables.queue(topic, queue_id)
        return 0 if state is None else state.max_offset
    return broker.store.offset_by_time(topic, queue_id, timestamp_ms, False)


def _offset(request: Request, offset: int) -> Answer:
    return request.reply(ext_fields={"offset": str(offset)})
