"""Each broker under the other's name server: routes, topics made, messages sent and consumed, and the way out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.loadtest.load.running import remove_shared_memory
from ringmq.loadtest.stock import free_broker_port, free_port, start_broker, start_namesrv
from tests.broker.test_processes import SMALL
from tests.conformance.servers import BROKER_NAME, RingmqProcess, settings_args
from tests.conformance.stock_client import StockClient
from tests.waiting import wait_until

MIXES = ("ringmq broker, stock name server", "stock broker, ringmq name server")


class Mixed:
    """A broker of one kind under a name server of the other."""

    def __init__(self, mix: str, home: Path) -> None:
        self._closers: list[Callable[[], Any]] = []
        try:
            self._start(mix, home)
        except BaseException:
            self.close()
            raise

    def _start(self, mix: str, home: Path) -> None:
        port, namesrv_port = free_broker_port(), free_port()
        self.namesrv, self.broker = f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{port}"
        if mix == MIXES[0]:
            namesrv = start_namesrv(namesrv_port, home / "namesrv")
            self._closers.append(namesrv.stop)
            options = settings_args({**SMALL, "brokerName": BROKER_NAME, "brokerIP1": "127.0.0.1"})
            places = ["--store", str(home / "store"), "--port", str(port), "--namesrv", self.namesrv]
            broker = RingmqProcess(home / "broker", "broker", *places, *options)
            self.stop_broker: Callable[[], Any] = broker.stop
            self._closers += [lambda: remove_shared_memory(home / "store"), broker.kill]
        else:
            ours = RingmqProcess(home / "namesrv", "namesrv", "--port", str(namesrv_port))
            self._closers.append(ours.stop)
            properties = {"brokerName": BROKER_NAME}
            stock = start_broker(properties, port=port, home=home / "broker", namesrv=self.namesrv)
            self.stop_broker = stock.stop
            self._closers.append(stock.kill)

    def close(self) -> None:
        """Stop all."""
        for close in reversed(self._closers):
            close()


@pytest.fixture(scope="module", params=MIXES)
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """One mix, with both servers running."""
    pair = Mixed(request.param, tmp_path_factory.mktemp("mixed"))
    yield pair
    pair.close()


def cluster(stock_client: StockClient, namesrv: str) -> str:
    printed: str = stock_client.call("mqadmin", namesrv, command=["clusterList", "-n", namesrv])
    return printed


def test_the_broker_is_listed_and_its_topics_have_routes(mixed: Mixed, stock_client: StockClient) -> None:
    wait_until(lambda: BROKER_NAME in cluster(stock_client, mixed.namesrv), "the broker is registered")
    stock_client.call("createTopic", mixed.namesrv, topic="Mixed", queues=3)
    command = ["topicRoute", "-t", "Mixed", "-l", "-n", mixed.namesrv]
    row = stock_client.call("mqadmin", mixed.namesrv, command=command).splitlines()[1].split()
    assert row == ["DefaultCluster", BROKER_NAME, f"{{0={mixed.broker}}}", "3", "3", "6"]


def test_clients_send_and_consume_as_ever(mixed: Mixed, stock_client: StockClient) -> None:
    seen = stock_client.call("clustering", mixed.namesrv, topic="MixedGroup")
    assert len(set(seen["atFirst"] + seen["atSecond"])) == 120
    assert len(seen["afterReturn"]) == 8
    topics = stock_client.call("topics", mixed.namesrv)
    assert {"Mixed", "MixedGroup", "TBW102", "DefaultCluster"} <= set(topics)


def test_a_broker_that_stops_is_gone_at_once(mixed: Mixed, stock_client: StockClient) -> None:
    mixed.stop_broker()
    assert BROKER_NAME not in cluster(stock_client, mixed.namesrv)
