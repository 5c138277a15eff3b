"""The question of replies to control: a request for the client that waits for the reply."""

from __future__ import annotations

from ringmq.broker.requests.client_request import ClientRequest
from ringmq.broker.requests.questions import Control
from ringmq.broker.requests.reply_queue import BACKLOG_BYTES_LARGE
from ringmq.ipc.asks import Ask
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame
from ringmq.remoting.errors import RemotingError


def push_reply(control: Control, record: Ask, now_ms: int) -> None:
    """Send a reply to its requester. The answer comes once the requester has answered, or cannot."""
    if control.backlog_bytes() > BACKLOG_BYTES_LARGE:
        control.answer(record, f"more than {BACKLOG_BYTES_LARGE} bytes wait for a read worker")
        return
    try:
        asked = ClientRequest.decode(record.payload)
        command = decode_frame(asked.frame)
    except (ValueError, RemotingError) as error:
        control.answer(record, str(error))
        return
    connection = control.producer_of(asked.to)
    if connection is None:
        control.answer(record, f"push reply message fail, channel of <{asked.to}> not found.")
        return
    control.call(connection, asked.to, command, now_ms, lambda told: control.answer(record, _remark(asked.to, told)))


def _remark(client_id: str, told: RemotingCommand | str) -> str:
    """Empty, or stock's remark with the cause."""
    if isinstance(told, str):
        return f"push reply message to {client_id}fail. {told}"
    if told.code != ResponseCode.SUCCESS:
        return f"push reply message to {client_id}fail. It has answered {told.code}: {told.remark}"
    return ""


QUESTIONS = {lib.RMQ_INBOX_REPLY: push_reply}
