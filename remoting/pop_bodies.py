"""Headers and bodies of RingMQ's own requests of operators: the open messages of a group (270007), and the end of POP
at a broker (270008). Stock brokers do not know them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from ringmq.remoting import json_body
from ringmq.remoting.headers import Header, Int32, camel_case, header

T = TypeVar("T")

ROWS_MAX: Final = 64
"""Rows of each list in an answer."""


@header
class PopInflightRequestHeader(Header):
    """270007. Without `topic` all topics. `max_rows`: at most ROWS_MAX."""

    consumer_group: str
    topic: str | None = None
    max_rows: Int32 | None = None


@dataclass(frozen=True, slots=True)
class OpenPop:
    """Messages that one pop has given and that are open. Times are in ms, from now."""

    topic: str
    """That in which they lie: messages that came again are in a topic of retries."""
    queue_id: int
    queue_offset: int
    """Of the first one."""
    messages: int
    age_ms: int
    due_in_ms: int
    """Below 0: the time is over, and copies are on their way."""
    client: str
    """HOST:PORT, or a number if the worker does not know the connection since it was started. "" is unknown."""
    attempts: int = 0
    """Pops that have given the first one, with this one. 0: its record is not in memory."""


@dataclass(frozen=True, slots=True)
class QueueShare:
    """Open messages of a queue. Times are in ms, from now."""

    topic: str
    queue_id: int
    messages: int
    oldest_ms: int
    due_in_ms: int = 0
    """Until the next one comes again."""


@dataclass(frozen=True, slots=True)
class ClientShare:
    """Open messages of a connection. Times are in ms, from now."""

    client: str
    messages: int
    oldest_ms: int
    due_in_ms: int = 0
    """Until the next one comes again."""


@dataclass(frozen=True, slots=True)
class PopInflight:
    """The answer to 270007. Each list has the first rows, `queues` and `clients` those with the most messages."""

    messages: int
    """Messages that consumers have, or whose time is over and that have no copy yet."""
    due: int
    """Of them: those whose time is over."""
    returned: int
    """Messages beside them that no consumer has received: the next pop begins with them."""
    pops: int
    """Pops of single queues that have open messages."""
    queue_count: int
    client_count: int
    oldest: tuple[OpenPop, ...] = ()
    queues: tuple[QueueShare, ...] = ()
    clients: tuple[ClientShare, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields. Keys are the field names in camelCase."""
        value = {camel_case(entry.name): getattr(self, entry.name) for entry in fields(self)}
        return value | {key: [_to_json(row) for row in value[key]] for key in ("oldest", "queues", "clients")}

    def encode(self) -> bytes:
        """The body."""
        return json_body.write_body(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> PopInflight:
        """Return the value in the body, without the fields of newer brokers. Raises `BadBody`."""
        value = json_body.read_object(body, "PopInflight")
        rows = {"oldest": OpenPop, "queues": QueueShare, "clients": ClientShare}
        found: dict[str, Any] = {key: _rows(kind, value, key) for key, kind in rows.items()}
        for name in [entry.name for entry in fields(cls) if entry.name not in rows]:
            found[name] = json_body.integer(value, camel_case(name))
        return cls(**found)


DRAIN: Final = "drain"
"""No message is given. Once no consumer has any, the log is made ready for other versions."""
DRAIN_NOW: Final = "drain-now"
"""The same, whatever consumers have."""
RESUME: Final = "resume"
"""Messages are given again."""
LOOK: Final = "look"
CHOICES: Final = (DRAIN, DRAIN_NOW, RESUME, LOOK)

SERVING: Final = "serving"
WAITING: Final = "waiting"
"""No message is given, and consumers have some."""
CLOSING: Final = "closing"
"""Records and offsets are written."""
DRAINED: Final = "drained"
"""An older version can serve the store after a clean stop."""


@header
class PopDrainRequestHeader(Header):
    """270008. `choice`: one of CHOICES."""

    choice: str


@dataclass(frozen=True, slots=True)
class PopDrain:
    """The answer to 270008."""

    state: str
    messages: int
    """Messages that consumers have, or that have no copy yet."""
    progress: str = ""
    """The step that goes on while the state is CLOSING."""
    failure: str = ""
    """The cause for which the last try has failed."""

    def encode(self) -> bytes:
        """The body."""
        return json_body.write_body(asdict(self))

    @classmethod
    def decode(cls, body: bytes) -> PopDrain:
        """Return the value in the body, without the fields of newer brokers. Raises `BadBody`."""
        value = json_body.read_object(body, "PopDrain")
        texts = [json_body.text(value, name) for name in ("state", "progress", "failure")]
        return cls(texts[0], json_body.integer(value, "messages"), *texts[1:])


def _to_json(row: Any) -> dict[str, Any]:
    return {camel_case(name): value for name, value in asdict(row).items()}


def _rows(kind: type[T], value: dict[str, Any], key: str) -> tuple[T, ...]:
    """The rows of a list. A field that is missing is "" or 0."""
    return tuple(
        kind(**{
            entry.name: json_body.text(row, camel_case(entry.name))
            if entry.type == "str" else json_body.integer(row, camel_case(entry.name))
            for entry in fields(kind)  # type: ignore[arg-type]
        })
        for row in json_body.objects(value, key)
    )  # fmt: skip
