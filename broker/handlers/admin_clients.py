"""Requests that a connected client answers: its running info (307), consumption of one message (309)."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.forward import ForwardTable
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.protocols import StoreProtocol
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting import admin_headers as headers
from ringmq.remoting.codes import VERSION_CONSUMER_RUNNING_INFO, RequestCode, ResponseCode, version_name
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message_id import decode_offset_id


class ForwardedRequests(Struct, frozen=True):
    """Requests for a connected client, with the parts that they need."""

    live: LiveConfig
    store: StoreProtocol
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerTable
    forwards: ForwardTable
    outbox: Outbox

    def consumer_running_info(self, request: Request) -> Answer:
        """307."""
        header = headers.GetConsumerRunningInfoRequestHeader.decode(request.command.ext_fields)
        command = RemotingCommand.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, request.command.ext_fields, request.command.body
        )
        return self._forward(request, header.consumer_group, header.client_id, command)

    def consume_directly(self, request: Request) -> Answer:
        """309: the stored message is the body of the forwarded request."""
        header = headers.ConsumeMessageDirectlyRequestHeader.decode(request.command.ext_fields)
        try:
            _, _, offset = decode_offset_id(header.msg_id or "")
        except ValueError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"msgId: {error}")
        message = self.store.view(offset)
        if message is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        ext = {**request.command.ext_fields, "brokerName": self.live.config.broker_name}
        topic = self.topics.get(header.topic or "")
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self.groups.get(header.consumer_group)
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        command = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, message)
        return self._forward(request, header.consumer_group, header.client_id or "", command)

    def _forward(self, request: Request, group: str, client_id: str, command: RemotingCommand) -> Answer:
        online = self.consumers.get(group)
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
        if self.forwards.is_full:
            return request.reply(ResponseCode.SYSTEM_BUSY, "too many requests wait for answers of clients")
        self.forwards.send(self.outbox, request, target, client_id, command)
        return Wait()
