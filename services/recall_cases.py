"""Decides about a request that recalls a timer message (370). Rules and remarks of stock (`RecallMessageProcessor`).

A recall becomes a message that deletes the timer at its time. Its pairs are those of stock, in the same order.
"""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.admission import Rule
from ringmq.ipc.admission_time import TimeAsked, time_asked
from ringmq.remoting import properties
from ringmq.remoting.client_headers import RecallMessageRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.flags import Perm
from ringmq.remoting.recall_handle import RecallHandle, RecallHandleError, decode_handle
from ringmq.store.record_numbers import decimal

BODY = b"0"
TAG = "_RECALL_TAG_"
NOT_AVAILABLE = "recall failed, broker service not available"
FAILED = "recall failed, execute error"
INVALID = "recall handle is invalid"
PROPERTIES_BYTES_MAX = 4096
"""Of the deleting message. Topic and UNIQ_KEY of the handle are in it twice."""


class Refuse(Struct, frozen=True):
    """The answer of a refusal."""

    code: int
    remark: str


class Delete(Struct, frozen=True):
    """The message that deletes the timer."""

    properties: bytes
    uniq_key: str


def decide(
    asked: RecallMessageRequestHeader, config: BrokerConfig, rule: Rule | None, has_topic: bool, now_ms: int
) -> Refuse | Delete:
    """Decide about a request. `rule`: the published one for timers. `has_topic`: the topic of the request exists."""
    refusal = _broker_refuses(asked, config, has_topic, now_ms)
    if refusal is not None:
        return refusal
    try:
        handle = decode_handle(asked.recall_handle)
    except RecallHandleError as error:
        return Refuse(ResponseCode.ILLEGAL_OPERATION, f"{INVALID}: {error}")
    refusal = _handle_is_refused(asked, handle, config, now_ms)
    if refusal is not None:
        return refusal
    return _delete(asked, handle, rule, now_ms)


def _broker_refuses(
    asked: RecallMessageRequestHeader, config: BrokerConfig, has_topic: bool, now_ms: int
) -> Refuse | None:
    if not config.recall_message_enable:
        remark = "recall failed, operation is forbidden: recallMessageEnable is false"
        return Refuse(ResponseCode.NO_PERMISSION, remark)
    start_ms = config.start_accept_send_request_time_stamp
    if now_ms < start_ms:
        remark = f"{NOT_AVAILABLE}: startAcceptSendRequestTimeStamp is {start_ms}"
        return Refuse(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
    if not config.broker_permission & Perm.WRITE and not config.allow_recall_when_broker_not_writeable:
        remark = f"{NOT_AVAILABLE}: brokerPermission is {config.broker_permission}"
        return Refuse(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
    if not has_topic:
        return Refuse(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{asked.topic}] not exist")
    return None


def _handle_is_refused(
    asked: RecallMessageRequestHeader, handle: RecallHandle, config: BrokerConfig, now_ms: int
) -> Refuse | None:
    remark = None
    at_ms = decimal(handle.time_text)
    limit_ms = config.timer_max_delay_sec * 1000
    if asked.topic != handle.topic:
        remark = f"recall failed, topic not match: topic = {asked.topic}, recallHandle is of {handle.topic[:127]}"
    elif config.broker_name != handle.broker_name:
        remark = f"{NOT_AVAILABLE}: recallHandle is of broker {handle.broker_name[:127]}"
    elif at_ms is None or not 0 < at_ms - now_ms < limit_ms:
        remark = f"recall failed, timestamp invalid: {handle.time_text[:32]} is not within {limit_ms} ms from now"
    return None if remark is None else Refuse(ResponseCode.ILLEGAL_OPERATION, remark)


def _delete(asked: RecallMessageRequestHeader, handle: RecallHandle, rule: Rule | None, now_ms: int) -> Refuse | Delete:
    times = {
        properties.TIMER_DELIVER_MS.encode(): handle.time_text.encode(),
        properties.TIMER_DEL_UNIQKEY.encode(): b"",
    }
    if rule is None:
        return Refuse(ResponseCode.SYSTEM_BUSY, f"{FAILED}: the rule for timer messages is not there yet, try again")
    fault, out_ms = time_asked(times, rule, now_ms)
    if fault is not TimeAsked.LATER:
        return Refuse(ResponseCode.SYSTEM_ERROR, f"{FAILED}: the broker takes no timer messages now ({fault.name})")
    pairs = {
        properties.TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.uniq_key}",
        properties.REAL_TOPIC: handle.topic,
        properties.BORN_TIMESTAMP: str(now_ms),
        properties.TRACE_CONTEXT: "",
        properties.TIMER_DELIVER_MS: handle.time_text,
        properties.UNIQ_KEY: handle.uniq_key,
        properties.PGROUP: asked.producer_group or "",
        properties.TAGS: TAG,
        properties.TIMER_OUT_MS: str(out_ms),
        properties.REAL_QID: "0",
    }
    if any(ord(char) < 0x20 for value in pairs.values() for char in value):
        return Refuse(ResponseCode.ILLEGAL_OPERATION, f"{INVALID}: UNIQ_KEY or producerGroup holds control characters")
    stored = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode(errors="replace")
    if len(stored) > PROPERTIES_BYTES_MAX:
        remark = f"{INVALID}: properties of {len(stored)} bytes, the limit is {PROPERTIES_BYTES_MAX}"
        return Refuse(ResponseCode.ILLEGAL_OPERATION, remark)
    return Delete(stored, handle.uniq_key)
