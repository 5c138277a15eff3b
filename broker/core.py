"""The control role without IO: all state of the broker's policy in one object, changed by requests and time.

`handlers.handle` runs one request over it; `on_tick` does what is due. Everything it wants done outside comes out as
effects (`request.Outbox`) and dirty flags (`persistence`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.replication.read_advice import Member
from ringmq.broker.replication.state import Replication
from ringmq.broker.requests.access import Refusals
from ringmq.broker.requests.request import Connection, Effect, Hangup, Outbox
from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.staged.commits import StagedCommits
from ringmq.broker.staged.events import Asked
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.consumers import Change, ConsumerTable
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.forward import ForwardTable
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.held_pulls import HeldPulls
from ringmq.broker.tables.locks import QueueLocks
from ringmq.broker.tables.notices import Notices
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.ports import PlanePort, StorePort
from ringmq.broker.tables.producers import ProducerTable
from ringmq.broker.tables.publication import PlaneTables, group_flags
from ringmq.broker.tables.shared_body import SharedBody
from ringmq.broker.tables.stats import BrokerStats
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import DataVersion, SubscriptionGroupConfig
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Perm
from ringmq.remoting.response_headers import GetBrokerRuntimeInfoResponseHeader
from ringmq.remoting.subscription import SubscriptionData

EXPIRY_SCAN_MS = 10_000
BODIES_STAY_MS = 2000
EXPIRY_LOOKS, EXPIRY_ENDS = 20_000, 500
"""Members that one tick looks at; groups and connections that it ends. Some 5 ms each."""
STEP_SUBSCRIPTIONS = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """How this broker is known; `host` and `ha_host` are the addresses in routes (brokerIP1, brokerIP2)."""

    host: str
    port: int
    ha_host: str
    started_ms: int
    store_path: str = ""
    memory_window_bytes: int = 1 << 62
    """What counts as still in memory, back from the end of the log."""
    store_folder: GetBrokerRuntimeInfoResponseHeader | None = None
    """Which folder the store is, for readers on this host; None when `store_path` holds no commit log."""

    @property
    def address(self) -> str:
        """ip:port of the main listener."""
        return f"{self.host}:{self.port}"

    def ha_address(self, config: BrokerConfig) -> str:
        """ip:port where slaves connect; a slave announces one too, as stock does."""
        return f"{self.ha_host}:{config.ha_listen_port}"


class Broker:
    """State and the rules that join its parts."""

    on_config: Callable[[BrokerConfig], None] | None = None
    """Called with a configuration that was changed while running; the shell shows the data plane its part."""

    def __init__(self, config: BrokerConfig, identity: Identity, plane: PlanePort, store: StorePort) -> None:
        self.config = config
        self.identity = identity
        self.plane = plane
        self.store = store
        self.outbox = Outbox()
        self.tables = PlaneTables(plane)
        self.client_names = ClientNames(plane.header)
        self.topics = TopicTable(self.tables, self._topic_changed, self.client_names)
        self.groups = GroupTable(self.publish_group, self.client_names)
        self.consumers = ConsumerTable(self.outbox)
        self.notices = Notices(self.consumers)
        self.producers = ProducerTable()
        self.locks = QueueLocks()
        self.offsets = OffsetTable(plane, self.tables)
        self.topics_body = SharedBody(self.topics.body_steps, lambda: self.topics.version)
        self.groups_body = SharedBody(self.groups.body_steps, lambda: self.groups.version)
        self.offsets_body = SharedBody(self.offsets.body, object)  # pulls change offsets at any time
        self.producers_body = SharedBody(self.producers.body, object)
        self.forwards = ForwardTable()
        self.held_pulls = HeldPulls()
        self.stats = BrokerStats(identity.started_ms)
        self.deletions = Deletions()
        self.refusals = Refusals()
        self.replication = Replication.over(plane)
        self.delay_offsets: str | None = None
        """Content of delayOffset.json, None without one."""
        self.staged_commits = StagedCommits()
        self.staged_asked: deque[Asked] = deque()
        self.config_version = DataVersion(0, 0, identity.started_ms)
        self.now_ms = identity.started_ms
        self._published: dict[str, dict[str, SubscriptionData]] = {}
        self._scan: Iterator[Connection | None] | None = None
        self._next_forget_ms = identity.started_ms
        self._next_scan_ms = identity.started_ms + EXPIRY_SCAN_MS

    # ---- rules between the parts ----

    @property
    def member(self) -> Member:
        """This broker's place in its group, as of now."""
        return Member(
            self.config.broker_id,
            self.config.broker_role == "SLAVE",
            bool(self.plane.header.replication.master_known),
            self.config.slave_read_enable,
            self.config.offset_check_in_slave,
        )

    def refuse_new(self, what: str) -> None:
        """Raise RequestError while the memory of the broker is near ringmqMemoryMax. `what`: the new entry in words."""
        if self.plane.header.memory.level:
            raise RequestError(
                f"{what} is refused: the memory of the broker is near ringmqMemoryMax, try again later",
                field="",
                code=ResponseCode.SYSTEM_BUSY,
            )

    def find_group(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The group's configuration, made when it is missing and clients may make it. Raises RequestError."""
        may_make = self.config.auto_create_subscription_group
        if may_make and self.groups.get(group) is None:
            self.refuse_new(f"group {group}")
        return self.groups.find(group, may_make, now_ms)

    def notifies(self, group: str) -> bool:
        """Whether members of the group are told of each other's coming and going."""
        config = self.groups.get(group)
        return self.config.notify_consumer_ids_changed_enable and (
            config is None or config.notify_consumer_ids_changed_enable
        )

    def publish_group(self, group: str) -> None:
        """Show the hot path what a group is and wants, as of now."""
        finish(self.publishing(group))

    def publishing(self, group: str) -> Steps[None]:
        """The same in steps. The group may change in between: each subscription is shown as it is at its step."""
        online = self.consumers.get(group)
        wanted = () if online is None else online.subscriptions
        # A group of a thousand topics changes one at a time, each in a heartbeat of its own.
        for number, topic in enumerate(dict.fromkeys([*self._published.get(group, ()), *wanted])):
            self._show_subscription(group, topic)
            if number % STEP_SUBSCRIPTIONS == STEP_SUBSCRIPTIONS - 1:
                yield
        self._publish_flags(group)

    def _show_subscription(self, group: str, topic: str) -> None:
        wanted = self.consumers.subscription(group, topic)
        shown = self._published.get(group, {})
        if shown.get(topic) is wanted:
            return
        self.tables.publish_subscription(group, topic, wanted)
        if wanted is not None:
            self._published.setdefault(group, {})[topic] = wanted
        else:
            del shown[topic]
            if not shown:
                del self._published[group]

    def _publish_subscription(self, group: str, topic: str) -> None:
        """Show the hot path an online group's subscription to one topic, which has a new entry."""
        self._published.get(group, {}).pop(topic, None)
        self._show_subscription(group, topic)
        self._publish_flags(group)

    def _publish_flags(self, group: str) -> None:
        online = self.consumers.get(group)
        subscriptions = {} if online is None else online.subscriptions
        cold = self.groups.has_forbidden(group) or self._may_take_reset(group, subscriptions)
        flags = group_flags(
            self.groups.get(group),
            members=online is not None,
            broadcasting=online is not None and online.is_broadcasting,
            cold=cold,
        )
        self.tables.publish_group(group, flags)

    def _may_take_reset(self, group: str, subscriptions: Collection[str]) -> bool:
        """Whether a reset waits that a pull may come for: of one that none takes the group would be cold for ever."""
        for topic, queue_ids in self.offsets.resets_of(group).items():
            config = self.topics.get(topic)
            if config is None or (subscriptions and topic not in subscriptions):
                continue
            if min(queue_ids) < config.read_queue_nums:
                return True
        return False

    def apply_config(self, config: BrokerConfig) -> None:
        """Take over a changed configuration: republish what depends on it. Raises PlaneFullError."""
        if config.auto_create_topic_enable and not self.config.auto_create_topic_enable:
            self.topics.offer_template(config, self.now_ms)
        if self.config.long_polling_enable and not config.long_polling_enable:
            self.held_pulls.shorten(self.now_ms + config.short_polling_time_mills)
        self.config = config
        self.config_version.next(self.now_ms)
        if self._move_gates():
            self.topics.republish()
        if self.on_config is not None:
            self.on_config(config)

    def prepare(self, now_ms: int) -> None:
        """Before the first request: which gates are closed at the start."""
        self.now_ms = now_ms
        self._move_gates()

    # ---- events ----

    def on_close(self, connection: Connection) -> None:
        """The connection is gone: its client leaves every group; others are told."""
        finish(self.closing(connection))

    def closing(self, connection: Connection) -> Steps[None]:
        """The same in steps."""
        for group in self.consumers.groups_of(connection):
            yield from self.leaving(group, connection)
            yield
        self.producers.drop(connection)
        self.forwards.drop(self.outbox, connection)
        self.held_pulls.drop(connection)

    def leaving(self, group: str, connection: Connection) -> Steps[None]:
        """A member leaves a group; the others are told."""
        yield from self.following(group, self.consumers.unregister(group, connection))

    def following(self, group: str, change: Change) -> Steps[None]:
        """Show the hot path the change, then notify the members, at once or when the budget of `notices` allows it."""
        if change.publish:
            yield from self.publishing(group)
        if change.tell and self.notifies(group) and self.notices.may_tell(group, self.now_ms):
            yield from self.consumers.telling(group)

    def connections(self) -> set[Connection]:
        """Every connection that a table knows."""
        return {*self.consumers.connections(), *self.producers.connections(), *self.forwards.connections()}

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Whatever is due: expiry of clients, locks and forwards, statistics, gates."""
        self.now_ms = now_ms
        self.forwards.expire(self.outbox, now_ms)
        self.locks.expire(now_ms)
        self.stats.sample(now_ms)
        if self._move_gates():
            self.topics.republish()
        self._expire_clients(now_ms)
        if now_ms >= self._next_forget_ms:
            self._next_forget_ms = now_ms + BODIES_STAY_MS
            for body in (self.topics_body, self.groups_body, self.offsets_body, self.producers_body):
                body.forget()
        return self.outbox.take()

    def _expire_clients(self, now_ms: int) -> None:
        """Every EXPIRY_SCAN_MS a scan begins; each call looks at some members and ends some connections."""
        if self._scan is None:
            if now_ms < self._next_scan_ms:
                return
            self._next_scan_ms = now_ms + EXPIRY_SCAN_MS
            self._scan = self._stale(now_ms - self.config.channel_expired_timeout)
        ended = 0
        for looked, connection in enumerate(self._scan, 1):
            if connection is not None:
                ended += 1 + len(self.consumers.groups_of(connection))
                self.on_close(connection)
                self.outbox.effects.append(Hangup(connection, None))
            if looked >= EXPIRY_LOOKS or ended >= EXPIRY_ENDS:
                return
        self._scan = None

    def _stale(self, before_ms: int) -> Iterator[Connection | None]:
        """Connections whose last heartbeat for some group is older, None for every other member."""
        tables = [group.members for group in self.consumers.all_groups()] + self.producers.all_members()
        for members in tables:
            for connection, member in list(members.items()):
                is_stale = member.last_update_ms < before_ms and members.get(connection) is member
                yield connection if is_stale else None

    def _move_gates(self) -> bool:
        """Open or close what the configuration and the time say; whether that changed anything."""
        permission = self.config.broker_permission
        closed = self.now_ms < self.config.start_accept_send_request_time_stamp
        before = self.topics.send_cold, self.topics.pull_cold
        self.topics.send_cold = closed or not permission & Perm.WRITE
        self.topics.pull_cold = not permission & Perm.READ
        return before != (self.topics.send_cold, self.topics.pull_cold)

    def _topic_changed(self, topic: str) -> None:
        self.outbox.changed_topics.add(topic)
        if topic in self.topics:
            self.offsets.adopt(topic, self.now_ms)
            for group in self.consumers.groups_on(topic):
                self._publish_subscription(group, topic)
            for group in self.offsets.groups_to_reset(topic):
                self._publish_flags(group)
