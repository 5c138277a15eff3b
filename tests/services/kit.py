"""What tests of services share: requests of clients, topics that are there, and a control that makes topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringmq.broker.requests.request import Connection, Request
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig
from ringmq.services.topic_creator import Then

NOW = 1_700_000_000_000
CLIENT = Connection(0, 1, 7, 1, "127.0.0.1", 4711)


def request_of(
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    now_ms: int = NOW,
    connection: Connection = CLIENT,
) -> Request:
    """A request of a client."""
    return Request(RemotingCommand(int(code), ext_fields=dict(fields or {}), body=body), connection, now_ms, pending=3)


def client(number: int, host: str = "127.0.0.1") -> Connection:
    """One of many connections."""
    return Connection(0, 1, number, 1, host, 4711)


@dataclass
class FoundTopics:
    """Topics that a service finds."""

    names: set[str] = field(default_factory=set)

    def find(self, name: str) -> str | None:
        return name if name in self.names else None


@dataclass
class Maker:
    """Keeps what control is asked for until the test answers it."""

    asked: list[tuple[Sequence[TopicConfig], Then]] = field(default_factory=list)

    def create(self, topics: Sequence[TopicConfig], now_ms: int, then: Then) -> None:
        self.asked.append((topics, then))
