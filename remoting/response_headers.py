"""The headers of answers, and the table `RESPONSE_HEADERS` (code of the request -> header)."""

from __future__ import annotations

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.headers import Header, Int32, Int64, header, wire


@header
class SendMessageResponseHeader(Header):
    """10, 310, 320 and the replies 324, 325, for every stored code."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = wire("MSG_REGION", default=None)
    trace_on: str | None = wire("TRACE_ON", default=None)


@header
class PullMessageResponseHeader(Header):
    """11, 361. Answers 0, 19, 20 and 21 carry the four offsets."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


@header
class QueryMessageResponseHeader(Header):
    """12."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@header
class OffsetResponseHeader(Header):
    """14, 29, 30, 31."""

    offset: Int64


@header
class GetEarliestMsgStoretimeResponseHeader(Header):
    """32; -1 for none."""

    timestamp: Int64


@header
class GetBrokerRuntimeInfoResponseHeader(Header):
    """28 of a RingMQ broker: host, boot and folder of its store.

    By these fields a reader on the same host finds out that it sees the same files. Stock has no fields here, and its
    tools look at the body alone.
    """

    store_root: str | None = wire("ringmqStoreRoot", default=None)
    boot_id: str | None = wire("ringmqBootId", default=None)
    commit_log_device: str | None = wire("ringmqCommitLogDevice", default=None)
    commit_log_inode: str | None = wire("ringmqCommitLogInode", default=None)


@header
class HeartbeatResponseHeader(Header):
    """34."""

    is_support_heart_beat_v2: bool | None = wire("IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = wire("IS_SUB_CHANGE", default=None)


@header
class GetKvConfigResponseHeader(Header):
    """101."""

    value: str | None = None


@header
class RegisterBrokerResponseHeader(Header):
    """103: the addresses for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class WipeWritePermOfBrokerResponseHeader(Header):
    """205."""

    wipe_topic_count: Int32


@header
class AddWritePermOfBrokerResponseHeader(Header):
    """327."""

    add_topic_count: Int32


@header
class GetBrokerConfigResponseHeader(Header):
    """26. `version` is a DataVersion as JSON text."""

    version: str


@header
class QueryDataVersionResponseHeader(Header):
    """322."""

    changed: bool


@header
class RecallMessageResponseHeader(Header):
    """370."""

    msg_id: str


@header
class PopMessageResponseHeader(Header):
    """200050."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@header
class ChangeInvisibleTimeResponseHeader(Header):
    """200053."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@header
class NotificationResponseHeader(Header):
    """200054."""

    has_msg: bool
    polling_full: bool | None = None


@header
class PollingInfoResponseHeader(Header):
    """200055."""

    polling_num: Int32


RESPONSE_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageResponseHeader,
    RequestCode.PULL_MESSAGE: PullMessageResponseHeader,
    RequestCode.QUERY_MESSAGE: QueryMessageResponseHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: OffsetResponseHeader,
    RequestCode.GET_BROKER_CONFIG: GetBrokerConfigResponseHeader,
    RequestCode.GET_BROKER_RUNTIME_INFO: GetBrokerRuntimeInfoResponseHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: OffsetResponseHeader,
    RequestCode.GET_MAX_OFFSET: OffsetResponseHeader,
    RequestCode.GET_MIN_OFFSET: OffsetResponseHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: GetEarliestMsgStoretimeResponseHeader,
    RequestCode.HEART_BEAT: HeartbeatResponseHeader,
    RequestCode.GET_KV_CONFIG: GetKvConfigResponseHeader,
    RequestCode.REGISTER_BROKER: RegisterBrokerResponseHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: WipeWritePermOfBrokerResponseHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageResponseHeader,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageResponseHeader,
    RequestCode.QUERY_DATA_VERSION: QueryDataVersionResponseHeader,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageResponseHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: AddWritePermOfBrokerResponseHeader,
    RequestCode.LITE_PULL_MESSAGE: PullMessageResponseHeader,
    RequestCode.RECALL_MESSAGE: RecallMessageResponseHeader,
    RequestCode.POP_MESSAGE: PopMessageResponseHeader,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: ChangeInvisibleTimeResponseHeader,
    RequestCode.NOTIFICATION: NotificationResponseHeader,
    RequestCode.POLLING_INFO: PollingInfoResponseHeader,
}
"""Headers of the answers with ext fields."""
