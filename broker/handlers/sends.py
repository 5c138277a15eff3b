"""Cold sends (10, 310, 320): topics to be made, names and properties to be refused.

The frame's body stays with the read worker. The decision here is a refusal or `Redo`. The checks have stock's order
(`SendMessageProcessor.preSend`, `AbstractSendMessageProcessor.msgCheck`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.cold_send import ColdSend, SendCheck
from ringmq.broker.requests.request import FAQ, REJECTED, Answer, Redo, Request
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.locks import QueueLocks
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.broker.tables.retry_topics import RetryTopics
from ringmq.broker.tables.topics import (
    BATCH_QUEUE,
    CLEANUP_POLICY,
    COMPACTION,
    QUEUE_TYPE,
    TopicTable,
    describe,
    is_batch_topic,
    planned_for_group,
)
from ringmq.ipc.admission_twin import (
    Admitted,
    Limits,
    Reason,
    Send,
    TopicState,
    Verdict,
    admit,
)
from ringmq.ipc.asks import RedoRule
from ringmq.remoting import names, properties
from ringmq.remoting.client_headers import SendMessageRequestHeader
from ringmq.remoting.codes import VERSION_MAX_RECONSUME_TIMES, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.flags import TRANSACTION_MASK, MessageSysFlag, Perm, TopicSysFlag
from ringmq.remoting.request_headers import decode_send_header

MAX_PROPERTIES_BYTES = properties.MAX_PROPERTIES_BYTES
BATCH_TOPIC_MAX = 127
UNIQ_PAIR_BYTES = 66
"""Largest UNIQ_KEY pair that the broker may add."""


class SendRequests(Struct, frozen=True):
    """The handler of sends, with the parts that it needs."""

    live: LiveConfig
    identity: Identity
    plane: PlaneProtocol
    topics: TopicTable
    locks: QueueLocks
    deletions: Deletions
    new_entries: NewEntries
    retry_topics: RetryTopics
    of_guests: tuple[SendCheck, ...] = ()

    def send(self, request: Request) -> Answer:
        """Check a send. The result is a refusal, or Redo if the read worker may append it."""
        header = decode_send_header(request.command)
        now_ms = request.now_ms
        if not self.live.is_master:
            return self._refuse(request, ResponseCode.SYSTEM_BUSY, REJECTED)
        if now_ms < self.live.config.start_accept_send_request_time_stamp:
            start = self.live.config.start_accept_send_request_time_stamp
            return self._refuse(request, ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {start}")
        if request.body_length == 0:
            return request.reply(ResponseCode.SYSTEM_ERROR, "the message body is empty, at least 1 byte is needed")
        refusal = self._check_topic_name(request, header)
        if refusal is not None:
            return refusal
        topic = self.topics.get(header.topic) or self._planned_topic(header)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please!{FAQ}"
            return self._refuse(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        refusal = self._check_queue(request, header, topic)
        if refusal is not None:
            return refusal
        group, planned = None, [topic]
        if header.batch:
            refusal = self._check_batch(request, header)
        elif names.is_retry_topic(header.topic):
            name = header.topic.removeprefix(names.RETRY_PREFIX)
            group = self.new_entries.group_of(name)
            if group is None:
                remark = f"subscription group not exist, {name} {FAQ}"
                return self._refuse(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            if self._is_dead(request, header, group):
                planned.append(self.retry_topics.planned_dead_letter(name))
        refusal = refusal or self._check_message(request, header, topic)
        if refusal is not None:
            return refusal
        self.new_entries.make(group, planned, now_ms)
        return Redo(RedoRule.DEAD_LETTER if len(planned) > 1 else RedoRule.UNCHANGED)

    def _check_topic_name(self, request: Request, header: SendMessageRequestHeader) -> Answer | None:
        known = self.topics.get(header.topic)
        if not self.live.config.broker_permission & Perm.WRITE and known is not None and known.order:
            remark = f"the broker[{self.identity.host}] sending message is forbidden"
            return self._refuse(request, ResponseCode.NO_PERMISSION, remark)
        try:
            names.check_topic(header.topic)
        except names.InvalidName as error:
            return self._refuse(request, error.code, str(error))
        if names.is_send_forbidden(header.topic):
            remark = f"Sending message to topic[{header.topic}] is forbidden."
            return self._refuse(request, ResponseCode.NO_PERMISSION, remark)
        return None

    def _planned_topic(self, header: SendMessageRequestHeader) -> TopicConfig | None:
        """The topic that the send makes, once nothing else refuses it."""
        self.deletions.check_gone(header.topic)
        self.new_entries.refuse_when_short(f"topic {header.topic}")
        sys_flag = 0
        if header.unit_mode:
            sys_flag = TopicSysFlag.UNIT_SUB if names.is_retry_topic(header.topic) else TopicSysFlag.UNIT
        template = header.default_topic
        if template != names.AUTO_CREATE_TOPIC or self.live.config.auto_create_topic_enable:
            wanted = header.default_topic_queue_nums
            planned = self.topics.planned_for_send(header.topic, template, wanted, int(sys_flag))
            if planned is not None:
                return planned
        if names.is_retry_topic(header.topic):
            return planned_for_group(header.topic, 1, int(sys_flag))
        return None

    def _check_queue(self, request: Request, header: SendMessageRequestHeader, topic: TopicConfig) -> Answer | None:
        if header.queue_id >= topic.queue_count:
            remark = (
                f"request queueId[{header.queue_id}] is illegal, {describe(topic)} "
                f"Producer: {request.connection.address}"
            )
            return self._refuse(request, ResponseCode.INVALID_PARAMETER, remark)
        if header.queue_id < 0 and topic.write_queue_nums == 0:
            remark = f"topic[{header.topic}] has no write queue to choose from"
            return self._refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        return None

    def _check_batch(self, request: Request, header: SendMessageRequestHeader) -> Answer | None:
        if len(header.topic) > BATCH_TOPIC_MAX:
            remark = f"message topic length {len(header.topic)} is over the limit of {BATCH_TOPIC_MAX}"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        if names.is_retry_topic(header.topic):
            remark = f"batch request does not support retry group {header.topic}"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        return None

    def _is_dead(self, request: Request, header: SendMessageRequestHeader, group: SubscriptionGroupConfig) -> bool:
        """True if a direct send to %RETRY%group is a dead letter (`handleRetryAndDLQ`).

        The client has counted this failure already, so the limit itself is no dead letter. A group with a live queue
        lock consumes in order and has retried by itself.
        """
        limit = group.retry_max_times
        if request.command.version >= VERSION_MAX_RECONSUME_TIMES and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        times = header.reconsume_times or 0
        return times > limit or self.locks.is_any_live(group.group_name, request.now_ms)

    def _check_message(self, request: Request, header: SendMessageRequestHeader, topic: TopicConfig) -> Answer | None:
        text = header.properties or ""
        length = len(text.encode("utf-8", "replace"))
        limit = self.live.config.max_message_size
        illegal = self._illegal()
        if length > MAX_PROPERTIES_BYTES:
            remark = f"{illegal} properties: {length} bytes, limit {MAX_PROPERTIES_BYTES}"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        if request.body_length > limit:
            remark = f"{illegal} body: {request.body_length} bytes, limit {limit}"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        stored = length + len(self._additions()) + (0 if header.batch else UNIQ_PAIR_BYTES) + 1
        if stored > MAX_PROPERTIES_BYTES:
            remark = f"{illegal} properties with the broker's own: {stored} bytes, limit {MAX_PROPERTIES_BYTES}"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        if "\0" in text:
            remark = f"{illegal} properties: they hold a NUL character"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        found = properties.decode_properties(text)
        if topic.attributes.get(CLEANUP_POLICY) == COMPACTION and not found.get(properties.KEYS):
            remark = "the property KEYS is missing: a message of a compaction topic needs it"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        return self._check_later_features(request, header, found, topic)

    def _illegal(self) -> str:
        """The begin of stock's remark."""
        limit = self.live.config.max_message_size
        return (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {limit}B, msg properties length limit 32KB."
        )

    def _additions(self) -> str:
        """The pairs that the broker adds to the properties of every message."""
        pairs = {
            properties.MSG_REGION: self.live.config.region_id,
            properties.TRACE_ON: str(self.live.config.trace_on).lower(),
            properties.CLUSTER: self.live.config.broker_cluster_name,
        }
        return properties.encode_properties(pairs)

    def _check_later_features(
        self, request: Request, header: SendMessageRequestHeader, found: dict[str, str], topic: TopicConfig
    ) -> Answer | None:
        """Refuse a message that must not be stored as an ordinary one, unless a published rule covers it."""
        text = (header.properties or "").encode("utf-8", "replace")
        send = ColdSend(found, text, bool(header.batch), self.plane.admission_rules)
        refusals = [refusal for check in self.of_guests if (refusal := check(send)) is not None]
        pairs, transaction = self._check_pairs(request, found, refusals), self._check_transaction(request, header)
        if refusals or pairs or transaction:
            admitted = self._admitted(request, header, topic)
            if admitted.reason is Reason.PROPERTIES:
                remark = f"{self._illegal()} properties with those that the broker adds until the delivery: more than "
                return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, f"{remark}{MAX_PROPERTIES_BYTES} bytes")
            if admitted.verdict in (Verdict.REDIRECT, Verdict.REFUSE):
                pairs = transaction = None
        return pairs or self._check_batch_queues(request, topic) or transaction or self._check_inner(request, header)

    def _admitted(self, request: Request, header: SendMessageRequestHeader, topic: TopicConfig) -> Admitted:
        """The decision of the read worker about this send, once the topic is in the tables."""
        return admit(
            Send(
                topic=header.topic.encode(),
                queue_id=header.queue_id,
                sys_flag=header.sys_flag,
                batch=bool(header.batch),
                body_length=request.body_length,
                properties=(header.properties or "").encode("utf-8", "replace"),
                reconsume_times=header.reconsume_times or 0,
            ),
            Limits(self.live.config.max_message_size, len(self._additions().encode()), UNIQ_PAIR_BYTES),
            TopicState(
                live=True,
                send_cold=False,
                read_queues=topic.read_queue_nums,
                write_queues=topic.write_queue_nums,
                topic_id=self.plane.topic_find(header.topic) or 0,
            ),
            self.plane.admission_rules(),
            now_ms=request.now_ms,
        )

    def _check_transaction(self, request: Request, header: SendMessageRequestHeader) -> Answer | None:
        """Refuse bits that only half messages may have. Services take bit 8 for the mark of a committed message."""
        if header.sys_flag & TRANSACTION_MASK:
            remark = f"sysFlag = {header.sys_flag}: only a single message with {properties.TRAN_MSG} = true"
            remark += " may have bits of transactions (0xC)"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        return None

    def _check_inner(self, request: Request, header: SendMessageRequestHeader) -> Answer | None:
        """Refuse bits that only brokers may set."""
        if header.sys_flag & (MessageSysFlag.NEED_UNWRAP | MessageSysFlag.INNER_BATCH):
            remark = f"sysFlag = {header.sys_flag}: inner batches (bits 0x40, 0x80) are not for clients"
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        return None

    def _check_pairs(self, request: Request, found: dict[str, str], refusals: Sequence[str]) -> Answer | None:
        """Refuse pairs of guests that no rule can use, and pairs that only brokers may set."""
        remark = next((remark for remark in refusals if remark), "")
        if not refusals and (name := next((name for name in properties.TIMES_ASKED if name in found), "")):
            remark = f"{name} = {found[name][:32]}: this broker has no part that delivers a message at a time"
        if not remark and properties.INNER_NUM in found:
            remark = f"{properties.INNER_NUM} is not for clients: only a broker makes inner batches"
        return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, remark) if remark else None

    def _check_batch_queues(self, request: Request, topic: TopicConfig) -> Answer | None:
        if is_batch_topic(topic):
            remark = (
                f"topic {topic.topic_name} has {QUEUE_TYPE} = {BATCH_QUEUE}: writing such topics is not supported yet"
            )
            return self._refuse(request, ResponseCode.INVALID_PARAMETER, remark)
        return None

    def _refuse(self, request: Request, code: int, remark: str) -> RemotingCommand:
        """A refusal. Answers to sends carry the region and the trace switch, refusals too."""
        trace_on = str(self.live.config.trace_on).lower()
        return request.reply(code, remark, {"MSG_REGION": self.live.config.region_id, "TRACE_ON": trace_on})
