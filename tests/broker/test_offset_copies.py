"""A group goes on where another one is (314, `mqadmin cloneGroupOffset`)."""

from typing import Any

import pytest

from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode
from tests.broker.fakes import START_MS, Harness, make_harness
from tests.broker.test_holders import Worker


def harness_with(settings: dict[str, str] | None = None) -> Harness:
    """G is at 5 and 6 of T, and at 1 of U. H is at 9 of queue 3 of T, and at 9 of U."""
    harness = make_harness(settings)
    offsets = harness.broker.offsets
    for topic in ("T", "U"):
        harness.make_topic(topic)
    for group, topic, queue_id, offset in (("G", "T", 0, 5), ("G", "T", 1, 6), ("G", "U", 0, 1), ("H", "T", 3, 9)):
        offsets.put(group, topic, queue_id, offset, START_MS)
    offsets.put("H", "U", 0, 9, START_MS)
    return harness


def copy(harness: Harness, topic: str = "T", **more: str) -> Any:
    fields = {"srcGroup": "G", "destGroup": "H", "topic": topic, "offline": "false", **more}
    return harness.ask(RequestCode.CLONE_GROUP_OFFSET, fields)


def of(harness: Harness, topic: str, group: str = "H") -> dict[int, int]:
    return harness.broker.offsets.of(group, topic)


def test_the_offsets_of_a_topic_replace_those_of_another_group() -> None:
    harness = harness_with()
    assert copy(harness).code == 0
    assert (of(harness, "T"), of(harness, "U"), of(harness, "T", "G")) == ({0: 5, 1: 6}, {0: 9}, {0: 5, 1: 6})


def test_all_topics_of_the_source() -> None:
    harness = harness_with()
    assert copy(harness, topic="").code == 0
    assert (of(harness, "T"), of(harness, "U")) == ({0: 5, 1: 6}, {0: 1})


@pytest.mark.parametrize("fields", [{"topic": "Unknown"}, {"srcGroup": "Nobody"}])
def test_nothing_to_copy_changes_nothing(fields: dict[str, str]) -> None:
    harness = harness_with()
    assert copy(harness, **fields).code == 0
    assert (of(harness, "T"), of(harness, "U")) == ({3: 9}, {0: 9})


@pytest.mark.parametrize(("offline", "expected"), [("false", {3: 9}), ("true", {0: 5, 1: 6})])
def test_members_of_the_source_have_to_read_the_topic(offline: str, expected: dict[int, int]) -> None:
    harness = harness_with()
    harness.join("G", {"U": "*"})
    assert copy(harness, offline=offline).code == 0
    assert of(harness, "T") == expected


def test_refusals() -> None:
    assert copy(harness_with(), destGroup=names.TRANSACTION_GROUP).code == 16
    assert copy(harness_with(), destGroup="no group").code == 29
    answer = copy(make_harness({"brokerRole": "SLAVE", "brokerId": "1"}))
    assert (answer.code, answer.remark) == (1, "Can not clone offset in slave broker")


def test_workers_that_hold_messages_are_asked() -> None:
    harness, worker = harness_with(), Worker(b"no id")
    harness.broker.holders.asks = lambda: worker
    answer = copy(harness)
    assert (answer.code, answer.remark) == (2, "topic T: worker pop: no id; nothing has changed")
    assert of(harness, "T") == {3: 9}
    assert copy(harness).code == 0
    assert of(harness, "T") == {}, "the worker has reported them"
