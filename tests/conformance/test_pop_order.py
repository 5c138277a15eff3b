"""The cases of RocketMQ's own integration tests of pops in order, and of resets beside them."""

import itertools
from typing import Any

import pytest

from tests.conformance.cases import case, judged
from tests.conformance.pop_cases import Pop, due, of_body

pytestmark = pytest.mark.usefixtures("pops")
Seen = dict[str, Any]
POLL = {"pollMillis": 10_000, "waitSeconds": 60}


def places(pops: list[Pop]) -> list[tuple[int, int]]:
    """Offset and attempt of each pop."""
    return [(pop["queueOffset"], pop["reconsumeTimes"]) for pop in pops]


@judged(case("popOrdered", "PopOrdered", count=10, most=1, invisibleMillis=30_000, laterMillis=100, **POLL))
def test_an_acknowledgement_lets_the_next_message_go(kind: str, seen: Seen) -> None:
    popped, acked_at = seen["popped"], seen["ackedAt"]
    waits_ms = [pop["seenAt"] - acked_at[before["body"]] for before, pop in itertools.pairwise(popped)]
    print(f"{kind}: {len(popped)} pops, {min(waits_ms)} to {max(waits_ms)} ms behind the acknowledgement before")
    assert places(popped) == [(offset, 0) for offset in range(10)]
    for before, pop in itertools.pairwise(popped):
        assert pop["receipt"]["popTime"] >= acked_at[before["body"]]
    assert max(waits_ms) < 10_000, "a poll that waits is woken, before its end and that of the invisible time"
    assert seen["again"] == 0


@judged(case("popOrderedOpen", "PopOrderedOpen", count=10, most=5, wanted=10, invisibleMillis=3000, **POLL))
def test_open_messages_come_again_before_those_behind_them(kind: str, seen: list[Pop]) -> None:
    first, second = seen[:5], seen[5:]
    late_ms = second[0]["receipt"]["popTime"] - max(map(due, first))
    print(f"{kind}: {len(seen)} pops of 10 messages, the first five again {late_ms} ms after their time")
    assert places(first) == [(offset, 0) for offset in range(5)]
    assert places(second) == [(offset, 1) for offset in range(5)]
    assert late_ms >= 0


@judged(
    case("popOrderedChanged", "PopOrderedChanged", count=1, most=1, invisibleMillis=1500, changedMillis=4000, **POLL)
)
def test_a_changed_time_holds_a_message_of_an_ordered_queue(kind: str, seen: Seen) -> None:
    first, second = seen["popped"]
    after_ms = second["receipt"]["popTime"] - seen["changedAt"]
    print(f"{kind}: popped again {after_ms} ms after the change")
    assert seen["accepted"] and seen["acked"]
    assert places([first, second]) == [(0, 0), (0, 1)]
    assert after_ms >= 4000
    assert seen["again"] == 0


@judged(
    case("popOrderedMiddle", "PopOrderedMiddle", count=4, most=3, wanted=6, invisibleMillis=5000, changedMillis=1500,
         **POLL)
)  # fmt: skip
def test_an_open_message_between_acknowledged_ones_brings_those_behind_again(kind: str, seen: list[Pop]) -> None:
    print(f"{kind}: offsets and attempts {places(seen)}")
    assert [pop["queueOffset"] for pop in seen] == [0, 1, 2, 1, 2, 3]
    assert [pop["reconsumeTimes"] for pop in seen] == [0, 0, 0, 1, 1, 0]


ATTEMPTS = [None, "one", "one", "two", "two", None]


@judged(
    case("popOrderedAttempts", "PopOrderedAttempts", count=1, most=3, attempts=ATTEMPTS, invisibleMillis=2000, **POLL)
)
def test_an_attempt_that_has_a_message_gets_it_again_at_once(kind: str, seen: list[Pop]) -> None:
    early_ms = [due(before) - pop["receipt"]["popTime"] for before, pop in itertools.pairwise(seen)]
    print(f"{kind}: {len(seen)} pops of one message, before the end of its time by {early_ms} ms")
    assert [pop["reconsumeTimes"] for pop in seen] == [0, 1, 1, 2, 2, 3]
    for (before, after), early in zip(itertools.pairwise(ATTEMPTS), early_ms, strict=True):
        assert (early > 0) == (before is not None and before == after)


@judged(
    case("popOrderedBatches", "PopOrderedBatches", queues=8, count=10, fresh=20, most=32, invisibleMillis=3000,
         longMillis=10_000, lookSeconds=12, **{**POLL, "pollMillis": 1000})
)  # fmt: skip
def test_one_request_acknowledges_messages_of_ordered_queues(kind: str, seen: Seen) -> None:
    first, second = of_body(seen["first"]), of_body(seen["second"])
    print(f"{kind}: {len(first)} popped and left, {len(seen['second'])} popped, {len(seen['again'])} seen again")
    assert len(seen["first"]) == len(first) == 10
    assert len(seen["second"]) == len(second) == 30
    for body, (pop,) in second.items():
        assert pop["reconsumeTimes"] == (body in first)
        assert pop["receipt"]["retry"] == "0", "it comes from its queue, not from a topic of retries"
        assert body not in first or pop["receipt"]["popTime"] >= due(first[body][0])
    assert seen["accepted"]
    assert seen["again"] == []


@judged(case("popOrderedResetOpen", "PopOrderedResetOpen", count=10, most=16, target=2, invisibleMillis=30_000, **POLL))
def test_a_reset_makes_open_receipts_of_an_ordered_queue_void(kind: str, seen: Seen) -> None:
    print(f"{kind}: {seen}")
    assert (seen["first"], seen["reset"], seen["second"]) == ([*range(10)], 2, [*range(2, 10)])
    assert (seen["old acks"], seen["open then"], seen["offset then"]) == (True, [], 2)
    assert (seen["new acks"], seen["offset"], seen["next"]) == (True, 10, [10])


@judged(case("popOrderedSkip", "PopOrderedSkip", count=10, most=16, target=4, invisibleMillis=30_000, **POLL))
def test_a_reset_before_the_first_pop_skips_messages_of_an_ordered_queue(kind: str, seen: Seen) -> None:
    print(f"{kind}: {seen}")
    assert (seen["first"], seen["open then"]) == ([*range(4, 10)], [])
    assert (seen["acks"], seen["offset"], seen["next"]) == (True, 10, [10])


ORDERED_RESETS: dict[str, tuple[int, list[int], list[int]]] = {
    "PopOrderedOn": (1, [5], [0, *range(5, 10)]),
    "PopOrderedOnTwice": (1, [3, 5], [0, *range(5, 10)]),
    "PopOrderedBack": (5, [3], [*range(5), *range(3, 10)]),
    "PopOrderedBackTwice": (5, [3, 1], [*range(5), *range(1, 10)]),
}
"""After how many messages the offset is set, to which ones, and the offsets of all pops."""


@judged(
    *(
        case("popOrderedResets", name, count=10, most=1, target=target, resets=resets, wanted=len(offsets),
             invisibleMillis=30_000, **POLL)
        for name, (target, resets, offsets) in ORDERED_RESETS.items()
    )
)  # fmt: skip
def test_pops_in_order_go_on_where_an_operator_has_set_the_offset(kind: str, case: Any, seen: list[int]) -> None:
    print(f"{kind}: reset to {case.args['resets']} after {case.args['target']}: {seen}")
    assert seen == ORDERED_RESETS[case.name][2]
