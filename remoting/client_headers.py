"""Headers of the requests between clients and a broker (spec remoting 4).

Offsets count messages of a queue unless the name or the docstring says commit-log; times are milliseconds.
"""

from __future__ import annotations

from ringmq.remoting.headers import Header, Int32, Int64, header, wire


@header
class SendMessageRequestHeader(Header):
    """10 and, with one letter per field, 310 and 320. `queue_id` -1 lets the broker choose."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = wire("bname", default=None)


@header
class PullMessageRequestHeader(Header):
    """11 and 361."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64 | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None


@header
class QueryMessageRequestHeader(Header):
    """12."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = wire("_UNIQUE_KEY_QUERY", default=None)


@header
class QueryConsumerOffsetRequestHeader(Header):
    """14."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@header
class UpdateConsumerOffsetRequestHeader(Header):
    """15. Stock answers a missing queue or offset with 29, not 1, so the handler checks both fields.

    `only_forward` is RingMQ's: offsets that a slave hands over may be behind the group's latest. Stock ignores it.
    """

    consumer_group: str
    topic: str
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None
    only_forward: bool | None = wire("ringmqOnlyForward", default=None)


@header
class SearchOffsetRequestHeader(Header):
    """29. `boundary_type` "upper" in any case is UPPER, any other text LOWER."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


@header
class GetMaxOffsetRequestHeader(Header):
    """30."""

    topic: str
    queue_id: Int32
    committed: bool | None = None


@header
class GetMinOffsetRequestHeader(Header):
    """31."""

    topic: str
    queue_id: Int32


@header
class GetEarliestMsgStoretimeRequestHeader(Header):
    """32."""

    topic: str
    queue_id: Int32


@header
class ViewMessageRequestHeader(Header):
    """33. `offset` is a commit-log offset."""

    offset: Int64
    topic: str | None = None


@header
class UnregisterClientRequestHeader(Header):
    """35."""

    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class ConsumerSendMsgBackRequestHeader(Header):
    """36. `offset` is a commit-log offset."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None


@header
class EndTransactionRequestHeader(Header):
    """37. `commit_or_rollback`: 0 unknown, 8 commit, 12 rollback."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool | None = None
    msg_id: str
    transaction_id: str | None = None


@header
class GetConsumerListByGroupRequestHeader(Header):
    """38."""

    consumer_group: str


@header
class CheckTransactionStateRequestHeader(Header):
    """39, broker to client."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = wire("bname", default=None)


@header
class NotifyConsumerIdsChangedRequestHeader(Header):
    """40, broker to client."""

    consumer_group: str


@header
class ReplyMessageRequestHeader(Header):
    """326, broker to client. Hosts as ip:port."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    born_host: str
    store_host: str
    store_timestamp: Int64


@header
class RecallMessageRequestHeader(Header):
    """370."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@header
class PopMessageRequestHeader(Header):
    """200050."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@header
class AckMessageRequestHeader(Header):
    """200051."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


@header
class PeekMessageRequestHeader(Header):
    """200052."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


@header
class ChangeInvisibleTimeRequestHeader(Header):
    """200053."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


@header
class NotificationRequestHeader(Header):
    """200054."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None


@header
class PollingInfoRequestHeader(Header):
    """200055."""

    consumer_group: str
    topic: str
    queue_id: Int32
