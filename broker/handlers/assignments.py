"""Queues for consumers that ask the broker for them (400), and request modes of groups (401, 402)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ringmq.broker.assignment.routes import TopicRoutes
from ringmq.broker.assignment.shares import Member, share_of
from ringmq.broker.assignment.topic_queues import TopicQueues
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.handlers.long_bodies import concatenated, separated
from ringmq.broker.holders import Asking, Holders
from ringmq.broker.requests.request import Answer, Request, Slices, Wait
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.body_cache import BodyCache
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.request_modes import PairKey, RequestModeTable
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting import names
from ringmq.remoting.assignment_bodies import (
    ASSIGNMENTS_HEAD,
    ASSIGNMENTS_TAIL,
    NO_RESULT,
    POP,
    PULL,
    AssignmentQuery,
    RequestMode,
    encode_assignment,
)
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.heartbeat import BROADCASTING
from ringmq.remoting.message_queue import MessageQueue
from ringmq.store.layout import LMQ_PREFIX

SMALL_SHARE = 1000
"""Queues of an answer of some 80 KB. Only some larger answers are in work at a time."""


class AssignmentRequests(Struct, frozen=True):
    """The handlers of assignments, with the parts that they need."""

    live: LiveConfig
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerTable
    modes: RequestModeTable
    modes_body: BodyCache
    routes: TopicRoutes
    new_entries: NewEntries
    holders: Holders
    offsets: OffsetTable

    def query(self, request: Request) -> Answer | Slices:
        """400. The first request for a topic waits until a name server has answered with the topic's route."""
        asked = AssignmentQuery.decode(request.command.body)
        queues = self._queues(asked, request.now_ms)
        if not queues and not request.is_again and self.routes.wait(request, asked.topic):
            return Wait()
        mode = self.modes.effective(asked.topic, asked.group, self.live.config)
        share = None if queues is None else self._share(asked, queues, mode)
        if share is None:
            return request.reply(body=NO_RESULT)
        return Slices(_listed(request, share, mode.mode), is_large=len(share) > SMALL_SHARE, is_reading=True)

    def _queues(self, asked: AssignmentQuery, now_ms: int) -> TopicQueues | None:
        """The queues of the topic on all brokers. None if no route is known. A light queue needs no route."""
        if asked.topic.startswith(LMQ_PREFIX) and asked.message_model != BROADCASTING:
            return TopicQueues(asked.topic, [(self.live.config.broker_name, 1)])
        return self.routes.get(asked.topic, now_ms)

    def _share(self, asked: AssignmentQuery, queues: TopicQueues, mode: RequestMode) -> Sequence[MessageQueue] | None:
        if asked.message_model == BROADCASTING or not self.live.config.server_load_balancer_enable:
            return queues
        online = self.consumers.get(asked.group)
        places = {} if online is None else online.places()
        if not places:
            return None
        member = Member(asked.client_id, places.get(asked.client_id), len(places))
        return share_of(member, queues, mode, asked.strategy)

    def set_mode(self, request: Request) -> Answer | Slices:
        """401. A refused request makes no group."""
        mode = RequestMode.decode(request.command.body)
        if names.is_retry_topic(mode.topic):
            return request.reply(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if not self.live.is_master:  # stock accepts it and loses it at the next synchronisation
            remark = "Can't modify request modes from slave broker, please execute it from master broker."
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        if mode.topic not in self.topics:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        group = self.new_entries.group_of(mode.group)
        if group is None:
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        before = self.modes.effective(mode.topic, mode.group, self.live.config)
        self.modes.check_room(mode, self._is_used)
        if before.mode == POP and mode.mode == PULL:
            asking = self.holders.begin()
            return Slices(self._to_pull(request, mode, asking), awaits=asking.is_waiting)
        self.new_entries.make(group, (), request.now_ms)
        self.modes.put(mode)
        return request.reply()

    def _to_pull(self, request: Request, mode: RequestMode, asking: Asking) -> Steps[Answer]:
        """The offsets of the group go behind what its members hold, then the mode counts. Tables may change
        meanwhile."""
        if problem := (yield from asking.leave(mode.group, mode.topic)):
            return request.reply(ResponseCode.SYSTEM_BUSY, problem)
        if mode.topic not in self.topics:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        group = self.new_entries.group_of(mode.group)
        if group is None:
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self.modes.check_room(mode, self._is_used)
        if asking.has_asked:
            self.offsets.drain(request.now_ms)
            self.offsets.note_holders_moved()
        self.new_entries.make(group, (), request.now_ms)
        self.modes.put(mode)
        return request.reply()

    def _is_used(self, pair: PairKey) -> bool:
        topic, group = pair
        return topic in self.topics and group in self.groups

    def all_modes(self, request: Request) -> Slices:
        """402."""

        def steps() -> Steps[Answer]:
            return request.reply(body=(yield from self.modes_body.steps()))

        return Slices(steps(), is_shared=True, is_reading=True)


def _listed(request: Request, queues: Sequence[MessageQueue], mode: str) -> Steps[Answer]:
    entries = yield from concatenated(separated(encode_assignment(queue, mode) for queue in queues))
    return request.reply(body=ASSIGNMENTS_HEAD + entries + ASSIGNMENTS_TAIL)
