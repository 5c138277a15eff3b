"""The request of an operator to let a group go on where another one is (314)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.holders import Asking, Holders
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.topics import TopicTable
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting import names
from ringmq.remoting.admin_headers import CloneGroupOffsetRequestHeader
from ringmq.remoting.codes import ResponseCode

AUDITED_MAX = 64
"""Queues that the audit line names."""
STEP_QUEUES = 32


class OffsetCopyRequests(Struct, frozen=True):
    """The handler, with the parts that it needs."""

    live: LiveConfig
    tables: PlaneTables
    topics: TopicTable
    consumers: ConsumerTable
    offsets: OffsetTable
    holders: Holders
    audit: AuditTrail

    def copy_offsets(self, request: Request) -> Answer | Slices:
        """314: the consumer offsets of a topic, or of all topics of the source, replace those of another group.

        As in stock, a source without offsets changes nothing, and neither does a topic that is not there, or that the
        members of the source do not read.
        """
        if not self.live.is_master:
            return request.reply(ResponseCode.SYSTEM_ERROR, "Can not clone offset in slave broker")
        header = CloneGroupOffsetRequestHeader.decode(request.command.ext_fields)
        names.check_group(header.dest_group)
        if header.dest_group == names.TRANSACTION_GROUP:
            remark = f"group {header.dest_group}: its offsets are the broker's progress with transactions"
            return request.reply(ResponseCode.NO_PERMISSION, remark)
        asking = self.holders.begin()
        return Slices(self._copy(request, header, asking), awaits=asking.is_waiting)

    def _copy(self, request: Request, header: CloneGroupOffsetRequestHeader, asking: Asking) -> Steps[Answer]:
        self.offsets.drain(request.now_ms)
        for topic in self._topics_of(header):
            yield
            found = self.offsets.of(header.src_group, topic)
            if not found:
                continue
            before = self.offsets.of(header.dest_group, topic)
            problem = yield from asking.reset(header.dest_group, topic, found)
            done = dict(islice(found.items(), asking.done))
            if done:
                yield from self._put(request, header.dest_group, topic, done, is_reported=asking.has_asked)
            if problem:
                self._note(header.dest_group, topic, before, before | done)
                return request.reply(ResponseCode.SYSTEM_BUSY, f"topic {topic}: {problem}")
            gone = self.offsets.of(header.dest_group, topic).keys() - found.keys()
            self.offsets.forget_queues(header.dest_group, topic, gone)
            self._note(header.dest_group, topic, before, found)
        return request.reply()

    def _topics_of(self, header: CloneGroupOffsetRequestHeader) -> Iterator[str]:
        source = self.consumers.get(header.src_group)
        read = None if header.offline or source is None else source.subscriptions
        one = header.topic or ""
        for topic in [one] if one.strip() else self.offsets.known_topics_of(header.src_group):
            if topic in self.topics and (not read or topic in read):
                yield topic

    def _put(
        self, request: Request, group: str, topic: str, offsets: dict[int, int], *, is_reported: bool
    ) -> Steps[None]:  # fmt: skip
        self.offsets.drain(request.now_ms)
        for number, (queue_id, offset) in enumerate(offsets.items(), 1):
            if not is_reported or self.tables.slot(topic, queue_id) is None:
                self.offsets.put(group, topic, queue_id, offset, request.now_ms)
            if number % STEP_QUEUES == 0:
                yield
        if is_reported:
            self.offsets.note_holders_moved()

    def _note(self, group: str, topic: str, before: dict[int, int], after: dict[int, int]) -> None:
        shown = sorted(before.keys() | after.keys())[:AUDITED_MAX]
        values = [{str(queue): offsets[queue] for queue in shown if queue in offsets} for offsets in (before, after)]
        self.audit.add(Kind.OFFSETS, f"{topic}@{group}", *values)
