"""The tables of a name server are bounded: brokers, topics, KV entries; no host keeps the others out."""

import contextlib
import random
from typing import NoReturn

import pytest

from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.core import (
    EXPIRY_MS_MAX,
    NAME_CHARS_MAX,
    Bounds,
    NoRoomError,
    Registration,
    RouteRegistry,
)
from ringmq.namesrv.handlers import NamesrvHandlers
from ringmq.namesrv.kv import KvConfig, KvFullError
from ringmq.namesrv.live_brokers import BrokerAddress, LiveBroker
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.register_body import encode_compressed_body, encode_register_body
from ringmq.remoting.route import QueueData

NOW = 1_795_211_160_000


def registration(name: str, topics: int | list[str] = 2, host: str = "h", **more: object) -> Registration:
    names = [f"{name}-{number}" for number in range(topics)] if isinstance(topics, int) else topics
    table = TopicConfigTable({topic: TopicConfig(topic) for topic in names}, DataVersion(1))
    values: dict[str, object] = {"cluster": "C", "broker_addr": f"{name}:1", "broker_id": 0} | more
    return Registration(broker_name=name, ha_server_addr="x", table=table, host=host, **values)  # type: ignore[arg-type]


def check(registry: RouteRegistry) -> None:
    """The counts and the indexes agree with the tables, and the tables hold no more than the bounds."""
    pairs = {(topic, name) for topic, queues in registry.topics.items() for name in queues}
    assert registry.queue_data_count == len(pairs) <= registry.bounds.queue_datas
    assert {(topic, name) for name, topics in registry._topics_of.items() for topic in topics} == pairs
    assert registry.broker_count == sum(len(broker.broker_addrs) for broker in registry.brokers.values())
    assert registry.broker_count <= registry.bounds.brokers
    assert len(registry.topics) <= registry.bounds.topics
    assert len(registry.live) <= 2 * registry.bounds.brokers
    assert {
        (BrokerAddress(broker.cluster, addr), broker.broker_name)
        for broker in registry.brokers.values()
        for addr in broker.broker_addrs.values()
    } == {(address, name) for address, names in registry._names_at.items() for name in names}
    assert all(registry.topics.values())
    assert {name for names in registry._names_at.values() for name in names} == {
        broker.broker_name for broker in registry.brokers.values() if broker.broker_addrs
    }


def test_one_host_has_at_most_half_of_the_brokers() -> None:
    registry = RouteRegistry(bounds=Bounds(brokers=8))
    for number in range(4):
        registry.register(registration(f"a{number}"), NOW)
    with pytest.raises(NoRoomError, match="host h has registered 4 brokers, half of ringmqMaxBrokers"):
        registry.register(registration("a4"), NOW)
    for number in range(4):
        registry.register(registration(f"b{number}", host=f"other{number}"), NOW)
    with pytest.raises(NoRoomError, match="ringmqMaxBrokers = 8 brokers are registered"):
        registry.register(registration("c", host="another"), NOW)
    assert "c" not in registry.brokers
    registry.register(registration("a0", 3), NOW)  # a known broker is always taken
    check(registry)


def test_topics_beyond_the_bound_are_left_out_and_tried_again() -> None:
    registry = RouteRegistry(bounds=Bounds(topics=10))
    assert registry.register(registration("a", 5), NOW) is not None
    known = registry.register(registration("a", 8), NOW)
    assert known is not None
    assert known.left_out == 3
    assert registry.data_version(BrokerAddress("C", "a:1")) == DataVersion(), "so that the broker comes again"
    assert len(registry.topics) == 5
    other = registry.register(registration("b", 5, host="other"), NOW)
    assert other is not None
    assert other.left_out == 0, "another host has its share"
    assert "10 topics of ringmqMaxTopics = 10" in registry.full_text(1)
    check(registry)


def test_pairs_of_topic_and_broker_are_bounded() -> None:
    registry = RouteRegistry(bounds=Bounds(queue_datas=12))
    names = [f"t{number}" for number in range(5)]
    left_out = []
    for number in range(4):
        registered = registry.register(registration(f"b{number}", names, host=f"h{number}"), NOW)
        assert registered is not None
        left_out.append(registered.left_out)
    assert left_out == [0, 0, 3, 5]
    check(registry)


def test_a_topic_of_an_endless_name_is_left_out() -> None:
    registry = RouteRegistry()
    registered = registry.register(registration("a", ["t", "t" * (NAME_CHARS_MAX + 1)]), NOW)
    assert registered is not None
    assert registered.left_out == 1
    assert list(registry.topics) == ["t"]


@pytest.mark.parametrize("field", ["cluster", "broker_addr", "zone_name"])
def test_texts_of_a_registration_are_bounded(field: str) -> None:
    registry = RouteRegistry()
    with pytest.raises(NoRoomError, match="has 256 characters, at most 255 are kept"):
        registry.register(registration("a", **{field: "x" * 256}), NOW)
    assert registry.brokers == {}


def test_a_broker_cannot_ask_to_be_kept_for_ever() -> None:
    registry = RouteRegistry()
    registry.register(registration("a", expiry_ms=1 << 62), NOW)
    registry.expire(NOW + EXPIRY_MS_MAX + 1)
    assert registry.brokers == {}


def test_a_single_topic_beyond_the_bound_is_refused() -> None:
    registry = RouteRegistry(bounds=Bounds(topics=4))
    registry.register(registration("a", 2), NOW)
    registry.register(registration("b", 2, host="other"), NOW)
    with pytest.raises(NoRoomError, match="ringmqMaxTopics = 4"):
        registry.register_topic("more", [QueueData("a", 1, 1, 6, 0)], "third")
    registry.register_topic("a-0", [QueueData("a", 9, 9, 6, 0)], "third")
    assert registry.topics["a-0"]["a"].read_queue_nums == 9
    check(registry)


@pytest.mark.parametrize("seed", range(20))
def test_the_counts_hold_over_any_history(seed: int) -> None:
    chance = random.Random(seed)
    registry = RouteRegistry(bounds=Bounds(brokers=12, topics=40, queue_datas=60))
    for step in range(600):
        name, host = f"b{chance.randrange(10)}", f"h{chance.randrange(4)}"
        cluster, addr = f"C{chance.randrange(3)}", f"{chance.choice('xyz')}{chance.randrange(6)}:1"
        registry.delete_topic_with_registration = chance.random() < 0.2
        match chance.randrange(7):
            case 0 | 1 | 2:
                topics = [f"t{chance.randrange(60)}" for _ in range(chance.randrange(8))]
                more = {"cluster": cluster, "broker_addr": addr, "broker_id": chance.randrange(3)}
                with contextlib.suppress(NoRoomError):
                    registry.register(
                        registration(name, list(dict.fromkeys(topics)), host, connection=step % 9, **more), NOW
                    )
            case 3:
                registry.unregister(BrokerAddress(cluster, addr), name)
            case 4:
                registry.drop_connection(chance.randrange(9))
            case 5:
                registry.delete_topic(f"t{chance.randrange(60)}", chance.choice([None, cluster]))
            case 6:
                with contextlib.suppress(NoRoomError):
                    registry.register_topic(f"t{chance.randrange(60)}", [QueueData(name, 1, 1, 6, 0)], host)
        check(registry)


def test_kv_is_bounded_by_entries_and_bytes_and_overwriting_stays_possible() -> None:
    kv = KvConfig()
    for key in "abc":
        kv.put("n", key, "1", max_entries=4)
    with pytest.raises(KvFullError, match="ringmqMaxKvEntries = 4"):
        kv.put("n", "d", "1", max_entries=4)
    kv.put("n", "a", "2", max_entries=4)
    with pytest.raises(KvFullError, match="ringmqMaxKvBytes = 100"):
        kv.put("n", "a", "x" * 200, max_bytes=100)
    kv.delete("n", "b")
    kv.put("n", "d", "1", max_entries=4)
    again = KvConfig.from_bytes(kv.to_bytes())
    assert (again.entries, again.text_bytes) == (kv.entries, kv.text_bytes) == (4, 7)


def handlers(**values: str) -> NamesrvHandlers:
    config = NamesrvConfig()
    config.update(values)
    return NamesrvHandlers(config)


def ask(made: NamesrvHandlers, code: int, body: bytes = b"", host: str = "h", **fields: str) -> RemotingCommand:
    answer = made.handle(RemotingCommand(code, 7, ext_fields=fields, body=body), 5, NOW, host)
    assert answer is not None
    return answer


def test_refusals_name_the_bound_and_are_told() -> None:
    made = handlers(ringmqMaxKvEntries="2", ringmqMaxBrokers="2")
    assert ask(made, 100, namespace="n", key="k", value="v").code == 0
    answer = ask(made, 100, namespace="n", key="l", value="v")
    assert (answer.code, answer.remark) == (1, "key l is not kept: ringmqMaxKvEntries = 2 keys and namespaces are kept")
    broker = {"brokerAddr": "a:1", "clusterName": "C", "haServerAddr": "x", "brokerId": "0"}
    table = TopicConfigTable({topic: TopicConfig(topic) for topic in ("T", "U")}, DataVersion(1))
    body = encode_register_body(table)
    assert ask(made, 103, body, brokerName="a", **broker).code == 0
    answer = ask(made, 103, body, brokerName="b", **broker)
    assert answer.code == 1
    assert answer.remark == "register broker failed: host h has registered 1 brokers, half of ringmqMaxBrokers"
    assert made.incidents.left_out == 2
    assert len(made.incidents.take_lines()) == 2


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_of_too_many_topics_is_refused_before_they_are_read(compressed: bool) -> None:
    made = handlers(ringmqMaxTopics="10")
    table = TopicConfigTable({f"t{number}": TopicConfig(f"t{number}") for number in range(11)}, DataVersion(1))
    body = encode_compressed_body(table) if compressed else encode_register_body(table)
    broker = {"brokerName": "a", "brokerAddr": "a:1", "clusterName": "C", "haServerAddr": "x", "brokerId": "0"}
    answer = ask(made, 103, body, compressed=str(compressed).lower(), **broker)
    assert (answer.code, answer.remark) == (1, "11 topics are over 10")


def test_a_large_registration_pauses() -> None:
    made = handlers()
    table = TopicConfigTable({f"t{number}": TopicConfig(f"t{number}") for number in range(3000)}, DataVersion(1))
    broker = {"brokerName": "a", "brokerAddr": "a:1", "clusterName": "C", "haServerAddr": "x", "brokerId": "0"}
    for body, compressed in ((encode_register_body(table), "false"), (encode_compressed_body(table), "true")):
        request = RemotingCommand(103, 7, ext_fields=broker | {"compressed": compressed}, body=body)
        pauses = list(made.handle_slices(request, 5, NOW, "h"))
        assert len(pauses) >= 6
    assert len(made.registry.topics) == 3000


def test_a_broker_has_its_id_again_when_the_one_that_took_it_goes() -> None:
    registry = RouteRegistry()
    registry.register(registration("a", 3, connection=1), NOW)
    registry.register(registration("a", ["X", "Y"], broker_addr="impostor:1", connection=2), NOW + 1)
    registry.register(registration("a", ["X", "Y"], broker_addr="impostor:2", connection=3), NOW + 2)
    assert registry.brokers["a"].broker_addrs == {0: "impostor:2"}
    registry.drop_connection(3)
    assert registry.brokers["a"].broker_addrs == {0: "a:1"}
    assert "a-0" in registry.topics
    assert registry.data_version(BrokerAddress("C", "a:1")) == DataVersion(), "so that its topics count again"
    registry.drop_connection(2)
    assert registry.brokers["a"].broker_addrs == {0: "a:1"}
    registry.drop_connection(1)
    assert registry.brokers == {}
    check(registry)


def test_a_broker_that_has_left_does_not_come_back() -> None:
    for leave in (
        lambda registry: registry.drop_connection(1),
        lambda registry: registry.unregister(BrokerAddress("C", "a:1"), "a"),
    ):
        registry = RouteRegistry()
        registry.register(registration("a", connection=1), NOW)
        registry.register(registration("a", broker_addr="other:1", connection=2), NOW)
        leave(registry)
        assert registry.brokers["a"].broker_addrs == {0: "other:1"}
        registry.drop_connection(2)
        assert registry.brokers == {}


def test_a_broker_that_changes_its_address_over_one_connection_leaves_nothing_behind() -> None:
    registry = RouteRegistry()
    registry.register(registration("a", connection=1), NOW)
    registry.register(registration("a", broker_addr="new:1", connection=1), NOW)
    registry.unregister(BrokerAddress("C", "new:1"), "a")
    assert registry.brokers == {}


def test_many_takers_do_not_push_the_longest_standing_broker_out() -> None:
    registry = RouteRegistry()
    registry.register(registration("a", connection=1), NOW)
    for number in range(2, 40):
        registry.register(registration("a", broker_addr=f"other:{number}", connection=number), NOW + number)
    registry.register(registration("a", connection=1), NOW + 50)
    registry.register(registration("a", broker_addr="other:2", connection=2), NOW + 51)
    for number in range(2, 40):
        registry.drop_connection(number)
    assert registry.brokers["a"].broker_addrs == {0: "a:1"}


class Unwalked(dict[BrokerAddress, LiveBroker]):
    """A table that may not be walked over."""

    def items(self) -> NoReturn:
        raise AssertionError


def test_a_closed_connection_without_brokers_costs_no_walk() -> None:
    registry = RouteRegistry()
    registry.register(registration("a", connection=1), NOW)
    registry.live = Unwalked(registry.live)
    registry.drop_connection(2)
    with pytest.raises(AssertionError):
        registry.drop_connection(1)
