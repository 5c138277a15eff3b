"""Requests to the name server: one method per code, listed in one table.

This module does no IO: `save_kv` carries out changes that must be saved. To serve another code, write a method that
takes (header, `Call`) and returns an `Answer`, and add it to `_TABLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec import Struct, field

from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.namesrv.access import Incidents, dispute_text, may_unregister, refusal, shown_name, unregister_refusal
from ringmq.namesrv.config import BLACK_LIST, ConfigError, NamesrvConfig
from ringmq.namesrv.core import DEFAULT_EXPIRY_MS, Bounds, NoRoomError, Registration, RouteRegistry
from ringmq.namesrv.kv import ORDER_TOPIC_CONFIG, KvConfig, KvFullError
from ringmq.namesrv.live_brokers import BrokerAddress
from ringmq.remoting import namesrv_headers as headers
from ringmq.remoting import response_headers as answers
from ringmq.remoting.admin_bodies import encode_kv_table, encode_topic_list
from ringmq.remoting.codes import VERSION_REGISTER_WRAPPER, VERSION_V4_9_4, RequestCode, ResponseCode, code_name
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, TopicConfigTable, finish
from ringmq.remoting.errors import RequestError
from ringmq.remoting.json_body import read_large, read_object, write_body
from ringmq.remoting.properties_text import BadProperties, format_properties, parse_properties
from ringmq.remoting.register_body import body_crc32, decode_register_slices
from ringmq.remoting.request_headers import decode_request_header
from ringmq.remoting.route import TopicRouteData

Answer = tuple[Mapping[str, str] | None, bytes]
"""Ext fields and body of a success. Any other outcome is a `RequestError`."""

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""The tail of stock's remark. Stock's clients append a tail of their own to a remark without it."""


class Refused(RequestError):
    """An answer other than SUCCESS."""

    def __init__(self, code: int, remark: str, field: str = "request") -> None:
        super().__init__(remark, field=field, code=code)


class Call(Struct, frozen=True):
    """All facts about a request outside its header."""

    request: RemotingCommand
    connection: int
    now_ms: int
    host: str


class NamesrvHandlers(Struct):
    """The name server's behaviour. `started_ms` is the start of service."""

    config: NamesrvConfig
    registry: RouteRegistry = field(default_factory=RouteRegistry)
    kv: KvConfig = field(default_factory=KvConfig)
    started_ms: int = 0
    save_kv: Callable[[KvConfig], None] = lambda kv: None
    incidents: Incidents = field(default_factory=Incidents)
    audit: AuditTrail = field(default_factory=AuditTrail)

    def handle(
        self, request: RemotingCommand, connection: int, now_ms: int, host: str = "127.0.0.1"
    ) -> RemotingCommand | None:
        """Return the answer to a request of `host`, None for a oneway."""
        return finish(self.handle_slices(request, connection, now_ms, host))

    def handle_slices(
        self, request: RemotingCommand, connection: int, now_ms: int, host: str
    ) -> Generator[None, None, RemotingCommand | None]:
        """Like `handle`, in slices: a registration pauses while its topics are read, then takes effect in one step."""
        config, registry = self.config, self.registry
        registry.delete_topic_with_registration = config.delete_topic_with_broker_registration
        registry.support_acting_master = config.support_acting_master
        registry.bounds = Bounds(config.max_brokers, config.max_topics, config.max_queue_datas)
        response = yield from self._answer(request, connection, now_ms, host)
        return None if request.is_oneway else response

    def _answer(
        self, request: RemotingCommand, connection: int, now_ms: int, host: str
    ) -> Generator[None, None, RemotingCommand]:
        if request.code not in HANDLED_CODES:
            return RemotingCommand.response_to(
                request,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {request.code} not supported",
            )
        try:
            self._check_access(request.code, refusal(self.config, request.code, host))
            header = decode_request_header(request)
            call = Call(request, connection, now_ms, host)
            if request.code == RequestCode.REGISTER_BROKER:
                table = yield from self._registered_topics(header, call)
                fields, body = self._register(header, call, table)
            else:
                with self.audit.caused_by(host, code_name(request.code)):
                    fields, body = _TABLE[request.code](self, header, call)
        except RequestError as error:
            return RemotingCommand.response_to(request, error.code, str(error))
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, None, fields, body)

    def _check_access(self, code: int, refused: str | None) -> None:
        if refused is not None:
            self.incidents.note_refusal(code, refused)
            raise Refused(ResponseCode.NO_PERMISSION, refused)

    # ---- brokers ----

    def _registered_topics(
        self, header: headers.RegisterBrokerRequestHeader, call: Call
    ) -> Generator[None, None, TopicConfigTable]:
        """Read the topics of a registration. Brokers before 3.0.11 send the inner table alone."""
        request, topics_max = call.request, self.config.max_topics
        if header.body_crc32 and header.body_crc32 != body_crc32(request.body):
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 of the body does not match bodyCrc32", "bodyCrc32")
        if request.version >= VERSION_REGISTER_WRAPPER or not request.body:
            compressed = header.compressed is True
            return (yield from decode_register_slices(request.body, compressed=compressed, topics_max=topics_max))
        table = read_large(request.body, "TopicConfigSerializeWrapper")
        return (yield from TopicConfigTable.from_json_slices(table, topics_max))

    def _register(self, header: headers.RegisterBrokerRequestHeader, call: Call, table: TopicConfigTable) -> Answer:
        timeout = header.heartbeat_timeout_millis
        registration = Registration(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addr=header.broker_addr,
            broker_id=header.broker_id,
            ha_server_addr=header.ha_server_addr,
            table=table,
            expiry_ms=DEFAULT_EXPIRY_MS if timeout is None else timeout,
            enable_acting_master=header.enable_acting_master,
            zone_name=header.zone_name,
            connection=call.connection,
            host=call.host,
        )
        self._log_dispute(registration)
        try:
            registered = self.registry.register(registration, call.now_ms)
        except NoRoomError as error:
            raise self._no_room(f"register broker failed: {error}") from error
        if registered is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: {header.broker_addr} has not registered yet and may not begin with one topic",
            )
        if registered.left_out:
            self.incidents.left_out += registered.left_out
            name = shown_name(registration.broker_name)
            self.incidents.log(f"broker {name} of host {call.host}: {self.registry.full_text(registered.left_out)}")
        answer = answers.RegisterBrokerResponseHeader(
            ha_server_addr=registered.ha_server_addr, master_addr=registered.master_addr
        )
        order = self.kv.namespace(ORDER_TOPIC_CONFIG)
        wanted = order is not None and self.config.return_order_topic_config_to_broker
        return answer.encode(), encode_kv_table(order or {}) if wanted else b""

    def _no_room(self, text: str) -> Refused:
        self.incidents.left_out += 1
        self.incidents.log(text)
        return Refused(ResponseCode.SYSTEM_ERROR, text)

    def _log_dispute(self, registration: Registration) -> None:
        """Log that two hosts register the same name and id. The last registration counts, as with stock."""
        holder = self.registry.holder(registration)
        if holder is None or holder[1].host == registration.host:
            return
        addr, live = holder
        self.incidents.disputes += 1
        one, other = (addr, live.host), (registration.broker_addr, registration.host)
        self.incidents.log(dispute_text(registration.broker_name, registration.broker_id, one, other))

    def _unregister(self, header: headers.UnregisterBrokerRequestHeader, call: Call) -> Answer:
        address = BrokerAddress(header.cluster_name, header.broker_addr)
        live = self.registry.live_under(address, header.broker_name)
        self._check_access(call.request.code, unregister_refusal(self.config, live, address, call.host))
        self.registry.unregister(address, header.broker_name, lambda live: may_unregister(self.config, live, call.host))
        return None, b""

    def _heartbeat(self, header: headers.BrokerHeartbeatRequestHeader, call: Call) -> Answer:
        self.registry.heard_from(BrokerAddress(header.cluster_name, header.broker_addr), call.now_ms)
        return None, b""

    def _query_data_version(self, header: headers.QueryDataVersionRequestHeader, call: Call) -> Answer:
        address = BrokerAddress(header.cluster_name, header.broker_addr)
        asked = DataVersion.from_json(read_object(call.request.body, "DataVersion"))
        known = self.registry.data_version(address)
        self.registry.heard_from(address, call.now_ms)
        fields = answers.QueryDataVersionResponseHeader(changed=known != asked).encode()
        return fields, b"" if known is None else write_body(known.to_json())

    def _member_group(self, header: headers.GetBrokerMemberGroupRequestHeader, call: Call) -> Answer:
        broker = self.registry.brokers.get(header.broker_name)
        group = {
            "brokerAddrs": {} if broker is None else dict(sorted(broker.broker_addrs.items())),
            "brokerName": header.broker_name,
            "cluster": header.cluster_name,
        }
        return None, write_body({"brokerMemberGroup": group})

    # ---- routes ----

    def _route(self, header: headers.GetRouteInfoRequestHeader, call: Call) -> Answer:
        waited_ms = call.now_ms - self.started_ms
        if self.config.need_wait_for_service and waited_ms < self.config.wait_seconds_for_service * 1000:
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self.registry.route(header.topic)
        if route is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}{FAQ}",
                "topic",
            )
        if self.config.order_message_enable:
            route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, header.topic)
        if header.zone_mode and header.zone_name:
            return None, _zone_only(route, header.zone_name).encode(standard_json=False)
        standard = call.request.version >= VERSION_V4_9_4 or header.accept_standard_json_only is True
        return None, route.encode(standard_json=standard)

    def _cluster_info(self, _: Any, call: Call) -> Answer:
        return None, self.registry.cluster_info().encode()

    def _all_topics(self, _: Any, call: Call) -> Answer:
        if not self.config.enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disabled by enableAllTopicList")
        return None, encode_topic_list(self.registry.topics)

    def _topics_by_cluster(self, header: headers.GetTopicsByClusterRequestHeader, call: Call) -> Answer:
        self._check_topic_list()
        return None, encode_topic_list(self.registry.topics_of_cluster(header.cluster))

    def _system_topics(self, _: Any, call: Call) -> Answer:
        topics, addr = self.registry.system_topics()
        return None, encode_topic_list(topics, addr)

    def _unit_topics(self, _: Any, call: Call) -> Answer:
        self._check_topic_list()
        return None, encode_topic_list(self.registry.topics_with_flags(unit=True, unit_sub=None))

    def _unit_sub_topics(self, _: Any, call: Call) -> Answer:
        self._check_topic_list()
        return None, encode_topic_list(self.registry.topics_with_flags(unit=None, unit_sub=True))

    def _unit_sub_ununit_topics(self, _: Any, call: Call) -> Answer:
        self._check_topic_list()
        return None, encode_topic_list(self.registry.topics_with_flags(unit=False, unit_sub=True))

    def _check_topic_list(self) -> None:
        if not self.config.enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disabled by enableTopicList")

    def _delete_topic(self, header: headers.DeleteTopicFromNamesrvRequestHeader, call: Call) -> Answer:
        before = sorted(self.registry.topics.get(header.topic, ()))
        self.registry.delete_topic(header.topic, header.cluster_name)
        after = sorted(self.registry.topics.get(header.topic, ()))
        self.audit.add(Kind.TOPIC, header.topic, before or None, after or None)
        return None, b""

    def _register_topic(self, header: headers.RegisterTopicRequestHeader, call: Call) -> Answer:
        queues = TopicRouteData.decode(call.request.body).queue_datas
        try:
            self.registry.register_topic(header.topic, queues, call.host)
        except NoRoomError as error:
            raise self._no_room(f"topic {shown_name(header.topic)}: {error}") from error
        return None, b""

    def _wipe_write_perm(self, header: headers.WipeWritePermOfBrokerRequestHeader, call: Call) -> Answer:
        count = self._set_write_perm(header.broker_name, is_writable=False)
        return answers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count).encode(), b""

    def _add_write_perm(self, header: headers.WipeWritePermOfBrokerRequestHeader, call: Call) -> Answer:
        count = self._set_write_perm(header.broker_name, is_writable=True)
        return answers.AddWritePermOfBrokerResponseHeader(add_topic_count=count).encode(), b""

    def _set_write_perm(self, broker: str, *, is_writable: bool) -> int:
        before = self.registry.writable_topics(broker)
        count = self.registry.set_write_perm(broker, is_writable)
        after = self.registry.writable_topics(broker)
        self.audit.add(Kind.PERMISSION, broker, {"writableTopics": before}, {"writableTopics": after})
        return count

    # ---- configuration ----

    def _note_kv(self, namespace: str, key: str, before: str | None) -> None:
        after = self.kv.get(namespace, key)
        values = [None if value is None else {key: value} for value in (before, after)]
        self.audit.add(Kind.CONFIGURATION, namespace, *values)

    def _put_kv(self, header: headers.PutKvConfigRequestHeader, call: Call) -> Answer:
        before = self.kv.get(header.namespace, header.key)
        try:
            self.kv.put(
                header.namespace, header.key, header.value, self.config.max_kv_entries, self.config.max_kv_bytes
            )
        except KvFullError as error:
            raise self._no_room(f"key {shown_name(header.key)} is not kept: {error}") from error
        self._note_kv(header.namespace, header.key, before)
        self.save_kv(self.kv)
        return None, b""

    def _get_kv(self, header: headers.GetKvConfigRequestHeader, call: Call) -> Answer:
        value = self.kv.get(header.namespace, header.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
                "key",
            )
        return answers.GetKvConfigResponseHeader(value=value).encode(), b""

    def _delete_kv(self, header: headers.DeleteKvConfigRequestHeader, call: Call) -> Answer:
        before = self.kv.get(header.namespace, header.key)
        self.kv.delete(header.namespace, header.key)
        self._note_kv(header.namespace, header.key, before)
        self.save_kv(self.kv)
        return None, b""

    def _kv_list(self, header: headers.GetKvListByNamespaceRequestHeader, call: Call) -> Answer:
        table = self.kv.namespace(header.namespace)
        if table is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}", "namespace")
        return None, encode_kv_table(table)

    def _update_config(self, _: Any, call: Call) -> Answer:
        try:
            lines = parse_properties(call.request.body.decode("utf-8", "replace"))
            values = {line.name: line.value for line in lines}
            forbidden = sorted(BLACK_LIST & values.keys())
            if forbidden:
                raise Refused(ResponseCode.NO_PERMISSION, f"Can not update config in black list: {forbidden[0]}")
            before = self.config.to_properties()
            self.config.update(values)
            self.audit.add(Kind.CONFIGURATION, "namesrv", before, self.config.to_properties())
        except (ConfigError, BadProperties) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return None, b""

    def _get_config(self, _: Any, call: Call) -> Answer:
        return None, format_properties(self.config.to_properties()).encode()


def _zone_only(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Return the brokers of one zone, and those whose master is gone (`ZoneRouteRPCHook`)."""
    brokers = [
        broker
        for broker in route.broker_datas
        if broker.master_addr is None or (broker.zone_name or "").lower() == zone.lower()
    ]
    kept = {broker.broker_name for broker in brokers}
    queues = [queue for queue in route.queue_datas if queue.broker_name in kept]
    return TopicRouteData(queues, brokers, route.order_topic_conf)


_H = NamesrvHandlers
_TABLE: dict[int, Callable[[NamesrvHandlers, Any, Call], Answer]] = {
    RequestCode.PUT_KV_CONFIG: _H._put_kv,
    RequestCode.GET_KV_CONFIG: _H._get_kv,
    RequestCode.DELETE_KV_CONFIG: _H._delete_kv,
    RequestCode.UNREGISTER_BROKER: _H._unregister,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _H._route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _H._cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _H._wipe_write_perm,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _H._add_write_perm,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _H._all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _H._delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _H._register_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _H._kv_list,
    RequestCode.GET_TOPICS_BY_CLUSTER: _H._topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _H._system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: _H._unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _H._unit_sub_topics,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _H._unit_sub_ununit_topics,
    RequestCode.UPDATE_NAMESRV_CONFIG: _H._update_config,
    RequestCode.GET_NAMESRV_CONFIG: _H._get_config,
    RequestCode.QUERY_DATA_VERSION: _H._query_data_version,
    RequestCode.GET_BROKER_MEMBER_GROUP: _H._member_group,
    RequestCode.BROKER_HEARTBEAT: _H._heartbeat,
}
HANDLED_CODES = frozenset(_TABLE) | {RequestCode.REGISTER_BROKER}
"""All request codes with a handler."""
