"""Messages as the 4.x clients show them: setters on the way out, properties (of bytes, mostly) on the way in."""

from enum import IntEnum
from typing import NamedTuple

from ringmq.client.producer import SendResult as StoredAt
from ringmq.client.rocketmq4.consts import MessageProperty
from ringmq.remoting import message as wire
from ringmq.remoting import properties as names

DELAY = MessageProperty.DELAY_TIME_LEVEL.value


class SendStatus(IntEnum):
    """The message is stored; all but OK mean that a wait for disk or replicas failed."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


class TransactionStatus(IntEnum):
    """What becomes of a half message."""

    COMMIT = 0
    ROLLBACK = 1
    UNKNOWN = 2


class ConsumeStatus(IntEnum):
    """What a callback returns."""

    CONSUME_SUCCESS = 0
    RECONSUME_LATER = 1


class SendResult(NamedTuple):
    """`msg_id` is the UNIQ_KEY (of the first message of a batch), `offset` that in the queue."""

    status: SendStatus
    msg_id: str
    offset: int


def send_result(stored: StoredAt) -> SendResult:
    """The SDK's result in the old words."""
    return SendResult(SendStatus[stored.status.name], stored.message_id, stored.queue_offset)


class Message:
    """A message to be sent; it may be sent several times, each time under an id of its own."""

    def __init__(self, topic: str | bytes) -> None:
        self._topic = _text(topic)
        self._body = b""
        self._properties: dict[str, str] = {}

    def set_keys(self, keys: str | bytes) -> None:
        """Keys, separated by blanks."""
        self._properties[names.KEYS] = _text(keys)

    def set_tags(self, tags: str | bytes) -> None:
        """The tag."""
        self._properties[names.TAGS] = _text(tags)

    def set_body(self, body: str | bytes) -> None:
        """The body; text is sent as UTF-8."""
        self._body = body.encode() if isinstance(body, str) else bytes(body)

    def set_property(self, key: str | bytes, value: str | bytes) -> None:
        """A property of the application."""
        self._properties[_text(key)] = _text(value)

    def set_delay_time_level(self, delay_time_level: int) -> None:
        """Deliver after the broker's delay level (1 to 18: 1s 5s 10s 30s 1m ... 2h); 0 is no delay."""
        self._properties[DELAY] = str(delay_time_level)
        if delay_time_level == 0:
            del self._properties[DELAY]

    def to_send(self) -> wire.Message:
        """As the SDK sends it. Raises ValueError for an empty body, as those clients do."""
        if not self._body:
            raise ValueError("the message body is empty")
        return wire.Message(self._topic, self._body, dict(self._properties))


class ReceivedMessage:
    """A message as consumers, selectors and transaction callbacks see it."""

    def __init__(self, message: wire.Message) -> None:
        self._message = message
        self._stored = message if isinstance(message, wire.MessageExt) else wire.MessageExt(message.topic, message.body)

    @property
    def topic(self) -> str:
        """The topic."""
        return self._message.topic

    @property
    def tags(self) -> bytes:
        """Empty without a tag."""
        return self.get_property(MessageProperty.TAGS)

    @property
    def keys(self) -> bytes:
        """Separated by blanks."""
        return self.get_property(MessageProperty.KEYS)

    @property
    def body(self) -> bytes:
        """The body."""
        return bytes(self._message.body)

    @property
    def id(self) -> str:
        """The UNIQ_KEY, or the place in the log where there is none."""
        return self._message.properties.get(names.UNIQ_KEY) or self._stored.offset_msg_id

    @property
    def delay_time_level(self) -> int:
        """0 without a delay."""
        text = self._message.properties.get(DELAY, "0")
        return int(text) if text.isdecimal() and len(text) < 10 else 0

    @property
    def queue_id(self) -> int:
        """The queue that it was read from."""
        return self._stored.queue_id

    @property
    def reconsume_times(self) -> int:
        """How often the group has failed on it."""
        return self._stored.reconsume_times

    @property
    def store_size(self) -> int:
        """Bytes in the broker's log."""
        return self._stored.store_size

    @property
    def born_timestamp(self) -> int:
        """When it was sent, in ms."""
        return self._stored.born_timestamp_ms

    @property
    def store_timestamp(self) -> int:
        """When it was stored, in ms."""
        return self._stored.store_timestamp_ms

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""
        return self._stored.queue_offset

    @property
    def commit_log_offset(self) -> int:
        """Its place in the broker's log."""
        return self._stored.commit_log_offset

    @property
    def prepared_transaction_offset(self) -> int:
        """Where its half message is."""
        return self._stored.prepared_transaction_offset

    def get_property(self, prop: str | bytes | MessageProperty) -> bytes:
        """A property's value; empty when there is none."""
        name = prop.value if isinstance(prop, MessageProperty) else _text(prop)
        return self._message.properties.get(name, "").encode()

    def __getitem__(self, key: str | bytes | MessageProperty) -> bytes:
        return self.get_property(key)

    def __str__(self) -> str:
        return self.body.decode()

    def __bytes__(self) -> bytes:
        return self.body

    def __repr__(self) -> str:
        return f"<{type(self).__name__} topic={self.topic!r} id={self.id!r} body={self.body!r}>"


RecvMessage = ReceivedMessage  # 0.4.4's name


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
