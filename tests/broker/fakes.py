"""A plane and a store in memory, and a broker over them, for tests of control's core."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import first_tenure
from ringmq.broker.config.identity import Identity
from ringmq.broker.config.relations import changed
from ringmq.broker.control_wiring import handlers_of
from ringmq.broker.core import Broker
from ringmq.broker.handlers.table import HandlerTable
from ringmq.broker.requests.request import Connection, Effect, Push, Reply, Request
from ringmq.broker.tables.groups import NAME_BYTES_MAX
from ringmq.broker.tables.protocols import SUBSCRIPTION_NONE, TOPIC_LIVE, BatchPull, KeyQuery, LogState, Wants
from ringmq.ipc.admission import Rule
from ringmq.ipc.errors import PlaneFullError
from ringmq.ipc.tenure import AS_MASTER
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import CLUSTERING, CONSUME_PASSIVELY, ConsumerData, HeartbeatData
from ringmq.remoting.subscription import build_subscription

START_MS = 1_700_000_000_000
IDENTITY = Identity("127.0.0.2", 30911, "127.0.0.1", START_MS)
LINK_FIELDS = (
    "state", "attempts", "received_bytes", "master_offset", "last_read_mono_ms", "last_write_mono_ms",
    "bytes_per_second", "reported_offset",
)  # fmt: skip
MARK_FIELDS = (
    "min_offset", "append_offset", "flushed_offset", "replicated_offset", "replication_state", "in_sync_replicas",
    "write_hold", "start_id", "store_fault", "store_fault_errno", "dispatch_fault", "dispatch_fault_errno",
)  # fmt: skip


class FakeCounts:
    """The counters of a FakePlane's queues, and of pulls of one port by (group id, queue slot)."""

    def __init__(self, plane: Any) -> None:
        self._plane = plane
        self.pulled: dict[tuple[int, int], tuple[int, int]] = {}

    def queue_count(self) -> int:
        return len(self._plane.queues)

    def queues(self, first: int, count: int) -> list[tuple[int, int, int]]:
        return [(one.topic_id, one.max_offset, one.put_bytes) for one in self._plane.queues[first : first + count]]

    def pull_tables(self) -> list[tuple[int, int]]:
        return [(0, len(self.pulled))]

    def pulls(self, port: int, first: int, count: int) -> list[tuple[int, int, int]]:
        rows = [(group_id << 32 | slot, *counts) for (group_id, slot), counts in self.pulled.items()]
        return rows[first : first + count]


class FakePlane:
    """The tables of `ringmq.ipc.plane.Plane` as Python objects, with its rules: ids grow, names stay."""

    def __init__(self, queues_max: int = 100_000, groups_max: int = 100_000, topics_max: int = 100_000) -> None:
        self.header = SimpleNamespace(
            tables=SimpleNamespace(
                topic_count=0,
                queue_count=0,
                group_count=0,
                topic_capacity=topics_max,
                queue_capacity=queues_max,
                group_capacity=groups_max,
            ),
            replication=SimpleNamespace(
                peers=[], link=SimpleNamespace(**dict.fromkeys(LINK_FIELDS, 0)), master_known=0
            ),
            memory=SimpleNamespace(level=0),
            settings=SimpleNamespace(memory_window_bytes=1 << 62),
        )
        self.watermarks = SimpleNamespace(**dict.fromkeys(MARK_FIELDS, 0), tenure=AS_MASTER.word)
        self.readers: tuple[Any, ...] = ()
        self.counts = FakeCounts(self)
        self.roles: dict[int, Any] = {}
        self.ha_commands: list[bytes] = []
        self.held: dict[int, int] = {}
        self.topics: dict[int, Any] = {}
        self.queues: list[Any] = []
        self.slots: dict[tuple[int, int], int] = {}
        self.groups: dict[int, Any] = {}
        self.subscriptions: dict[tuple[int, int], tuple[int, int, list[int]]] = {}
        self.subscriptions_max = 1000
        self.filters: dict[int, tuple[int, bytes]] = {}
        self.offset_table: dict[tuple[int, int], int] = {}
        self.pulled_table: dict[tuple[int, int], int] = {}
        self.popped_table: dict[tuple[int, int], int] = {}
        self.open_table: dict[tuple[int, int], int] = {}
        self.commits: list[tuple[int, int, int]] = []
        self.confirm = 1 << 40
        self.rules: tuple[Rule, ...] = ()

    def role(self, number: int) -> Any:
        """The block of a role that never ran."""
        return self.roles.setdefault(number, SimpleNamespace(pid=0, generation=0, counters=[0] * 64))

    def topic_find(self, name: str) -> int | None:
        for topic_id, entry in self.topics.items():
            if entry.name == name.encode() and entry.config >> 40 & TOPIC_LIVE:
                return topic_id
        return None

    def topic_add(self, name: str, config: int) -> int:
        self.header.tables.topic_count += 1
        raw = name.encode()
        self.topics[self.header.tables.topic_count] = SimpleNamespace(name=raw, name_length=len(raw), config=config)
        return int(self.header.tables.topic_count)

    def topic_set(self, topic_id: int, config: int) -> None:
        self.topics[topic_id].config = config

    def topic(self, topic_id: int) -> Any:
        return self.topics[topic_id]

    def queue_find(self, topic_id: int, queue_id: int) -> int | None:
        return self.slots.get((topic_id, queue_id))

    def queue_add(
        self, topic_id: int, queue_id: int, min_offset: int = 0, max_offset: int = 0, replay_from: int | None = None
    ) -> int:
        if len(self.queues) >= self.header.tables.queue_capacity:
            raise PlaneFullError(f"queues: the table is full ({self.header.tables.queue_capacity} entries)")
        self.queues.append(
            SimpleNamespace(
                topic_id=topic_id,
                queue_id=queue_id,
                min_offset=min_offset,
                max_offset=max_offset,
                replay_from=replay_from,
                last_store_time_ms=0,
                put_bytes=0,
                log_end=0,
            )
        )
        self.header.tables.queue_count = len(self.queues)
        self.slots[topic_id, queue_id] = len(self.queues) - 1
        return len(self.queues) - 1

    def queue(self, queue_slot: int) -> Any:
        return self.queues[queue_slot]

    def group_find(self, name: str) -> int | None:
        return next((group_id for group_id, entry in self.groups.items() if entry.name == name.encode()), None)

    def group_add(self, name: str, config: int) -> int:
        if self.header.tables.group_count >= self.header.tables.group_capacity or len(name.encode()) > NAME_BYTES_MAX:
            raise PlaneFullError(f"groups: the table is full ({self.header.tables.group_capacity} entries)")
        self.header.tables.group_count += 1
        raw = name.encode()
        self.groups[self.header.tables.group_count] = SimpleNamespace(name=raw, name_length=len(raw), config=config)
        return int(self.header.tables.group_count)

    def group(self, group_id: int) -> Any:
        return self.groups[group_id]

    def group_set(self, group_id: int, config: int) -> None:
        self.groups[group_id].config = config

    def subscription_set(
        self, group_id: int, topic_id: int, kind: int, sub_version: int, tag_hashes: list[int]
    ) -> None:
        if len(self.subscriptions) >= self.subscriptions_max and (group_id, topic_id) not in self.subscriptions:
            raise PlaneFullError(f"subscriptions: the table is full ({self.subscriptions_max} entries)")
        self.subscriptions[group_id, topic_id] = (kind, sub_version, tag_hashes)

    def subscription_replace(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        assert self.subscriptions.pop(old)[0] == SUBSCRIPTION_NONE
        self.subscriptions[new] = (SUBSCRIPTION_NONE, 0, [])

    def filter_put(self, slot: int, expression: bytes, program: bytes) -> int:
        version = self.filters.get(slot, (-1, b""))[0] + 2
        self.filters[slot] = (version, expression)
        return version

    def popped(self, group_id: int, queue_slot: int) -> int:
        return self.popped_table.get((group_id, queue_slot), 0)

    def pull_stats_next(self, group_id: int, queue_slot: int) -> int:
        return self.pulled_table.get((group_id, queue_slot), -1)

    def pull_stats_open(self, group_id: int, queue_slot: int) -> int:
        return self.open_table.get((group_id, queue_slot), -1)

    def offset_get(self, group_id: int, queue_slot: int) -> int:
        return self.offset_table.get((group_id, queue_slot), -1)

    def offset_put(self, group_id: int, queue_slot: int, offset: int) -> None:
        self.offset_table[group_id, queue_slot] = offset

    def offset_drain(self) -> int:
        taken, self.commits = self.commits, []
        for group_id, slot, offset in taken:
            self.offset_table[group_id, slot] = offset
        return len(taken)

    def offset_keys(self, first: int, count_max: int | None = None) -> list[tuple[int, int]]:
        return list(self.offset_table)[first:][:count_max]

    def confirm_offset(self) -> int:
        return self.confirm

    def admission_rules(self) -> tuple[Rule, ...]:
        return self.rules

    def admission_publish(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules

    # ---- for tests ----

    def word(self, topic: str) -> tuple[int, int, int, int]:
        """(perm, read queues, write queues, flags) of a live topic."""
        topic_id = self.topic_find(topic)
        assert topic_id is not None, topic
        word = self.topics[topic_id].config
        return word & 0xFF, word >> 8 & 0xFFFF, word >> 24 & 0xFFFF, word >> 40

    def group_flags(self, group: str) -> int:
        """RMQ_GROUP_* without the broker ids."""
        return self.group_word(group) & 0xFFFF_FFFF

    def group_word(self, group: str) -> int:
        group_id = self.group_find(group)
        return 0 if group_id is None else int(self.groups[group_id].config)

    def ha_command_put(self, json: bytes) -> bool:
        self.ha_commands.append(json)
        return True

    def hold(self, role: int, duration_s: int) -> None:
        self.held[role] = duration_s

    def subscription(self, group: str, topic: str) -> tuple[int, int, list[int]]:
        group_id, topic_id = self.group_find(group), self.topic_find(topic)
        if group_id is None or topic_id is None:
            return 0, 0, []
        return self.subscriptions.get((group_id, topic_id), (0, 0, []))

    def set_bounds(self, topic: str, queue_id: int, low: int, high: int) -> None:
        topic_id = self.topic_find(topic)
        assert topic_id is not None, topic
        slot = self.queue_find(topic_id, queue_id)
        assert slot is not None, (topic, queue_id)
        self.queues[slot].min_offset, self.queues[slot].max_offset = low, high


@dataclass
class FakeStore:
    """Answers what the test has put in."""

    messages: dict[int, bytes] = field(default_factory=dict)
    by_key: dict[tuple[str, str], KeyQuery] = field(default_factory=dict)
    times: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(topic, queue) -> store times by queue offset."""
    batch: BatchPull = field(default_factory=lambda: BatchPull("NO_MESSAGE_IN_QUEUE", 0, 0, 0))
    on_disk: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    log_begin: int = 0
    appended: int = 0
    dispatched: int = 0
    log: bytes = b""
    """From offset 0 on."""
    looks: int = 0

    def view(self, commit_log_offset: int) -> bytes | None:
        return self.messages.get(commit_log_offset)

    def log_bytes(self, offset: int, length: int) -> bytes:
        return self.log[offset : offset + length]

    def log_crc(self, offset: int, length: int) -> int | None:
        data = self.log_bytes(offset, length)
        return zlib.crc32(data) if len(data) == length else None

    def query_by_key(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> KeyQuery:
        found = self.by_key.get((topic, key), KeyQuery([], 0, 0))
        return KeyQuery(found.messages[-max_num:], found.index_last_update_timestamp, found.index_last_update_phyoffset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        times = self.times.get((topic, queue_id), [])
        if upper:
            return max((offset for offset, time in enumerate(times) if time <= timestamp_ms), default=0)
        return next((offset for offset, time in enumerate(times) if time >= timestamp_ms), len(times))

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        times = self.times.get((topic, queue_id), [])
        return times[queue_offset] if 0 <= queue_offset < len(times) else -1

    def batch_pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_num: int,
        tag_codes: list[int],
        wants: Wants | None = None,
    ) -> BatchPull:
        self.wants: Wants | None = None
        self.wants = wants
        return self.batch

    def queue_units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        return [(100 + queue_offset, 10, 0)]

    def topics_on_disk(self) -> set[str]:
        return self.on_disk

    def delete_topic(self, topic: str) -> None:
        self.deleted.append(topic)

    def refresh(self) -> None:
        self.looks += 1

    def log_state(self) -> LogState:
        return LogState(
            self.log_begin, self.appended, self.appended, self.dispatched, self.appended,
            "/store/commitlog", 1000, 250, 0.75,
        )  # fmt: skip

    def earliest_store_time(self) -> int:
        return -1


@dataclass
class Harness:
    """A broker core over fakes. `ask` runs one request."""

    broker: Broker
    plane: FakePlane
    store: FakeStore
    now_ms: int = START_MS
    pushed: list[Push] = field(default_factory=list)
    handlers: HandlerTable = field(init=False)

    def __post_init__(self) -> None:
        self.handlers = handlers_of(self.broker)

    def tick(self, now_ms: int) -> list[Effect]:
        """Run everything that is due."""
        return [*self.broker.on_tick(now_ms), *self.handlers.run_due(now_ms)]

    def effects(self, command: RemotingCommand, connection: Connection, body_length: int | None = None) -> list[Effect]:
        length = len(command.body) if body_length is None else body_length
        return self.handlers.handle(Request(command, connection, self.now_ms, 7, length))

    def ask(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        connection: Connection | None = None,
        **kwargs: Any,
    ) -> Any:
        """The answer: a command, or the effect that takes its place (Run, Release, Hangup), or None (later)."""
        command = RemotingCommand.request(code, ext, body, opaque=3, oneway=kwargs.pop("oneway", False))
        command.version = kwargs.pop("version", command.version)
        effects = self.effects(command, connection or peer(1), **kwargs)
        self.pushed = [effect for effect in effects if isinstance(effect, Push)]
        verdicts = [effect for effect in effects if not isinstance(effect, Push)]
        if not verdicts:
            return None
        verdict = verdicts[-1]
        return verdict.command if isinstance(verdict, Reply) else verdict

    def make_topic(self, name: str, queues: int = 4, perm: int = 6) -> None:
        answer = self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": name,
                "defaultTopic": "TBW102",
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": str(perm),
                "topicFilterType": "SINGLE_TAG",
                "order": "false",
            },
        )
        assert answer.code == 0, answer

    def join(
        self,
        group: str,
        topics: dict[str, str],
        connection: Connection | None = None,
        client_id: str = "c1",
        version: int = 1,
        **fields: Any,
    ) -> Any:
        """A heartbeat with one consumer group: topic -> expression."""
        data = HeartbeatData(
            client_id,
            consumers=[
                ConsumerData(
                    group,
                    fields.pop("kind", CONSUME_PASSIVELY),
                    fields.pop("model", CLUSTERING),
                    subscriptions=[
                        build_subscription(topic, text, sub_version=version) for topic, text in topics.items()
                    ],
                )
            ],
            **fields,
        )
        return self.ask(RequestCode.HEART_BEAT, body=data.encode(), connection=connection)


def peer(number: int, *, vip: bool = False, reader: int = 0, reader_generation: int = 1) -> Connection:
    """A client's connection."""
    return Connection(reader, reader_generation, number, 1, "127.0.0.1", 40_000 + number, vip)


def make_harness(
    settings: dict[str, str] | None = None, *, plane: FakePlane | None = None, identity: Identity = IDENTITY
) -> Harness:
    """A broker `wire-a` of cluster `GoldCluster` that has just started on an empty store."""
    names = {"brokerName": "wire-a", "brokerClusterName": "GoldCluster", "brokerIP1": "127.0.0.2"}
    config = changed(BrokerConfig(), {**names, **(settings or {})})
    plane, store = plane or FakePlane(), FakeStore()
    plane.watermarks.tenure = first_tenure(config).word
    broker = Broker(config, identity, plane, store, plane.counts)
    broker.prepare(START_MS)
    broker.topics.load({}, config, START_MS)
    broker.groups.load({}, START_MS)
    broker.offsets.load({}, START_MS, into_plane=True)
    broker.outbox.take()
    return Harness(broker, plane, store)


def with_readers(plane: FakePlane, count: int) -> tuple[list[Any], list[list[int]]]:
    """Give the plane so many read workers. Returns their histograms of answered sends, and their counters."""
    plane.readers = tuple(SimpleNamespace(role=lib.RMQ_ROLE_READ + number) for number in range(count))
    stages = [SimpleNamespace(counts=[0] * lib.RMQ_LATENCY_BUCKETS, max_ns=0) for _ in plane.readers]
    plane.header.latency = {
        reader.role: {lib.RMQ_READ_LATENCY_ANSWERED: stage} for reader, stage in zip(plane.readers, stages, strict=True)
    }
    return stages, [plane.role(reader.role).counters for reader in plane.readers]
