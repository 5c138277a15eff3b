"""Copies that cannot be stored: a log line names each group and the cause, and no other group waits."""

from pathlib import Path

import pytest

from ringmq.loadtest.bench.stored import make_topics
from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.revival_words import RevivalWord
from ringmq.remoting.codes import RequestCode
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient
from tests.pop.pop_words import word
from tests.pop.test_pop_broker import committed, found, send
from tests.raw_client import RawClient
from tests.staging import TOPIC_FIELDS, make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
TOPICS_MAX = 1024
PAIRS_BYTES_MAX = 32_767
SOON_MS = 30


def make_retry_topic(broker: RunningBroker, name: str, perm: int) -> None:
    fields = {"topic": f"%RETRY%{name}", "readQueueNums": 1, "writeQueueNums": 1, **TOPIC_FIELDS, "perm": perm}
    with RawClient(broker.address) as client:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0


def send_with_most_pairs(broker: RunningBroker, topic: str) -> None:
    """Send the message with the longest properties that a broker takes. A copy has one pair more."""
    with RawClient(broker.address) as client:
        for length in range(PAIRS_BYTES_MAX, PAIRS_BYTES_MAX - 400, -4):
            if client.send(topic, b"large", pairs={"P": "x" * length}).code == 0:
                return
    raise AssertionError("no message with long properties was taken")


def fill_topics(broker: RunningBroker) -> None:
    """Make topics until the shared table is full."""
    for number in range(TOPICS_MAX):
        try:
            make_topics(broker.port, [f"Fill{number}_{index}" for index in range(64 if number < 15 else 1)])
        except RuntimeError:
            if number >= 15:
                return
    raise AssertionError("the table of topics is never full")


def line_of(broker: RunningBroker, group: str) -> str:
    """The last log line about messages of a group that cannot come again."""
    lines = [line for line in broker.log_tail(1 << 20).splitlines() if f"group {group}: messages of topic" in line]
    return lines[-1] if lines else ""


def has_come(client: PopClient, times: int) -> bool:
    """True if a pop finds a message that has come again so often. All that are found come again soon."""
    return any(one.message.reconsume_times >= times for one in client.pop_all(invisible_ms=SOON_MS))


def test_each_waits_for_its_own_cause(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {**SMALL, "ringmqTopicsMax": TOPICS_MAX}) as broker:
        for topic in ("T", "T_large"):
            make_topic(broker.address, topic, 1)
        send(broker.address, "T", [b"a", b"b"], 1)
        send_with_most_pairs(broker, "T_large")
        clients = {name: PopClient(broker.address, name, "T") for name in ("G_fine", "G_perm", "G_table")}
        clients["G_large"] = PopClient(broker.address, "G_large", "T_large")
        make_retry_topic(broker, "G_perm_T", 4)
        make_retry_topic(broker, "G_large_T_large", 6)
        wait_until(lambda: has_come(clients["G_fine"], 1), "its topic of retries is made")
        first = found(clients["G_table"])
        fill_topics(broker)
        causes = {
            "G_perm": "topic %RETRY%G_perm_T has no permission to write",
            "G_large": "the record cannot be copied (PROPERTIES)",
            "G_table": "the table of topics is full",
        }
        held = {name: found(clients[name], invisible_ms=SOON_MS) for name in causes}
        for name, cause in causes.items():
            wait_until(lambda: cause in line_of(broker, name), f"a line tells of {name}", state=broker.log_tail)  # noqa: B023
            assert line_of(broker, name).endswith("they are tried again in 10 s")
        assert word(broker, RevivalWord.FAILED) >= len(causes)
        wait_until(lambda: has_come(clients["G_fine"], 4), "another group goes on")
        for name in ("G_large", "G_table"):
            assert clients[name].ack(held[name]).code == 0
        assert clients["G_table"].ack(first).code == 0
        wait_until(lambda: committed(broker.address, "G_table", "T", 0) == 2, "an acknowledgement still ends it")
        assert committed(broker.address, "G_large", "T_large", 0) == 1
        make_retry_topic(broker, "G_perm_T", 6)
        assert found(clients["G_perm"]).body == b"b", "the next one of its topic"
        again = found(clients["G_perm"])
        assert (again.body, again.message.reconsume_times) == (b"a", 1), "it is tried again"
        assert broker.stop() == 0
