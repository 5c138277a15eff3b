"""What control and ha tell each other: one JSON object each, at most 1020 bytes.

    control -> ha  Plane.ha_order_put   {"order": "identity" | "master", ...}
    ha -> control  Plane.ha_news_put    {"news": "longer" | "peer" | "link", ...}

Fields are those of the dataclasses; a field that is missing has its default, a field that is not known is passed over,
so that a worker started by an upgraded supervisor understands its elder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeVar

JSON_BYTES_MAX = 1020
STOCK_BROKER_ID = -1
"""The id of a slave that did not say one."""


class OrderError(ValueError):
    """Bytes that are no order or news of ours; the message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A slave has said who it is (request 270002) and was accepted: its HA connection will come from host:port.

    level: "cached" or "flushed", what its reports stand for. start_id: of its process, as hexadecimal text.
    """

    host: str
    port: int
    broker_id: int
    room: str = ""
    level: str = "cached"
    start_id: str = ""


@dataclass(frozen=True, slots=True)
class Master:
    """Where a slave's master is: its HA port, and its broker port for the private handshake ("" = not known:
    what was said before for the same HA port stands).

    ha = "" takes the address back: the slave stops looking for a master.
    """

    ha: str
    broker: str = ""


@dataclass(frozen=True, slots=True)
class LongerSlave:
    """A slave without a private handshake asked for an offset beyond this master's end: writes must be held."""

    host: str
    port: int
    offset: int
    append_offset: int


@dataclass(frozen=True, slots=True)
class PeerNews:
    """A slave's connection changed. event: "transfer" (its stream began at `offset`) or "closed" (`why`).

    is_named: haAllowedNetworks names its host.
    """

    host: str
    port: int
    event: str
    broker_id: int = STOCK_BROKER_ID
    offset: int = 0
    why: str = ""
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class LinkNews:
    """A slave's connection to its master changed. event: "transfer", or with `why` "closed", "held", "waits"."""

    master: str
    event: str
    stock: bool = False
    why: str = ""


Order = Identity | Master
News = LongerSlave | PeerNews | LinkNews
_ORDERS: dict[str, type[Order]] = {"identity": Identity, "master": Master}
_NEWS: dict[str, type[News]] = {"longer": LongerSlave, "peer": PeerNews, "link": LinkNews}
_Message = TypeVar("_Message")


def order_bytes(order: Order) -> bytes:
    """For Plane.ha_order_put. OrderError when it is over JSON_BYTES_MAX."""
    return _encode("order", _ORDERS, order)


def news_bytes(news: News) -> bytes:
    """For Plane.ha_news_put. OrderError when it is over JSON_BYTES_MAX."""
    return _encode("news", _NEWS, news)


def order_of(data: bytes) -> Order:
    """What Plane.ha_order_take gave; OrderError."""
    return _decode("order", _ORDERS, data)


def news_of(data: bytes) -> News:
    """The payload of an RMQ_INBOX_HA record; OrderError."""
    return _decode("news", _NEWS, data)


def read_object(data: bytes) -> dict[str, Any]:
    """A JSON object; OrderError for anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise OrderError(f"no JSON: {error}: {data[:80]!r}") from None
    if not isinstance(found, dict):
        raise OrderError(f"no JSON object: {data[:80]!r}")
    return found


def read_fields(kind: type[_Message], found: Mapping[str, Any], **given: Any) -> _Message:
    """A dataclass of whole numbers, text and booleans from a JSON object, `given` ones apart. OrderError."""
    values: dict[str, Any] = dict(given)
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.name in given:
            continue
        if entry.name not in found:
            if entry.default is MISSING:
                raise OrderError(f"{kind.__name__} without {entry.name}")
            continue
        value = found[entry.name]
        wanted = {"int": int, "str": str, "bool": bool}[str(entry.type)]
        if type(value) is not wanted:
            raise OrderError(f"{kind.__name__}.{entry.name} is {value!r}, wanted is {wanted.__name__}")
        values[entry.name] = value
    return kind(**values)


def _encode(word: str, kinds: Mapping[str, type[Any]], message: Any) -> bytes:
    name = next(name for name, kind in kinds.items() if kind is type(message))
    data = json.dumps({word: name, **asdict(message)}, separators=(",", ":")).encode()
    if len(data) > JSON_BYTES_MAX:
        raise OrderError(f"{word} {name} of {len(data)} bytes, at most {JSON_BYTES_MAX} fit")
    return data


def _decode(word: str, kinds: Mapping[str, type[_Message]], data: bytes) -> _Message:
    found = read_object(data)
    name = found.get(word)
    if not isinstance(name, str) or name not in kinds:
        raise OrderError(f"no {word} that this build knows: {data[:80]!r}")
    return read_fields(kinds[name], found)
