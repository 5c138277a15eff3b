"""Requests that a connected client answers: its running info (307), consuming one message now (309)."""

from __future__ import annotations

from ringmq.broker.core import Broker
from ringmq.broker.requests.request import Answer, Request, Wait
from ringmq.remoting import admin_headers as headers
from ringmq.remoting.codes import VERSION_CONSUMER_RUNNING_INFO, RequestCode, ResponseCode, version_name
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message_id import decode_offset_id


def consumer_running_info(broker: Broker, request: Request) -> Answer:
    """307."""
    header = headers.GetConsumerRunningInfoRequestHeader.decode(request.command.ext_fields)
    command = RemotingCommand.request(
        RequestCode.GET_CONSUMER_RUNNING_INFO, request.command.ext_fields, request.command.body
    )
    return _forward(broker, request, header.consumer_group, header.client_id, command)


def consume_directly(broker: Broker, request: Request) -> Answer:
    """309: the stored message goes along as body."""
    header = headers.ConsumeMessageDirectlyRequestHeader.decode(request.command.ext_fields)
    try:
        _, _, offset = decode_offset_id(header.msg_id or "")
    except ValueError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, f"msgId: {error}")
    message = broker.store.view(offset)
    if message is None:
        return request.reply(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    ext = {**request.command.ext_fields, "brokerName": broker.config.broker_name}
    topic = broker.topics.get(header.topic or "")
    if topic is not None:
        ext["topicSysFlag"] = str(topic.topic_sys_flag)
    group = broker.groups.get(header.consumer_group)
    if group is not None:
        ext["groupSysFlag"] = str(group.group_sys_flag)
    command = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, message)
    return _forward(broker, request, header.consumer_group, header.client_id or "", command)


def _forward(broker: Broker, request: Request, group: str, client_id: str, command: RemotingCommand) -> Answer:
    online = broker.consumers.get(group)
    target = None if online is None else online.find(client_id)
    if online is None or target is None:
        return request.reply(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    version = online.members[target].version
    if version < VERSION_CONSUMER_RUNNING_INFO:
        remark = (
            f"The Consumer <{client_id}> Version <{version_name(version)}> too low to finish, "
            "please upgrade it to V3_1_8_SNAPSHOT"
        )
        return request.reply(ResponseCode.SYSTEM_ERROR, remark)
    if broker.forwards.is_full:
        return request.reply(ResponseCode.SYSTEM_BUSY, "too many requests wait for answers of clients")
    broker.forwards.send(broker.outbox, request, target, client_id, command)
    return Wait()
