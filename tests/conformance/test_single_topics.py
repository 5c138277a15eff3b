"""One topic made under a name server that drops topics missing in a 103 (deleteTopicWithBrokerRegistration)."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import remove_shared_memory
from ringmq.loadtest.stock import free_broker_port, free_port, start_broker, start_namesrv
from tests.conformance.servers import BROKER_NAME, RingmqProcess, settings_args
from tests.raw_client import RawClient
from tests.waiting import wait_until

UPDATE_AND_CREATE_TOPIC, DELETE_TOPIC_IN_BROKER, ALL_TOPICS = 17, 215, 206
MADE = [f"Made{number}" for number in range(12)]
STRICT = "deleteTopicWithBrokerRegistration"
SINGLE = "enableSingleTopicRegister"


def make_topic(broker: RawClient, topic: str) -> None:
    fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": False}
    answer = broker.ask(UPDATE_AND_CREATE_TOPIC, {"topic": topic, "defaultTopic": "TBW102", **fields})
    assert answer.code == 0, answer.remark


def topics_of(name_server: RawClient) -> set[str]:
    return set(json.loads(name_server.ask(ALL_TOPICS, {}).body)["topicList"])


@pytest.fixture(scope="module")
def stock_namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a stock name server that brokers use one after another."""
    name_server = start_namesrv(home=tmp_path_factory.mktemp("namesrv"), properties={STRICT: True})
    yield name_server.address
    name_server.kill()


@contextmanager
def ringmq_under_stock(namesrv: str, home: Path, single: bool) -> Iterator[str]:
    """The address of a broker. At the end its topics are gone from the name server."""
    port, store = free_broker_port(), home / "store"
    options = settings_args({"brokerName": BROKER_NAME, "brokerIP1": "127.0.0.1", SINGLE: single})
    places = ["--store", str(store), "--port", str(port), "--namesrv", namesrv]
    with ExitStack() as stack:
        stack.callback(remove_shared_memory, store)
        broker = RingmqProcess(home / "broker", "broker", *places, *options)
        stack.callback(broker.kill)
        yield f"127.0.0.1:{port}"
        broker.stop()
        with RawClient(namesrv) as name_server:
            wait_until(lambda: "TBW102" not in topics_of(name_server), "the broker's topics are gone")


@contextmanager
def stock_under_ringmq(home: Path, single: bool) -> Iterator[tuple[str, str]]:
    """(name server, broker) addresses."""
    port, namesrv_port = free_broker_port(), free_port()
    options = settings_args({STRICT: True})
    name_server = RingmqProcess(home / "namesrv", "namesrv", "--port", str(namesrv_port), *options)
    address = f"127.0.0.1:{namesrv_port}"
    properties = {"brokerName": BROKER_NAME, SINGLE: single}
    with ExitStack() as stack:
        stack.callback(name_server.kill)
        broker = start_broker(properties, port=port, home=home / "broker", namesrv=address)
        stack.callback(broker.kill)
        yield address, broker.address


@pytest.mark.parametrize("single", [True, False])
def test_a_stock_name_server_keeps_all_topics_of_ringmq_while_topics_are_made(
    stock_namesrv: str, tmp_path: Path, single: bool
) -> None:
    with ringmq_under_stock(stock_namesrv, tmp_path, single) as address, RawClient(address) as broker:
        name_server = RawClient(stock_namesrv)
        known = topics_of(name_server)
        assert {"TBW102", BROKER_NAME} <= known
        for topic in MADE:
            make_topic(broker, topic)
            known.add(topic)
            assert topics_of(name_server) == known, topic
        assert broker.ask(DELETE_TOPIC_IN_BROKER, {"topic": MADE[0]}).code == 0
        wait_until(lambda: topics_of(name_server) == known - {MADE[0]}, "the deleted topic is gone, and no other")


def test_ringmq_name_server_takes_single_topics_of_a_stock_broker(tmp_path: Path) -> None:
    with stock_under_ringmq(tmp_path, single=True) as (namesrv, address):
        name_server, broker = RawClient(namesrv), RawClient(address)
        known = topics_of(name_server)
        assert {"TBW102", BROKER_NAME} <= known
        for topic in MADE:
            make_topic(broker, topic)
            known.add(topic)
            assert topics_of(name_server) == known, topic
