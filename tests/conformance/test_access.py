"""Stock's mqadmin against a broker with access lists: it shows refusals and may still read. Stock has no such lists."""

from collections.abc import Callable

import pytest

from tests.conformance.servers import SMALL_FILES, Server
from tests.conformance.stock_client import StockClient


@pytest.fixture(scope="module")
def bounded(kind: str, started: Callable[..., Server]) -> Server:
    """A server whose adminAddresses does not name this host."""
    if kind != "ringmq":
        pytest.skip("lists of networks are RingMQ's")
    return started(kind, "access", settings={**SMALL_FILES, "adminAddresses": "192.0.2.1"})


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("updateTopic -c DefaultCluster -t Refused", "code 17 (UPDATE_AND_CREATE_TOPIC)"),
        ("updateBrokerConfig -b {broker} -k brokerPermission -v 4", "code 25 (UPDATE_BROKER_CONFIG)"),
        ("updateKvConfig -s n -k k -v v", "code 100 (PUT_KV_CONFIG)"),
        ("wipeWritePerm -b judged", "code 205 (WIPE_WRITE_PERM_OF_BROKER)"),
    ],
)
def test_mqadmin_prints_code_host_and_property(
    command: str, code: str, bounded: Server, stock_client: StockClient
) -> None:
    words = [*command.format(broker=bounded.broker).split(), "-n", bounded.namesrv]
    printed = stock_client.call("mqadmin", bounded.namesrv, command=words)
    assert f"{code} from host 127.0.0.1 is refused: adminAddresses does not name this host" in printed
    assert "success" not in printed


def test_reading_and_sending_stay_open(bounded: Server, stock_client: StockClient) -> None:
    for command in ("clusterList", f"brokerStatus -b {bounded.broker}", f"getBrokerConfig -b {bounded.broker}"):
        printed = stock_client.call("mqadmin", bounded.namesrv, command=[*command.split(), "-n", bounded.namesrv])
        assert "refused" not in printed, printed
    sent = stock_client.call(
        "mqadmin", bounded.namesrv, command=["sendMessage", "-t", "Open", "-p", "x", "-n", bounded.namesrv]
    )
    assert "SEND_OK" in sent
