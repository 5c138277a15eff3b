"""Records of the timer topic, as `ringmq timer show` puts them together."""

import asyncio
from typing import Any

import pytest

from ringmq.client.errors import BrokerError
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt
from ringmq.remoting.recall_handle import decode_handle
from ringmq.timer.cli.messages import (
    DELIVERED,
    DUE,
    RECALLED,
    WAITING,
    TimerFound,
    find_timers,
    only_waiting,
    own,
    recall,
    recall_all,
    timers_of,
)

OUT_MS = 1_800_000_000_000


def record(offset: int, key: str, **pairs: str) -> MessageExt:
    found = {"REAL_TOPIC": "T", "UNIQ_KEY": key, "KEYS": f"order-{key} all", "TIMER_OUT_MS": str(OUT_MS)} | pairs
    return MessageExt(
        "rmq_sys_wheel_timer", b"x", found, queue_offset=offset, born_timestamp_ms=7, store_timestamp_ms=OUT_MS - 5000
    )


def found(records: list[MessageExt], key: str) -> list[TimerFound]:
    return timers_of(records, key, "b", "h:1")


def test_a_key_names_messages_and_the_newest_record_of_each_counts() -> None:
    records = [record(0, "a"), record(2, "a", TIMER_ROLL_TIMES="1"), record(1, "b"), record(3, "c", KEYS="other")]
    assert [(one.unique_key, one.record.queue_offset) for one in found(records, "all")] == [("b", 1), ("a", 2)]
    assert [one.unique_key for one in found(records, "c")] == ["c"]
    assert found(records, "order") == []
    assert found([record(0, "a", TIMER_OUT_MS="x")], "a") == []


@pytest.mark.parametrize(
    ("pairs", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "6"}, OUT_MS + 1000), ({"TIMER_DELAY_MS": "5321"}, OUT_MS + 321),
        ({"TIMER_DELIVER_MS": str(OUT_MS + 70)}, OUT_MS + 70), ({}, OUT_MS + 1), ({"TIMER_DELAY_SEC": "?"}, OUT_MS + 1),
        ({"TIMER_DELAY_SEC": "6", "TIMER_ROLL_TIMES": "2"}, OUT_MS + 1),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELIVER_MS": str(OUT_MS + 70)}, OUT_MS + 1),
    ],
)  # fmt: skip
def test_the_time_is_that_of_the_delivery(pairs: dict[str, str], due_ms: int) -> None:
    (one,) = found([record(0, "a", **pairs)], "a")
    assert one.due_ms == due_ms
    assert [one.state(False, due_ms + late) for late in (-1, 0)] == [WAITING, DUE]
    assert one.state(True, due_ms) == DELIVERED
    assert one.row(WAITING, due_ms - 30)["dueInMs"] == 30


def test_a_delete_recalls_the_message_that_it_names() -> None:
    records = [record(0, "a"), record(1, "b"), record(2, "a", TIMER_DEL_UNIQKEY="T+a")]
    assert [one.state(False, 0) for one in found(records, "all")] == [RECALLED, WAITING]
    assert found(records, "a")[0].state(True, 0) == DELIVERED


def test_the_handle_is_that_of_the_send() -> None:
    (one,) = found([record(0, "a")], "a")
    handle = decode_handle(one.handle.encode())
    assert (handle.topic, handle.broker_name, handle.time_text, handle.uniq_key) == ("T", "b", str(OUT_MS + 1), "a")
    assert found([record(0, "", KEYS="k")], "k")[0].row(WAITING, 0)["recallHandle"] is None


def test_a_namespace_has_its_own_messages() -> None:
    both = found([record(0, "a", REAL_TOPIC="ns%T"), record(1, "b")], "all")
    assert [one.unique_key for one in own(both, "ns")] == ["a"]
    assert len(own(both, "")) == 2
    assert own(both, "ns")[0].row(WAITING, 0, "ns")["topic"] == "T"


def test_one_message_or_all_are_recalled() -> None:
    rows = [{"uniqueKey": "a"}, {"uniqueKey": "b"}]
    only_waiting(rows[:1], "k", takes_all=False)
    only_waiting(rows, "k", takes_all=True)
    with pytest.raises(ValueError, match=r"2 timer messages with key k wait: .*\(a, b\), or --all"):
        only_waiting(rows, "k", takes_all=False)
    with pytest.raises(ValueError, match="no timer message with key k waits"):
        only_waiting([], "k", takes_all=True)


class Refuses:
    """A broker that answers each request with an error."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked: list[tuple[int, dict[str, str]]] = []

    async def call(self, address: str, code: int, fields: dict[str, str], **_: Any) -> None:
        self.asked.append((code, fields))
        raise BrokerError(address, self.code, "a remark")


class Recalls(Refuses):
    """A broker that refuses all but the first `room` recalls."""

    room = 2

    async def call(self, address: str, code: int, fields: dict[str, str], **options: Any) -> None:
        if len(self.asked) >= self.room:
            await super().call(address, code, fields, **options)
        self.asked.append((code, fields))


def test_an_error_names_the_messages_that_were_recalled_before() -> None:
    client: Any = Recalls(ResponseCode.SYSTEM_BUSY)
    with pytest.raises(ValueError, match=r"a remark; recalled before: a, b$"):
        asyncio.run(recall_all(client, found([record(0, "a"), record(1, "b"), record(2, "c")], "all")))
    client = Recalls(ResponseCode.SYSTEM_BUSY)
    asyncio.run(recall_all(client, found([record(0, "a"), record(1, "b")], "all")))
    assert [fields["topic"] for _, fields in client.asked] == ["T", "T"]
    client.room = 0
    with pytest.raises(BrokerError, match=r"a remark$"):
        asyncio.run(recall_all(client, found([record(0, "a")], "all")))


def test_a_refused_recall_names_the_property() -> None:
    (one,) = found([record(0, "a")], "a")
    client: Any = Refuses(ResponseCode.NO_PERMISSION)
    with pytest.raises(ValueError, match=r"recallMessageEnable=true .*config reload \(a remark\)"):
        asyncio.run(recall(client, one))
    ((code, fields),) = client.asked
    assert code == RequestCode.RECALL_MESSAGE and fields["topic"] == "T" and fields["bname"] == "b"
    client = Refuses(ResponseCode.ILLEGAL_OPERATION)
    with pytest.raises(BrokerError, match="604: a remark"):
        asyncio.run(recall(client, one))
    client = Refuses(ResponseCode.QUERY_NOT_FOUND)
    assert asyncio.run(find_timers(client, "h:1", "b", "k")) == []
