"""Access classes of requests. Every code that the broker or the name server handles has one class.

The broker's and the name server's tables of handlers are tested against this one: a code with a handler and without a
class fails the tests, and so does a class without a handler. docs/access.md shows the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from textwrap import wrap

from ringmq.remoting.codes import RequestCode

LINE_CHARS = 118
"""A line of docs/access.md."""


class Access(Enum):
    """The effect of a request on the server. It decides which peers may send the request."""

    DATA = "data"
    """Requests of producers and consumers. The class also covers topics and groups that such a request creates."""
    READ_ADMIN = "read admin"
    """Requests that show tables, settings and statistics, and change nothing."""
    CHANGE_ADMIN = "change admin"
    """Requests that change topics, groups, offsets, permissions or settings for others. `adminAddresses` bounds them.
    """
    REPLICATION = "replication"
    """Requests between the brokers of one group. `haAllowedNetworks` bounds it."""
    REGISTRATION = "registration"
    """Requests by which brokers register with a name server. `brokerAddresses` bounds it."""


BROKER: Mapping[int, Access] = {
    RequestCode.SEND_MESSAGE: Access.DATA,
    RequestCode.SEND_MESSAGE_V2: Access.DATA,
    RequestCode.SEND_BATCH_MESSAGE: Access.DATA,
    RequestCode.SEND_REPLY_MESSAGE: Access.DATA,
    RequestCode.SEND_REPLY_MESSAGE_V2: Access.DATA,
    RequestCode.CONSUMER_SEND_MSG_BACK: Access.DATA,
    RequestCode.END_TRANSACTION: Access.DATA,
    RequestCode.STAGED_WRITES: Access.DATA,
    RequestCode.RECALL_MESSAGE: Access.DATA,
    RequestCode.PULL_MESSAGE: Access.DATA,
    RequestCode.LITE_PULL_MESSAGE: Access.DATA,
    RequestCode.POP_MESSAGE: Access.DATA,
    RequestCode.ACK_MESSAGE: Access.DATA,
    RequestCode.BATCH_ACK_MESSAGE: Access.DATA,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Access.DATA,
    RequestCode.PEEK_MESSAGE: Access.DATA,
    RequestCode.NOTIFICATION: Access.DATA,
    RequestCode.POLLING_INFO: Access.DATA,
    RequestCode.QUERY_MESSAGE: Access.DATA,
    RequestCode.VIEW_MESSAGE_BY_ID: Access.DATA,
    RequestCode.QUERY_CONSUMER_OFFSET: Access.DATA,
    RequestCode.UPDATE_CONSUMER_OFFSET: Access.DATA,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Access.DATA,
    RequestCode.GET_MAX_OFFSET: Access.DATA,
    RequestCode.GET_MIN_OFFSET: Access.DATA,
    RequestCode.GET_EARLIEST_MSG_STORETIME: Access.DATA,
    RequestCode.HEART_BEAT: Access.DATA,
    RequestCode.UNREGISTER_CLIENT: Access.DATA,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Access.DATA,
    RequestCode.CHECK_CLIENT_CONFIG: Access.DATA,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Access.DATA,
    RequestCode.QUERY_ASSIGNMENT: Access.DATA,
    RequestCode.LOCK_BATCH_MQ: Access.DATA,
    RequestCode.UNLOCK_BATCH_MQ: Access.DATA,
    RequestCode.GET_ALL_TOPIC_CONFIG: Access.READ_ADMIN,
    RequestCode.GET_TOPIC_CONFIG: Access.READ_ADMIN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Access.READ_ADMIN,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Access.READ_ADMIN,
    RequestCode.GET_ALL_CONSUMER_OFFSET: Access.READ_ADMIN,
    RequestCode.GET_ALL_DELAY_OFFSET: Access.READ_ADMIN,
    RequestCode.GET_TIMER_CHECK_POINT: Access.READ_ADMIN,
    RequestCode.GET_TIMER_METRICS: Access.READ_ADMIN,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Access.READ_ADMIN,
    RequestCode.GET_TOPIC_STATS_INFO: Access.READ_ADMIN,
    RequestCode.GET_CONSUME_STATS: Access.READ_ADMIN,
    RequestCode.QUERY_CONSUME_TIME_SPAN: Access.READ_ADMIN,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Access.READ_ADMIN,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Access.READ_ADMIN,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Access.READ_ADMIN,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Access.READ_ADMIN,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Access.READ_ADMIN,
    RequestCode.GET_ALL_PRODUCER_INFO: Access.READ_ADMIN,
    RequestCode.VIEW_BROKER_STATS_DATA: Access.READ_ADMIN,
    RequestCode.GET_BROKER_CONSUME_STATS: Access.READ_ADMIN,
    RequestCode.GET_BROKER_CONFIG: Access.READ_ADMIN,
    RequestCode.GET_BROKER_RUNTIME_INFO: Access.READ_ADMIN,
    RequestCode.GET_CONSUMER_RUNNING_INFO: Access.READ_ADMIN,
    RequestCode.GET_BROKER_HA_STATUS: Access.READ_ADMIN,
    RequestCode.HA_STATUS: Access.READ_ADMIN,
    RequestCode.POP_INFLIGHT: Access.READ_ADMIN,
    RequestCode.POP_DRAIN: Access.CHANGE_ADMIN,
    RequestCode.UPDATE_AND_CREATE_TOPIC: Access.CHANGE_ADMIN,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Access.CHANGE_ADMIN,
    RequestCode.DELETE_TOPIC_IN_BROKER: Access.CHANGE_ADMIN,
    RequestCode.CLEAN_UNUSED_TOPIC: Access.CHANGE_ADMIN,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Access.CHANGE_ADMIN,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Access.CHANGE_ADMIN,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Access.CHANGE_ADMIN,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Access.CHANGE_ADMIN,
    RequestCode.SET_MESSAGE_REQUEST_MODE: Access.CHANGE_ADMIN,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Access.CHANGE_ADMIN,
    RequestCode.CLONE_GROUP_OFFSET: Access.CHANGE_ADMIN,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Access.CHANGE_ADMIN,
    RequestCode.UPDATE_BROKER_CONFIG: Access.CHANGE_ADMIN,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Access.CHANGE_ADMIN,
    RequestCode.DELETE_EXPIRED_COMMITLOG: Access.CHANGE_ADMIN,
    RequestCode.HA_DECIDE: Access.CHANGE_ADMIN,
    RequestCode.HA_ROLE: Access.CHANGE_ADMIN,
    RequestCode.EXCHANGE_BROKER_HA_INFO: Access.REPLICATION,
    RequestCode.HA_HANDSHAKE: Access.REPLICATION,
    RequestCode.HA_READ_LOG: Access.REPLICATION,
    RequestCode.POP_PROGRESS: Access.REPLICATION,
    RequestCode.HA_TENURE: Access.REPLICATION,
}
"""Request code -> its class on the broker."""

DECISIONS = frozenset({RequestCode.HA_DECIDE, RequestCode.HA_ROLE})
"""Changes that may cost data: an empty `adminAddresses` leaves them to loopback alone."""

NAMESRV: Mapping[int, Access] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Access.DATA,
    RequestCode.GET_BROKER_CLUSTER_INFO: Access.READ_ADMIN,
    RequestCode.GET_BROKER_MEMBER_GROUP: Access.READ_ADMIN,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Access.READ_ADMIN,
    RequestCode.GET_TOPICS_BY_CLUSTER: Access.READ_ADMIN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: Access.READ_ADMIN,
    RequestCode.GET_UNIT_TOPIC_LIST: Access.READ_ADMIN,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: Access.READ_ADMIN,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Access.READ_ADMIN,
    RequestCode.GET_KV_CONFIG: Access.READ_ADMIN,
    RequestCode.GET_KVLIST_BY_NAMESPACE: Access.READ_ADMIN,
    RequestCode.GET_NAMESRV_CONFIG: Access.READ_ADMIN,
    RequestCode.PUT_KV_CONFIG: Access.CHANGE_ADMIN,
    RequestCode.DELETE_KV_CONFIG: Access.CHANGE_ADMIN,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: Access.CHANGE_ADMIN,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: Access.CHANGE_ADMIN,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Access.CHANGE_ADMIN,
    RequestCode.UPDATE_NAMESRV_CONFIG: Access.CHANGE_ADMIN,
    RequestCode.REGISTER_BROKER: Access.REGISTRATION,
    RequestCode.UNREGISTER_BROKER: Access.REGISTRATION,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: Access.REGISTRATION,
    RequestCode.QUERY_DATA_VERSION: Access.REGISTRATION,
    RequestCode.BROKER_HEARTBEAT: Access.REGISTRATION,
}
"""Request code -> its class on the name server."""


def refusal_text(code: int, host: str, why: str) -> str:
    """The remark of a refused request: code, host and `why`, which names the property."""
    try:
        name = f"code {code} ({RequestCode(code).name})"
    except ValueError:
        name = f"code {code}"
    return f"{name} from host {host} is refused: {why}"


def markdown_rows() -> list[str]:
    """The lists of docs/access.md: one for each class and server that has requests of it."""
    lines: list[str] = []
    for access in Access:
        for server, table in (("broker", BROKER), ("name server", NAMESRV)):
            codes = sorted(int(code) for code, its_class in table.items() if its_class is access)
            if codes:
                lines += ["", f"### {access.value.capitalize()}, {server}", ""]
                text = ", ".join(f"{code}\0{RequestCode(code).name}" for code in codes)
                lines += [line.replace("\0", " ") for line in wrap(text, LINE_CHARS)]
    return lines[1:]
