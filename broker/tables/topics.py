"""The broker's topics: system topics, automatic creation, changes, and the file `topics.json`.

Every change steps the DataVersion, marks the file as dirty and requests a registration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.tables import file_entries, protocols
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.encoded_entries import EncodedEntries
from ringmq.broker.tables.file_entries import LeaveOut
from ringmq.broker.tables.publication import QUEUES_MAX, PlaneTables
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting import json_body, names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import PERM_READ_WRITE, Perm
from ringmq.store.config import parse_delay_levels
from ringmq.store.record_values import is_topic_name

FILE = "topics.json"
QUEUE_TYPE = "queue.type"
BATCH_QUEUE = "BatchCQ"
CLEANUP_POLICY = "cleanup.policy"
COMPACTION = "COMPACTION"
NAMED_MAX = 10
BENCHMARK_QUEUES = 1024
SCHEDULE_QUEUES = 18


class TopicTable:
    """All topics by name. Changes are published in the plane at once."""

    def __init__(
        self,
        tables: PlaneTables,
        on_change: Callable[[str], None],
        client_names: ClientNames,
        audit: AuditTrail | None = None,
    ) -> None:
        """`audit`: gets each change. None for tables that are only loaded."""
        self._audit = AuditTrail() if audit is None else audit
        self._tables = tables
        self._client_names = client_names
        self._on_change = on_change
        self._topics: dict[str, TopicConfig] = {}
        self._texts = EncodedEntries(FILE, "topicConfigTable")
        self._sorted: list[str] | None = None
        self.own_topics: frozenset[str] = frozenset()
        """System topics of this broker, cluster and broker name included. They cannot be deleted."""
        self.data_version = DataVersion()
        self.epoch = 0
        """Of this master, for its registrations (`begin_epoch`). 0 on a slave, whose version is its master's."""
        self.dirty = False
        self.changes = 0
        """Number of changes since the start."""
        self.send_cold = False
        """True if every send is cold, because the broker does not accept sends yet."""
        self.pull_cold = False
        """True if every pull is cold, because the broker is not readable."""

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def names(self) -> list[str]:
        """All topics, sorted."""
        if self._sorted is None:
            self._sorted = sorted(self._topics)
        return self._sorted

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration."""
        return self._topics.get(topic)

    def put(self, config: TopicConfig, now_ms: int) -> bool:
        """Make or change a topic. False if nothing differs. Raises RequestError for an invalid number of queues, and
        PlaneFullError if the shared tables are full."""
        old = self._topics.get(config.topic_name)
        if old == config:
            return False
        check_possible(config)
        self._tables.publish_topic(config, self.flags(config))
        self._topics[config.topic_name] = config
        self._audit.add(Kind.TOPIC, config.topic_name, None if old is None else old.to_json(), config.to_json())
        self._changed(config.topic_name, now_ms)
        return True

    def delete(self, topic: str, now_ms: int) -> bool:
        """Delete a topic. False if there was none."""
        old = self._topics.pop(topic, None)
        if old is None:
            return False
        self._audit.add(Kind.TOPIC, topic, old.to_json(), None)
        self._client_names.delete_topic(topic)
        self._tables.withdraw_topic(topic)
        self._changed(topic, now_ms)
        return True

    def planned_for_send(self, topic: str, template_name: str, queues_wanted: int, sys_flag: int) -> TopicConfig | None:
        """The topic that a send would make (`createTopicInSendMessageMethod`). None if the template forbids it."""
        template = self._topics.get(template_name)
        if template is None or not template.perm & Perm.INHERIT:
            return None
        queues = max(0, min(queues_wanted, template.write_queue_nums))
        return TopicConfig(
            topic,
            queues,
            queues,
            template.perm & ~Perm.INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=sys_flag,
        )

    def flags(self, config: TopicConfig) -> int:
        """RMQ_TOPIC_* beyond LIVE: the reasons why requests are cold, and reserved topics."""
        name = config.topic_name
        batch = is_batch_topic(config)
        compacted = config.attributes.get(CLEANUP_POLICY) == COMPACTION
        cold = (
            self.send_cold
            or batch
            or names.is_send_forbidden(name)
            or names.is_retry_topic(name)
            or names.is_dlq_topic(name)
            or compacted
        )
        return (
            protocols.TOPIC_SEND_COLD * cold
            | protocols.TOPIC_PULL_COLD * (batch or self.pull_cold or name in names.STAGED_TOPICS)
            | protocols.TOPIC_BATCH_QUEUE * batch
            | protocols.TOPIC_RESERVED * (compacted or self.is_system(name))
        )

    def move_gates(self, config: BrokerConfig, now_ms: int) -> bool:
        """Open or close the gates for sends and pulls by configuration and time. True if that changed anything."""
        permission = config.broker_permission
        before = self.send_cold, self.pull_cold
        self.send_cold = now_ms < config.start_accept_send_request_time_stamp or not permission & Perm.WRITE
        self.pull_cold = not permission & Perm.READ
        return before != (self.send_cold, self.pull_cold)

    def republish(self) -> None:
        """Publish every topic again, after a change of the inputs of `flags`."""
        for config in self._topics.values():
            self._tables.publish_topic(config, self.flags(config))

    def body(self) -> TopicConfigTable:
        """A copy of all topics."""
        return TopicConfigTable(dict(self._topics), self.data_version.copy())

    @property
    def version(self) -> object:
        """A value that differs whenever the text of all topics differs."""
        return self.changes, self.data_version.copy()

    def body_json(self, topics: Iterable[str] | None = None) -> bytes:
        """The text of code 21 and of registrations: all topics, or the named ones that exist.

        Each topic's part is kept: to encode ten thousand takes 75 ms, to join them 2 ms.
        """
        return finish(self.body_steps(topics))

    def body_steps(self, topics: Iterable[str] | None = None) -> Steps[bytes]:
        """`body_json` in steps, of the topics at the first step."""
        chosen = self._topics if topics is None else {name: self._topics[name] for name in topics if name in self}
        frame = json_body.write_body(TopicConfigTable({}, self.data_version).to_json())
        head, _, tail = frame.partition(b'"topicConfigTable":{}')
        text = bytearray(head)
        yield from self._texts.add_member(text, list(chosen.items()))
        return bytes(text + tail)

    def file_text(self) -> str:
        """The content of topics.json."""
        return "".join(self.file_parts())

    def file_parts(self) -> Iterator[str]:
        """`file_text` in parts, of the topics at the first part."""
        return self._texts.file_parts({"dataVersion": self.data_version.to_json()}, list(self._topics.items()))

    def load(
        self, value: dict[str, Any], config: BrokerConfig, now_ms: int, leave_out: LeaveOut = file_entries.ignore
    ) -> None:
        """Load topics.json and add this broker's system topics (stock replaces them at each start, too)."""
        self.data_version = file_entries.version_of(value, now_ms, leave_out)
        table = json_body.mapping(value, "topicConfigTable")
        self._topics.update(file_entries.possible_entries(table, "topic", _from_file, leave_out))
        for name in self._tables.withdrawn_topics():  # the dead process had not saved the deletion yet
            self._topics.pop(name, None)
        system = {topic.topic_name: topic for topic in system_topics(config)}
        for name, topic in system.items():
            known = self._topics.get(name)
            needs_queues = name == names.SCHEDULE_TOPIC and known and known.queue_count < topic.queue_count
            if name == names.AUTO_CREATE_TOPIC or known is None or needs_queues:
                self._topics[name] = topic
        template = self._topics.get(names.AUTO_CREATE_TOPIC)
        if template is not None and not config.auto_create_topic_enable:
            template.perm &= ~Perm.INHERIT
        self.own_topics = frozenset(system)
        for topic in self._tables.live_topics():
            self._topics.setdefault(topic.topic_name, topic)
        self._sorted = None
        self.republish()
        self.dirty = True

    def offer_template(self, config: BrokerConfig, now_ms: int) -> None:
        """autoCreateTopicEnable was switched on in a running broker. Make the template topic that the start has left
        out."""
        for topic in system_topics(config):
            if topic.topic_name == names.AUTO_CREATE_TOPIC:
                self.own_topics |= {topic.topic_name}
                self.put(topic, now_ms)

    def is_system(self, topic: str) -> bool:
        """True if clients may neither create nor delete it."""
        return topic in self.own_topics or names.is_system_topic(topic)

    def begin_epoch(self, epoch: int, now_ms: int) -> None:
        """This broker is a master of this epoch. It is the state version of each registration: a name server refuses an
        older master that still runs, because its state version is lower."""
        self.epoch = epoch
        if epoch > self.data_version.state_version:
            self.step_version(now_ms)

    def step_version(self, now_ms: int) -> None:
        """Step the version of the table."""
        self.data_version.next(now_ms, self.epoch)
        self.dirty = True

    def _changed(self, topic: str, now_ms: int) -> None:
        self._texts.forget(topic)
        self._sorted = None
        self.step_version(now_ms)
        self.changes += 1
        self._on_change(topic)


def planned_for_group(topic: str, queues: int, sys_flag: int = 0, *, order: bool = False) -> TopicConfig:
    """A retry or dead letter topic that a group needs (`createTopicInSendMessageBackMethod`)."""
    return TopicConfig(topic, queues, queues, int(PERM_READ_WRITE), topic_sys_flag=sys_flag, order=order)


def is_batch_topic(config: TopicConfig) -> bool:
    """True if the topic has BatchConsumeQueues."""
    return config.attributes.get(QUEUE_TYPE) == BATCH_QUEUE


def compaction_notice(topics: Iterable[TopicConfig]) -> str | None:
    """A line about topics of an existing store that ask for compaction. None if there are none. Names at most
    NAMED_MAX."""
    names_found = sorted(topic.topic_name for topic in topics if topic.attributes.get(CLEANUP_POLICY) == COMPACTION)
    if not names_found:
        return None
    more = f" and {len(names_found) - NAMED_MAX} more" if len(names_found) > NAMED_MAX else ""
    return (
        f"{CLEANUP_POLICY} = {COMPACTION} has no effect, compaction is not built yet: topics "
        f"{', '.join(names_found[:NAMED_MAX])}{more} keep every message until retention takes it"
    )


def _from_file(name: str, entry: Any) -> TopicConfig:
    """The topic of an entry. Its key is its name, as in stock, whatever topicName says."""
    config = TopicConfig.from_json(json_body.mapping({name: entry}, name))
    config.topic_name = name
    check_possible(config)
    return config


def check_topic_name(topic: str) -> None:
    """Raise RequestError for a name that no folder can have. Files and bodies of brokers may hold any."""
    if not is_topic_name(topic.encode("utf-8", "surrogatepass")):
        raise RequestError(
            f"topic {topic[:80]!r}: no folder can have this name",
            field="topicName",
            code=ResponseCode.INVALID_PARAMETER,
        )


def check_possible(config: TopicConfig) -> None:
    """Raise RequestError for a name that no folder can have, and for an invalid number of queues."""
    check_topic_name(config.topic_name)
    for field, value in (("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)):
        if not 0 <= value <= QUEUES_MAX:
            raise RequestError(
                f"topic {config.topic_name}: {field} = {value} is outside 0..{QUEUES_MAX}",
                field=field,
                code=ResponseCode.INVALID_PARAMETER,
                limit=QUEUES_MAX,
            )


def describe(config: TopicConfig) -> str:
    """The text of stock for a topic in remarks."""
    perm = "".join(letter if config.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    attributes = ", ".join(f"{name}={value}" for name, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )


def system_topics(config: BrokerConfig) -> Iterator[TopicConfig]:
    """The system topics of a broker (spec remoting 7.11)."""
    inherit = int(PERM_READ_WRITE | Perm.INHERIT)
    yield TopicConfig(names.SELF_TEST_TOPIC, 1, 1)
    if config.auto_create_topic_enable:
        queues = config.default_topic_queue_nums
        yield TopicConfig(names.AUTO_CREATE_TOPIC, queues, queues, inherit)
    yield TopicConfig(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES, BENCHMARK_QUEUES)
    shared = int(PERM_READ_WRITE | Perm.INHERIT) if config.cluster_topic_enable else int(Perm.INHERIT)
    yield TopicConfig(config.broker_cluster_name, 16, 16, shared)
    own = int(PERM_READ_WRITE | Perm.INHERIT) if config.broker_topic_enable else int(Perm.INHERIT)
    yield TopicConfig(config.broker_name, 1, 1, own)
    yield TopicConfig(names.OFFSET_MOVED_EVENT_TOPIC, 1, 1)
    levels = max(SCHEDULE_QUEUES, len(parse_delay_levels(config.message_delay_level)))
    yield TopicConfig(names.SCHEDULE_TOPIC, levels, levels)
    if config.trace_topic_enable:
        yield TopicConfig(config.msg_trace_topic_name, 1, 1)
    yield TopicConfig(names.reply_topic(config.broker_cluster_name), 1, 1)
    yield TopicConfig(names.revive_topic(config.broker_cluster_name), config.revive_queue_num, config.revive_queue_num)
    yield TopicConfig(names.sync_member_topic(config.broker_name), 1, 1, int(Perm.INHERIT))
    yield TopicConfig(names.HALF_TOPIC, 1, 1)
    yield TopicConfig(names.OP_HALF_TOPIC, 1, 1)
    yield TopicConfig(names.WHEEL_TIMER_TOPIC, 1, 1)
