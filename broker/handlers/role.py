"""Requests about the role of this broker: the tenure that brokers of a group show each other (270010)."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.replication.tenure_role import TenureRole
from ringmq.broker.requests.request import Answer, Request
from ringmq.ha.control_messages import MessageError
from ringmq.ha.tenure_messages import answer_body, question_of
from ringmq.remoting.codes import ResponseCode


class RoleRequests(Struct, frozen=True):
    """The handlers, with the parts that they need."""

    role: TenureRole

    def show(self, request: Request) -> Answer:
        """270010. A promise is on the disk before its answer."""
        try:
            question = question_of(bytes(request.command.body))
        except MessageError as error:
            return request.reply(ResponseCode.INVALID_PARAMETER, str(error))
        group = self.role.group
        if question.group != group:
            remark = f"this broker is of {group.cluster}/{group.broker_name}"
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        why = self.role.take_question(question, request.connection.host, request.now_ms)
        if why:
            return request.reply(ResponseCode.NO_PERMISSION, why)
        return request.reply(body=answer_body(self.role.showing()))
