"""The control role without IO: the parts of the broker's policy, wired together, and the work that time triggers.

Handlers change the parts (`control_wiring` gives each handler its own). `on_tick` does the due work. All actions
outside of the core are effects (`request.Outbox`) and dirty flags (`persistence`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringmq.broker.assignment.routes import TopicRoutes
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.holders import Holders
from ringmq.broker.replication.copied_files import CopiedFiles
from ringmq.broker.replication.slave_role import SlaveRole
from ringmq.broker.replication.state import Replication
from ringmq.broker.replication.tenure_role import default_role
from ringmq.broker.requests.access import Refusals
from ringmq.broker.requests.request import Connection, Effect, Hangup, Now, Outbox
from ringmq.broker.requests.turns import finish
from ringmq.broker.tables.admission import AdmissionRules
from ringmq.broker.tables.body_cache import BodyCache
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.filter_programs import load_compiler
from ringmq.broker.tables.forward import ForwardTable
from ringmq.broker.tables.group_publication import GroupPublication
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.held_pulls import HeldPulls
from ringmq.broker.tables.locks import QueueLocks
from ringmq.broker.tables.membership import Membership
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.notifications import Notifications
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.producers import ProducerTable
from ringmq.broker.tables.protocols import PlaneProtocol, StoreProtocol
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.put_times import PutTimes, send_times
from ringmq.broker.tables.request_modes import RequestModeTable
from ringmq.broker.tables.retry_topics import RetryTopics
from ringmq.broker.tables.statistics import Counts, Statistics
from ringmq.broker.tables.stats import BrokerStats
from ringmq.broker.tables.topics import TopicTable
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting.config_beans import DataVersion

EXPIRY_SCAN_MS = 10_000
BODIES_STAY_MS = 2000
EXPIRY_LOOKS, EXPIRY_ENDS = 20_000, 500
"""Members that one tick checks; groups and connections that it ends. Each takes some 5 ms."""


class Broker:
    """All parts, and the rules for a changed configuration, for time, and for a changed topic or group."""

    on_config: Callable[[BrokerConfig], None] | None = None
    """Called with a configuration that was changed in a running broker. The shell updates the data plane."""
    slave: SlaveRole | None = None
    """The part of a slave. None on a master."""

    def __init__(
        self, config: BrokerConfig, identity: Identity, plane: PlaneProtocol, store: StoreProtocol, counts: Counts
    ) -> None:
        self.live = LiveConfig(config, plane.watermarks)
        self.config = config
        self.identity = identity
        self.plane = plane
        self.store = store
        self.now = Now(identity.started_ms)
        self.outbox = Outbox()
        self.tables = PlaneTables(plane)
        self.client_names = ClientNames(plane.header)
        self.audit = AuditTrail()
        self.topics = TopicTable(self.tables, self._topic_changed, self.client_names, self.audit)
        self.groups = GroupTable(self._group_changed, self.client_names, self.audit)
        self.consumers = ConsumerTable(self.outbox)
        self.notifications = Notifications(self.consumers)
        self.producers = ProducerTable()
        self.locks = QueueLocks()
        self.offsets = OffsetTable(plane, self.tables)
        self.modes = RequestModeTable(self.audit)
        self.routes = TopicRoutes(self.live)
        self.admission = AdmissionRules(plane, self.live)
        self.topics_body = BodyCache(self.topics.body_steps, lambda: self.topics.version)
        self.groups_body = BodyCache(self.groups.body_steps, lambda: self.groups.version)
        self.offsets_body = BodyCache(self.offsets.body, object)  # pulls change offsets at any time
        self.modes_body = BodyCache(self.modes.body_steps, lambda: self.modes.changes)
        self.producers_body = BodyCache(self.producers.body, object)
        self._bodies = (self.topics_body, self.groups_body, self.offsets_body, self.modes_body, self.producers_body)
        self.holders = Holders()
        self.forwards = ForwardTable()
        self.held_pulls = HeldPulls()
        self.stats = BrokerStats(identity.started_ms)
        self.statistics = Statistics(plane, counts)
        self.put_times = PutTimes(lambda: send_times(plane), identity.started_ms)
        self.deletions = Deletions()
        self.refusals = Refusals()
        self.replication = Replication.over(plane, self.audit)
        self.role = default_role(config, identity, self.live, self.replication.view, self.audit)
        self.copied_files = CopiedFiles(identity.started_ms, self.live)
        self.config_version = DataVersion(0, 0, identity.started_ms)
        self.new_entries = NewEntries(
            live=self.live,
            plane=plane,
            tables=self.tables,
            topics=self.topics,
            groups=self.groups,
            client_names=self.client_names,
        )
        self.retry_topics = RetryTopics(self.topics, self.deletions, self.new_entries)
        self.publication = GroupPublication(
            tables=self.tables, topics=self.topics, groups=self.groups, consumers=self.consumers, offsets=self.offsets
        )
        self.membership = Membership(
            live=self.live,
            now=self.now,
            groups=self.groups,
            consumers=self.consumers,
            producers=self.producers,
            forwards=self.forwards,
            held_pulls=self.held_pulls,
            notifications=self.notifications,
            outbox=self.outbox,
            publication=self.publication,
        )
        self._scan: Iterator[Connection | None] | None = None
        self._next_forget_ms = identity.started_ms
        self._next_scan_ms = identity.started_ms + EXPIRY_SCAN_MS

    @property
    def config(self) -> BrokerConfig:
        """The newest configuration."""
        return self.live.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self.live.config = config
        if config.enable_property_filter:
            load_compiler()

    # ---- rules between the parts ----

    def apply_config(self, config: BrokerConfig) -> None:
        """Apply a changed configuration: publish its dependants again. Raises PlaneFullError, and PackageReplacedError
        before any change."""
        if config.enable_property_filter:
            load_compiler()
        if config.auto_create_topic_enable and not self.config.auto_create_topic_enable:
            self.topics.offer_template(config, self.now.ms)
        if self.config.long_polling_enable and not config.long_polling_enable:
            self.held_pulls.shorten(self.now.ms + config.short_polling_time_mills)
        self.audit.add(Kind.CONFIGURATION, config.broker_name, self.config.as_properties(), config.as_properties())
        self.config = config
        self.config_version.next(self.now.ms)
        if self.topics.move_gates(self.config, self.now.ms):
            self.topics.republish()
        self.admission.publish()
        if self.on_config is not None:
            self.on_config(config)

    def prepare(self, now_ms: int) -> None:
        """Set the gates that are closed at the start, and note the counters. Called before the first request."""
        self.now.ms = now_ms
        self.topics.move_gates(self.config, now_ms)
        self.statistics.prepare(now_ms)

    # ---- events ----

    def on_close(self, connection: Connection) -> None:
        """The connection has ended: its client leaves every group, and other members are notified."""
        finish(self.membership.closing(connection))

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Do the due work: expiry of clients, locks and forwards, statistics, gates."""
        self.now.ms = now_ms
        self.forwards.expire(now_ms)
        self.locks.expire(now_ms)
        self.stats.sample(now_ms)
        self.put_times.sample(now_ms)
        self.statistics.tick(now_ms, self.stats.totals)
        if self.topics.move_gates(self.config, self.now.ms):
            self.topics.republish()
        self._expire_clients(now_ms)
        if now_ms >= self._next_forget_ms:
            self._next_forget_ms = now_ms + BODIES_STAY_MS
            for body in self._bodies:
                body.forget()
        return self.outbox.take()

    def _expire_clients(self, now_ms: int) -> None:
        """Expire clients. A scan begins every EXPIRY_SCAN_MS; each call checks some members and ends some
        connections."""
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
        """Connections with an older last heartbeat for some group. None for every other member."""
        tables = [group.members for group in self.consumers.all_groups()] + self.producers.all_members()
        for members in tables:
            for connection, member in list(members.items()):
                is_stale = member.last_update_ms < before_ms and members.get(connection) is member
                yield connection if is_stale else None

    def _topic_changed(self, topic: str) -> None:
        self.outbox.changed_topics.add(topic)
        if topic in self.topics:
            self.offsets.on_topic_published(topic, self.now.ms)
            self.publication.topic_changed(topic)
        if self.topics.is_system(topic):
            self.admission.publish()

    def _group_changed(self, group: str) -> None:
        self.publication.publish(group)
