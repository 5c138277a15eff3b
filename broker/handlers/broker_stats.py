"""Statistics that boards read: growth under a name and a key (315), the progress of all groups (317)."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.handlers.group_progress import GroupProgress
from ringmq.broker.handlers.long_bodies import member_name
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.statistics import Statistics
from ringmq.broker.tables.topics import TopicTable
from ringmq.broker.tables.windows import Figures
from ringmq.remoting import admin_headers as headers
from ringmq.remoting import json_body
from ringmq.remoting.admin_bodies import ConsumeStats
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.names import dlq_topic, is_retry_topic, retry_topic

_BEANS = ("statsMinute", "statsHour", "statsDay")
_OF_TOPICS = {"TOPIC_PUT_NUMS": False, "TOPIC_PUT_SIZE": True}
"""Stock's name -> True for bytes."""
_OF_GROUPS = {"GROUP_GET_NUMS": False, "GROUP_GET_SIZE": True}
_OF_BROKER = {
    "BROKER_PUT_NUMS": (True, True),
    "BROKER_GET_NUMS": (False, True),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (True, False),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (False, False),
}
"""Stock's name -> True for messages that came in; True for system topics, too."""
SEND_BACKS = "SNDBCK_PUT_NUMS"


class BrokerStatsRequests(Struct, frozen=True):
    """The handlers of these requests, with the parts that they need."""

    live: LiveConfig
    identity: Identity
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerTable
    offsets: OffsetTable
    statistics: Statistics
    progress: GroupProgress

    def view(self, request: Request) -> Answer:
        """315."""
        header = headers.ViewBrokerStatsDataRequestHeader.decode(request.command.ext_fields)
        shown = self._shown(header.stats_name, header.stats_key)
        if shown is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        beans = {
            name: {"avgpt": figures.average, "sum": figures.sum, "tps": figures.tps}
            for name, figures in zip(_BEANS, shown, strict=True)
        }
        return request.reply(body=json_body.write_body(beans))

    def _shown(self, name: str, key: str) -> tuple[Figures, ...] | None:
        topic, _, group = key.partition("@")
        if name in _OF_TOPICS:
            return self.statistics.topic(key, of_bytes=_OF_TOPICS[name])
        if name in _OF_GROUPS:
            return self.statistics.gets(topic, group, of_bytes=_OF_GROUPS[name])
        if name in _OF_BROKER and key == self.live.config.broker_cluster_name:
            is_put, with_system = _OF_BROKER[name]
            return self.statistics.broker(is_put=is_put, with_system=with_system)
        return self._send_backs(topic, group) if name == SEND_BACKS else None

    def _send_backs(self, topic: str, group: str) -> tuple[Figures, ...] | None:
        """Messages that have come into the topics of retries and of dead letters of a group. These do not tell from
        which topic a message was sent back, so a group that consumes several topics has no such statistics."""
        consumed = [name for name in self.offsets.known_topics_of(group) if not is_retry_topic(name)]
        if consumed != [topic]:
            return None
        retried = self.statistics.topic(retry_topic(group), of_bytes=False)
        dead = self.statistics.topic(dlq_topic(group), of_bytes=False)
        if retried is None or dead is None:
            return retried or dead
        return tuple(some + others for some, others in zip(retried, dead, strict=True))

    def all_groups(self, request: Request) -> Slices:
        """317: the progress of each group on each topic for which it has offsets, as 208 has it."""
        header = headers.GetConsumeStatsInBrokerRequestHeader.decode(request.command.ext_fields)
        return Slices(self._all_groups(request, is_order=header.is_order), is_large=True, is_reading=True)

    def _all_groups(self, request: Request, *, is_order: bool) -> Steps[Answer]:
        text, lag, in_flight = bytearray(), 0, 0
        for group in [config.group_name for config in self.groups]:
            bodies: list[bytes] = []
            for topic in self._topics_of(group):
                config = self.topics.get(topic)
                if config is None or (is_order and not config.order):
                    continue
                stats = ConsumeStats({})
                yield from self.progress.add(stats, group, config)
                lag += sum(entry.broker_offset - entry.consumer_offset for entry in stats.offsets.values())
                in_flight += sum(entry.pull_offset - entry.consumer_offset for entry in stats.offsets.values())
                bodies.append(stats.encode())
            text += b"".join((b"," if text else b"", b"{", member_name(group), b"[", b",".join(bodies), b"]}"))
            yield
        head = json_body.write_body({"brokerAddr": self.identity.address})[:-1]
        rest = json_body.write_body({"totalDiff": lag, "totalInflightDiff": in_flight})[1:]
        return request.reply(body=b"".join((head, b',"consumeStatsList":[', text, b"],", rest)))

    def _topics_of(self, group: str) -> list[str]:
        """Without topics that a group with members does not subscribe to any more."""
        topics, online = self.offsets.topics_of(group), self.consumers.get(group)
        if online is None or not online.subscriptions:
            return topics
        return [topic for topic in topics if topic in online.subscriptions]
