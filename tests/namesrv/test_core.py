"""The registry's rules, one test per sentence of the specification."""

import pytest
from msgspec.structs import replace

from ringmq.namesrv.core import Registration, RouteRegistry
from ringmq.namesrv.live_brokers import BrokerAddress
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.route import TopicRouteData

NOW = 1_700_000_000_000


def table(*topics: str, counter: int = 1, state: int = 0, perm: int = 6) -> TopicConfigTable:
    return TopicConfigTable({name: TopicConfig(name, 4, 4, perm) for name in topics}, DataVersion(counter, state, 5))


MASTER = Registration("C", "b", "10.0.0.1:10911", 0, "10.0.0.1:10912", table("T", "U"), connection=1)
SLAVE = replace(MASTER, broker_addr="10.0.0.2:10911", broker_id=1, ha_server_addr="10.0.0.2:10912", connection=2)


@pytest.fixture
def registry() -> RouteRegistry:
    registry = RouteRegistry()
    assert registry.register(MASTER, NOW) is not None
    return registry


def route(registry: RouteRegistry, topic: str = "T") -> TopicRouteData:
    found = registry.route(topic)
    assert found is not None
    return found


def test_a_registered_topic_has_a_route(registry: RouteRegistry) -> None:
    found = route(registry)
    assert [(q.broker_name, q.read_queue_nums, q.perm) for q in found.queue_datas] == [("b", 4, 6)]
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}
    assert registry.route("nowhere") is None
    assert registry.cluster_info().clusters == {"C": ["b"]}


def test_a_route_is_a_copy(registry: RouteRegistry) -> None:
    first = route(registry)
    first.broker_datas[0].broker_addrs.clear()
    first.queue_datas[0].perm = 0
    assert route(registry).broker_datas[0].broker_addrs
    assert route(registry).queue_datas[0].perm == 6


def test_a_slave_learns_its_master_and_does_not_speak_for_topics(registry: RouteRegistry) -> None:
    answer = registry.register(replace(SLAVE, table=table("T", "V")), NOW)
    assert answer is not None
    assert (answer.master_addr, answer.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:10912")
    assert registry.route("V") is None
    assert route(registry).broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_group_without_its_master_keeps_its_route_until_the_master_is_back(
    registry: RouteRegistry, is_clean: bool
) -> None:
    """Consumers read on from the slave; the slave hears that there is no master, and of the next one."""
    slave = replace(SLAVE, enable_acting_master=False)
    registry.register(slave, NOW)
    if is_clean:
        registry.unregister(MASTER.address, "b")
    else:
        registry.drop_connection(1)
    assert route(registry).broker_datas[0].broker_addrs == {1: "10.0.0.2:10911"}
    assert route(registry).queue_datas[0].perm == 6
    answer = registry.register(slave, NOW + 1)
    assert answer is not None
    assert (answer.master_addr, answer.ha_server_addr) == (None, None)
    registry.register(replace(MASTER, ha_server_addr="10.0.0.1:7", connection=3), NOW + 2)
    answer = registry.register(slave, NOW + 3)
    assert answer is not None
    assert (answer.master_addr, answer.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:7")


def test_an_unknown_broker_may_not_begin_with_one_topic() -> None:
    registry = RouteRegistry()
    assert registry.register(replace(MASTER, table=table("T")), NOW) is None
    assert (registry.brokers, registry.clusters, registry.live) == ({}, {}, {})
    assert registry.register(replace(MASTER, table=table()), NOW) is not None
    assert registry.register(replace(MASTER, table=table("T", counter=2)), NOW) is not None
    assert registry.route("T") is not None


def test_an_equal_data_version_changes_nothing_that_is_known(registry: RouteRegistry) -> None:
    registry.register(replace(MASTER, table=table("T", "U", "V", perm=4)), NOW)
    assert route(registry).queue_datas[0].perm == 6
    assert registry.route("V") is not None, "a topic that the broker lacked so far is taken"
    registry.register(replace(MASTER, table=table("T", "U", counter=2, perm=4)), NOW)
    assert route(registry).queue_datas[0].perm == 4


def test_topics_that_vanish_from_the_body_stay_unless_configured(registry: RouteRegistry) -> None:
    registry.register(replace(MASTER, table=table("T", counter=2)), NOW)
    assert registry.route("U") is not None
    registry.delete_topic_with_registration = True
    registry.register(replace(MASTER, table=table("T", counter=3)), NOW)
    assert registry.route("U") is None


def test_a_slave_that_becomes_master_moves_its_address(registry: RouteRegistry) -> None:
    registry.register(SLAVE, NOW)
    registry.register(replace(SLAVE, broker_id=0), NOW)
    assert registry.brokers["b"].broker_addrs == {0: "10.0.0.2:10911"}


def test_an_older_state_version_does_not_take_an_id(registry: RouteRegistry) -> None:
    registry.register(replace(MASTER, table=table("T", "U", counter=2, state=7)), NOW)
    late = replace(MASTER, broker_addr="10.0.0.9:10911", table=table("T", "U", state=6))
    assert registry.register(late, NOW) is not None
    assert registry.brokers["b"].broker_addrs == {0: "10.0.0.1:10911"}
    registry.register(replace(late, table=table("T", "U", state=8)), NOW)
    assert registry.brokers["b"].broker_addrs == {0: "10.0.0.9:10911"}


def test_unregistering_the_last_address_takes_the_topics_along(registry: RouteRegistry) -> None:
    registry.register(SLAVE, NOW)
    registry.unregister(MASTER.address, "b")
    assert route(registry).broker_datas[0].broker_addrs == {1: "10.0.0.2:10911"}
    registry.unregister(SLAVE.address, "b")
    assert (registry.topics, registry.brokers, registry.clusters, registry.live) == ({}, {}, {}, {})
    registry.unregister(SLAVE.address, "b")


def test_a_closed_connection_unregisters(registry: RouteRegistry) -> None:
    registry.register(SLAVE, NOW)
    registry.drop_connection(1)
    assert registry.brokers["b"].broker_addrs == {1: "10.0.0.2:10911"}
    registry.drop_connection(99)
    registry.drop_connection(2)
    assert registry.topics == {}


def test_a_new_connection_of_the_same_broker_outlives_the_old_one(registry: RouteRegistry) -> None:
    registry.register(replace(MASTER, connection=7), NOW)
    registry.drop_connection(1)
    assert registry.route("T") is not None


@pytest.mark.parametrize("expiry_ms", [120_000, 10_000])
def test_silence_expires_and_heartbeats_refresh(expiry_ms: int) -> None:
    registry = RouteRegistry()
    registry.register(replace(MASTER, expiry_ms=expiry_ms), NOW)
    assert registry.expire(NOW + expiry_ms) == []
    registry.heard_from(MASTER.address, NOW + 1)
    assert registry.expire(NOW + expiry_ms + 1) == []
    assert registry.expire(NOW + expiry_ms + 2) == [1]
    assert registry.route("T") is None
    registry.heard_from(BrokerAddress("C", "gone:1"), NOW)


def test_write_permission_is_wiped_until_the_next_change(registry: RouteRegistry) -> None:
    assert registry.set_write_perm("b", False) == 2
    assert route(registry).queue_datas[0].perm == 4
    registry.register(MASTER, NOW)
    assert route(registry).queue_datas[0].perm == 4
    registry.register(replace(MASTER, table=table("T", "U", counter=2)), NOW)
    assert route(registry).queue_datas[0].perm == 6
    assert registry.set_write_perm("nobody", True) == 0


def test_topics_are_deleted_by_cluster_or_everywhere(registry: RouteRegistry) -> None:
    other = replace(MASTER, cluster="D", broker_name="d", broker_addr="10.0.0.3:1", connection=3)
    registry.register(other, NOW)
    registry.delete_topic("T", "C")
    assert [q.broker_name for q in route(registry).queue_datas] == ["d"]
    registry.delete_topic("T", "nowhere")
    registry.delete_topic("T")
    assert registry.route("T") is None
    assert registry.topics_of_cluster("D") == ["U"]
    assert registry.topics_of_cluster("nowhere") == []


def test_acting_masters_show_as_master_and_read_only() -> None:
    registry = RouteRegistry(support_acting_master=True)
    registry.register(replace(MASTER, enable_acting_master=True), NOW)
    registry.register(replace(SLAVE, enable_acting_master=True), NOW)
    registry.unregister(MASTER.address, "b")
    found = route(registry)
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.2:10911"}
    assert found.queue_datas[0].perm == 4
    assert registry.brokers["b"].broker_addrs == {1: "10.0.0.2:10911"}


def test_unit_flags_select_topics(registry: RouteRegistry) -> None:
    configs = {name: TopicConfig(name, topic_sys_flag=flag) for name, flag in (("p", 0), ("u", 1), ("s", 2), ("b", 3))}
    registry.register(replace(MASTER, table=TopicConfigTable(configs, DataVersion(9))), NOW)
    assert registry.topics_with_flags(unit=True, unit_sub=None) == ["u", "b"]
    assert registry.topics_with_flags(unit=None, unit_sub=True) == ["s", "b"]
    assert registry.topics_with_flags(unit=False, unit_sub=True) == ["s"]
