"""Topics for operators: make and change (17, 18), delete (215), clean (316), read (21, 351, 305)."""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.broker.core import Broker
from ringmq.broker.handlers.config_pages import page_of
from ringmq.broker.handlers.topic_attributes import alter_attributes, parse_attributes
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.topics import BATCH_QUEUE, CLEANUP_POLICY, COMPACTION, QUEUE_TYPE, check_possible
from ringmq.remoting import admin_headers as headers
from ringmq.remoting import json_body, names
from ringmq.remoting.admin_bodies import encode_topic_list
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.store import layout

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
MESSAGE_TYPE_CHANGE = "+message.type"
STEP_NAMES = 32


def update_topic(broker: Broker, request: Request) -> Slices:
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
    return Slices(_put_all(broker, [config], request))


def update_topics(broker: Broker, request: Request) -> Slices:
    """18: all are checked before the first is made; only whether the shared tables have room shows in the making."""
    return Slices(_update_topics(broker, request), is_large=True)


def _update_topics(broker: Broker, request: Request) -> Steps[Answer]:
    value = json_body.read_request(request.command.body, "CreateTopicListRequestBody", json_body.REQUEST_LIST_BYTES_MAX)
    yield
    configs = []
    for entry in json_body.objects(value, "topicConfigList"):
        configs.append(TopicConfig.from_json(entry))
        if len(configs) % STEP_NAMES == 0:
            yield
    return (yield from _put_all(broker, configs, request))


def _check(broker: Broker, config: TopicConfig) -> None:
    """Raise RequestError unless an operator may make this topic; `attributes` still holds signed keys."""
    topic = config.topic_name
    names.check_topic(topic)
    if broker.config.validate_system_topic_when_update_topic and broker.topics.is_system(topic):
        raise RequestError(
            f"The topic[{topic}] is conflict with system topic.",
            field="topic",
            code=ResponseCode.INVALID_PARAMETER,
        )
    if config.topic_filter_type not in FILTER_TYPES:
        raise RequestError(
            f"topicFilterType = {config.topic_filter_type[:64]!r} value invalid, accepted: {' or '.join(FILTER_TYPES)}",
            field="topicFilterType",
            code=ResponseCode.SYSTEM_ERROR,
        )
    if config.attributes.get(MESSAGE_TYPE_CHANGE) == "MIXED" and not broker.config.enable_mixed_message_type:
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
            f"{CLEANUP_POLICY} = {COMPACTION}: compaction is not built yet, so the topic would keep every message of a "
            "key; leave the attribute out, or set DELETE",
            field="attributes",
            code=ResponseCode.INVALID_PARAMETER,
        )


def _put_all(broker: Broker, configs: Sequence[TopicConfig], request: Request) -> Steps[Answer]:
    planned: dict[str, TopicConfig] = {}  # a name may stand twice
    for number, config in enumerate(configs, 1):
        _check(broker, config)
        refuse_while_deleted(broker, config.topic_name)
        known = planned.get(config.topic_name) or broker.topics.get(config.topic_name)
        config.attributes = alter_attributes(None if known is None else known.attributes, config.attributes)
        check_possible(config)
        planned[config.topic_name] = config
        if number % STEP_NAMES == 0:
            yield
    for number, config in enumerate(configs, 1):
        refuse_while_deleted(broker, config.topic_name)  # it may have been deleted in between
        known = broker.topics.get(config.topic_name)
        broker.topics.put(config, request.now_ms)
        if known is not None:
            broker.client_names.give_topic(known)
        if number % STEP_NAMES == 0:
            yield
    return request.reply()


def refuse_while_deleted(broker: Broker, topic: str) -> None:
    """Raise RequestError while the queues of a deleted topic of that name still stand on disk."""
    if topic in broker.deletions:
        raise RequestError(
            f"the topic[{topic}] is being deleted, try again", field="topic", code=ResponseCode.SYSTEM_BUSY
        )


def delete_topic(broker: Broker, request: Request) -> Answer:
    """215: configuration, consumer offsets and queues of the topic and of its POP retry topics."""
    topic = headers.DeleteTopicRequestHeader.decode(request.command.ext_fields).topic
    if not topic.strip():
        return request.reply(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    if broker.config.validate_system_topic_when_update_topic and broker.topics.is_system(topic):
        remark = f"The topic[{topic}] is conflict with system topic."
        return request.reply(ResponseCode.INVALID_PARAMETER, remark)
    doomed = [topic]
    if broker.config.clear_retry_topic_when_delete_topic:
        for group in broker.offsets.groups_on(topic):
            retry = names.retry_topic(group)
            doomed += [name for name in (f"{retry}+{topic}", f"{retry}_{topic}") if name in broker.topics]
    to_reset = {group for name in doomed for group in broker.offsets.groups_to_reset(name)}
    broker.offsets.forget_topics(doomed)
    for group in to_reset:  # nothing holds its pulls back any more
        broker.publish_group(group)
    for name in doomed:
        if broker.topics.delete(name, request.now_ms):
            broker.deletions.add(name, request.now_ms)
    return request.reply()


def clean_unused(broker: Broker, request: Request) -> Slices:
    """316: the queues of topics that are in no configuration go, but for system topics and light queues. A slave's
    topics are its master's affair: their settings may come later than their records."""
    return Slices(_clean_unused(broker, request))


def _clean_unused(broker: Broker, request: Request) -> Steps[Answer]:
    if broker.member.is_slave:
        return request.reply()
    on_disk = list(broker.store.topics_on_disk())
    for first in range(0, len(on_disk), STEP_NAMES):
        yield
        unused = [topic for topic in on_disk[first : first + STEP_NAMES] if not _is_kept(broker, topic)]
        if unused:
            broker.offsets.forget_topics(unused)
        for topic in unused:
            broker.tables.withdraw_topic(topic)
            broker.deletions.add(topic, request.now_ms)
    return request.reply()


def _is_kept(broker: Broker, topic: str) -> bool:
    if topic in broker.topics or topic in broker.deletions:
        return True
    return broker.topics.is_system(topic) or topic.startswith(layout.LMQ_PREFIX)


def all_topics(broker: Broker, request: Request) -> Slices:
    """21: everything, or the page that the request asks for (stock after 5.3.3)."""
    header = headers.GetAllTopicConfigRequestHeader.decode(request.command.ext_fields)
    version = broker.topics.data_version
    page = page_of(broker.topics.names(), version, header.topic_seq, header.max_topic_num, header.data_version)
    ext = None if page is None else {"totalTopicNum": str(len(broker.topics))}

    def steps() -> Steps[Answer]:
        whole = broker.topics_body.steps()
        body = yield from whole if page is None else broker.topics.body_steps(page)
        return request.reply(ext_fields=ext, body=body)

    return Slices(steps(), is_shared=page is None, is_reading=True)


def topic_config(broker: Broker, request: Request) -> Answer:
    """351."""
    topic = headers.GetTopicConfigRequestHeader.decode(request.command.ext_fields).topic
    config = broker.topics.get(topic)
    if config is None:
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    return request.reply(body=json_body.write_body(config.to_json()))


def system_topics(broker: Broker, request: Request) -> Answer:
    """305."""
    topics = sorted(broker.topics.own_topics | names.SYSTEM_TOPICS)
    return request.reply(body=encode_topic_list(topics))
