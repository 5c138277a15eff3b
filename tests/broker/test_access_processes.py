"""`ringmq serve` with lists of networks, asked from two hosts: 127.0.0.1 and 127.0.0.2."""

import urllib.request
from collections.abc import Iterator

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.register_body import encode_register_body
from tests.broker.exporter_kit import value
from tests.raw_client import RawClient
from tests.waiting import wait_until

ADMIN = "127.0.0.2"
SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
TOPIC = {
    "topicFilterType": "SINGLE_TAG",
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "order": False,
}
KV = {"namespace": "n", "key": "k", "value": "v"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    store = tmp_path_factory.mktemp("access") / "store"
    arguments = ["--namesrv-set", "brokerAddresses=127.0.0.1;127.0.0.2", "--namesrv-set", "ringmqMaxKvEntries=3"]
    with RunningBroker(store, {**SMALL, "adminAddresses": ADMIN}, arguments=arguments) as running:
        yield running


def metrics(broker: RunningBroker) -> str:
    with urllib.request.urlopen(broker.metrics_url + "/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def test_data_is_for_every_host_and_changes_are_for_named_ones(broker: RunningBroker) -> None:
    remark = "code 17 (UPDATE_AND_CREATE_TOPIC) from host 127.0.0.1 is refused: adminAddresses does not name this host"
    remark += f" (Topic:{TOPIC['topic']})"
    with RawClient(broker.address) as other, RawClient(broker.address, source=ADMIN) as admin:
        assert other.send("Made", b"x").code == ResponseCode.SUCCESS
        for _ in range(20):
            answer = other.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
        assert other.ask(RequestCode.GET_BROKER_CONFIG, {}).code == ResponseCode.SUCCESS
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC).code == ResponseCode.SUCCESS
    assert broker.log_path.read_text().count(remark) == 1
    wait_until(
        lambda: value(metrics(broker), "ringmq_requests_refused_total", **{"class": "change admin"}) == 20,
        "the refusals in /metrics",
    )


def test_a_decision_from_loopback_is_taken(broker: RunningBroker) -> None:
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.HA_DECIDE, {"brokerId": 1, "choice": "adopt"})
        assert answer.code != ResponseCode.NO_PERMISSION


def test_the_name_server_has_the_brokers_admin_addresses_and_properties_of_its_own(broker: RunningBroker) -> None:
    with RawClient(broker.namesrv) as other, RawClient(broker.namesrv, source=ADMIN) as admin:
        answer = other.ask(RequestCode.PUT_KV_CONFIG, KV)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "adminAddresses" in (answer.remark or "")
        assert [admin.ask(RequestCode.PUT_KV_CONFIG, KV | {"key": key}).code for key in "abc"] == [0, 0, 1]
    with RawClient(broker.namesrv, source="127.0.0.3") as stranger:
        answer = stranger.ask(RequestCode.REGISTER_BROKER, {})
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "brokerAddresses does not name this host" in (answer.remark or "")


def test_another_host_of_the_same_name_and_id_is_told(broker: RunningBroker) -> None:
    table = TopicConfigTable({topic: TopicConfig(topic) for topic in ("A", "B")}, DataVersion(1))
    fields = {"brokerName": "broker-a", "brokerAddr": "127.0.0.2:1", "clusterName": "DefaultCluster", "brokerId": 0}
    with RawClient(broker.namesrv, source=ADMIN) as other:
        body = encode_register_body(table)
        assert other.ask(RequestCode.REGISTER_BROKER, fields | {"haServerAddr": "x"}, body).code == 0
        wait_until(lambda: value(metrics(broker), "ringmq_name_server_disputes_total") > 0, "the dispute in /metrics")
    line = f"broker broker-a:0 is registered at {broker.address} by host 127.0.0.1 and at 127.0.0.2:1 by host 127.0.0.2"
    wait_until(lambda: line in broker.log_path.read_text(), "the dispute's line in the log")


@pytest.mark.parametrize("server", ["broker", "name server"])
@pytest.mark.parametrize(
    ("junk", "spoken"),
    [(b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS hello")],
)
def test_junk_is_named_in_the_log(broker: RunningBroker, server: str, junk: bytes, spoken: str) -> None:
    host = "127.0.0.4" if server == "broker" else "127.0.0.5"
    with RawClient(broker.address if server == "broker" else broker.namesrv, source=host) as client:
        client.send_bytes(junk)
        assert client.receive() is None
    line = f"junk from {host}: {spoken}"
    wait_until(lambda: line in broker.log_path.read_text(), line)
