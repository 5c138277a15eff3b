"""A stock Java producer with timer messages and recalls, the same program against both brokers."""

from collections import Counter
from typing import Any

from ringmq.remoting.codes import ResponseCode
from tests.conformance.cases import case, judged

EACH = 40
BATCH = 10
AT_A_TIME = ("seconds", "millis", "at")
COPIES = {"seconds": EACH, "millis": EACH, "at": EACH, "past": EACH, "batch": BATCH}
"""A time of a batch's element is ignored by both."""
REFUSED_BY_THE_CLIENT = -1
RECALLS = {
    "twice": ResponseCode.SUCCESS,
    "unknown": ResponseCode.SUCCESS,
    "otherTopic": ResponseCode.ILLEGAL_OPERATION,
    "past": ResponseCode.ILLEGAL_OPERATION,
    "tooFar": ResponseCode.ILLEGAL_OPERATION,
    "noHandle": REFUSED_BY_THE_CLIENT,
}


def name_of(body: str) -> str:
    return body.split()[0]


def percentiles(values: list[int]) -> str:
    ordered = sorted(values)
    return ", ".join(f"p{share} {ordered[(len(ordered) - 1) * share // 100]} ms" for share in (50, 99))


@judged(case("timers", "JavaTimers", seconds=10, each=EACH, waitSeconds=90))
def test_java_producers_send_and_recall_timer_messages(kind: str, seen: dict[str, Any]) -> None:
    asked, received, recalls = seen["asked"], seen["received"], seen["recalls"]
    copies = Counter(name_of(body) for body in received)
    late_ms = [stored - asked[body] for body, times in received.items() for stored in times if asked[body]]
    codes = {name: outcome["code"] for name, outcome in recalls.items() if name != "recalled"}
    print(f"{kind}: received {dict(copies)} of {dict(COPIES)}, recalled {len(recalls['recalled'])}")
    print(f"{kind}: recalls {codes}, refused {seen['refused']}")
    print(f"{kind}: {len(late_ms)} are late by {percentiles(late_ms)}, at least {min(late_ms)} ms")
    assert not [body for body in received if name_of(body) == "recalled"], "no recalled message is delivered"
    assert copies == COPIES, "all but the recalled ones"
    assert all(len(times) == 1 for times in received.values()), "each once"
    assert len(late_ms) == len(AT_A_TIME) * EACH > 0
    assert min(late_ms) >= 0, "none early"
    assert len(recalls["recalled"]) == EACH
    assert all(outcome["code"] == 0 and outcome["msgId"] == outcome["sentId"] for outcome in recalls["recalled"])
    assert codes == RECALLS
    assert {name: outcome["code"] for name, outcome in seen["refused"].items()} == {
        "tooLong": ResponseCode.MESSAGE_ILLEGAL, "tooFar": ResponseCode.MESSAGE_ILLEGAL,
    }  # fmt: skip
