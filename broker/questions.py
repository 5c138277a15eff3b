"""Control's answers to questions of services. Those of guests are in the tables that their rows name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ringmq.broker.core import Broker
from ringmq.broker.requests.questions import Answerer, Control
from ringmq.broker.requests.request import Connection
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.broker.table_saves import TableSaves
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.errors import PlaneFullError
from ringmq.ipc.guests import parts
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.remoting import json_body
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError


class Questions:
    """Answers the questions of services: see `ringmq.broker.requests.questions`."""

    def __init__(
        self, plane: Plane, broker: Broker, inbox: Inbox, saves: TableSaves, backlog_bytes: Callable[[], int]
    ) -> None:
        self._plane, self._broker, self._inbox, self._saves = plane, broker, inbox, saves
        self.backlog_bytes = backlog_bytes
        self._answerers: dict[int, Answerer] = {lib.RMQ_INBOX_TOPICS: _make_topics}
        for table in parts("questions"):
            self._answerers |= table

    @property
    def types(self) -> Collection[int]:
        """The types of asks that are questions of services."""
        return self._answerers.keys()

    def take(self, record: Ask, now_ms: int) -> None:
        """Answer a question."""
        self._answerers[record.type](self, record, now_ms)

    def client_of(self, producer_group: str) -> Connection | None:
        """See Control."""
        return self._broker.producers.next_of(producer_group)

    def push(self, connection: Connection, command: RemotingCommand) -> None:
        """See Control."""
        self._broker.outbox.push(connection, command)

    def producer_of(self, client_id: str) -> Connection | None:
        """See Control."""
        return self._broker.producers.of_client(client_id)

    def call(
        self,
        connection: Connection,
        client_id: str,
        command: RemotingCommand,
        now_ms: int,
        told: Callable[[RemotingCommand | str], None],
    ) -> None:
        """See Control."""
        self._broker.forwards.call(self._broker.outbox, connection, client_id, command, now_ms, told)

    def commit_offset(self, group: str, topic: str, offset: int, now_ms: int, queue_id: int = 0) -> None:
        """See Control."""
        self._broker.offsets.put(group, topic, queue_id, offset, now_ms)

    def make_retry_topics(self, asked: RetryAsk, now_ms: int) -> None:
        """See Control."""
        self._broker.retry_topics.make(asked, now_ms)

    def make_for_group(self, group: str, topics: Sequence[TopicConfig], now_ms: int) -> None:
        """See Control."""
        for topic in topics:
            if topic.topic_name not in self._broker.topics:
                self._broker.deletions.check_gone(topic.topic_name)
        self._broker.new_entries.make(self._broker.new_entries.group_of(group), topics, now_ms)

    def begin_offset(self, group: str, topic: str, now_ms: int) -> None:
        """See Control."""
        if self._broker.offsets.get(group, topic, 0) < 0:
            self._broker.offsets.put(group, topic, 0, 0, now_ms)

    def note_offsets_to_save(self) -> None:
        """See Control."""
        self._broker.offsets.note_holders_moved()

    def make_topic(self, topic: TopicConfig, now_ms: int) -> None:
        """See Control."""
        self._broker.new_entries.make_for_service(topic, now_ms)

    def answer(self, record: Ask, remark: str) -> None:
        """See Control."""
        self._inbox.answer_role(record, remark.encode())

    def answer_when_saved(self, record: Ask, make: Callable[[], None]) -> None:
        """See Control."""
        remark = ""
        try:
            with self._broker.audit.caused_by(f"worker {self._name_of(record.role)}", "topics for messages"):
                make()
        except (RequestError, PlaneFullError) as error:
            remark = str(error)
        if not self._saves.is_behind:
            self.answer(record, remark)
        else:
            self._saves.hold([], lambda effects: self._answer_saved(record, remark), is_change=True)

    def _answer_saved(self, record: Ask, remark: str) -> None:
        """Answer the service after the save of the tables."""
        if not remark and self._saves.has_failed:
            remark = "config files cannot be written: a restart would lose the topics"
        self.answer(record, remark)

    def _name_of(self, role: int) -> str:
        """The name of the worker with this role."""
        return bytes(ffi.string(self._plane.role(role).name)).decode()


def _make_topics(control: Control, record: Ask, now_ms: int) -> None:
    """Make system topics for a service. A start must know a topic that holds a decision of the service."""

    def make() -> None:
        for value in json_body.items(json_body.read_object(record.payload, "topics"), "topics"):
            control.make_topic(TopicConfig.from_json(value), now_ms)

    control.answer_when_saved(record, make)
