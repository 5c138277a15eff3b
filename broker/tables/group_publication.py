"""Consumer groups in the plane: configuration, members, forbidden topics and resets become one entry."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.publication import PlaneTables, group_flags
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting.names import retry_topic
from ringmq.remoting.subscription import SubscriptionData

STEP_SUBSCRIPTIONS = 32


class GroupPublication:
    """Publishes groups and the subscriptions of those that have members."""

    def __init__(
        self,
        *,
        tables: PlaneTables,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable,
        offsets: OffsetTable,
    ) -> None:
        self._tables = tables
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._published: dict[str, dict[str, SubscriptionData]] = {}

    def publish(self, group: str) -> None:
        """Publish the current state of a group and its subscriptions."""
        finish(self.publishing(group))

    def publishing(self, group: str) -> Steps[None]:
        """`publish` in steps. The group may change in between; each subscription is published as it is at its step."""
        online = self._consumers.get(group)
        wanted = () if online is None else online.subscriptions
        # A group may have a thousand topics, so this is a step for each of them.
        for number, topic in enumerate(dict.fromkeys([*self._published.get(group, ()), *wanted])):
            self._show_subscription(group, topic)
            if number % STEP_SUBSCRIPTIONS == STEP_SUBSCRIPTIONS - 1:
                yield
        self._publish_flags(group)

    def topic_changed(self, topic: str) -> None:
        """The topic has a new entry. Publish it again in the groups that subscribe to it."""
        for group in self._consumers.groups_on(topic):
            self._published.get(group, {}).pop(topic, None)
            self._show_subscription(group, topic)
            self._publish_flags(group)
        for group in self._offsets.groups_to_reset(topic):
            self._publish_flags(group)

    def conditions_placed(self, group: str) -> None:
        """Programs of the group's SQL92 conditions have been placed."""
        self._publish_flags(group)

    def _show_subscription(self, group: str, topic: str) -> None:
        wanted = self._consumers.subscription(group, topic)
        shown = self._published.get(group, {})
        if shown.get(topic) is wanted:
            return
        self._tables.publish_subscription(group, topic, wanted)
        if wanted is not None:
            self._published.setdefault(group, {})[topic] = wanted
        else:
            del shown[topic]
            if not shown:
                del self._published[group]

    def _publish_flags(self, group: str) -> None:
        online = self._consumers.get(group)
        subscriptions = {} if online is None else online.subscriptions
        cold = (
            self._groups.has_forbidden(group)
            or self._may_take_reset(group, subscriptions)
            or self._lacks_conditions(group, subscriptions)
        )
        flags = group_flags(
            self._groups.get(group),
            members=online is not None,
            broadcasting=online is not None and online.is_broadcasting,
            cold=cold,
        )
        self._tables.publish_group(group, flags)

    def _lacks_conditions(self, group: str, subscriptions: Mapping[str, SubscriptionData]) -> bool:
        """True if the retry topic has a condition, and a condition for an original topic is not compiled yet. Read
        workers would let its failed messages pass. The next pull by a condition has all of them compiled."""
        retry = subscriptions.get(retry_topic(group))
        if retry is None or not retry.is_sql:
            return False
        filters = self._tables.filters
        return any(one.is_sql and filters.may_be_placed(one.sub_string) for one in subscriptions.values())

    def _may_take_reset(self, group: str, subscriptions: Collection[str]) -> bool:
        """True if a pull may come for a waiting reset. A reset that no pull takes would keep the group cold."""
        for topic, queue_ids in self._offsets.resets_of(group).items():
            config = self._topics.get(topic)
            if config is None or (subscriptions and topic not in subscriptions):
                continue
            if min(queue_ids) < config.read_queue_nums:
                return True
        return False
