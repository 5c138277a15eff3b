"""Half messages at their append: stored as stock stores them, on no path of the topic that their clients named."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt, decode_messages
from tests.conformance.wire import batch_body, send_fields, shortened
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_dispatched

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
MANIFEST = Path(__file__).parents[1] / "golden" / "store-basic" / "manifest.jsonl.gz"
OF_THE_BROKER = ("MSG_REGION", "TRACE_ON", "CLUSTER", "REAL_TOPIC", "REAL_QID", "__transactionId__")
SETTINGS = {
    "mappedFileSizeCommitLog": 4 << 20,
    "brokerClusterName": "GoldCluster",
    "transactionCheckInterval": 3_600_000,
}


Halves = Callable[[], list[MessageExt]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One for all tests: each has topics of its own, and counts its own halves."""
    with RunningBroker(tmp_path_factory.mktemp("halves") / "store", SETTINGS) as running:
        yield running


@pytest.fixture
def halves(broker: RunningBroker) -> Halves:
    """The halves that are stored since the start of the test."""

    def stored() -> list[MessageExt]:
        wait_dispatched(broker.store)
        return messages_of(broker.address, HALF, 1)

    before = len(stored())
    return lambda: stored()[before:]


def send(client: RawClient, topic: str, pairs: dict[str, str], queue_id: int = 0, **more: Any) -> RemotingCommand:
    return client.ask(RequestCode.SEND_MESSAGE_V2, shortened(send_fields(topic, queue_id, pairs, **more)), b"half")


def golden_halves() -> list[dict[str, Any]]:
    """The halves of store-basic as their client sent them, before any check."""
    with gzip.open(MANIFEST, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["topic"] == HALF and "TRANSACTION_CHECK_TIMES" not in row["properties"]]


def test_halves_are_stored_as_stock_stores_them(broker: RunningBroker, halves: Halves) -> None:
    golden = golden_halves()
    assert len(golden) == 40
    make_topic(broker.address, "GoldTx", 2)
    with RawClient(broker.address) as client:
        end = client.ask(RequestCode.GET_MAX_OFFSET, {"topic": HALF, "queueId": 0}).ext_fields["offset"]
        for number, row in enumerate(golden, int(end)):
            pairs = {name: value for name, value in row["properties"].items() if name not in OF_THE_BROKER}
            queue_id = int(row["properties"]["REAL_QID"])
            answer = send(client, "GoldTx", pairs, queue_id, sysFlag=4, bornTimestamp=row["bornTimestamp"])
            assert answer.code == ResponseCode.SUCCESS
            fields = answer.ext_fields
            assert (fields["queueId"], fields["queueOffset"]) == (str(queue_id), str(number))
            assert fields["transactionId"] == pairs["UNIQ_KEY"]
    for stored, row in zip(halves(), golden, strict=True):
        own = {name: value for name, value in stored.properties.items() if name not in ("MIN_OFFSET", "MAX_OFFSET")}
        assert own == row["properties"]
        assert (stored.queue_id, stored.sys_flag, stored.flag) == (0, row["sysFlag"], row["flag"])
        assert (stored.prepared_transaction_offset, stored.reconsume_times) == (0, 0)
        assert stored.born_timestamp_ms == row["bornTimestamp"]


def test_counters_and_names_that_clients_forge_are_replaced(broker: RunningBroker, halves: Halves) -> None:
    forged = {
        "TRANSACTION_CHECK_TIMES": "99", "TRAN_PREPARED_QUEUE_OFFSET": "7", "REAL_TOPIC": "Other", "REAL_QID": "9",
        "__transactionId__": "mine", "UNIQ_KEY": "K", "TRAN_MSG": "TRUE", "PGROUP": "PG",
    }  # fmt: skip
    with RawClient(broker.address) as client:
        assert send(client, "Fresh", forged, 1).code == ResponseCode.SUCCESS, "sysFlag 0: TRAN_MSG alone decides"
    (half,) = halves()
    kept = {"REAL_TOPIC": "Fresh", "REAL_QID": "1", "__transactionId__": "K", "TRAN_MSG": "TRUE", "PGROUP": "PG"}
    assert kept.items() <= half.properties.items()
    assert not {"TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"} & half.properties.keys()


def test_a_half_is_on_no_path_of_its_topic(broker: RunningBroker) -> None:
    make_topic(broker.address, "NoPath", 1)
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "half-key", "KEYS": "order-1"}
    with RawClient(broker.address) as client:
        assert send(client, "NoPath", pairs, sysFlag=4).code == ResponseCode.SUCCESS
        wait_dispatched(broker.store)
        assert client.pull("NoPath").code == ResponseCode.PULL_NOT_FOUND
        assert client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "NoPath", "queueId": 0}).ext_fields == {"offset": "0"}
        query = {"maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 62}
        for key in ("order-1", "half-key"):
            answer = client.ask(RequestCode.QUERY_MESSAGE, query | {"topic": "NoPath", "key": key})
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            answer = client.ask(RequestCode.QUERY_MESSAGE, query | {"topic": HALF, "key": key})
            assert [message.topic for message in decode_messages(answer.body)] == [HALF], "as of stock"


@pytest.mark.parametrize("topic", [HALF, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_clients_may_not_send_to_the_topics_of_transactions(broker: RunningBroker, halves: Halves, topic: str) -> None:
    with RawClient(broker.address) as client:
        for pairs in ({}, {"TRAN_MSG": "true", "PGROUP": "PG"}):
            answer = send(client, topic, pairs)
            assert answer.code == ResponseCode.NO_PERMISSION and topic in str(answer.remark)
    assert halves() == []


def test_sends_that_can_be_no_half_are_refused(broker: RunningBroker, halves: Halves) -> None:
    half = {"TRAN_MSG": "true", "PGROUP": "PG"}
    make_topic(broker.address, "NoHalf", 1)
    with RawClient(broker.address) as client:
        for more, flag, name in (
            (half | {"DELAY": "3"}, 4, "DELAY"),
            (half | {"DELAY": "x"}, 4, "DELAY"), (half | {"UNIQ_KEY": "k" * 65}, 4, "UNIQ_KEY"), ({}, 4, "sysFlag"),
            ({"KEYS": "committed"}, 8, "sysFlag"), ({"TRAN_MSG": "false"}, 12, "sysFlag"),
        ):  # fmt: skip
            answer = send(client, "NoHalf", more, sysFlag=flag)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL and name in str(answer.remark), more
        fields = shortened(send_fields("NoHalf", 0, {}, batch="true", sysFlag=4))
        answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch_body([(b"one", half)]))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert halves() == [] and messages_of(broker.address, "NoHalf", 1) == []


def test_a_retried_message_with_a_level_is_delayed(broker: RunningBroker, halves: Halves) -> None:
    """Clients before 4.6.1 send a committed message that their consumer could not handle with its TRAN_MSG."""
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "DELAY": "1"}
    with RawClient(broker.address) as client:
        assert send(client, "Retried", pairs, sysFlag=4, reconsumeTimes=1).code == ResponseCode.SUCCESS
    wait_dispatched(broker.store)
    (waiting,) = messages_of(broker.address, "SCHEDULE_TOPIC_XXXX", 1)
    assert (waiting.sys_flag & 0xC, waiting.reconsume_times) == (0, 1)
    assert halves() == []


def test_half_messages_are_rejected_and_accepted_again_live(broker: RunningBroker) -> None:
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG"}
    with RawClient(broker.address) as client:
        for switch, code in (("true", ResponseCode.NO_PERMISSION), ("false", ResponseCode.SUCCESS)):
            changed = client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"rejectTransactionMessage={switch}".encode())
            assert changed.code == ResponseCode.SUCCESS
            answer = send(client, "Switched", pairs, sysFlag=4)
            assert answer.code == code, switch
            assert code == ResponseCode.SUCCESS or "sending transaction message is forbidden" in str(answer.remark)
            assert client.send("Switched", b"plain").code == ResponseCode.SUCCESS
