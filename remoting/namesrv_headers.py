"""Headers of the requests that the name server serves (spec remoting 6)."""

from __future__ import annotations

from ringmq.remoting.headers import Header, Int32, Int64, header, wire


@header
class PutKvConfigRequestHeader(Header):
    """100."""

    namespace: str
    key: str
    value: str


@header
class GetKvConfigRequestHeader(Header):
    """101."""

    namespace: str
    key: str


@header
class DeleteKvConfigRequestHeader(Header):
    """102."""

    namespace: str
    key: str


@header
class RegisterBrokerRequestHeader(Header):
    """103."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: Int32 | None = None
    zone_name: str | None = wire("__ZONE_NAME", default=None)


@header
class UnregisterBrokerRequestHeader(Header):
    """104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class GetRouteInfoRequestHeader(Header):
    """105."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: bool | None = wire("__ZONE_MODE", default=None)
    zone_name: str | None = wire("__ZONE_NAME", default=None)


@header
class WipeWritePermOfBrokerRequestHeader(Header):
    """205 and 327."""

    broker_name: str


@header
class DeleteTopicFromNamesrvRequestHeader(Header):
    """216."""

    topic: str
    cluster_name: str | None = None


@header
class RegisterTopicRequestHeader(Header):
    """217."""

    topic: str


@header
class GetKvListByNamespaceRequestHeader(Header):
    """219."""

    namespace: str


@header
class GetTopicsByClusterRequestHeader(Header):
    """224."""

    cluster: str


@header
class QueryDataVersionRequestHeader(Header):
    """322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class GetBrokerMemberGroupRequestHeader(Header):
    """901."""

    cluster_name: str
    broker_name: str


@header
class BrokerHeartbeatRequestHeader(Header):
    """904."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None
