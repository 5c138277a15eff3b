"""Topics for operators: make and change (17, 18), delete (215), clean (316), read (21, 351, 305)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.handlers.config_pages import page_of
from ringmq.broker.handlers.topic_attributes import BadAttribute, alter_attributes, parse_attributes
from ringmq.broker.holders import Asking, Holders
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.body_cache import BodyCache
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.group_publication import GroupPublication
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.protocols import StoreProtocol
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.topics import BATCH_QUEUE, CLEANUP_POLICY, COMPACTION, QUEUE_TYPE, TopicTable, check_possible
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting import admin_headers as headers
from ringmq.remoting import json_body, names
from ringmq.remoting.admin_bodies import encode_topic_list
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.store import layout

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
MESSAGE_TYPE_CHANGE = "+message.type"
AUDITED_MAX = 64
"""Groups with deleted offsets that the audit line names."""
STEP_NAMES = 32


class TopicRequests(Struct, frozen=True):
    """The handlers of topics, with the parts that they need."""

    live: LiveConfig
    store: StoreProtocol
    tables: PlaneTables
    topics: TopicTable
    offsets: OffsetTable
    topics_body: BodyCache
    deletions: Deletions
    client_names: ClientNames
    publication: GroupPublication
    holders: Holders
    audit: AuditTrail

    def update_topic(self, request: Request) -> Slices:
        """17."""
        header = headers.CreateTopicRequestHeader.decode(request.command.ext_fields)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            bool(header.order),
        )
        config.attributes = parse_attributes(header.attributes)
        return Slices(self._put_all([config], request))

    def update_topics(self, request: Request) -> Slices:
        """18: all topics are checked before the first is made. A full shared table only shows when a topic is made."""
        return Slices(self._update_topics(request), is_large=True)

    def _update_topics(self, request: Request) -> Steps[Answer]:
        value = json_body.read_request(
            request.command.body, "CreateTopicListRequestBody", json_body.REQUEST_LIST_BYTES_MAX
        )
        yield
        configs = []
        for entry in json_body.objects(value, "topicConfigList"):
            configs.append(TopicConfig.from_json(entry))
            if None in json_body.mapping(entry, "attributes").values():  # from_json leaves it out
                raise BadAttribute(f"topic {configs[-1].topic_name[:64]}: an attribute has null as value")
            if len(configs) % STEP_NAMES == 0:
                yield
        return (yield from self._put_all(configs, request))

    def _check(self, config: TopicConfig) -> None:
        """Raise RequestError unless an operator may make this topic. `attributes` still has signed keys."""
        topic = config.topic_name
        names.check_topic(topic)
        if self.live.config.validate_system_topic_when_update_topic and self.topics.is_system(topic):
            raise RequestError(
                f"The topic[{topic}] is conflict with system topic.",
                field="topic",
                code=ResponseCode.INVALID_PARAMETER,
            )
        if config.topic_filter_type not in FILTER_TYPES:
            raise RequestError(
                f"topicFilterType = {config.topic_filter_type[:64]!r} value invalid, "
                f"accepted: {' or '.join(FILTER_TYPES)}",
                field="topicFilterType",
                code=ResponseCode.SYSTEM_ERROR,
            )
        if config.attributes.get(MESSAGE_TYPE_CHANGE) == "MIXED" and not self.live.config.enable_mixed_message_type:
            raise RequestError(
                "MIXED message type is not supported.", field="attributes", code=ResponseCode.INVALID_PARAMETER
            )
        if config.attributes.get("+" + QUEUE_TYPE) == BATCH_QUEUE:
            raise RequestError(
                f"{QUEUE_TYPE} = {BATCH_QUEUE}: making such topics is not supported yet",
                field="attributes",
                code=ResponseCode.INVALID_PARAMETER,
            )
        if config.attributes.get("+" + CLEANUP_POLICY) == COMPACTION:
            raise RequestError(
                f"{CLEANUP_POLICY} = {COMPACTION}: compaction is not built yet, so the topic would keep every message "
                "of a key; leave the attribute out, or set DELETE",
                field="attributes",
                code=ResponseCode.INVALID_PARAMETER,
            )

    def _put_all(self, configs: Sequence[TopicConfig], request: Request) -> Steps[Answer]:
        planned: dict[str, TopicConfig] = {}  # a later entry of a name changes the earlier one
        for number, config in enumerate(configs, 1):
            self._check(config)
            self.deletions.check_gone(config.topic_name)
            known = planned.get(config.topic_name) or self.topics.get(config.topic_name)
            config.attributes = alter_attributes(None if known is None else known.attributes, config.attributes)
            check_possible(config)
            planned[config.topic_name] = config
            if number % STEP_NAMES == 0:
                yield
        for number, config in enumerate(configs, 1):
            self.deletions.check_gone(config.topic_name)  # it may have been deleted in between
            known = self.topics.get(config.topic_name)
            self.topics.put(config, request.now_ms)
            if known is not None:
                self.client_names.give_topic(known)
            if number % STEP_NAMES == 0:
                yield
        return request.reply()

    def delete_topic(self, request: Request) -> Answer | Slices:
        """215: configuration, consumer offsets and queues of the topic and of its POP retry topics."""
        topic = headers.DeleteTopicRequestHeader.decode(request.command.ext_fields).topic
        if not topic.strip():
            return request.reply(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if self.live.config.validate_system_topic_when_update_topic and self.topics.is_system(topic):
            remark = f"The topic[{topic}] is conflict with system topic."
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        asking = self.holders.begin()
        return Slices(self._delete(request, topic, asking), awaits=asking.is_waiting)

    def _delete(self, request: Request, topic: str, asking: Asking) -> Steps[Answer]:
        if problem := (yield from asking.may_change()):
            return request.reply(ResponseCode.SYSTEM_BUSY, problem)
        doomed = [topic]
        if self.live.config.clear_retry_topic_when_delete_topic:
            for group in self.offsets.groups_on(topic):
                retry = names.retry_topic(group)
                doomed += [name for name in (f"{retry}+{topic}", f"{retry}_{topic}") if name in self.topics]
        to_reset = {group for name in doomed for group in self.offsets.groups_to_reset(name)}
        self.audit.add(Kind.OFFSETS, f"{topic}@*", self.offsets.groups_on(topic)[:AUDITED_MAX] or None, None)
        self.offsets.forget_topics(doomed)
        for group in to_reset:  # its readers may pull again
            self.publication.publish(group)
        for name in doomed:
            if self.topics.delete(name, request.now_ms):
                self.deletions.add(name, request.now_ms)
        if problem := (yield from asking.deleted(topics=doomed)):
            return request.reply(ResponseCode.SYSTEM_BUSY, f"topic {topic} is deleted, but {problem}")
        return request.reply()

    def clean_unused(self, request: Request) -> Slices:
        """316: remove the queues of topics that are in no configuration, except system topics and light queues.

        On a slave nothing is removed. Its master decides about topics, and their settings may arrive after their
        records.
        """
        return Slices(self._clean_unused(request))

    def _clean_unused(self, request: Request) -> Steps[Answer]:
        if not self.live.is_master:
            return request.reply()
        on_disk = list(self.store.topics_on_disk())
        for first in range(0, len(on_disk), STEP_NAMES):
            yield
            unused = [topic for topic in on_disk[first : first + STEP_NAMES] if not self._is_kept(topic)]
            if unused:
                self.offsets.forget_topics(unused)
            for topic in unused:
                self.audit.add(Kind.TOPIC, topic, {"queues": "on disk"}, None)
                self.tables.withdraw_topic(topic)
                self.deletions.add(topic, request.now_ms)
        return request.reply()

    def _is_kept(self, topic: str) -> bool:
        if topic in self.topics or topic in self.deletions:
            return True
        return self.topics.is_system(topic) or topic.startswith(layout.LMQ_PREFIX)

    def all_topics(self, request: Request) -> Slices:
        """21: all topics, or the page that the request asks for (stock after 5.3.3)."""
        header = headers.GetAllTopicConfigRequestHeader.decode(request.command.ext_fields)
        version = self.topics.data_version
        page = page_of(self.topics.names(), version, header.topic_seq, header.max_topic_num, header.data_version)
        ext = None if page is None else {"totalTopicNum": str(len(self.topics))}

        def steps() -> Steps[Answer]:
            whole = self.topics_body.steps()
            body = yield from whole if page is None else self.topics.body_steps(page)
            return request.reply(ext_fields=ext, body=body)

        return Slices(steps(), is_shared=page is None, is_reading=True)

    def topic_config(self, request: Request) -> Answer:
        """351."""
        topic = headers.GetTopicConfigRequestHeader.decode(request.command.ext_fields).topic
        config = self.topics.get(topic)
        if config is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.reply(body=json_body.write_body(config.to_json()))

    def system_topics(self, request: Request) -> Answer:
        """305."""
        topics = sorted(self.topics.own_topics | names.SYSTEM_TOPICS)
        return request.reply(body=encode_topic_list(topics))
