"""The decision about a reply (324, 325), in stock's order (`ReplyMessageProcessor`, `msgCheck` of its base class).

Stock makes a topic that is missing, pushes a reply that is too large to be stored, and takes replies for any topic.
Here a reply goes to a reply topic alone, because no rule of sends covers it. Every refusal comes before the push.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import FAQ
from ringmq.remoting import names, properties
from ringmq.remoting.client_headers import SendMessageRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.services.topics import Topic


class Refuse(Struct, frozen=True):
    """Outcome: nothing is pushed or stored."""

    code: int
    remark: str


class Deliver(Struct, frozen=True):
    """Outcome: push the reply and store it in this queue. `pairs`: its properties, with those of the broker."""

    queue_id: int
    pairs: dict[str, str]

    @property
    def client_id(self) -> str | None:
        """The requester. None: the reply names none."""
        return self.pairs.get(properties.REPLY_TO_CLIENT)


class Asked(Struct, frozen=True):
    """A reply: its header, the size of its body in bytes, and the address of its sender."""

    header: SendMessageRequestHeader
    body_bytes: int
    sender: str


def decide(
    asked: Asked,
    config: BrokerConfig,
    topic: Topic | None,
    now_ms: int,
    pick: Callable[[int], int] = random.randrange,
) -> Refuse | Deliver:
    """Decide about a reply. `topic`: the one that it names, if there is such a topic. `pick`: a number below its
    argument, for a reply that names no queue."""
    refusal = _broker_refuses(config, now_ms) or _topic_is_refused(asked, topic)
    if refusal is not None:
        return refusal
    assert topic is not None, "else it is refused"
    text = asked.header.properties or ""
    pairs = {
        **properties.decode_properties(text),
        properties.MSG_REGION: config.region_id,
        properties.TRACE_ON: str(config.trace_on).lower(),
    }
    refusal = _message_is_refused(asked, pairs, config)
    if refusal is not None:
        return refusal
    queue_id = asked.header.queue_id
    return Deliver(pick(topic.write_queues) if queue_id < 0 else queue_id, pairs)


def _broker_refuses(config: BrokerConfig, now_ms: int) -> Refuse | None:
    start_ms = config.start_accept_send_request_time_stamp
    if now_ms < start_ms:
        return Refuse(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {start_ms}")
    return None


def _topic_is_refused(asked: Asked, topic: Topic | None) -> Refuse | None:
    header = asked.header
    try:
        names.check_topic(header.topic)
    except names.InvalidName as error:
        return Refuse(error.code, str(error))
    if not names.is_reply_topic(header.topic):
        remark = (
            f"Sending message to topic[{header.topic}] is forbidden: a reply goes to {names.reply_topic('CLUSTER')}."
        )
        return Refuse(ResponseCode.NO_PERMISSION, remark)
    if topic is None:
        return Refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!{FAQ}")
    if header.queue_id >= max(topic.read_queues, topic.write_queues):
        remark = f"request queueId[{header.queue_id}] is illegal, {topic} Producer: {asked.sender}"
        return Refuse(ResponseCode.INVALID_PARAMETER, remark)
    if header.queue_id < 0 and not topic.write_queues:
        remark = f"topic[{header.topic}] has no write queue to choose from"
        return Refuse(ResponseCode.SYSTEM_ERROR, remark)
    return None


def _message_is_refused(asked: Asked, pairs: dict[str, str], config: BrokerConfig) -> Refuse | None:
    if not asked.body_bytes:
        return Refuse(ResponseCode.SYSTEM_ERROR, "the message body is empty, at least 1 byte is needed")
    if asked.body_bytes > config.max_message_size:
        remark = f"the message is illegal, body: {asked.body_bytes} bytes, limit {config.max_message_size}"
        return Refuse(ResponseCode.MESSAGE_ILLEGAL, remark)
    text = properties.encode_properties(pairs)
    size, limit = len(text.encode("utf-8", "replace")), properties.MAX_PROPERTIES_BYTES
    if size > limit:
        remark = f"the message is illegal, properties with the broker's own: {size} bytes, limit {limit}"
        return Refuse(ResponseCode.MESSAGE_ILLEGAL, remark)
    if "\0" in text:
        return Refuse(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal, properties: they hold a NUL character")
    return None
