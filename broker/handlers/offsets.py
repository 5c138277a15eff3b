"""Requests about positions: consumer offsets (14, 15, 43, 222), bounds of queues (30, 31), times (29, 32)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct, field

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.handlers.long_bodies import concatenated, separated
from ringmq.broker.holders import Asking, Holders
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.body_cache import BodyCache
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.group_publication import GroupPublication
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.offsets import CommitKey, OffsetTable
from ringmq.broker.tables.protocols import PlaneProtocol, StoreProtocol
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.retry_topics import RetryTopics
from ringmq.broker.tables.topics import TopicTable
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting import client_headers as headers
from ringmq.remoting import names
from ringmq.remoting.admin_bodies import encode_queue_offsets
from ringmq.remoting.admin_headers import ResetOffsetRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.log_throttle import LogThrottle
from ringmq.remoting.message_queue import MessageQueue

OF_THE_BROKER = f"group {names.TRANSACTION_GROUP}: its offsets are the broker's progress with transactions"
FOREIGN_COMMITS_PER_MINUTE = 600
AUDITED_MAX = 64
"""Queues of a reset that the audit line names."""
STEP_QUEUES = 32
"""Queues of one step. Each may read an offset by time from the store."""


class OffsetRequests(Struct, frozen=True):
    """The handlers of positions, with the parts that they need."""

    live: LiveConfig
    plane: PlaneProtocol
    store: StoreProtocol
    tables: PlaneTables
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    offsets_body: BodyCache
    publication: GroupPublication
    consumers: ConsumerTable
    retry_topics: RetryTopics
    holders: Holders
    audit: AuditTrail
    foreign_commits: LogThrottle = field(default_factory=lambda: LogThrottle(FOREIGN_COMMITS_PER_MINUTE))

    def query_consumer_offset(self, request: Request) -> Answer:
        """14. Beyond stock's rules: an empty queue that begins at 0 answers 0 unless setZeroIfNotFound is false.

        Otherwise a group that is made at the same moment as the first message would start behind that message.
        """
        header = headers.QueryConsumerOffsetRequestHeader.decode(request.command.ext_fields)
        self.offsets.drain(request.now_ms)
        offset = self.offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return _offset(request, offset)
        if header.set_zero_if_not_found is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        if self._starts_at_zero(header.topic, header.queue_id):
            return _offset(request, 0)
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)

    def _starts_at_zero(self, topic: str, queue_id: int) -> bool:
        """True if the queue begins at 0 and its first message is still in memory or not there yet."""
        state = self.tables.queue(topic, queue_id)
        if state is None or state.min_offset > 0:
            return False
        if state.max_offset == 0:
            return True
        units = self.store.queue_units(topic, queue_id, 0, 1)
        if not units:
            return False
        behind = self.plane.confirm_offset() - units[0][0]
        return behind <= int(self.plane.header.settings.memory_window_bytes)

    def update_consumer_offset(self, request: Request) -> Answer:
        """15. Earlier commits of pulls must not overwrite it, because a member that leaves commits last by 15."""
        header = headers.UpdateConsumerOffsetRequestHeader.decode(request.command.ext_fields)
        self.offsets.drain(request.now_ms)
        group, topic = header.consumer_group, header.topic
        config = self.groups.get(group)
        if config is None:
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if group == names.TRANSACTION_GROUP:
            return request.reply(ResponseCode.NO_PERMISSION, OF_THE_BROKER)
        if topic not in self.topics:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if header.queue_id is None:
            return request.reply(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if header.commit_offset is None:
            return request.reply(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        if self.offsets.has_reset(group, topic, header.queue_id):
            return request.reply(remark="Offset has been previously reset")
        if header.only_forward and self.offsets.get(group, topic, header.queue_id) >= header.commit_offset:
            return request.reply()
        self._note_foreign_commit(request, (group, topic, header.queue_id), header.commit_offset)
        self.offsets.put(group, topic, header.queue_id, header.commit_offset, request.now_ms)
        if not self.live.is_master:  # its topics are those of its master
            self.offsets.committed_here.add((group, topic, header.queue_id))
        else:
            self.retry_topics.make_for_offsets(config, request.now_ms)
        return request.reply()

    def _note_foreign_commit(self, request: Request, key: CommitKey, offset: int) -> None:
        """Note an offset from a peer that is no member of the group: an operator's tool, or a program with offsets of
        its own. Such a program commits all the time: only the first of its commits to a queue is noted."""
        group, topic, queue_id = key
        online = self.consumers.get(group)
        if request.command.is_oneway or (online is not None and request.connection in online.members):
            return
        before = self.offsets.get(group, topic, queue_id)
        name = f"{topic}@{group}"
        text = f"{request.connection.host} {name}:{queue_id}"
        if before != offset and self.foreign_commits.line(text, request.now_ms) is not None:
            self.audit.add(Kind.OFFSETS, name, {str(queue_id): before}, {str(queue_id): offset})

    def all_consumer_offsets(self, request: Request) -> Slices:
        """43."""

        def steps() -> Steps[Answer]:
            return request.reply(body=(yield from self.offsets_body.steps()))

        return Slices(steps(), is_shared=True, is_reading=True)

    def max_offset(self, request: Request) -> Answer:
        """30: the offset of the next message. 0 for an unknown queue."""
        header = headers.GetMaxOffsetRequestHeader.decode(request.command.ext_fields)
        state = self.tables.queue(header.topic, header.queue_id)
        return _offset(request, 0 if state is None else state.max_offset)

    def min_offset(self, request: Request) -> Answer:
        """31. 0 for an unknown queue."""
        header = headers.GetMinOffsetRequestHeader.decode(request.command.ext_fields)
        state = self.tables.queue(header.topic, header.queue_id)
        return _offset(request, 0 if state is None else state.min_offset)

    def offset_by_time(self, request: Request) -> Answer:
        """29."""
        header = headers.SearchOffsetRequestHeader.decode(request.command.ext_fields)
        upper = (header.boundary_type or "").lower() == "upper"
        return _offset(request, self.store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper))

    def earliest_store_time(self, request: Request) -> Answer:
        """32. -1 if the queue has no message."""
        header = headers.GetEarliestMsgStoretimeRequestHeader.decode(request.command.ext_fields)
        state = self.tables.queue(header.topic, header.queue_id)
        first = 0 if state is None else state.min_offset
        time_ms = self.store.store_time(header.topic, header.queue_id, first)
        return request.reply(ext_fields={"timestamp": str(time_ms)})

    def reset_offset(self, request: Request) -> Answer | Slices:
        """222 with resets that the broker keeps: the next pull or pop of each queue goes to the reset offset."""
        if not self.live.is_master:
            return request.reply(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        header = ResetOffsetRequestHeader.decode(request.command.ext_fields)
        if header.group == names.TRANSACTION_GROUP:
            return request.reply(ResponseCode.NO_PERMISSION, OF_THE_BROKER)
        topic = self.topics.get(header.topic)
        if topic is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.group not in self.groups:
            remark = f"Group {header.group} does not exist"
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        one = header.queue_id if header.queue_id is not None and header.queue_id >= 0 else None
        if one is not None and one >= topic.read_queue_nums:  # no pull reads such a queue
            remark = (
                f"queueId[{one}] is illegal, topic:[{topic.topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        asking = self.holders.begin()
        queue_ids = range(topic.read_queue_nums) if one is None else (one,)
        return Slices(self._reset(request, header, queue_ids, one, asking), awaits=asking.is_waiting)

    def _reset(
        self, request: Request, header: ResetOffsetRequestHeader, queue_ids: Sequence[int], one: int | None,
        asking: Asking,
    ) -> Steps[Answer]:  # fmt: skip
        targets: dict[int, int] = {}
        popped: dict[int, int] = {}
        for number, queue_id in enumerate(queue_ids, 1):
            popped[queue_id] = self.offsets.popped(header.group, header.topic, queue_id)
            if one is not None and header.offset is not None and header.offset != -1:
                state = self.tables.queue(header.topic, queue_id)
                low, high = (0, 0) if state is None else (state.min_offset, state.max_offset)
                if not low <= header.offset <= high + 1:
                    remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
                    return request.reply(ResponseCode.SYSTEM_ERROR, remark)
                targets[queue_id] = header.offset
            else:
                targets[queue_id] = self._reset_target(header.topic, queue_id, header.timestamp)
            if number % STEP_QUEUES == 0:
                yield
        if not targets:
            return request.reply(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        before = {
            str(queue_id): self.offsets.get(header.group, header.topic, queue_id)
            for queue_id in islice(targets, AUDITED_MAX)
        }
        problem = yield from asking.reset(header.group, header.topic, targets)
        done = dict(islice(targets.items(), asking.done))
        if done:
            yield from self._set(request, header, done, popped, is_reported=asking.has_asked)
            after = {str(queue_id): offset for queue_id, offset in islice(done.items(), AUDITED_MAX)}
            more = {"more": len(done) - AUDITED_MAX} if len(done) > AUDITED_MAX else {}
            self.audit.add(Kind.OFFSETS, f"{header.topic}@{header.group}", before, after | more)
        if problem:
            return request.reply(ResponseCode.SYSTEM_BUSY, problem)
        name = self.live.config.broker_name
        entries = (
            encode_queue_offsets({MessageQueue(header.topic, name, queue_id): offset})[len(b'{"offsetTable":{') : -2]
            for queue_id, offset in targets.items()
        )
        table = yield from concatenated(separated(entries))
        return request.reply(body=b'{"offsetTable":{%s}}' % table)

    def _set(
        self, request: Request, header: ResetOffsetRequestHeader, offsets: dict[int, int], popped: dict[int, int],
        *, is_reported: bool,
    ) -> Steps[None]:  # fmt: skip
        """Keep the resets of these queues. `is_reported`: a worker has reset them."""
        self.offsets.drain(request.now_ms)
        for number, (queue_id, offset) in enumerate(offsets.items(), 1):
            is_put = is_reported and self.tables.slot(header.topic, queue_id) is not None
            self.offsets.set_reset(
                header.group, header.topic, queue_id, offset, request.now_ms, popped=popped[queue_id], is_put=is_put
            )
            if number % STEP_QUEUES == 0:
                yield
        if is_reported:
            self.offsets.note_holders_moved()
        self.publication.publish(header.group)
        if (group := self.groups.get(header.group)) is not None:
            self.retry_topics.make_for_offsets(group, request.now_ms)

    def _reset_target(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            state = self.tables.queue(topic, queue_id)
            return 0 if state is None else state.max_offset
        return self.store.offset_by_time(topic, queue_id, timestamp_ms, False)


def _offset(request: Request, offset: int) -> Answer:
    return request.reply(ext_fields={"offset": str(offset)})
