"""Pulls that the read worker has not answered: errors, forbidden groups, resets, BatchCQ topics (11, 361).

The checks have stock's order (`PullMessageProcessor.processRequest`). A pull that passes them goes back to the read
worker, because the reason why its topic or group was cold is gone.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from msgspec import Struct

from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.replication.broker_suggestion import PullFinding, member_of, suggest
from ringmq.broker.requests.request import FAQ, Answer, Connection, Redo, Request, Slices, Wait
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.group_publication import GroupPublication
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.held_pulls import HeldPulls
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.protocols import SUBSCRIPTION_COLD, PlaneProtocol, StoreProtocol
from ringmq.broker.tables.publication import PlaneTables, subscription_kind
from ringmq.broker.tables.topics import TopicTable, is_batch_topic
from ringmq.filters.errors import FilterError
from ringmq.filters.evaluator import matches
from ringmq.filters.program import Program
from ringmq.remoting import names
from ringmq.remoting.client_headers import PullMessageRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Perm, PullSysFlag
from ringmq.remoting.response_headers import PullMessageResponseHeader
from ringmq.remoting.subscription import SubscriptionData, build_subscription

FORBIDDEN_BROKER, FORBIDDEN_GROUP, FORBIDDEN_TOPIC, FORBIDDEN_BROADCAST, FORBIDDEN_SUBSCRIPTION = 1, 2, 3, 4, 5
_CODE_OF_STATUS = {
    "FOUND": ResponseCode.SUCCESS,
    "NO_MATCHED_MESSAGE": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "MESSAGE_WAS_REMOVING": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "OFFSET_FOUND_NULL": ResponseCode.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_ONE": ResponseCode.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_BADLY": ResponseCode.PULL_OFFSET_MOVED,
    "OFFSET_TOO_SMALL": ResponseCode.PULL_OFFSET_MOVED,
    "OFFSET_RESET": ResponseCode.PULL_OFFSET_MOVED,
}


class PullRequests(Struct, frozen=True):
    """The handler of pulls, with the parts that it needs."""

    live: LiveConfig
    identity: Identity
    plane: PlaneProtocol
    store: StoreProtocol
    tables: PlaneTables
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerTable
    offsets: OffsetTable
    held_pulls: HeldPulls
    new_entries: NewEntries
    publication: GroupPublication

    def pull(self, request: Request) -> Answer | Slices:
        """Check a pull. The result is an error, an answer of control's own, or Redo."""
        header = PullMessageRequestHeader.decode(request.command.ext_fields)
        refusal = self._check_broker(request)
        if refusal is not None:
            return refusal
        group = self.new_entries.group_of(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            return _forbid(request, FORBIDDEN_GROUP, f"subscription group no permission, {header.consumer_group}")
        topic = self.topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & Perm.READ or header.topic in names.STAGED_TOPICS:
            return _forbid(request, FORBIDDEN_TOPIC, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{request.connection.address}]"
            )
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        subscription = self._subscription_of(request, header, group)
        if isinstance(subscription, RemotingCommand):
            return subscription
        if subscription.is_tags or subscription.class_filter_mode:
            return self._serve(request, header, topic, group, subscription, None)
        if not self.live.config.enable_property_filter or not subscription.is_sql:
            kind = subscription.expression_type
            remark = f"The broker does not support consumer to filter message by {kind[:32]}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        return Slices(self._serving_filtered(request, header, topic, group, subscription))

    def _serving_filtered(
        self,
        request: Request,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
    ) -> Steps[Answer]:
        """Compile the expression and publish its program, which the read worker runs."""
        filters, expression = self.tables.filters, subscription.sub_string
        try:
            if is_batch_topic(topic):
                program = yield from filters.compiling(expression)
                return self._serve(request, header, topic, group, subscription, program)
            yield from filters.placing(expression, request.connection)
        except FilterError as error:
            if header.sys_flag & PullSysFlag.SUBSCRIPTION:
                remark = f"parse the consumer's subscription failed: {error}"
                return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
            remark = f"The broker's consumer filter data is not exist!Your expression may be wrong! {error}"
            return request.reply(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if self.consumers.subscription(header.consumer_group, header.topic) is subscription:
            self.tables.publish_subscription(header.consumer_group, header.topic, subscription)
        if names.is_retry_topic(header.topic):
            yield from self._placing_originals(request.connection, header.topic.removeprefix(names.RETRY_PREFIX))
        return self._serve(request, header, topic, group, subscription, None)

    def _placing_originals(self, connection: Connection, group: str) -> Steps[None]:
        """Publish the programs of all conditions of a group, which filterSupportRetry applies to its retry topic.

        A condition that is refused filters nothing, as in stock.
        """
        online = self.consumers.get(group)
        for topic, subscription in [] if online is None else list(online.subscriptions.items()):
            if not subscription.is_sql:
                continue
            with suppress(FilterError):
                yield from self.tables.filters.placing(subscription.sub_string, connection)
                if self.consumers.subscription(group, topic) is subscription:
                    self.tables.publish_subscription(group, topic, subscription)
        self.publication.conditions_placed(group)

    def _check_broker(self, request: Request) -> Answer | None:
        host = self.identity.host
        if not self.live.config.broker_permission & Perm.READ:
            return _forbid(request, FORBIDDEN_BROKER, f"the broker[{host}] pulling message is forbidden")
        is_lite = request.command.code == RequestCode.LITE_PULL_MESSAGE
        if is_lite and not self.live.config.lite_pull_message_enable:
            return _forbid(request, FORBIDDEN_BROKER, f"the broker[{host}] for lite pull consumer is forbidden")
        return None

    def _subscription_of(
        self, request: Request, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData | RemotingCommand:
        """The subscription that filters the pull: the request's own expression, or the heartbeat's."""
        name = header.consumer_group
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            try:
                return build_subscription(header.topic, header.subscription, header.expression_type)
            except RequestError as error:
                return request.reply(error.code, f"parse the consumer's subscription failed: {error}")
        online = self.consumers.get(name)
        if online is None:
            remark = f"the consumer's group info not exist{FAQ}"
            return request.reply(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if online.is_broadcasting and not group.consume_broadcast_enable:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            return _forbid(request, FORBIDDEN_BROADCAST, remark)
        if self.groups.is_forbidden(name, header.topic):
            remark = f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            return _forbid(request, FORBIDDEN_SUBSCRIPTION, remark)
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{FAQ}"
            return request.reply(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < (header.sub_version or 0):
            return request.reply(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription

    def _serve(
        self,
        request: Request,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        program: Program | None,
    ) -> Answer:
        self.new_entries.find_group(header.consumer_group, request.now_ms)  # the pull is not refused any more
        state = self.tables.queue(header.topic, header.queue_id)
        low, high = (0, 0) if state is None else (max(0, state.min_offset), state.max_offset)
        key = header.consumer_group, header.topic, header.queue_id
        if self.offsets.keeps_reset(*key):
            reset = self.offsets.take_reset(*key)
            self.publication.publish(header.consumer_group)
            if reset is not None:
                self.offsets.put(*key, reset, request.now_ms)
                return self._answer(request, topic, group, "OFFSET_RESET", reset, low, high)
        is_cold = subscription.is_tags and subscription_kind(subscription)[0] == SUBSCRIPTION_COLD
        if not is_batch_topic(topic) and not is_cold:
            return Redo()
        return self._read(request, header, topic, group, subscription, program)

    def _read(
        self,
        request: Request,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        program: Program | None,
    ) -> Answer:
        """Answer a pull in control: BatchCQ, or more tags than the hot path holds."""
        may_hold = not request.is_again and bool(header.sys_flag & PullSysFlag.SUSPEND)
        commits = header.sys_flag & PullSysFlag.COMMIT_OFFSET and header.consumer_group != names.TRANSACTION_GROUP
        if commits and not request.is_again:
            self.offsets.put(header.consumer_group, header.topic, header.queue_id, header.commit_offset, request.now_ms)
        is_all = subscription.is_all or subscription.class_filter_mode or program is not None
        codes = [] if is_all else sorted(subscription.code_set)
        count = max(1, min(header.max_msg_nums, self.live.config.max_transfer_count_on_message_in_memory))
        wants = None if program is None else partial(matches, program)
        found = self.store.batch_pull(header.topic, header.queue_id, header.queue_offset, count, codes, wants)
        answer = self._answer(
            request, topic, group,
            found.status, found.next_begin_offset, found.min_offset, found.max_offset, found.body,
        )  # fmt: skip

        def has_grown() -> bool:
            state = self.tables.queue(header.topic, header.queue_id)
            return state is None or state.max_offset > header.queue_offset

        if answer.code == ResponseCode.PULL_NOT_FOUND and may_hold:
            suspend_ms = header.suspend_timeout_millis
            if not self.live.config.long_polling_enable:
                suspend_ms = self.live.config.short_polling_time_mills
            if self.held_pulls.hold(request, suspend_ms, has_grown):
                return Wait()
        return answer

    def _answer(
        self,
        request: Request,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        status: str,
        next_offset: int,
        min_offset: int,
        max_offset: int,
        body: bytes = b"",
    ) -> RemotingCommand:
        code = _CODE_OF_STATUS.get(status)
        if code is None:  # NO_MATCHED_LOGIC_QUEUE, NO_MESSAGE_IN_QUEUE
            at_start = request.command.ext_fields.get("queueOffset") == "0"
            code = ResponseCode.PULL_NOT_FOUND if at_start else ResponseCode.PULL_OFFSET_MOVED
        asked = int(request.command.ext_fields["queueOffset"])
        suggestion = suggest(
            member_of(self.live.config, self.plane),
            PullFinding(code, asked, next_offset, False),
            group.which_broker_when_consume_slowly,
            group.broker_id,
        )
        ext = PullMessageResponseHeader(
            suggest_which_broker_id=suggestion.suggested_broker_id,
            next_begin_offset=suggestion.next_offset,
            min_offset=min_offset,
            max_offset=max_offset,
            topic_sys_flag=topic.topic_sys_flag,
            group_sys_flag=group.group_sys_flag,
        )
        return request.reply(suggestion.code, status, ext.encode(), body)


def _forbid(request: Request, kind: int, remark: str) -> RemotingCommand:
    return request.reply(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind)})
