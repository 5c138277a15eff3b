"""What wakes members that wait: notifications, messages with a time that are popped or recalled."""

from typing import Any

import pytest

from tests.conformance.cases import case, judged

pytestmark = pytest.mark.usefixtures("pops")
Seen = dict[str, Any]
NOTICE = {"vainMillis": 1500, "pollMillis": 10_000, "pauseMillis": 1000}


@judged(case("popNotified", "PopNotified", **NOTICE))
def test_members_hear_of_messages(kind: str, seen: Seen) -> None:
    waiting = sorted((one["has"], one["millis"]) for one in seen["waiting"])
    print(f"{kind}: in vain for {seen['vain']['millis']} ms; of two that wait {waiting}")
    assert not seen["vain"]["has"]
    assert seen["vain"]["millis"] >= 1400, "it ends 50 ms before its time"
    assert [seen[name]["has"] for name in ("its queue", "another queue", "there")] == [True, False, True]
    assert max(seen[name]["millis"] for name in ("its queue", "another queue", "there")) < 10_000
    assert seen["popped"] == "TagA 0" and seen["acked"]
    assert not seen["popped already"]["has"]
    assert waiting[-1][0] and waiting[-1][1] < 9900, "the message wakes one of them"
    assert not any(one["isFull"] for one in seen["waiting"])


@judged(
    case("popToldEach", "PopToldEach", queues=4, members=5, pollMillis=15_000, pauseMillis=1000, invisibleMillis=4000,
         waitSeconds=60)
)  # fmt: skip
def test_each_member_hears_of_a_message_and_of_those_that_come_again(kind: str, seen: Seen) -> None:
    print(f"{kind}: told after {[one['millis'] for one in seen['told']]} ms")
    assert seen["beyond the last queue"] == 29
    assert all(one["has"] and one["millis"] < 14_900 for one in seen["told"]), "each is woken by a message"
    assert seen["popped"] == 5
    assert not seen["all popped"]["has"]
    assert seen["come again"]["has"]


@judged(case("popNotifiedInOrder", "PopNotifiedInOrder", **NOTICE))
def test_an_attempt_in_order_hears_of_its_own_messages(kind: str, seen: Seen) -> None:
    print(f"{kind}: {seen}")
    assert seen["waiting"]["has"] and seen["waiting"]["millis"] < 9900
    assert seen["popped"] == 1
    assert seen["the same attempt"]["has"]
    assert not seen["another attempt"]["has"]
    assert seen["another attempt"]["millis"] >= 1400
    assert seen["acked"]
    assert not seen["acknowledged"]["has"]


@judged(case("popRecalled", "PopRecalled", afterMillis=4000, waitSeconds=60, lookSeconds=3))
def test_a_message_with_a_time_is_popped_then_and_a_recalled_one_never(kind: str, seen: Seen) -> None:
    (pop,) = seen["popped"]
    late_ms = pop["seenAt"] - seen["deliverAt"]
    print(f"{kind}: {pop['body']} {late_ms} ms after its time")
    assert seen["isRecalled"]
    assert pop["body"] == "kept"
    assert pop["topic"] == "PopRecalled"
    assert late_ms >= -1000, "stock counts in seconds"
