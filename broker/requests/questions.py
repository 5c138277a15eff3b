"""Questions that guests ask control: a guest's table maps the type of an ask to the function that answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ringmq.broker.requests.request import Connection
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.ipc.asks import Ask
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig


class Control(Protocol):
    """The parts of control that questions need."""

    def client_of(self, producer_group: str) -> Connection | None:
        """One live client of the group. Each call takes the next one."""

    def push(self, connection: Connection, command: RemotingCommand) -> None:
        """Send a request to a client."""

    def producer_of(self, client_id: str) -> Connection | None:
        """The newest connection on which a client is in a producer group."""

    def call(
        self,
        connection: Connection,
        client_id: str,
        command: RemotingCommand,
        now_ms: int,
        told: Callable[[RemotingCommand | str], None],
    ) -> None:
        """Send a request to a client. `told` gets its answer, or the reason why there is none, within 10 s."""

    def backlog_bytes(self) -> int:
        """The largest number of bytes that wait for one read worker."""

    def commit_offset(self, group: str, topic: str, offset: int, now_ms: int, queue_id: int = 0) -> None:
        """Commit an offset. Raises RequestError and PlaneFullError."""

    def note_offsets_to_save(self) -> None:
        """Have the next save of tables write the consumer offsets, too."""

    def make_topic(self, topic: TopicConfig, now_ms: int) -> None:
        """Make a topic that is missing. Raises RequestError and PlaneFullError."""

    def make_for_group(self, group: str, topics: Sequence[TopicConfig], now_ms: int) -> None:
        """Make a group, if clients may make it, and topics that it needs, within the limits of clients. Raises
        RequestError and PlaneFullError."""

    def begin_offset(self, group: str, topic: str, now_ms: int) -> None:
        """Commit offset 0 of queue 0 if the group has none there. Raises RequestError and PlaneFullError."""

    def make_retry_topics(self, asked: RetryAsk, now_ms: int) -> None:
        """See `RetryTopics.make`."""

    def answer(self, record: Ask, remark: str) -> None:
        """Answer a question: empty, or the reason of a refusal."""

    def answer_when_saved(self, record: Ask, make: Callable[[], None]) -> None:
        """Make topics and groups, and answer once they are in the plane and on disk. A RequestError or PlaneFullError
        of `make` is the answer."""


Answerer = Callable[[Control, Ask, int], None]
