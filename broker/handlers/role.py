"""Requests about the role of this broker: orders of operators (270009), and the tenure that brokers of a group show
each other (270010)."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.health import fault_text
from ringmq.broker.replication.role_desk import RoleBusyError
from ringmq.broker.replication.tenure_role import TenureRole
from ringmq.broker.requests.request import Answer, Request
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.ha.control_messages import MessageError
from ringmq.ha.tenure_messages import answer_body, question_of
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.role_bodies import CHOICES, HaRoleRequestHeader


class RoleRequests(Struct, frozen=True):
    """The handlers, with the parts that they need."""

    role: TenureRole
    plane: PlaneProtocol

    def order(self, request: Request) -> Answer:
        """270009. A change goes on behind the answer: LOOK asks for its state."""
        header = HaRoleRequestHeader.decode(request.command.ext_fields)
        if header.choice not in CHOICES:
            remark = f"choice = {header.choice[:64]!r} is not known, accepted: {', '.join(CHOICES)}"
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        marks = self.plane.watermarks
        faults = (marks.store_fault, marks.store_fault_errno), (marks.dispatch_fault, marks.dispatch_fault_errno)
        obstacles = tuple(fault_text(fault, number) for fault, number in faults if fault)
        try:
            self.role.take_order(header.choice, request.actor, obstacles, request.now_ms, accepts=header.accepts_loss)
        except RoleBusyError as error:
            return request.reply(ResponseCode.SYSTEM_BUSY, str(error))
        return request.reply(body=self.role.state().encode())

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
