"""The wire form of a send: checks, compression, the properties string, the header of requests 310 and 320, the answer.

The header is the hot part of a producer, so this module writes it directly in the binary form (byte map in
`ringmq.remoting.command`). `TopicHeader` encodes the parts once that do not change between two sends of a topic.
`tests/client` compares it with the general encoder.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from ringmq.client.arguments import INT_MAX, check_numbers, check_optional
from ringmq.client.compression import COMPRESS_OVER_BYTES, COMPRESSION_LEVEL, LEVELS, compress_body
from ringmq.client.connections.name_servers import NEW_TOPIC_QUEUES
from ringmq.client.interceptors import SendScope
from ringmq.client.producing.send_result import SendResult, SendStatus
from ringmq.client.security.signing import RequestSigner
from ringmq.remoting import properties as names
from ringmq.remoting.codes import VERSION_V5_3_3, LanguageCode, RequestCode
from ringmq.remoting.command import FLAG_ONEWAY, RemotingCommand, decode_frame
from ringmq.remoting.flags import Compression, MessageSysFlag
from ringmq.remoting.message import MAX_BODY_BYTES, Message
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import AUTO_CREATE_TOPIC, InvalidName, check_topic
from ringmq.remoting.properties import MAX_PROPERTIES_BYTES, encode_properties

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_HEAD: Final = struct.Struct(">iIhBhiiii")  # total length, type and header length, the fixed header, ext length
_ELEMENT: Final = struct.Struct(">iiiii")  # of a batch, as `ringmq.remoting.batch` has it
_ELEMENT_BYTES: Final = _ELEMENT.size + 2
_ENTRY: Final = struct.Struct(">hci")  # of a one-letter key
_BINARY_TYPE: Final = 1 << 24
DELAY_LEVEL_MAX: Final = 1000  # brokers have 18 unless told otherwise, and take the last one for more
DELAY_MS_MAX: Final = 400 * 86_400_000  # brokers have bounds of their own (timerMaxDelaySec, 3 days)
REPLY_TYPE: Final = "reply"  # of property MSG_TYPE
_MULTI_MESSAGE_PROPERTIES: Final = frozenset({names.DELAY, names.TRAN_MSG}) | names.TIMER_PROPERTIES


@dataclass(slots=True)
class SendRequest:
    """One send, complete but for its queue. All retries use the same object, so its UNIQ_KEY never changes."""

    topic: str
    body: bytes | bytearray | memoryview
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    message_ids: tuple[str, ...]
    is_batch: bool = False
    code: int = RequestCode.SEND_MESSAGE_V2
    queue: MessageQueue | None = None  # the caller's choice; None takes the queues in turn
    scope: SendScope | None = None  # of the interceptors, where there are any

    def result(self, chosen: MessageQueue, answer: RemotingCommand) -> SendResult:
        """Return the result in an answer with a "stored" code. `chosen` is the requested queue."""
        fields = answer.ext_fields
        queue_id = int(fields.get("queueId", chosen.queue_id))
        queue = chosen if queue_id == chosen.queue_id else MessageQueue(chosen.topic, chosen.broker_name, queue_id)
        return SendResult(
            SendStatus.OK if answer.code == 0 else SendStatus(answer.code),
            queue,
            int(fields.get("queueOffset", -1)),
            self.message_ids,
            tuple(fields.get("msgId", "").split(",")),
            fields.get("transactionId"),
            fields.get("recallHandle"),
        )


@dataclass(frozen=True, slots=True)
class BodyRules:
    """Limits and compression of bodies. `compression` None sends them unchanged.

    Raises ValueError for a level that the algorithm does not have, TypeError for a value of another kind.
    """

    body_bytes_max: int = MAX_BODY_BYTES
    compression: Compression | None = Compression.ZLIB
    compress_over_bytes: int = COMPRESS_OVER_BYTES
    compression_level: int = COMPRESSION_LEVEL

    def __post_init__(self) -> None:
        check_numbers(1, INT_MAX, body_bytes_max=self.body_bytes_max)
        check_numbers(0, INT_MAX, compress_over_bytes=self.compress_over_bytes)
        check_numbers(-INT_MAX, INT_MAX, compression_level=self.compression_level)
        check_optional(Compression, compression=self.compression)
        if self.compression in LEVELS:
            least, greatest = LEVELS[self.compression]
            if not least <= self.compression_level <= greatest:
                name = self.compression.name
                raise ValueError(
                    f"compression_level of {name} must be {least} to {greatest}, not {self.compression_level}"
                )


def compose_message(
    topic: str,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | Sequence[str] = (),
    properties: dict[str, str] | None = None,
    flag: int = 0,
    delay_level: int | None = None,
    delay_ms: int | None = None,
    deliver_at_ms: int | None = None,
) -> Message:
    """Return a message from its parts. Several keys are separated by a blank, so a key has none.

    At most one of `delay_level` (of the broker's `messageDelayLevel`, from 1), `delay_ms` and `deliver_at_ms` (wall
    time) sets the time of delivery. Raises ValueError.
    """
    all_properties = _delay_properties({
        "delay_level": (names.DELAY, delay_level, DELAY_LEVEL_MAX),
        "delay_ms": (names.TIMER_DELAY_MS, delay_ms, DELAY_MS_MAX),
        "deliver_at_ms": (names.TIMER_DELIVER_MS, deliver_at_ms, 1 << 62),
    })  # fmt: skip
    key_list = [keys] if isinstance(keys, str) else list(keys)
    if key_list:
        for key in key_list:
            if not key or " " in key:
                raise ValueError(f"key {key!r} is empty or holds a blank, which separates keys")
        all_properties[names.KEYS] = " ".join(key_list)
    if tags:
        all_properties[names.TAGS] = tags
    for name, value in (properties or {}).items():
        names.check_property(name, value)
        all_properties[name] = value
    return Message(topic, body, all_properties, flag)


def _delay_properties(delays: Mapping[str, tuple[str, int | None, int]]) -> dict[str, str]:
    """The property of the only delay that is given. `delays`: by parameter, its property, value and greatest value."""
    given = {name: delay for name, delay in delays.items() if delay[1] is not None}
    if len(given) > 1:
        raise ValueError(f"a message is delayed by one of {', '.join(given)}, not by all")
    for name, (property_name, value, limit) in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
            unit = " ms" if name in ("delay", "deliver_at") else ""
            raise ValueError(f"{name} must be 1 to {limit}{unit}, not {value!r}")
        return {property_name: str(value)}
    return {}


def delayed_message(message: Message, delay: timedelta | None, deliver_at: datetime | None) -> Message:
    """Return the message with a delay, or a time of delivery, as a property. Without either it is `message` itself.

    A time is rounded up to a millisecond, so that the message is never early. Raises ValueError.
    """
    if delay is None and deliver_at is None:
        return message
    if deliver_at is not None and deliver_at.tzinfo is None:
        raise ValueError(f"deliver_at = {deliver_at.isoformat()} has no time zone: add one, for example datetime.UTC")
    if present := [name for name in (names.DELAY, *sorted(names.TIMER_PROPERTIES)) if name in message.properties]:
        raise ValueError(f"the message has {present[0]} already, so delay and deliver_at must be left out")
    after_ms = None if delay is None else -(-delay // _MILLISECOND)
    at_ms = None if deliver_at is None else -((_EPOCH - deliver_at) // _MILLISECOND)
    found = _delay_properties({"delay": (names.TIMER_DELAY_MS, after_ms, DELAY_MS_MAX),
                               "deliver_at": (names.TIMER_DELIVER_MS, at_ms, 1 << 62)})  # fmt: skip
    return replace(message, properties={**message.properties, **found})


def prepare_message(message: Message, next_key: Callable[[int], str], now_ms: int, rules: BodyRules) -> SendRequest:
    """Return the request for one message, which gets its UNIQ_KEY here if it has none.

    Raises ValueError for the caller's faults.
    """
    _check_topic(message.topic)
    properties = message.properties
    uniq_key = properties.get(names.UNIQ_KEY)
    if uniq_key is None:
        uniq_key = properties[names.UNIQ_KEY] = next_key(now_ms)
    properties.setdefault(names.WAIT, "true")
    body, sys_flag = message.body, 0
    _check_body(body, rules)
    if rules.compression is not None and len(body) >= rules.compress_over_bytes:
        body, sys_flag = compress_body(body, rules.compression, rules.compression_level)
    if properties.get(names.TRAN_MSG) == "true":
        sys_flag |= MessageSysFlag.TRANSACTION_PREPARED
    encoded = _properties_bytes(properties)
    request = SendRequest(message.topic, body, encoded, message.flag, sys_flag, now_ms, (uniq_key,))
    if properties.get(names.MSG_TYPE) == REPLY_TYPE:
        request.code = RequestCode.SEND_REPLY_MESSAGE_V2
    return request


def check_message(message: Message, rules: BodyRules) -> None:
    """Raise ValueError for a message that `prepare_message` would reject, before it joins others."""
    _check_topic(message.topic)
    _check_body(message.body, rules)
    _properties_bytes(message.properties)


def prepare_batch(
    messages: Sequence[Message], next_key: Callable[[int], str], now_ms: int, rules: BodyRules
) -> SendRequest:
    """Return the request for a batch, which the broker stores whole or not at all. Raises ValueError.

    Rules of `MessageBatch.generateFromList`: one topic, no retry topic, no delayed messages, one value of WAIT.
    The header has no UNIQ_KEY: RocketMQ up to 5.3.3 would store it behind those of the messages, and so replace them.
    """
    if not messages:
        raise ValueError("a batch needs at least one message")
    topic = messages[0].topic
    _check_topic(topic)
    if topic.startswith("%RETRY%"):
        raise ValueError(f"messages of retry topic {topic} cannot be sent in a batch")
    wait = messages[0].properties.get(names.WAIT, "true")
    texts: list[str] = []
    ids: list[str] = []
    property_count = 0
    for message in messages:
        if message.topic != topic:
            raise ValueError(f"a batch has one topic, not {topic} and {message.topic}")
        properties = message.properties
        if not _MULTI_MESSAGE_PROPERTIES.isdisjoint(properties):
            raise ValueError("delayed, timer and transactional messages cannot be sent in a batch")
        uniq_key = properties.get(names.UNIQ_KEY)
        if uniq_key is None:
            uniq_key = properties[names.UNIQ_KEY] = next_key(now_ms)
        ids.append(uniq_key)
        if properties.setdefault(names.WAIT, "true") != wait:
            raise ValueError("all messages of a batch have the same WAIT property")
        texts.append(encode_properties(properties))
        property_count += len(properties)
    if not _is_sound("".join(texts), property_count):
        for message, text in zip(messages, texts, strict=True):
            _check_text(message.properties, text)
    try:
        body = b"".join(_batch_parts(messages, texts))
    except TypeError:
        for message in messages:
            _check_body(message.body, rules)
        raise
    _check_body(body, rules)
    encoded, code = _properties_bytes({names.WAIT: wait}), RequestCode.SEND_BATCH_MESSAGE
    return SendRequest(topic, body, encoded, 0, 0, now_ms, tuple(ids), is_batch=True, code=code)


def _batch_parts(messages: Sequence[Message], texts: Sequence[str]) -> list[bytes]:
    parts: list[bytes] = []
    for message, text in zip(messages, texts, strict=True):
        own_body, encoded = message.body, _encoded(text)
        body_bytes, properties_bytes = len(own_body), len(encoded)
        total = _ELEMENT_BYTES + body_bytes + properties_bytes
        parts += (
            _ELEMENT.pack(total, 0, 0, message.flag, body_bytes),
            own_body,
            properties_bytes.to_bytes(2, "big"),
            encoded,
        )
    return parts


class TopicHeader:
    """The header entries of one topic that stay the same from send to send."""

    __slots__ = ("_batch", "_first_values", "_queue_entries", "_single")

    def __init__(self, producer_group: str, topic: str) -> None:
        fixed = b"".join(
            (
                _entry(b"a", producer_group.encode()),
                _entry(b"b", topic.encode()),
                _entry(b"c", AUTO_CREATE_TOPIC.encode()),
                _entry(b"d", str(NEW_TOPIC_QUEUES).encode()),
                _entry(b"j", b"0"),
                _entry(b"k", b"false"),
            )
        )
        self._single = fixed + _entry(b"m", b"false")
        self._batch = fixed + _entry(b"m", b"true")
        self._first_values = f"{producer_group}{topic}{AUTO_CREATE_TOPIC}{NEW_TOPIC_QUEUES}".encode()
        self._queue_entries: dict[int, bytes] = {}

    def encode(
        self,
        request: SendRequest,
        queue_id: int,
        opaque: int,
        *,
        oneway: bool = False,
        signer: RequestSigner | None = None,
    ) -> bytes:
        """Return the complete frame of `request` for one queue, signed if there is a signer."""
        queue_entry = self._queue_entries.get(queue_id)
        if queue_entry is None:
            queue_entry = self._queue_entries[queue_id] = _entry(b"e", b"%d" % queue_id)
        properties, body = request.properties, request.body
        entries = b"%b%b\0\1f%b\0\1g%b\0\1h%b\0\1i%b%b" % (
            self._batch if request.is_batch else self._single,
            queue_entry,
            _value(b"%d" % request.sys_flag),
            _value(b"%d" % request.born_timestamp_ms),
            _value(b"%d" % request.flag),
            len(properties).to_bytes(4, "big"),
            properties,
        )
        if signer is not None:
            entries += signer.entries(self._values(request, queue_id), body)
        header_length = 21 + len(entries)
        head = _HEAD.pack(
            4 + header_length + len(body),
            _BINARY_TYPE | header_length,
            request.code,
            LanguageCode.PYTHON,
            VERSION_V5_3_3,
            opaque,
            FLAG_ONEWAY if oneway else 0,
            0,
            len(entries),
        )
        return b"".join((head, entries, body))

    def _values(self, request: SendRequest, queue_id: int) -> bytes:
        """Return the values of all entries in the order of their letters."""
        return b"%b%d%d%d%d%b0false%b" % (
            self._first_values,
            queue_id,
            request.sys_flag,
            request.born_timestamp_ms,
            request.flag,
            request.properties,
            b"true" if request.is_batch else b"false",
        )

    def command(self, request: SendRequest, queue_id: int, opaque: int, *, oneway: bool = False) -> RemotingCommand:
        """Return the same request before encoding, for hooks that add fields."""
        return decode_frame(self.encode(request, queue_id, opaque, oneway=oneway))


def _value(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _entry(letter: bytes, value: bytes) -> bytes:
    return _ENTRY.pack(1, letter, len(value)) + value


def _check_topic(topic: str) -> None:
    if topic not in _checked_topics:
        try:
            check_topic(topic)
        except InvalidName as error:
            raise ValueError(str(error)) from error
        if len(_checked_topics) < 10_000:  # bounded: names may come from outside
            _checked_topics.add(topic)


_checked_topics: set[str] = set()
_BYTES = (bytes, bytearray, memoryview)


def _check_body(body: bytes, rules: BodyRules) -> None:
    if not isinstance(body, _BYTES):
        raise TypeError(f"a body is bytes, not {type(body).__name__}: text has to be encoded")
    if len(body) > rules.body_bytes_max:
        raise ValueError(f"body of {len(body)} bytes is over the limit of {rules.body_bytes_max}")


def _is_sound(text: str, property_count: int) -> bool:
    """True if names and values hold neither separator: then each separator occurs once per property."""
    return text.count(names.NAME_SEPARATOR) == text.count(names.PROPERTY_SEPARATOR) == property_count


def _check_text(properties: dict[str, str], text: str) -> None:
    if not _is_sound(text, len(properties)):
        for name, value in properties.items():
            names.check_property(name, value)


def _encoded(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"properties of {len(encoded)} bytes are over the limit of {MAX_PROPERTIES_BYTES}")
    return encoded


def _properties_bytes(properties: dict[str, str]) -> bytes:
    text = encode_properties(properties)
    _check_text(properties, text)
    return _encoded(text)
