"""A refused request makes no topic and no group, and what a client's request makes counts as the clients'."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.control_wiring import saved_by
from ringmq.broker.requests.request import Redo, Run
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.broker.tables.persistence import Persistence
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.errors import RequestError
from ringmq.remoting.json_body import write_body
from tests.broker.fakes import START_MS, FakePlane, Harness, make_harness

CLOSED = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}
Ask = Callable[[Harness], Any]


def send(harness: Harness, topic: str, *, default: str = "TBW102", body_length: int = 1, **fields: str) -> Any:
    """A send (310). `fields`: letters of its header."""
    ext = {"a": "P", "b": topic, "c": default, "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", **fields}
    return harness.ask(RequestCode.SEND_MESSAGE_V2, ext, body_length=body_length)


def pull(harness: Harness, topic: str, *, kind: str = "TAG", **fields: str) -> Any:
    """A pull (11) of group G with an expression of its own."""
    ext = {"consumerGroup": "G", "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4"}
    ext |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "expressionType": kind}
    return harness.ask(RequestCode.PULL_MESSAGE, ext | {"subscription": "*", **fields})


def make_group(harness: Harness, group: str) -> None:
    body = write_body(SubscriptionGroupConfig(group).to_json())
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0


def entries(harness: Harness) -> tuple[set[str], set[str], int]:
    """Topics, groups, and entries of the shared table of topics."""
    broker = harness.broker
    return set(broker.topics.names()), set(broker.groups.names()), len(harness.plane.topics)


def counts(harness: Harness) -> tuple[int, int, int]:
    """Topics, queues and groups of clients."""
    names = harness.broker.client_names
    return names.topics_used, names.queues_used, names.groups_used


def test_refused_sends_to_retry_topics_leave_the_table_to_the_administrator() -> None:
    harness = make_harness(CLOSED, plane=FakePlane(topics_max=60))
    before = entries(harness)
    codes = {send(harness, f"%RETRY%x{number}", default="nonesuch").code for number in range(100)}
    assert codes == {26}
    assert entries(harness) == before
    assert counts(harness) == (0, 0, 0)
    harness.make_topic("Own")


REFUSED_SENDS: dict[str, tuple[int, Ask]] = {
    "a queue id beyond the queues": (29, lambda harness: send(harness, "New", e="9")),
    "no queue": (1, lambda harness: send(harness, "New", d="0", e="-1")),
    "too large a body": (13, lambda harness: send(harness, "New", body_length=1 << 30)),
    "too many properties": (13, lambda harness: send(harness, "New", i="k\1" + "v" * 32767)),
    "a NUL": (13, lambda harness: send(harness, "New", i="k\1v\0\2")),
    "a delay level that is none": (13, lambda harness: send(harness, "New", i="DELAY\1no\2")),
    "a batch of delayed messages": (13, lambda harness: send(harness, "New", i="DELAY\0013\2", m="true")),
    "an inner batch": (13, lambda harness: send(harness, "New", i="INNER_NUM\0013\2")),
    "a batch to a retry topic": (13, lambda harness: send(harness, "%RETRY%G", m="true")),
    "a retry with too large a body": (13, lambda harness: send(harness, "%RETRY%G", body_length=1 << 30)),
    "a retry to a queue beyond": (29, lambda harness: send(harness, "%RETRY%G", default="nonesuch", e="1")),
    "a dead letter with a NUL": (13, lambda harness: send(harness, "%RETRY%G", i="k\1v\0\2", j="17")),
}


@pytest.mark.parametrize("name", REFUSED_SENDS)
def test_a_refused_send_makes_nothing(name: str) -> None:
    harness = make_harness()
    code, ask = REFUSED_SENDS[name]
    before = entries(harness)
    answer = ask(harness)
    assert answer.code == code, answer.remark
    assert entries(harness) == before
    assert counts(harness) == (0, 0, 0)


def test_what_a_send_makes_is_the_clients_unless_an_administrators_group_has_it() -> None:
    harness = make_harness()
    make_group(harness, "Own")
    assert isinstance(send(harness, "T"), Run)
    assert counts(harness) == (1, 4, 0)
    assert isinstance(send(harness, "%RETRY%Own", default="nonesuch", j="17"), Run)
    assert counts(harness) == (1, 4, 0), "its retry topic and its dead letter topic are the administrator's"
    assert isinstance(send(harness, "%RETRY%Theirs", default="nonesuch", j="17"), Run)
    assert counts(harness) == (3, 6, 1)
    assert isinstance(send(harness, "%DLQ%NoGroup"), Run)
    assert isinstance(send(harness, "%RETRY%%DLQ%Own"), Run)
    assert counts(harness) == (5, 14, 2), "%DLQ%Own is a group of its own"


def test_a_request_without_room_for_all_its_entries_makes_none() -> None:
    harness = make_harness(plane=FakePlane(topics_max=60))
    for number in range(29):
        send(harness, f"T{number}")
    before = entries(harness)
    answer = send(harness, "%RETRY%G", default="nonesuch", j="17")  # a group and two topics, with room for one
    assert (answer.code, answer.remark) == (
        1,
        "topic %DLQ%G is not created: clients have created 29 of at most 30 topics, half of ringmqTopicsMax; "
        "an administrator can create it",
    )
    with pytest.raises(RequestError, match="%DLQ%G is not created"):
        harness.broker.retry_topics.make(RetryAsk("G", dead=True), START_MS)
    assert entries(harness) == before
    assert isinstance(send(harness, "%RETRY%G", default="nonesuch"), Run)


@pytest.mark.parametrize("table", ["topic", "queue"])
def test_a_full_shared_table_refuses_the_group_with_its_topic(table: str) -> None:
    harness = make_harness()
    tables = harness.plane.header.tables
    names = harness.broker.client_names
    setattr(tables, f"{table}_capacity", getattr(tables, f"{table}_count"))
    before = entries(harness)
    assert send(harness, "%RETRY%G", default="nonesuch").code == 1
    assert harness.join("G", {}).code == 1
    with pytest.raises(PlaneFullError, match=f"ringmq{table.title()}sMax"):
        harness.broker.retry_topics.make(RetryAsk("G"), START_MS)
    assert entries(harness) == before
    assert (names.topics_used, names.groups_used) == (0, 0)


def test_a_topic_that_stays_in_spite_of_an_error_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a topic is published, offsets of its groups may find no room."""
    harness = make_harness()

    def full(*_: object) -> None:
        raise PlaneFullError("consumer offsets: the table is full (1 entries)")

    monkeypatch.setattr(harness.broker.offsets, "on_topic_published", full)
    assert send(harness, "T").code == 1
    assert "T" in harness.broker.topics
    assert counts(harness) == (1, 4, 0)


def test_a_refused_heartbeat_makes_no_group() -> None:
    harness = make_harness()
    harness.broker.config = replace(harness.broker.config, subscriptions_max=1)
    before = entries(harness)
    assert harness.join("G", {"A": "*", "B": "*"}).code == 2
    assert entries(harness) == before
    assert harness.join("G", {"A": "*"}).code == 0
    assert counts(harness) == (1, 1, 1)


REFUSED_PULLS: dict[str, tuple[int, Ask]] = {
    "no topic": (17, lambda harness: pull(harness, "None")),
    "no such queue": (29, lambda harness: pull(harness, "T", queueId="9")),
    "no such kind of expression": (1, lambda harness: pull(harness, "T", kind="XPATH")),
    "an expression that is none": (23, lambda harness: pull(harness, "T", subscription="a >", kind="SQL92")),
}


@pytest.mark.parametrize("name", REFUSED_PULLS)
def test_a_refused_pull_makes_no_group(name: str) -> None:
    harness = make_harness({"enablePropertyFilter": "true"})
    harness.make_topic("T")
    code, ask = REFUSED_PULLS[name]
    before = entries(harness)
    answer = ask(harness)
    assert answer.code == code, answer.remark
    assert entries(harness) == before
    assert isinstance(pull(harness, "T"), (Run, Redo))
    assert counts(harness) == (0, 0, 1)


def test_a_kill_right_after_the_save_of_topics_keeps_the_clients_names(tmp_path: Path) -> None:
    harness = make_harness()
    harness.join("G", {})
    send(harness, "T")
    Persistence(tmp_path, saved_by(harness.broker)).save_tables()
    fresh = make_harness()
    for config in harness.broker.topics:
        fresh.broker.topics.put(config, START_MS)
    for group in harness.broker.groups:
        fresh.broker.groups.put(group, START_MS)
    Persistence(tmp_path, saved_by(fresh.broker)).load_client_names()
    assert counts(fresh) == counts(harness) == (2, 5, 1)


def test_a_name_that_a_kill_has_lost_is_the_administrators_when_he_makes_it(tmp_path: Path) -> None:
    harness = make_harness()
    send(harness, "T")
    Persistence(tmp_path, saved_by(harness.broker)).save_tables()
    fresh = make_harness()  # topics.json was not saved any more
    persistence = Persistence(tmp_path, saved_by(fresh.broker))
    persistence.load_client_names()
    fresh.make_topic("T")
    persistence.save_tables()
    persistence.load_client_names()
    assert counts(fresh) == (0, 0, 0)
