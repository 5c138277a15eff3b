"""A group goes on where another one is (314, `mqadmin cloneGroupOffset`)."""

from typing import Any

import pytest

from ringmq.broker.requests.holder_asks import QUEUES_MAX
from ringmq.broker.requests.request import Request, Slices
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.broker.fakes import START_MS, FakePlane, Harness, make_harness, peer
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


def test_the_audit_line_has_the_offsets_of_before() -> None:
    """The worker reports the new ones before it answers."""
    harness, worker = harness_with(), Worker()
    harness.broker.holders.asks = lambda: worker
    plane = harness.plane
    group_id, topic_id = plane.group_find("H"), plane.topic_find("U")
    assert group_id is not None
    assert topic_id is not None
    key = (group_id, plane.slots[topic_id, 0])

    def on_ask(kind: int) -> None:
        plane.offset_put(*key, 1)

    worker.on_ask = on_ask
    harness.broker.audit.changes.clear()
    assert copy(harness, topic="U").code == 0
    (change,) = harness.broker.audit.changes
    assert (change.name, change.before, change.after) == ("U@H", {"0": 9}, {"0": 1})


def test_a_copy_that_ends_in_the_middle_of_a_topic_notes_its_first_queues() -> None:
    harness, worker = harness_with(), Worker(b"", b"no id")
    harness.make_topic("T", queues=QUEUES_MAX + 1)
    for queue_id in range(QUEUES_MAX + 1):
        harness.broker.offsets.put("G", "T", queue_id, 4, START_MS)
    harness.broker.offsets.put("H", "T", QUEUES_MAX, 9, START_MS)
    harness.broker.holders.asks = lambda: worker
    harness.broker.audit.changes.clear()
    assert copy(harness).remark == f"topic T: worker pop: no id; {QUEUES_MAX} queues are reset, no other"
    assert harness.broker.offsets.erasures_to_save == 1
    (change,) = harness.broker.audit.changes
    assert (change.before, change.after) == ({"3": 9}, {str(queue_id): 4 for queue_id in range(64)})
    assert of(harness, "T")[QUEUES_MAX] == 9


def test_each_topic_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of topics looks at no offset, either: a group may have tens of thousands."""
    harness = harness_with()
    for number in range(50):
        harness.make_topic(f"More{number}")
        harness.broker.offsets.put("G", f"More{number}", 0, 1, START_MS)
    looks, most = 0, 0

    def counted(group_id: int, queue_slot: int) -> int:
        nonlocal looks
        looks += 1
        return FakePlane.offset_get(harness.plane, group_id, queue_slot)

    monkeypatch.setattr(harness.plane, "offset_get", counted)
    fields = {"srcGroup": "G", "destGroup": "H", "topic": "", "offline": "true"}
    command = RemotingCommand.request(RequestCode.CLONE_GROUP_OFFSET, fields)
    begun = harness.handlers.begin(Request(command, peer(1), START_MS, 7, 0))
    assert isinstance(begun, Slices)
    for _ in begun.steps:
        most, looks = max(most, looks), 0
    assert 0 < most <= 8
    assert all(of(harness, f"More{number}") == {0: 1} for number in range(50))
