"""Questions of transactions to control: checks of producers, and offsets of the system's group."""

from __future__ import annotations

from ringmq.broker.requests.client_request import ClientRequest
from ringmq.broker.requests.questions import Control
from ringmq.broker.requests.reply_queue import BACKLOG_BYTES_LARGE
from ringmq.ipc.asks import Ask
from ringmq.ipc.errors import PlaneFullError
from ringmq.native import lib
from ringmq.remoting import json_body
from ringmq.remoting.command import decode_frame
from ringmq.remoting.errors import RemotingError, RequestError


def check(control: Control, record: Ask, now_ms: int) -> None:
    """Send a transaction's check to a client of its producer group."""
    if control.backlog_bytes() > BACKLOG_BYTES_LARGE:
        remark = f"more than {BACKLOG_BYTES_LARGE} bytes wait for a read worker"
    else:
        remark = _push_check(control, record.payload)
    control.answer(record, remark)


def _push_check(control: Control, payload: bytes) -> str:
    try:
        asked = ClientRequest.decode(payload)
        command = decode_frame(asked.frame)
    except (ValueError, RemotingError) as error:
        return str(error)
    connection = control.client_of(asked.to)
    if connection is None:
        return f"producer group {asked.to} has no client"
    control.push(connection, command)
    return ""


def commit_offsets(control: Control, record: Ask, now_ms: int) -> None:
    """Commit the offsets of a service's group."""
    remark = ""
    try:
        value = json_body.read_object(record.payload, "offsets")
        for topic, offset in value["offsets"].items():
            control.commit_offset(value["group"], topic, int(offset), now_ms)
    except (RequestError, PlaneFullError, LookupError, TypeError, ValueError) as error:
        remark = str(error)
    control.answer(record, remark)


QUESTIONS = {lib.RMQ_INBOX_CHECK: check, lib.RMQ_INBOX_OFFSETS: commit_offsets}
