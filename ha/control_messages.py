"""The messages of control and ha to each other: one JSON object each, at most 1020 bytes.

    control -> ha  Plane.ha_command_put   {"order": "identity" | "master" | "verdict", ...}
    ha -> control  Plane.ha_event_put    {"news": "longer" | "peer" | "link" | "accepted", ...}

Fields are those of the structs. A missing field has its default, an unknown field is ignored. So a worker of an
upgraded build understands a process of the older one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import FieldInfo, asdict, fields

JSON_BYTES_MAX = 1020
REASON_CHARS_MAX = 140
"""A reason of this length fits into an event or a command, whatever its characters."""
STOCK_BROKER_ID = -1
"""The id of a slave that has sent none."""


class MessageError(ValueError):
    """Bytes that are no command or event. The message names the defect."""


class Identity(Struct, frozen=True):
    """A slave has identified itself (request 270002) and was accepted. Its HA connection will come from host:port.

    level: "cached" or "flushed", the level of its reports. start_id: of its process, as hexadecimal text.
    """

    host: str
    port: int
    broker_id: int
    room: str = ""
    level: str = "cached"
    start_id: str = ""


class Master(Struct, frozen=True):
    """The addresses of a slave's master: its HA port, and its broker port for the private handshake.

    "" as broker port = unknown; the earlier address for the same HA port stays valid. ha = "" withdraws the address:
    the slave stops looking for a master.
    """

    ha: str
    broker: str = ""


class LongerSlave(Struct, frozen=True):
    """A slave without a private handshake has asked for an offset beyond this master's end. Writes must be held."""

    host: str
    port: int
    offset: int
    append_offset: int


class PeerNews(Struct, frozen=True):
    """A slave's connection has changed. event: "transfer" (its stream began at `offset`) or "closed" (`why`).

    is_named: haAllowedNetworks names its host.
    """

    host: str
    port: int
    event: str
    broker_id: int = STOCK_BROKER_ID
    offset: int = 0
    why: str = ""
    is_named: bool = False


class LinkNews(Struct, frozen=True):
    """A slave's connection to its master has changed. event: "transfer", or with `why` "closed", "held", "waits"."""

    master: str
    event: str
    stock: bool = False
    why: str = ""


class AcceptedNews(Struct, frozen=True):
    """A master has accepted this slave. Verdict answers. attempt: of the slave, counted by its process.

    master, broker: HA port and broker port, "" = unknown. stock: the master knows no epochs.
    """

    attempt: int
    master: str
    broker: str
    stock: bool = False


class Verdict(Struct, frozen=True):
    """The answer to AcceptedNews. why_not: the reason not to report to that master, "" = the slave may report."""

    attempt: int
    why_not: str = ""


Command = Identity | Master | Verdict
News = LongerSlave | PeerNews | LinkNews | AcceptedNews
_COMMANDS: dict[str, type[Command]] = {"identity": Identity, "master": Master, "verdict": Verdict}
_NEWS: dict[str, type[News]] = {
    "longer": LongerSlave, "peer": PeerNews, "link": LinkNews, "accepted": AcceptedNews
}  # fmt: skip
_Message = TypeVar("_Message", bound=Struct)


def command_bytes(command: Command) -> bytes:
    """Encode a command for Plane.ha_command_put. Raises MessageError if it exceeds JSON_BYTES_MAX."""
    return _encode("order", _COMMANDS, command)


def news_bytes(news: News) -> bytes:
    """Encode an event for Plane.ha_event_put. Raises MessageError if it exceeds JSON_BYTES_MAX."""
    return _encode("news", _NEWS, news)


def command_of(data: bytes) -> Command:
    """Decode the result of Plane.ha_command_take. Raises MessageError."""
    return _decode("order", _COMMANDS, data)


def news_of(data: bytes) -> News:
    """Decode the payload of an RMQ_INBOX_HA record. Raises MessageError."""
    return _decode("news", _NEWS, data)


def read_object(data: bytes) -> dict[str, Any]:
    """Decode a JSON object. Raises MessageError for anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"no JSON: {error}: {data[:80]!r}") from None
    if not isinstance(found, dict):
        raise MessageError(f"no JSON object: {data[:80]!r}")
    return found


def read_fields(kind: type[_Message], found: Mapping[str, Any], **given: Any) -> _Message:
    """A struct of whole numbers, text and booleans from a JSON object, except `given` fields. Raises
    MessageError."""
    values: dict[str, Any] = dict(given)
    for entry in _fields(kind):
        if entry.name in given:
            continue
        if entry.name not in found:
            if entry.required:
                raise MessageError(f"{kind.__name__} without {entry.name}")
            continue
        value = found[entry.name]
        if type(value) is not entry.type:
            raise MessageError(f"{kind.__name__}.{entry.name} is {value!r}, wanted is {entry.type.__name__}")
        values[entry.name] = value
    return kind(**values)


@cache
def _fields(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    """The fields with their types, which msgspec finds out from text at each call, in some 0.1 ms."""
    return fields(kind)


def _encode(word: str, kinds: Mapping[str, type[Any]], message: Any) -> bytes:
    name = next(name for name, kind in kinds.items() if kind is type(message))
    data = json.dumps({word: name, **asdict(message)}, separators=(",", ":")).encode()
    if len(data) > JSON_BYTES_MAX:
        raise MessageError(f"{word} {name} of {len(data)} bytes, at most {JSON_BYTES_MAX} fit")
    return data


def _decode(word: str, kinds: Mapping[str, type[_Message]], data: bytes) -> _Message:
    found = read_object(data)
    name = found.get(word)
    if not isinstance(name, str) or name not in kinds:
        raise MessageError(f"unknown {word}: {data[:80]!r}")
    return read_fields(kinds[name], found)
