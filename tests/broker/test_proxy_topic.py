"""RocketMQ's proxy beside `adminAddresses`: the two ways of docs/access.md, by the requests of its start."""

import json
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from tests.raw_client import RawClient
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "DefaultHeartBeatSyncerTopic"
ROUTE, CREATE = 105, 17
WANTED = {
    "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "attributes": "",
}  # fmt: skip
PROXY, OPERATOR = "127.0.0.1", "127.0.0.2"


def masters(namesrv: str, topic: str) -> set[str]:
    """The masters that have a topic, as the name server tells a client."""
    with RawClient(namesrv, source=PROXY) as client:
        answer = client.ask(ROUTE, {"topic": topic})
    if answer.code != 0:
        return set()
    return {broker["brokerAddrs"]["0"] for broker in json.loads(answer.body)["brokerDatas"]}


def create(broker: RunningBroker, host: str) -> tuple[int, str]:
    with RawClient(broker.address, source=host) as client:
        answer = client.ask(CREATE, WANTED)
    return answer.code, answer.remark or ""


def lacking(broker: RunningBroker) -> set[str]:
    """The masters of the cluster on which the proxy would create its topic. It finds them by the cluster's name."""
    return masters(broker.namesrv, "DefaultCluster") - masters(broker.namesrv, TOPIC)


def test_a_topic_that_an_operator_has_made_spares_the_proxy_the_refused_request(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"adminAddresses": OPERATOR}) as broker:
        wait_until(lambda: masters(broker.namesrv, "DefaultCluster"), "the broker is registered")
        assert lacking(broker) == {broker.address}
        code, remark = create(broker, PROXY)
        assert code == 16 and "adminAddresses does not name this host" in remark
        assert create(broker, OPERATOR)[0] == 0
        wait_until(lambda: not lacking(broker), "the proxy finds its topic on every master")


def test_a_proxy_whose_host_is_named_makes_its_topic(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"adminAddresses": f"{OPERATOR};{PROXY}"}) as broker:
        assert create(broker, PROXY)[0] == 0
        wait_until(lambda: broker.address in masters(broker.namesrv, TOPIC), "the topic is announced")


@pytest.mark.parametrize("page", ["access.md", "operating.md"])
def test_the_docs_name_the_topic_where_they_name_the_list(page: str) -> None:
    assert TOPIC in (ROOT / "docs" / page).read_text()
