"""The name server's access policy: lists of networks, other hosts' brokers, disputes."""

import pytest

from ringmq.namesrv import access
from ringmq.namesrv.config import ConfigError, NamesrvConfig
from ringmq.namesrv.handlers import HANDLED_CODES, NamesrvHandlers
from ringmq.namesrv.live_brokers import BrokerAddress
from ringmq.remoting.access import NAMESRV, Access
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.register_body import encode_register_body

NOW = 1_795_211_160_000
OWNER, STRANGER = "10.0.0.1", "10.0.0.2"


def handlers(**values: str) -> NamesrvHandlers:
    config = NamesrvConfig()
    config.update(values)
    return NamesrvHandlers(config)


def ask(
    made: NamesrvHandlers, code: int, host: str, body: bytes = b"", connection: int = 5, **fields: str
) -> RemotingCommand:
    answer = made.handle(RemotingCommand(code, 7, ext_fields=fields, body=body), connection, NOW, host)
    assert answer is not None
    return answer


def register(
    made: NamesrvHandlers,
    host: str,
    addr: str = "10.0.0.1:10911",
    broker_id: int = 0,
    connection: int = 5,
    name: str = "b",
    cluster: str = "C",
) -> RemotingCommand:
    table = TopicConfigTable({name: TopicConfig(name, 4, 4) for name in ("T", "U")}, DataVersion(1))
    fields = {"brokerName": name, "brokerAddr": addr, "clusterName": cluster, "haServerAddr": "x"}
    return ask(made, 103, host, encode_register_body(table), connection, brokerId=str(broker_id), **fields)


def unregister(
    made: NamesrvHandlers, host: str, addr: str = "10.0.0.1:10911", cluster: str = "C", name: str = "b"
) -> RemotingCommand:
    return ask(made, 104, host, brokerName=name, brokerAddr=addr, clusterName=cluster, brokerId="0")


@pytest.mark.parametrize("code", sorted(HANDLED_CODES))
def test_each_code_is_bounded_by_the_list_of_its_class(code: int) -> None:
    lists = NamesrvConfig(admin_addresses="192.0.2.1", broker_addresses="192.0.2.2")
    assert access.refusal(NamesrvConfig(), code, STRANGER) is None
    text = access.refusal(lists, code, STRANGER)
    properties = {Access.CHANGE_ADMIN: "adminAddresses", Access.REGISTRATION: "brokerAddresses"}
    wanted = properties.get(NAMESRV[code])
    assert (text is None) == (wanted is None)
    if text is not None:
        assert f"code {int(code)} " in text
        assert STRANGER in text
        assert str(wanted) in text


def test_a_refused_change_names_the_property_and_changes_nothing() -> None:
    made = handlers(adminAddresses="192.0.2.0/24")
    answer = ask(made, RequestCode.PUT_KV_CONFIG, STRANGER, namespace="n", key="k", value="v")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == (
        "code 100 (PUT_KV_CONFIG) from host 10.0.0.2 is refused: adminAddresses does not name this host"
    )
    assert made.kv.get("n", "k") is None
    assert made.incidents.refused == 1
    assert made.incidents.take_refusals() == {RequestCode.PUT_KV_CONFIG: (answer.remark, 1)}
    assert made.incidents.take_refusals() == {}
    assert ask(made, RequestCode.PUT_KV_CONFIG, "192.0.2.9", namespace="n", key="k", value="v").code == 0


def test_brokers_of_other_networks_may_not_register() -> None:
    made = handlers(brokerAddresses="10.0.0.1")
    assert register(made, STRANGER).code == ResponseCode.NO_PERMISSION
    assert made.registry.brokers == {}
    assert register(made, OWNER).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("cluster", ["C", "another"])
def test_another_host_may_not_unregister_a_live_broker(cluster: str) -> None:
    made = handlers()
    assert register(made, OWNER).code == ResponseCode.SUCCESS
    answer = unregister(made, STRANGER, cluster=cluster)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark is not None
    assert "registered by host 10.0.0.1" in answer.remark
    assert "adminAddresses" in answer.remark
    assert made.registry.brokers["b"].broker_addrs == {0: "10.0.0.1:10911"}
    assert unregister(made, OWNER).code == ResponseCode.SUCCESS
    assert made.registry.brokers == {}


@pytest.mark.parametrize("name", ["b", "unknown"])
def test_unregistering_keeps_the_displaced_broker_of_another_host(name: str) -> None:
    made = handlers()
    register(made, OWNER, connection=1)
    register(made, STRANGER, "10.0.0.2:10911", connection=2)
    unregister(made, STRANGER, name=name)
    assert unregister(made, STRANGER, "10.0.0.2:10911").code == ResponseCode.SUCCESS
    assert made.registry.brokers["b"].broker_addrs == {0: "10.0.0.1:10911"}
    assert made.registry.live[BrokerAddress("C", "10.0.0.1:10911")].host == OWNER


def test_unregistering_forgets_the_own_displaced_broker() -> None:
    made = handlers()
    register(made, OWNER, connection=1)
    register(made, STRANGER, "10.0.0.2:10911", connection=2)
    assert unregister(made, OWNER).code == ResponseCode.SUCCESS
    assert made.registry.brokers["b"].broker_addrs == {0: "10.0.0.2:10911"}
    unregister(made, STRANGER, "10.0.0.2:10911")
    assert made.registry.brokers == {}


def test_unregistering_keeps_another_host_of_the_same_address() -> None:
    made = handlers()
    register(made, OWNER, connection=1)
    register(made, STRANGER, connection=2)
    assert unregister(made, STRANGER).code == ResponseCode.SUCCESS
    assert made.registry.brokers["b"].broker_addrs == {0: "10.0.0.1:10911"}
    assert made.registry.live[BrokerAddress("C", "10.0.0.1:10911")].host == OWNER


def test_a_closed_connection_gives_the_same_address_back() -> None:
    made = handlers()
    register(made, OWNER, connection=1)
    register(made, STRANGER, connection=2)
    made.registry.drop_connection(2)
    assert made.registry.brokers["b"].broker_addrs == {0: "10.0.0.1:10911"}
    assert made.registry.live[BrokerAddress("C", "10.0.0.1:10911")].host == OWNER


def test_unregistering_one_cluster_keeps_the_address_of_another() -> None:
    made = handlers()
    register(made, OWNER, connection=1)
    register(made, STRANGER, connection=2, name="x", cluster="E")
    unregister(made, STRANGER, name="x")
    assert "x" not in made.registry.brokers
    assert made.registry.live[BrokerAddress("C", "10.0.0.1:10911")].host == OWNER


@pytest.mark.parametrize("cluster", ["first", "C", "third"])
def test_a_name_of_two_clusters_keeps_its_live_broker(cluster: str) -> None:
    made = handlers()
    register(made, STRANGER, "10.0.0.9:1", broker_id=1, connection=1, cluster="first")
    register(made, OWNER, connection=2)
    assert unregister(made, STRANGER, cluster=cluster).code == ResponseCode.NO_PERMISSION
    assert made.registry.brokers["b"].broker_addrs[0] == "10.0.0.1:10911"
    assert unregister(made, OWNER).code == ResponseCode.SUCCESS
    assert 0 not in made.registry.brokers["b"].broker_addrs
    assert BrokerAddress("C", "10.0.0.1:10911") not in made.registry.live


@pytest.mark.parametrize("cluster", ["C", "first"])
def test_another_name_at_the_address_gives_no_right_to_unregister(cluster: str) -> None:
    made = handlers()
    register(made, OWNER, connection=1)
    register(made, STRANGER, connection=2, name="x", cluster=cluster)
    for named in ("C", "first"):
        assert unregister(made, STRANGER, cluster=named).code == ResponseCode.NO_PERMISSION
    assert unregister(made, OWNER).code == ResponseCode.SUCCESS
    assert set(made.registry.brokers) == {"x"}
    assert unregister(made, STRANGER, name="x", cluster=cluster).code == ResponseCode.SUCCESS
    assert made.registry.live == {}


def test_a_connection_that_registered_another_name_at_the_address_takes_none_along() -> None:
    made = handlers()
    register(made, OWNER, connection=1)
    register(made, STRANGER, connection=2, name="x")
    made.registry.drop_connection(2)
    assert set(made.registry.brokers) == {"b"}
    assert made.registry.live[BrokerAddress("C", "10.0.0.1:10911")].host == OWNER
    register(made, STRANGER, connection=2, name="x")
    made.registry.drop_connection(1)
    assert set(made.registry.brokers) == {"x"}
    made.registry.expire(NOW + 10**9)
    assert made.registry.brokers == made.registry.live == {}


def test_a_named_host_may_unregister_a_live_broker() -> None:
    made = handlers(adminAddresses=STRANGER)
    register(made, OWNER)
    assert unregister(made, STRANGER).code == ResponseCode.SUCCESS
    assert made.registry.brokers == {}


def test_a_broker_that_expired_may_be_unregistered_by_every_host() -> None:
    made = handlers()
    register(made, OWNER)
    made.registry.expire(NOW + 10**9)
    assert unregister(made, STRANGER).code == ResponseCode.SUCCESS


def test_two_hosts_of_one_name_and_id_are_one_dispute_and_the_last_counts() -> None:
    made = handlers()
    register(made, OWNER)
    register(made, STRANGER, "10.0.0.2:10911")
    register(made, OWNER)
    assert made.registry.brokers["b"].broker_addrs == {0: "10.0.0.1:10911"}
    assert made.incidents.disputes == 2
    text = "broker b:0 is registered at 10.0.0.1:10911 by host 10.0.0.1 and at 10.0.0.2:10911 by host 10.0.0.2"
    assert made.incidents.take_lines() == [text, text]


def test_a_broker_that_registers_again_or_has_another_id_is_no_dispute() -> None:
    made = handlers()
    for _ in range(3):
        register(made, OWNER)
        register(made, STRANGER, "10.0.0.2:10911", broker_id=1)
    assert made.incidents.disputes == 0


def test_a_broker_that_moved_after_its_address_expired_is_no_dispute() -> None:
    made = handlers()
    register(made, OWNER)
    made.registry.expire(NOW + 10**9)
    register(made, STRANGER, "10.0.0.2:10911")
    assert made.incidents.disputes == 0


def test_names_in_lines_are_short_and_printable() -> None:
    text = access.dispute_text("b\n" * 500, 0, ("a", "h"), ("c", "i"))
    assert text.isprintable()
    assert len(text) < 400


def test_lists_are_checked_and_need_a_restart() -> None:
    with pytest.raises(ConfigError, match=r"adminAddresses: 'host' is neither .*accepted: addresses or networks"):
        NamesrvConfig().update({"adminAddresses": "host"})
    answer = ask(handlers(), RequestCode.UPDATE_NAMESRV_CONFIG, OWNER, b"brokerAddresses=10.0.0.1")
    assert answer.code == ResponseCode.NO_PERMISSION
