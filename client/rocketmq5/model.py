"""Messages and receipts of the 5.x client."""

import re
from typing import Self

from ringmq.client.rocketmq5.configuration import FilterExpression
from ringmq.client.rocketmq5.exception import IllegalArgumentException
from ringmq.client.system_properties import SYSTEM_PROPERTIES
from ringmq.remoting import message as wire
from ringmq.remoting import properties as names
from ringmq.remoting.message_queue import MessageQueue

__all__ = ["FilterExpression", "Message", "MessageQueue", "SendReceipt"]

TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
MESSAGE_TYPES = ("MESSAGE_TYPE_UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "LITE", "PRIORITY")
NORMAL, FIFO, DELAY, TRANSACTION = 1, 2, 3, 4


class Message:
    """A message to be sent (set `topic`, `body` and what else is wanted), or one that was received."""

    def __init__(self) -> None:
        self.__body: bytes | None = None
        self.__topic: str | None = None
        self.__tag: str | None = None
        self.__message_group: str | None = None
        self.__delivery_timestamp: int | None = None
        self.__keys: set[str] = set()
        self.__properties: dict[str, str] = {}
        self.__stored: wire.MessageExt | None = None
        self.message_id: str | None = None
        self.corrupted = False

    def __str__(self) -> str:
        return (
            f"topic:{self.topic}, tag:{self.tag}, message_group:{self.message_group}, "
            f"delivery_timestamp:{self.delivery_timestamp}, keys:{self.keys}, properties:{self.properties}"
        )

    @classmethod
    def received(cls, stored: wire.MessageExt) -> Self:
        """A message that was read."""
        message = cls()
        found = stored.properties
        message.__stored = stored
        message.__topic, message.__body = stored.topic, bytes(stored.body)
        message.__tag, message.__message_group = stored.tags, found.get(names.SHARDING_KEY)
        message.__keys = set(found.get(names.KEYS, "").split())
        message.__properties = {name: value for name, value in found.items() if name not in SYSTEM_PROPERTIES}
        message.message_id = stored.msg_id
        return message

    def to_send(self) -> wire.Message:
        """As the SDK sends it. Raises `IllegalArgumentException` without a topic or a body."""
        if self.__topic is None:
            raise IllegalArgumentException("topic has not been set yet.")
        if not self.__body:
            raise IllegalArgumentException("message body is none.")
        properties = dict(self.__properties)
        if self.__keys:
            properties[names.KEYS] = " ".join(sorted(self.__keys))
        if self.__tag:
            properties[names.TAGS] = self.__tag
        if self.__message_group:
            properties[names.SHARDING_KEY] = self.__message_group
        if self.__delivery_timestamp:
            properties[names.TIMER_DELIVER_MS] = str(self.__delivery_timestamp * 1000)
        return wire.Message(self.__topic, self.__body, properties)

    @property
    def body(self) -> bytes | None:
        """The body."""
        return self.__body

    @body.setter
    def body(self, body: bytes) -> None:
        if not body:
            raise IllegalArgumentException("body should not be blank.")
        self.__body = body

    @property
    def topic(self) -> str | None:
        """The topic."""
        return self.__topic

    @topic.setter
    def topic(self, topic: str) -> None:
        if not topic or not topic.strip():
            raise IllegalArgumentException("topic has not been set yet.")
        if TOPIC.fullmatch(topic) is None:
            raise IllegalArgumentException(f"topic does not match the regex [regex={TOPIC.pattern}].")
        self.__topic = topic

    @property
    def tag(self) -> str | None:
        """The tag."""
        return self.__tag

    @tag.setter
    def tag(self, tag: str) -> None:
        if not tag or not tag.strip():
            raise IllegalArgumentException("tag should not be blank.")
        if "|" in tag:
            raise IllegalArgumentException('tag should not contain "|".')
        self.__tag = tag

    @property
    def message_group(self) -> str | None:
        """Messages of one group go to one queue and keep their order."""
        return self.__message_group

    @message_group.setter
    def message_group(self, message_group: str) -> None:
        if not message_group or not message_group.strip():
            raise IllegalArgumentException("message_group should not be blank.")
        if self.__delivery_timestamp:
            raise IllegalArgumentException("message_group and delivery_timestamp should not be set at same time.")
        self.__message_group = message_group

    @property
    def delivery_timestamp(self) -> int | None:
        """When to deliver it, in seconds since 1970."""
        return self.__delivery_timestamp

    @delivery_timestamp.setter
    def delivery_timestamp(self, delivery_timestamp: int) -> None:
        if self.__message_group:
            raise IllegalArgumentException("delivery_timestamp and message_group should not be set at same time.")
        self.__delivery_timestamp = delivery_timestamp

    @property
    def keys(self) -> set[str]:
        """All keys."""
        return self.__keys

    @keys.setter
    def keys(self, key: str) -> None:
        """Adds one, as in the 5.x client."""
        if not key or not key.strip():
            raise IllegalArgumentException("key should not be blank.")
        self.__keys.add(key)

    @property
    def properties(self) -> dict[str, str]:
        """Those of the application."""
        return self.__properties

    def add_property(self, key: str, value: str) -> None:
        """Set one of them."""
        for name, text in (("key", key), ("value", value)):
            if not text or not text.strip():
                raise IllegalArgumentException(f"{name} should not be blank.")
        self.__properties[key] = value

    @property
    def born_host(self) -> str | None:
        """The sender's address, of a received message."""
        return self.__stored.born_host[0] if self.__stored else None

    @property
    def born_timestamp(self) -> int | None:
        """When it was sent, in ms, of a received message."""
        return self.__stored.born_timestamp_ms if self.__stored else None

    @property
    def delivery_attempt(self) -> int | None:
        """1 for the first, of a received message."""
        return self.__stored.reconsume_times + 1 if self.__stored else None

    @property
    def message_type(self) -> int:
        """1 normal, 2 FIFO, 3 delayed."""
        return FIFO if self.message_group else DELAY if self.delivery_timestamp else NORMAL

    @staticmethod
    def message_type_desc(message_type: int) -> str:
        """The name of a message type."""
        return MESSAGE_TYPES[message_type if 0 <= message_type < len(MESSAGE_TYPES) else 0]


class SendReceipt:
    """Where a message was stored. `recall_handle` takes a delayed one back."""

    def __init__(
        self,
        message_id: str,
        transaction_id: str | None,
        message_queue: MessageQueue,
        offset: int,
        recall_handle: str | None = None,
    ) -> None:
        self.message_id = message_id
        self.transaction_id = transaction_id
        self.message_queue = message_queue
        self.offset = offset
        self.recall_handle = recall_handle

    def __str__(self) -> str:
        return f"message_id:{self.message_id}"
