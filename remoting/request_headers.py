"""The header of each request (`REQUEST_HEADERS`), and the short form of a send's header."""

from __future__ import annotations

from typing import Any

from ringmq.remoting import admin_headers as admin
from ringmq.remoting import client_headers as client
from ringmq.remoting import namesrv_headers as namesrv
from ringmq.remoting.client_headers import SendMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.headers import Header, decode_renamed, encode_renamed

_SEND_LETTERS = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
}
"""Attribute of `SendMessageRequestHeader` -> its short name in 310, 320 and 325."""

SHORT_SEND_CODES = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


def decode_send_header(command: RemotingCommand) -> SendMessageRequestHeader:
    """Return the header of any send or reply request. The code decides between long and short names."""
    if command.code in SHORT_SEND_CODES:
        decoded: SendMessageRequestHeader = decode_renamed(SendMessageRequestHeader, _SEND_LETTERS, command.ext_fields)
        return decoded
    return SendMessageRequestHeader.decode(command.ext_fields)


def encode_short_send_header(send: SendMessageRequestHeader) -> dict[str, str]:
    """Return the ext fields of 310, 320 and 325."""
    return encode_renamed(send, _SEND_LETTERS)


def decode_request_header(command: RemotingCommand) -> Any:
    """Return the typed header of a request, None if its code has none. Raises `MissingField` and `BadField`."""
    if command.code in SEND_CODES:
        return decode_send_header(command)
    cls = REQUEST_HEADERS.get(command.code)
    return None if cls is None else cls.decode(command.ext_fields)


SEND_CODES = SHORT_SEND_CODES | {RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE}

REQUEST_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: client.SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE: client.SendMessageRequestHeader,
    RequestCode.PULL_MESSAGE: client.PullMessageRequestHeader,
    RequestCode.QUERY_MESSAGE: client.QueryMessageRequestHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: client.QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: client.UpdateConsumerOffsetRequestHeader,
    RequestCode.UPDATE_AND_CREATE_TOPIC: admin.CreateTopicRequestHeader,
    RequestCode.GET_ALL_TOPIC_CONFIG: admin.GetAllTopicConfigRequestHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: client.SearchOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: client.GetMaxOffsetRequestHeader,
    RequestCode.GET_MIN_OFFSET: client.GetMinOffsetRequestHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: client.GetEarliestMsgStoretimeRequestHeader,
    RequestCode.VIEW_MESSAGE_BY_ID: client.ViewMessageRequestHeader,
    RequestCode.UNREGISTER_CLIENT: client.UnregisterClientRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: client.ConsumerSendMsgBackRequestHeader,
    RequestCode.END_TRANSACTION: client.EndTransactionRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: client.GetConsumerListByGroupRequestHeader,
    RequestCode.CHECK_TRANSACTION_STATE: client.CheckTransactionStateRequestHeader,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: client.NotifyConsumerIdsChangedRequestHeader,
    RequestCode.PUT_KV_CONFIG: namesrv.PutKvConfigRequestHeader,
    RequestCode.GET_KV_CONFIG: namesrv.GetKvConfigRequestHeader,
    RequestCode.DELETE_KV_CONFIG: namesrv.DeleteKvConfigRequestHeader,
    RequestCode.REGISTER_BROKER: namesrv.RegisterBrokerRequestHeader,
    RequestCode.UNREGISTER_BROKER: namesrv.UnregisterBrokerRequestHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: namesrv.GetRouteInfoRequestHeader,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.GetAllSubscriptionGroupRequestHeader,
    RequestCode.GET_TOPIC_STATS_INFO: admin.GetTopicStatsInfoRequestHeader,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: admin.GetConsumerConnectionListRequestHeader,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: admin.GetProducerConnectionListRequestHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerRequestHeader,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: admin.DeleteSubscriptionGroupRequestHeader,
    RequestCode.GET_CONSUME_STATS: admin.GetConsumeStatsRequestHeader,
    RequestCode.DELETE_TOPIC_IN_BROKER: admin.DeleteTopicRequestHeader,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: namesrv.DeleteTopicFromNamesrvRequestHeader,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: namesrv.RegisterTopicRequestHeader,
    RequestCode.GET_KVLIST_BY_NAMESPACE: namesrv.GetKvListByNamespaceRequestHeader,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: admin.ResetOffsetRequestHeader,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: admin.GetConsumerStatusRequestHeader,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: admin.ResetOffsetRequestHeader,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: admin.GetConsumerStatusRequestHeader,
    RequestCode.GET_TOPICS_BY_CLUSTER: namesrv.GetTopicsByClusterRequestHeader,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: admin.QueryTopicConsumeByWhoRequestHeader,
    RequestCode.QUERY_CONSUME_TIME_SPAN: admin.QueryConsumeTimeSpanRequestHeader,
    RequestCode.GET_CONSUMER_RUNNING_INFO: admin.GetConsumerRunningInfoRequestHeader,
    RequestCode.QUERY_CORRECTION_OFFSET: admin.QueryCorrectionOffsetRequestHeader,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: admin.ConsumeMessageDirectlyRequestHeader,
    RequestCode.CLONE_GROUP_OFFSET: admin.CloneGroupOffsetRequestHeader,
    RequestCode.VIEW_BROKER_STATS_DATA: admin.ViewBrokerStatsDataRequestHeader,
    RequestCode.GET_BROKER_CONSUME_STATS: admin.GetConsumeStatsInBrokerRequestHeader,
    RequestCode.QUERY_CONSUME_QUEUE: admin.QueryConsumeQueueRequestHeader,
    RequestCode.QUERY_DATA_VERSION: namesrv.QueryDataVersionRequestHeader,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: admin.ResumeCheckHalfMessageRequestHeader,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: client.ReplyMessageRequestHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerRequestHeader,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: admin.QueryTopicsByConsumerRequestHeader,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: admin.QuerySubscriptionByConsumerRequestHeader,
    RequestCode.GET_TOPIC_CONFIG: admin.GetTopicConfigRequestHeader,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: admin.GetSubscriptionGroupConfigRequestHeader,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: admin.UpdateGroupForbiddenRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: client.PullMessageRequestHeader,
    RequestCode.RECALL_MESSAGE: client.RecallMessageRequestHeader,
    RequestCode.GET_BROKER_MEMBER_GROUP: namesrv.GetBrokerMemberGroupRequestHeader,
    RequestCode.BROKER_HEARTBEAT: namesrv.BrokerHeartbeatRequestHeader,
    RequestCode.POP_MESSAGE: client.PopMessageRequestHeader,
    RequestCode.ACK_MESSAGE: client.AckMessageRequestHeader,
    RequestCode.PEEK_MESSAGE: client.PeekMessageRequestHeader,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: client.ChangeInvisibleTimeRequestHeader,
    RequestCode.NOTIFICATION: client.NotificationRequestHeader,
    RequestCode.POLLING_INFO: client.PollingInfoRequestHeader,
}
"""Headers of requests with named ext fields. `decode_send_header` reads the others (`SHORT_SEND_CODES`)."""
