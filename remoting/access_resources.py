"""The topics, groups and clusters that a request to a broker touches, with stock's actions on them.

A resource is named by a field of the request, or it is the broker's own cluster. Some requests name theirs in the body
alone. Stock 5.3.3 asks its access rules about the same resources, except for the codes of STOCK_ASKS_NOTHING: there any
user may send the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from msgspec import Struct

from ringmq.remoting.codes import RequestCode as Code
from ringmq.remoting.printable import printable

NAME_CHARS_SHOWN = 127
NAMES_SHOWN = 3


class Kind(Enum):
    """The types of names that a rule may hold."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


class Resource(Struct, frozen=True):
    """One resource of a request."""

    kind: Kind
    field: str
    """The field with its name. Empty: the broker's cluster, or names in the body."""
    actions: str
    """Stock's actions; with "/" between them any one suffices."""
    separator: str = ""
    """Between the names, if the field may hold several."""
    is_in_body: bool = False


def _topic(actions: str, field: str = "topic") -> Resource:
    return Resource(Kind.TOPIC, field, actions)


def _group(actions: str, field: str = "group") -> Resource:
    return Resource(Kind.GROUP, field, actions)


def _in_body(kind: Kind, actions: str) -> Resource:
    return Resource(kind, "", actions, is_in_body=True)


_CONSUMER = "consumerGroup"
_READ, _CHANGE = (Resource(Kind.CLUSTER, "", "Get"),), (Resource(Kind.CLUSTER, "", "Update"),)
_SHORT_SEND = (_topic("Pub", "b"),)
_PULL = (_topic("Sub"), _group("Sub", _CONSUMER))
_POSITION = (_topic("Get"),)
BROKER: Mapping[int, tuple[Resource, ...]] = {
    Code.SEND_MESSAGE: (_topic("Pub"),),
    Code.SEND_MESSAGE_V2: _SHORT_SEND,
    Code.SEND_BATCH_MESSAGE: _SHORT_SEND,
    Code.SEND_REPLY_MESSAGE: (_topic("Pub"),),
    Code.SEND_REPLY_MESSAGE_V2: _SHORT_SEND,
    Code.CONSUMER_SEND_MSG_BACK: (_group("Sub"),),
    Code.END_TRANSACTION: (_topic("Pub"),),
    Code.STAGED_WRITES: (_in_body(Kind.TOPIC, "Pub"),),
    Code.RECALL_MESSAGE: (_topic("Pub"),),
    Code.PULL_MESSAGE: _PULL,
    Code.LITE_PULL_MESSAGE: _PULL,
    Code.POP_MESSAGE: _PULL,
    Code.ACK_MESSAGE: _PULL,
    Code.BATCH_ACK_MESSAGE: (_in_body(Kind.GROUP, "Sub"), _in_body(Kind.TOPIC, "Sub")),
    Code.CHANGE_MESSAGE_INVISIBLETIME: _PULL,
    Code.PEEK_MESSAGE: _PULL,
    Code.NOTIFICATION: _PULL,
    Code.POLLING_INFO: (_group("Get", _CONSUMER), _topic("Get")),
    Code.QUERY_MESSAGE: (_topic("Sub/Get"),),
    Code.VIEW_MESSAGE_BY_ID: _POSITION,
    Code.QUERY_CONSUMER_OFFSET: (_topic("Sub/Get"), _group("Sub/Get", _CONSUMER)),
    Code.UPDATE_CONSUMER_OFFSET: (_topic("Sub/Update"), _group("Sub/Update", _CONSUMER)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _POSITION,
    Code.GET_MAX_OFFSET: _POSITION,
    Code.GET_MIN_OFFSET: _POSITION,
    Code.GET_EARLIEST_MSG_STORETIME: _POSITION,
    Code.HEART_BEAT: (_in_body(Kind.GROUP, "Sub"), _in_body(Kind.TOPIC, "Sub")),
    Code.UNREGISTER_CLIENT: (_group("Sub", _CONSUMER),),
    Code.GET_CONSUMER_LIST_BY_GROUP: (_group("Sub/Get", _CONSUMER),),
    Code.CHECK_CLIENT_CONFIG: (_in_body(Kind.GROUP, "Sub"), _in_body(Kind.TOPIC, "Sub")),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (_group("Get"),),
    Code.QUERY_ASSIGNMENT: (_in_body(Kind.GROUP, "Sub"), _in_body(Kind.TOPIC, "Sub")),
    Code.LOCK_BATCH_MQ: (_in_body(Kind.GROUP, "Sub"), _in_body(Kind.TOPIC, "Sub")),
    Code.UNLOCK_BATCH_MQ: (_in_body(Kind.GROUP, "Sub"), _in_body(Kind.TOPIC, "Sub")),
    Code.GET_ALL_TOPIC_CONFIG: _READ,
    Code.GET_TOPIC_CONFIG: _POSITION,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _READ,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _READ,
    Code.GET_ALL_CONSUMER_OFFSET: _READ,
    Code.GET_ALL_DELAY_OFFSET: _READ,
    Code.GET_TIMER_CHECK_POINT: _READ,
    Code.GET_TIMER_METRICS: _READ,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _READ,
    Code.GET_TOPIC_STATS_INFO: _POSITION,
    Code.GET_CONSUME_STATS: (
        _group("Get", _CONSUMER), _topic("Get"), Resource(Kind.TOPIC, "topicList", "Get", separator=";"),
    ),
    Code.QUERY_CONSUME_TIME_SPAN: (_topic("Get"), _group("Get")),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _POSITION,
    Code.QUERY_TOPICS_BY_CONSUMER: (_group("Get"),),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (_group("Get"), _topic("Get")),
    Code.GET_CONSUMER_CONNECTION_LIST: (_group("Get", _CONSUMER),),
    Code.GET_PRODUCER_CONNECTION_LIST: _READ,
    Code.GET_ALL_PRODUCER_INFO: _READ,
    Code.VIEW_BROKER_STATS_DATA: _READ,
    Code.GET_BROKER_CONSUME_STATS: _READ,
    Code.GET_BROKER_CONFIG: _READ,
    Code.GET_BROKER_RUNTIME_INFO: _READ,
    Code.GET_CONSUMER_RUNNING_INFO: (_group("Get", _CONSUMER),),
    Code.GET_BROKER_HA_STATUS: _READ,
    Code.HA_STATUS: _READ,
    Code.POP_INFLIGHT: (_group("Get", _CONSUMER), _topic("Get")),
    Code.POP_DRAIN: _CHANGE,
    Code.UPDATE_AND_CREATE_TOPIC: (_topic("Create"),),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: (_in_body(Kind.TOPIC, "Create"),),
    Code.DELETE_TOPIC_IN_BROKER: (_topic("Delete"),),
    Code.CLEAN_UNUSED_TOPIC: _CHANGE,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (_in_body(Kind.GROUP, "Create"),),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (_in_body(Kind.GROUP, "Create"),),
    Code.DELETE_SUBSCRIPTIONGROUP: (_group("Delete", "groupName"),),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: (_group("Update"), _topic("Update")),
    Code.SET_MESSAGE_REQUEST_MODE: (_in_body(Kind.GROUP, "Update"), _in_body(Kind.TOPIC, "Update")),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_group("Update"), _topic("Update")),
    Code.CLONE_GROUP_OFFSET: (_group("Update", "destGroup"), _topic("Update")),
    Code.CONSUME_MESSAGE_DIRECTLY: (_group("Sub", _CONSUMER), _topic("Sub")),
    Code.UPDATE_BROKER_CONFIG: _CHANGE,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _CHANGE,
    Code.DELETE_EXPIRED_COMMITLOG: _CHANGE,
    Code.HA_DECIDE: _CHANGE,
    Code.HA_ROLE: _CHANGE,
    Code.EXCHANGE_BROKER_HA_INFO: _CHANGE,
    Code.HA_HANDSHAKE: _CHANGE,
    Code.HA_READ_LOG: _CHANGE,
    Code.HA_TENURE: _CHANGE,
    Code.POP_PROGRESS: _CHANGE,
}  # fmt: skip
"""Request code -> its resources, in the order in which stock asks about them."""

STOCK_ASKS_NOTHING = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.GET_ALL_TOPIC_CONFIG, Code.LITE_PULL_MESSAGE, Code.BATCH_ACK_MESSAGE,
        Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE,
        Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.UPDATE_BROKER_CONFIG, Code.GET_BROKER_CONFIG,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET, Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_BROKER_HA_STATUS, Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC, Code.DELETE_EXPIRED_COMMITLOG, Code.CHECK_CLIENT_CONFIG,
    }
)  # fmt: skip
"""Codes of stock whose resources its access rules are not asked about."""


def resource_text(code: int, ext_fields: Mapping[str, str]) -> str:
    """The topics and groups that the fields of a request name, as rules name them: `Topic:Orders, Group:payers`.

    Long names and lists are cut. Empty if the fields name none.
    """
    names = list(_named(BROKER.get(code, ()), ext_fields))
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _named(resources: tuple[Resource, ...], ext_fields: Mapping[str, str]) -> Iterator[str]:
    for resource in resources:
        value = ext_fields.get(resource.field, "") if resource.field else ""
        for name in value.split(resource.separator) if resource.separator else [value]:
            if name:
                yield f"{resource.kind.value}:{printable(name, NAME_CHARS_SHOWN)}"


def markdown_rows() -> list[str]:
    """The table of docs/access.md, without its head: codes with the same resources are one row."""
    rows: dict[tuple[Resource, ...], list[int]] = {}
    for code, resources in BROKER.items():
        rows.setdefault(resources, []).append(int(code))
    return [
        f"| {', '.join(map(str, sorted(codes)))} | {', '.join(map(_cell, resources))} |"
        for resources, codes in sorted(rows.items(), key=lambda row: min(row[1]))
    ]


def _cell(resource: Resource) -> str:
    where = "in the body" if resource.is_in_body else f"`{resource.field}`" if resource.field else "the broker's"
    several = f" (several, with `{resource.separator}`)" if resource.separator else ""
    return f"{resource.kind.value} {where}{several}: {resource.actions}"
