"""Headers of operators' requests to a broker, and of the requests that the broker forwards (spec remoting 5)."""

from __future__ import annotations

from ringmq.remoting.headers import Header, Int32, Int64, header


@header
class CreateTopicRequestHeader(Header):
    """17."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool | None = None
    attributes: str | None = None
    force: bool | None = None


@header
class GetAllTopicConfigRequestHeader(Header):
    """21; all absent in 5.3.3."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@header
class GetAllSubscriptionGroupRequestHeader(Header):
    """201; all absent in 5.3.3."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@header
class GetTopicStatsInfoRequestHeader(Header):
    """202."""

    topic: str


@header
class GetConsumerConnectionListRequestHeader(Header):
    """203."""

    consumer_group: str


@header
class GetProducerConnectionListRequestHeader(Header):
    """204."""

    producer_group: str


@header
class DeleteSubscriptionGroupRequestHeader(Header):
    """207."""

    group_name: str
    clean_offset: bool | None = None


@header
class GetConsumeStatsRequestHeader(Header):
    """208. `topic_list`: names joined by ";"."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@header
class DeleteTopicRequestHeader(Header):
    """215."""

    topic: str


@header
class ResetOffsetRequestHeader(Header):
    """220 and 222. `queue_id` -1 means all."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    offset: Int64 | None = None


@header
class GetConsumerStatusRequestHeader(Header):
    """221 and 223."""

    topic: str
    group: str
    client_addr: str | None = None


@header
class QueryTopicConsumeByWhoRequestHeader(Header):
    """300."""

    topic: str


@header
class QueryConsumeTimeSpanRequestHeader(Header):
    """303."""

    topic: str
    group: str


@header
class GetConsumerRunningInfoRequestHeader(Header):
    """307."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@header
class QueryCorrectionOffsetRequestHeader(Header):
    """308."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


@header
class ConsumeMessageDirectlyRequestHeader(Header):
    """309."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@header
class CloneGroupOffsetRequestHeader(Header):
    """314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


@header
class ViewBrokerStatsDataRequestHeader(Header):
    """315."""

    stats_name: str
    stats_key: str


@header
class GetConsumeStatsInBrokerRequestHeader(Header):
    """317."""

    is_order: bool


@header
class QueryConsumeQueueRequestHeader(Header):
    """321."""

    topic: str | None = None
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    """323."""

    topic: str | None = None
    msg_id: str | None = None


@header
class QueryTopicsByConsumerRequestHeader(Header):
    """343."""

    group: str


@header
class QuerySubscriptionByConsumerRequestHeader(Header):
    """345."""

    group: str
    topic: str | None = None


@header
class GetTopicConfigRequestHeader(Header):
    """351."""

    topic: str


@header
class GetSubscriptionGroupConfigRequestHeader(Header):
    """352."""

    group: str


@header
class UpdateGroupForbiddenRequestHeader(Header):
    """353. `readable` absent: only read."""

    group: str
    topic: str
    readable: bool | None = None
