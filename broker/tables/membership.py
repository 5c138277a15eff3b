"""Clients that join and leave: their groups are published again, and the other members are notified."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.request import Connection, Now, Outbox
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.consumers import Change, ConsumerTable
from ringmq.broker.tables.forward import ForwardTable
from ringmq.broker.tables.group_publication import GroupPublication
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.held_pulls import HeldPulls
from ringmq.broker.tables.notifications import Notifications
from ringmq.broker.tables.producers import ProducerTable


class Membership(Struct, frozen=True):
    """The rules between the tables of clients."""

    live: LiveConfig
    now: Now
    groups: GroupTable
    consumers: ConsumerTable
    producers: ProducerTable
    forwards: ForwardTable
    held_pulls: HeldPulls
    notifications: Notifications
    outbox: Outbox
    publication: GroupPublication

    def notifies(self, group: str) -> bool:
        """True if members of the group are notified when others join or leave."""
        config = self.groups.get(group)
        return self.live.config.notify_consumer_ids_changed_enable and (
            config is None or config.notify_consumer_ids_changed_enable
        )

    def following(self, group: str, change: Change) -> Steps[None]:
        """Publish the change, then notify the members, at once or when the budget of `notifications` allows it."""
        if change.publish:
            yield from self.publication.publishing(group)
        if change.notify and self.notifies(group) and self.notifications.may_notify(group, self.now.ms):
            yield from self.consumers.notifying(group)

    def leaving(self, group: str, connection: Connection) -> Steps[None]:
        """A member leaves a group; the other members are notified."""
        yield from self.following(group, self.consumers.unregister(group, connection))

    def closing(self, connection: Connection) -> Steps[None]:
        """The connection has ended: its client leaves every group, and other members are notified."""
        for group in self.consumers.groups_of(connection):
            yield from self.leaving(group, connection)
            yield
        self.producers.drop(connection)
        self.forwards.drop(connection)
        self.held_pulls.drop(connection)

    def connections(self) -> set[Connection]:
        """Every connection that a table of clients knows."""
        return {*self.consumers.connections(), *self.producers.connections(), *self.forwards.connections()}
