"""Answers to the recorded requests, and to bad ones."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.handlers import HANDLED_CODES, NamesrvHandlers
from ringmq.namesrv.kv import KvConfig
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.json_body import read_object, write_body
from ringmq.remoting.register_body import encode_compressed_body, encode_register_body
from tests.remoting.replay import differences
from tests.remoting.scenes import (
    BROKER_NAME,
    CLUSTER_NAME,
    JSON,
    MIXED,
    ROCKETMQ,
    SCENES,
    TOPIC_QUEUES,
    Exchange,
    due_exchanges,
    exchanges,
)

NOW = 1_795_211_160_000
BROKER = {
    "brokerName": BROKER_NAME,
    "brokerAddr": "127.0.0.2:30911",
    "clusterName": CLUSTER_NAME,
    "haServerAddr": "127.0.0.1:30912",
    "brokerId": "0",
}


def topics() -> dict[str, TopicConfig]:
    configs = {name: TopicConfig(name, queues, queues) for name, queues in TOPIC_QUEUES.items()}
    for name, queues, perm in (("TBW102", 8, 7), (CLUSTER_NAME, 16, 7), (BROKER_NAME, 1, 7)):
        configs[name] = TopicConfig(name, queues, queues, perm)
    for group in ("WG_PUSH", "WG_RPC", "WG_ORD", "WG_POP", "WG_POP_WirePop", "WG_LITE", "WG_BACK"):
        configs[f"%RETRY%{group}"] = TopicConfig(f"%RETRY%{group}", 1, 1)
    configs["%RETRY%WG_X"] = TopicConfig("%RETRY%WG_X", 4, 4)
    return configs


def register(handlers: NamesrvHandlers, **extra: str) -> RemotingCommand:
    body = encode_register_body(TopicConfigTable(topics(), DataVersion(1, 0, NOW)))
    answer = handlers.handle(RemotingCommand(103, ext_fields=BROKER | extra, body=body), 1, NOW)
    assert answer is not None
    return answer


@pytest.fixture
def handlers() -> NamesrvHandlers:
    handlers = NamesrvHandlers(NamesrvConfig())
    assert register(handlers).code == 0
    return handlers


def ask(handlers: NamesrvHandlers, code: int, body: bytes = b"", version: int = 479, **fields: str) -> RemotingCommand:
    answer = handlers.handle(RemotingCommand(code, 7, version=version, ext_fields=fields, body=body), 5, NOW)
    assert answer is not None
    assert answer.opaque == 7
    return answer


# ---- recorded scenes ----


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_a_stock_broker_registers_and_leaves(kind: str) -> None:
    handlers = NamesrvHandlers(NamesrvConfig())
    for scene in ("00a-broker-register", "00b-broker-unregister"):
        for exchange in exchanges(kind, scene):
            answer = handlers.handle(exchange.request, 1, NOW)
            assert differences(exchange, answer) == []
            assert answer is not None
            assert exchange.answer is not None
            assert answer.body == exchange.answer.body


def name_server_exchanges() -> Iterator[tuple[str, Exchange]]:
    for scene in SCENES:
        if scene.name != "01-route" and not scene.name.startswith("20-admin"):
            continue
        for kind in scene.kinds:
            for exchange in due_exchanges(scene, kind, "ns"):
                yield f"{kind} {scene.name} {exchange.label}", exchange


CASES = list(name_server_exchanges())


def test_there_are_enough_recorded_requests() -> None:
    assert len(CASES) > 110
    assert {exchange.request.code for _, exchange in CASES} >= {100, 102, 105, 106, 206, 216, 9999}


@pytest.mark.parametrize("exchange", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_recorded_requests_are_answered_like_stock(handlers: NamesrvHandlers, exchange: Exchange) -> None:
    answer = handlers.handle(exchange.request, 1, NOW)
    assert differences(exchange, answer) == []
    assert answer is not None
    assert exchange.answer is not None
    if exchange.request.code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO):
        assert answer.body == exchange.answer.body


def test_the_mixed_scene_is_among_them() -> None:
    assert any(name.startswith(MIXED) for name, _ in CASES)


# ---- single answers ----


def test_old_clients_get_unquoted_ids(handlers: NamesrvHandlers) -> None:
    assert b'{0:"127' in ask(handlers, 105, version=317, topic="WireA").body
    assert b'{"0":"127' in ask(handlers, 105, version=401, topic="WireA").body
    assert b'{"0":"127' in ask(handlers, 105, version=317, topic="WireA", acceptStandardJsonOnly="true").body


def test_a_compressed_registration() -> None:
    handlers = NamesrvHandlers(NamesrvConfig())
    body = encode_compressed_body(TopicConfigTable(topics(), DataVersion(1, 0, NOW)))
    request = RemotingCommand(103, ext_fields=BROKER | {"compressed": "true"}, body=body)
    answer = handlers.handle(request, 1, NOW)
    assert answer is not None
    assert answer.code == 0
    assert ask(handlers, 105, topic="WireA").code == 0


def test_a_wrong_checksum_is_refused(handlers: NamesrvHandlers) -> None:
    answer = register(handlers, bodyCrc32="1")
    assert (answer.code, "crc32" in (answer.remark or "")) == (1, True)


def test_a_slave_is_told_its_master(handlers: NamesrvHandlers) -> None:
    answer = register(handlers, brokerAddr="127.0.0.3:30911", brokerId="1")
    assert answer.ext_fields == {"masterAddr": "127.0.0.2:30911", "haServerAddr": "127.0.0.1:30912"}


def test_data_versions(handlers: NamesrvHandlers) -> None:
    known = DataVersion(1, 0, NOW)
    same = ask(handlers, 322, write_body(known.to_json()), **BROKER)
    assert (same.code, same.ext_fields["changed"]) == (0, "false")
    assert DataVersion.from_json(read_object(same.body, "x")) == known
    known.counter = 2
    assert ask(handlers, 322, write_body(known.to_json()), **BROKER).ext_fields["changed"] == "true"
    other = ask(handlers, 322, write_body(known.to_json()), **(BROKER | {"brokerAddr": "x:1"}))
    assert (other.ext_fields["changed"], other.body) == ("true", b"")


def test_key_values(handlers: NamesrvHandlers) -> None:
    saved: list[dict[str, dict[str, str]]] = []
    handlers.save_kv = lambda kv: saved.append({name: dict(table) for name, table in kv.table.items()})
    assert ask(handlers, 101, namespace="n", key="k").code == 22
    assert ask(handlers, 219, namespace="n").code == 22
    assert ask(handlers, 100, namespace="n", key="k", value="v").code == 0
    assert ask(handlers, 101, namespace="n", key="k").ext_fields == {"value": "v"}
    assert read_object(ask(handlers, 219, namespace="n").body, "x") == {"table": {"k": "v"}}
    assert ask(handlers, 102, namespace="n", key="k").code == 0
    assert ask(handlers, 102, namespace="m", key="k").code == 0
    assert saved == [{"n": {"k": "v"}}, {"n": {}}, {"n": {}}]
    assert KvConfig.from_bytes(handlers.kv.to_bytes()) == handlers.kv


def test_order_configuration_travels_in_routes_and_registrations(handlers: NamesrvHandlers) -> None:
    ask(handlers, 100, namespace="ORDER_TOPIC_CONFIG", key="WireA", value="wire-a:4")
    assert read_object(register(handlers).body, "x") == {"table": {"WireA": "wire-a:4"}}
    assert b"orderTopicConf" not in ask(handlers, 105, topic="WireA").body
    handlers.config.order_message_enable = True
    assert b'"orderTopicConf":"wire-a:4"' in ask(handlers, 105, topic="WireA").body


def test_zones(handlers: NamesrvHandlers) -> None:
    register(handlers, __ZONE_NAME="z1")
    here = ask(handlers, 105, topic="WireA", __ZONE_MODE="true", __ZONE_NAME="Z1")
    assert b'{0:"127' in here.body
    there = ask(handlers, 105, topic="WireA", __ZONE_MODE="true", __ZONE_NAME="z2")
    assert read_object(there.body, "x")["queueDatas"] == []


def test_topic_lists(handlers: NamesrvHandlers) -> None:
    def listed(code: int, **fields: str) -> dict[str, object]:
        return read_object(ask(handlers, code, **fields).body, "x")

    assert listed(206)["topicList"] == list(topics())
    assert listed(224, cluster=CLUSTER_NAME)["topicList"] == list(topics())
    assert listed(224, cluster="nowhere") == {"topicList": []}
    assert listed(304) == {"topicList": [CLUSTER_NAME, BROKER_NAME], "brokerAddr": BROKER["brokerAddr"]}
    for code in (311, 312, 313):
        assert listed(code) == {"topicList": []}
    handlers.config.enable_all_topic_list = handlers.config.enable_topic_list = False
    assert [ask(handlers, code, cluster="C").code for code in (206, 224, 311, 312, 313)] == [1] * 5


def test_write_permission(handlers: NamesrvHandlers) -> None:
    wiped = ask(handlers, 205, brokerName=BROKER_NAME)
    assert wiped.ext_fields == {"wipeTopicCount": str(len(topics()))}
    assert b'"perm":4' in ask(handlers, 105, topic="WireA").body
    added = ask(handlers, 327, brokerName=BROKER_NAME)
    assert added.ext_fields == {"addTopicCount": str(len(topics()))}
    assert b'"perm":6' in ask(handlers, 105, topic="WireA").body


def test_topics_by_hand_and_member_groups(handlers: NamesrvHandlers) -> None:
    body = ask(handlers, 105, topic="WireA").body
    assert ask(handlers, 217, body, topic="New").code == 0
    assert ask(handlers, 105, topic="New").body == body
    group = read_object(ask(handlers, 901, clusterName="C", brokerName=BROKER_NAME).body, "x")["brokerMemberGroup"]
    assert group == {"brokerAddrs": {"0": BROKER["brokerAddr"]}, "brokerName": BROKER_NAME, "cluster": "C"}


def test_heartbeats_keep_a_broker(handlers: NamesrvHandlers) -> None:
    beat = RemotingCommand(904, flag=2, ext_fields=BROKER)
    assert handlers.handle(beat, 1, NOW + 100_000) is None
    assert handlers.registry.expire(NOW + 200_000) == []
    assert handlers.registry.expire(NOW + 220_001) == [1]


def test_waiting_for_service() -> None:
    handlers = NamesrvHandlers(NamesrvConfig(need_wait_for_service=True), started_ms=NOW - 44_999)
    register(handlers)
    assert ask(handlers, 105, topic="WireA").code == 1
    handlers.started_ms -= 1
    assert ask(handlers, 105, topic="WireA").code == 0


def test_configuration(handlers: NamesrvHandlers) -> None:
    text = ask(handlers, 319).body.decode()
    assert "orderMessageEnable=false\n" in text
    assert ask(handlers, 318, b"orderMessageEnable=true\n# c\n").code == 0
    assert handlers.config.order_message_enable
    for body, code, word in (
        (b"kvConfigPath=/x", 16, "kvConfigPath"),
        (b"orderMesageEnable=true", 1, "orderMessageEnable"),
        (b"orderMessageEnable=1", 1, "true or false"),
        (b"waitSecondsForService=-1", 1, "0..3600"),
        (b"junk", 1, "unknown setting junk"),
        (b"# c\nlistenPort=\\u00g0", 1, "line 2"),
    ):
        answer = ask(handlers, 318, body)
        assert (answer.code, word in (answer.remark or "")) == (code, True)


# ---- bad requests ----


def test_missing_and_wrong_fields_are_named(handlers: NamesrvHandlers) -> None:
    for code, fields, name in (
        (103, BROKER | {"brokerId": "x"}, "brokerId"),
        (103, {k: v for k, v in BROKER.items() if k != "brokerAddr"}, "brokerAddr"),
        (105, {}, "topic"),
        (100, {"namespace": "n", "key": "k"}, "value"),
    ):
        answer = ask(handlers, code, **fields)
        assert answer.code == 1
        assert name in (answer.remark or "")


@pytest.mark.parametrize("body", [b"junk", b"[]", b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}'])
def test_bad_bodies_change_nothing(handlers: NamesrvHandlers, body: bytes) -> None:
    before = ask(handlers, 106).body
    for code in (103, 217, 322):
        answer = ask(handlers, code, body, **(BROKER | {"topic": "X"}))
        assert answer.code == 1 or code != 103
    assert ask(handlers, 106).body == before


def test_a_oneway_request_gets_no_answer_even_in_error(handlers: NamesrvHandlers) -> None:
    assert handlers.handle(RemotingCommand(9999, flag=2), 1, NOW) is None
    assert handlers.handle(RemotingCommand(105, flag=2), 1, NOW) is None


@given(
    st.sampled_from(sorted(HANDLED_CODES)),
    st.dictionaries(st.sampled_from([*sorted(BROKER), "topic", "namespace", "key", "value"]), st.text(max_size=6)),
    st.binary(max_size=30) | st.sampled_from([b"{}", b'{"queueDatas":[{}]}', b"a=b"]),
)
def test_any_request_is_answered(code: int, fields: dict[str, str], body: bytes) -> None:
    handlers = NamesrvHandlers(NamesrvConfig())
    answer = handlers.handle(RemotingCommand(code, ext_fields=fields, body=body), 1, NOW)
    assert answer is not None
    assert answer.is_response
