"""JSON bodies in stock's dialect: bounded and typed reads, and writes in exactly the forms that stock reads.

Reading: `read_object` gives a dict whose keys are text (object keys as compact JSON text, see
`ringmq.fastjson.reader`) and whose `$ref`s are resolved. `text`, `integer`, `boolean`, `items`, `mapping` read fields
with fastjson's conversions.

Writing: `write_body` is standard JSON but for two kinds of keys. Integer keys stay unquoted, and `MessageQueue` keys
are objects. Java's `Map<Long, ...>` and `Map<MessageQueue, ...>` have this form on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import BadBody
from ringmq.remoting.json_text import load_json
from ringmq.remoting.message_queue import MessageQueue

REQUEST_BYTES_MAX = 524_288
"""Limit of the JSON body of a request that any peer may send. A heartbeat of 1,000 subscriptions has 200 KB."""
REQUEST_CONTAINERS_MAX, REQUEST_VALUES_MAX = 32_768, 131_072
"""Limits of containers and values in such a body. The parser in C creates so many in some 10 ms.

A heartbeat of 1,000 subscriptions has 3,000 containers and 11,000 values.
"""
REQUEST_LIST_BYTES_MAX = 1_048_576
"""Limit of a body with a list of topics or groups, which tools send: some 6,000 topics."""
DIALECT_BYTES_MAX = 16_384
"""Limit of a request's body in fastjson's dialect: unquoted keys, objects as keys.

RocketMQ's clients send no such request.
"""
REFERRING_BYTES_MAX = 65_536
"""Limit of a request's body with `$ref`."""
MAX_REFS = 4096
"""Limit of references in one body. Stock's writers make a reference if the same object occurs twice."""
MAX_REF_VALUES = 100_000
"""Limit of the values that the references of one body resolve to, with text in pieces of TEXT_PIECE_CHARS.

A decoder reads an object once for each reference to it.
"""
TEXT_PIECE_CHARS = 64

_encode_string = json.encoder.encode_basestring


def bad_body(message: str, field: str, code: int = ResponseCode.SYSTEM_ERROR) -> BadBody:
    """Return the error for a body that cannot be read."""
    return BadBody(message, field=field, code=code)


# ---- reading ----


def read_object(body: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object in `body`, of any size. `name` stands for the body in errors. Raises `BadBody`."""
    return _read(body, name, None)


def _read(
    body: bytes, name: str, dialect_bytes_max: int | None, tolerant_bytes_max: int | None = None
) -> dict[str, Any]:
    try:
        value = load_json(body, dialect_bytes_max, tolerant_bytes_max)
    except ValueError as error:
        raise bad_body(f"{name}: body does not parse: {error}", name) from error
    if not isinstance(value, dict):
        raise bad_body(f"{name}: body is a {type(value).__name__}, not an object", name)
    if b'"$ref"' in body:
        _resolve(value, name)
    return value


def read_request(
    body: bytes, name: str, bytes_max: int = REQUEST_BYTES_MAX, tolerant_bytes_max: int | None = None
) -> dict[str, Any]:
    """Like `read_object`, for bodies that any peer may send. A body over `tolerant_bytes_max` is standard JSON.

    Raises `BadBody` beyond `bytes_max`. DIALECT_BYTES_MAX and REFERRING_BYTES_MAX bound bodies that the parser in C
    cannot read alone.
    """
    if len(body) > bytes_max:
        raise _too_large(f"{name}: body has {len(body)} bytes, at most {bytes_max} are read", name, bytes_max)
    if len(body) > REFERRING_BYTES_MAX and b'"$ref"' in body:
        limit = REFERRING_BYTES_MAX
        raise _too_large(f"{name}: body has {len(body)} bytes, with $ref at most {limit} are read", name, limit)
    containers = body.count(b"[") + body.count(b"{")
    if containers > REQUEST_CONTAINERS_MAX or containers + body.count(b",") > REQUEST_VALUES_MAX:
        limits = f"{REQUEST_CONTAINERS_MAX} objects and lists and {REQUEST_VALUES_MAX} values"
        raise _too_large(f"{name}: body has more than {limits}", name, REQUEST_VALUES_MAX)
    return _read(body, name, DIALECT_BYTES_MAX, tolerant_bytes_max)


def read_large(body: bytes, name: str) -> dict[str, Any]:
    """Like `read_object`, for bodies of brokers, of any size. Only the dialect has a limit, DIALECT_BYTES_MAX."""
    return _read(body, name, DIALECT_BYTES_MAX)


def _too_large(message: str, field: str, limit: int) -> BadBody:
    return BadBody(message, field=field, code=ResponseCode.SYSTEM_ERROR, limit=limit)


def text(value: dict[str, Any], key: str, default: str = "") -> str:
    """Return a text field, `default` for null and absent."""
    found = value.get(key)
    if found is None:
        return default
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str | int | float):
        return str(found)
    raise bad_body(f"field {key} is a {type(found).__name__}, not text", key)


def short_text(value: dict[str, Any], key: str, default: str, chars_max: int) -> str:
    """Return a text field of at most `chars_max` characters."""
    found = text(value, key, default)
    if len(found) > chars_max:
        message = f"field {key} = {found[:64]!r}... has {len(found)} characters, at most {chars_max} are taken"
        raise _too_large(message, key, chars_max)
    return found


def integer(value: dict[str, Any], key: str, default: int = 0) -> int:
    """Return an integer of at most 64 bits. Text with such a number is accepted."""
    found = value.get(key)
    if found is None:
        return default
    return as_integer(found, key)


def as_integer(found: object, key: str) -> int:
    """Return `found` as an integer of at most 64 bits."""
    if isinstance(found, int | float | str):
        try:
            number = int(found)
        except (ValueError, OverflowError):
            number = 1 << 64
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise bad_body(f"field {key} = {str(found)[:64]!r} is not a 64-bit integer", key)


def number(value: dict[str, Any], key: str, default: float = 0.0) -> float:
    """Return a number, maybe with a fraction."""
    found = value.get(key)
    if found is None:
        return default
    if isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    raise bad_body(f"field {key} = {str(found)[:64]!r} is not a number", key)


def boolean(value: dict[str, Any], key: str, default: bool = False) -> bool:
    """Return a boolean. The words true and false and the numbers 1 and 0 are accepted."""
    found = value.get(key)
    if found is None:
        return default
    if found in (True, 1, "true", "True", "TRUE"):
        return True
    if found in (False, 0, "false", "False", "FALSE"):
        return False
    raise bad_body(f"field {key} = {str(found)[:64]!r} is not a boolean", key)


def items(value: dict[str, Any], key: str) -> list[Any]:
    """Return a list field, empty for null and absent."""
    found = value.get(key)
    if found is None:
        return []
    if isinstance(found, list | tuple):  # a tuple is a list of one line of a config file
        return list(found)
    raise bad_body(f"field {key} is a {type(found).__name__}, not a list", key)


def objects(value: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list field."""
    for entry in items(value, key):
        if not isinstance(entry, dict):
            raise bad_body(f"field {key} holds a {type(entry).__name__}, not an object", key)
        yield entry


def mapping(value: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object field, empty for null and absent."""
    found = value.get(key)
    if found is None:
        return {}
    if isinstance(found, dict):
        return found
    raise bad_body(f"field {key} is a {type(found).__name__}, not an object", key)


def text_mapping(value: dict[str, Any], key: str) -> dict[str, str]:
    """Return an object field with text values, without nulls."""
    found = mapping(value, key)
    return {name: text(found, name) for name in found if found[name] is not None}


def queue_mapping(value: dict[str, Any], key: str) -> dict[MessageQueue, Any]:
    """Return a `Map<MessageQueue, X>` field in any form: object keys, quoted object keys, list of pairs."""
    found = value.get(key)
    if isinstance(found, list):
        pairs = [(pair[0], pair[1]) for pair in found if isinstance(pair, list) and len(pair) == 2]
        return {queue_from_json(queue): entry for queue, entry in pairs}
    result: dict[MessageQueue, Any] = {}
    for name, entry in mapping(value, key).items():
        result[queue_from_json(read_object(name.encode(), "MessageQueue"))] = entry
    return result


def queue_objects(value: dict[str, Any], key: str) -> dict[MessageQueue, dict[str, Any]]:
    """Return a `Map<MessageQueue, bean>` field."""
    found = queue_mapping(value, key)
    for entry in found.values():
        if not isinstance(entry, dict):
            raise bad_body(f"field {key} holds a {type(entry).__name__}, not an object", key)
    return found


def queue_from_json(value: object) -> MessageQueue:
    """The MessageQueue bean."""
    if not isinstance(value, dict):
        raise bad_body(f"a MessageQueue is a {type(value).__name__}, not an object", "MessageQueue")
    return MessageQueue(text(value, "topic"), text(value, "brokerName"), integer(value, "queueId"))


def _resolve(root: dict[str, Any], name: str) -> None:
    """Replace every `{"$ref": path}` by the object at the path.

    A reference may only name an object that is complete before it, so no cycle arises.
    """
    weights: dict[int, int] = {}
    count, stood_for = 0, 0

    def settle(value: Any) -> tuple[Any, int]:
        """Return the value with its references replaced, and its weight then. `weights` holds the complete objects."""
        nonlocal count, stood_for
        weight = 1
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str) and len(value) == 1:
                count += 1
                if count > MAX_REFS:
                    raise bad_body(f"{name}: more than {MAX_REFS} $ref", "$ref")
                target = _follow(root, reference)
                if id(target) not in weights:
                    raise bad_body(f"{name}: $ref {reference[:64]!r} names nothing that stands before it", "$ref")
                stood_for += weights[id(target)]
                if stood_for > MAX_REF_VALUES:
                    raise bad_body(f"{name}: its $ref stand for more than {MAX_REF_VALUES} values", "$ref")
                return target, weights[id(target)]
            for key in value:
                value[key], more = settle(value[key])
                weight += more
            weights[id(value)] = weight
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                value[index], more = settle(entry)
                weight += more
            weights[id(value)] = weight
        elif isinstance(value, str):
            weight += len(value) // TEXT_PIECE_CHARS
        return value, weight

    settle(root)


def _follow(root: Any, path: str) -> Any:
    """Return the object at a path like `$.consumerDataSet[0].subscriptionDataSet[1]`, None if there is none."""
    if not path.startswith("$"):
        return None
    value = root
    for step in path[1:].replace("[", ".").replace("]", "").split(".")[1:]:
        if isinstance(value, list) and step.isdecimal() and int(step[:9]) < len(value):
            value = value[int(step[:9])]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


# ---- writing ----


def write_body(value: Any) -> bytes:
    """Return compact JSON with unquoted integer keys and objects for MessageQueue keys."""
    return _write(value).encode("utf-8", "replace")


def write_browser_body(value: Any) -> bytes:
    """Return JSON as stock writes a route for new clients.

    Every key is quoted, maps are sorted by key, and text is escaped for browsers (non-ASCII as upper-case \\uXXXX,
    "/" as "\\/").
    """
    return _write_browser(value).encode()


def _write_browser(value: Any) -> str:
    if isinstance(value, str):
        return _encode_browser(value)
    if isinstance(value, dict):
        pairs = sorted(((str(key), entry) for key, entry in value.items()), key=lambda pair: pair[0])
        return "{" + ",".join([f"{_encode_browser(key)}:{_write_browser(entry)}" for key, entry in pairs]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_write_browser(entry) for entry in value]) + "]"
    return _write(value)


def _encode_browser(value: str) -> str:
    plain = _encode_string(value)
    if plain.isascii() and "/" not in plain and "\x7f" not in plain:
        return plain
    units = plain.replace("/", "\\/").encode("utf-16-be", "surrogatepass")
    codes = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    return "".join([chr(code) if code < 0x7F else f"\\u{code:04X}" for code in codes])


def _write(value: Any) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return _encode_string(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_write_key(key)}:{_write(entry)}" for key, entry in value.items()]) + "}"
    if isinstance(value, MessageQueue):
        return _write_queue(value)
    return "[" + ",".join([_write(entry) for entry in value]) + "]"


def _write_key(key: Any) -> str:
    if isinstance(key, str):
        return _encode_string(key)
    if isinstance(key, MessageQueue):
        return _write_queue(key)
    return str(int(key))


def _write_queue(queue: MessageQueue) -> str:
    name, topic = _encode_string(queue.broker_name), _encode_string(queue.topic)
    return f'{{"brokerName":{name},"queueId":{queue.queue_id},"topic":{topic}}}'
