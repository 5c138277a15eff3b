"""The cases of RocketMQ's own integration tests of POP: batches, big bodies, offsets set by operators, refusals."""

from typing import Any

import pytest

from tests.conformance.cases import ONE_SECOND_LEVELS, case, judged
from tests.conformance.pop_cases import LONG, LOOK_S, due, of_body

pytestmark = pytest.mark.usefixtures("pops")
MIB = 1 << 20
Seen = dict[str, Any]


@judged(
    case("popBatches", "PopBatches", seconds=30, queues=8, old=10, fresh=20, shortMillis=3000, longMillis=15_000,
         waitSeconds=60, lookSeconds=15 + LOOK_S)
)  # fmt: skip
def test_one_request_acknowledges_new_messages_and_retries(kind: str, seen: Seen) -> None:
    first, second = of_body(seen["first"]), of_body(seen["second"])
    retries = [pop for pop in seen["second"] if pop["receipt"]["retry"] == "1"]
    print(f"{kind}: {len(first)} popped and left, {len(seen['second'])} popped, {len(retries)} of them retries, "
          f"{len(seen['again'])} seen again")  # fmt: skip
    assert len(seen["first"]) == len(first) == 10
    assert len(seen["second"]) == len(second) == 30
    assert {pop["body"] for pop in retries} == first.keys()
    assert all(pop["receipt"]["popTime"] >= due(first[pop["body"]][0]) for pop in retries)
    assert seen["accepted"]
    assert seen["again"] == []


@judged(case("popCompressed", "PopCompressed", bytes=3 * MIB, invisibleMillis=2000, waitSeconds=60))
def test_a_compressed_body_comes_back_as_it_was_stored(kind: str, seen: Seen) -> None:
    popped = seen["popped"]
    print(f"{kind}: {len(popped)} pops, stored in {[pop['bodyLength'] for pop in popped]} bytes")
    assert [pop["reconsumeTimes"] for pop in popped] == [0, 1]
    for pop in popped:
        assert pop["isCompressed"] and pop["bodyLength"] < MIB
        assert (pop["wholeLength"], pop["wholeSha256"]) == (3 * MIB, seen["sha256"])
    assert popped[0]["bodySha256"] == popped[1]["bodySha256"]


@judged(case("popBig", "PopBig", queues=3, bytes=4 * MIB - 10, invisibleMillis=4000, waitSeconds=120))
def test_bodies_near_the_limit_are_popped_and_come_back(kind: str, seen: Seen) -> None:
    attempts: dict[str, list[int]] = {}
    for pop in seen["popped"]:
        key = pop["properties"]["KEYS"]
        assert pop["bodySha256"] == seen["sent"][key], key
        attempts.setdefault(key, []).append(pop["reconsumeTimes"])
    answers = [size for size in seen["answers"] if size]
    print(f"{kind}: {len(seen['popped'])} pops of {len(seen['sent'])} messages in {len(answers)} answers, "
          f"{min(answers)} to {max(answers)} bytes")  # fmt: skip
    assert attempts.keys() == seen["sent"].keys()
    assert {tuple(times) for times in attempts.values()} == {(0, 1)}


@judged(case("popForwarded", "PopForwarded", other="PopForwardedOther", waitSeconds=60))
def test_a_popped_message_that_is_sent_on_gets_a_receipt_of_its_own(kind: str, seen: Seen) -> None:
    first, second = seen["first"], seen["second"]
    print(f"{kind}: 2 pops, receipts {first['receipt']}, {second['receipt']}")
    assert first["msgId"] == second["msgId"]
    assert (first["topic"], second["topic"]) == ("PopForwarded", "PopForwardedOther")
    assert seen["differ"], "the receipt of the first pop is no property of the second message"
    assert second["receipt"]["queueOffset"] == second["queueOffset"]
    assert second["receipt"]["popTime"] >= first["receipt"]["popTime"]
    assert seen["acks"] == [True, True]


def runs_of(offsets: list[int]) -> list[list[int]]:
    """Split at each offset that does not follow the one before."""
    runs: list[list[int]] = [[]]
    for offset in offsets:
        if runs[-1] and offset != runs[-1][-1] + 1:
            runs.append([])
        runs[-1].append(offset)
    return runs


SET_OFFSETS: dict[str, dict[str, Any]] = {
    "PopResetBack": {"target": 8, "resets": [5]},
    "PopResetsBack": {"target": 8, "resets": [3, 5]},
    "PopResetOn": {"target": 2, "resets": [38]},
    "PopResetsOn": {"target": 2, "resets": [20, 38]},
}
"""The offset is behind 40 messages, or behind 10: a broker may give some more until it has seen the reset."""


@judged(
    *(
        case("popResets", name, count=40 if args["resets"][-1] > 10 else 10, most=1, acks=True, pauseMillis=100,
             waitSeconds=30, **args)
        for name, args in SET_OFFSETS.items()
    )
)  # fmt: skip
def test_pops_go_on_where_an_operator_has_set_the_offset(kind: str, case: Any, seen: Seen) -> None:
    count, target, last = case.args["count"], case.args["target"], case.args["resets"][-1]
    before, after = seen["offsets"][: last - count], seen["offsets"][last - count :]
    print(f"{kind}: {len(seen['offsets'])} pops, reset to {case.args['resets']} after {target}, "
          f"{len(before) - target} more pops until it counted")  # fmt: skip
    assert after == list(range(last, count))
    first, *others = runs_of(before)
    assert first == list(range(len(first)))
    assert target <= len(first) <= max(last, count if last < target else 0)
    # A broker that has looked between two resets has followed the earlier one, too.
    assert all(run == list(range(run[0], run[-1] + 1)) and run[0] in case.args["resets"][:-1] for run in others)


@judged(
    case("popResets", "PopResetOpen", count=10, most=32, target=10, resets=[4], acks=False, pauseMillis=20,
         waitSeconds=10),
    case("popResets", "PopResetOpenLater", count=10, most=32, target=10, resets=[4], acks=False, pauseMillis=20,
         resetPauseMillis=3000, waitSeconds=10),
    case("popResets", "PopResetOpenOnes", count=10, most=1, target=8, resets=[5], acks=False, pauseMillis=20,
         waitSeconds=10),
)  # fmt: skip
def test_a_reset_takes_open_messages_away_from_their_consumers(kind: str, case: Any, seen: Seen) -> None:
    print(f"{kind}: {len(seen['offsets'])} pops, reset to {case.args['resets']}: {seen['offsets']}")
    assert seen["offsets"] == [*range(case.args["target"]), *range(case.args["resets"][0], 10)]


@judged(case("popWaits", "PopWaits", queues=4, members=5, vainMillis=2000, pollMillis=15_000, pauseMillis=1000))
def test_pops_wait_for_messages(kind: str, seen: Seen) -> None:
    vain, found = seen["vain"], seen["found"]
    print(f"{kind}: in vain for {vain['millis']} ms, for messages {[one['millis'] for one in found]} ms")
    assert vain["bodies"] == []
    assert vain["millis"] >= 1900, "stock ends a poll 50 ms before its time"
    assert sorted(one["bodies"] for one in found) == [[f"late {number}"] for number in range(5)]
    assert all(one["millis"] < 15_000 for one in found), "each is woken by a message"


@judged(
    case("popNotifications", "PopNotifications", queues=4, members=5, vainMillis=2000, pollMillis=15_000,
         pauseMillis=1000, invisibleMillis=4000, waitSeconds=60)
)  # fmt: skip
def test_notifications_tell_of_messages_and_take_none(kind: str, seen: Seen) -> None:
    vain, told = seen["vain"], seen["told"]
    print(f"{kind}: in vain for {vain['millis']} ms, told after {[one['millis'] for one in told]} ms")
    yes, no = {"hasMsg": True, "pollingFull": False}, {"hasMsg": False, "pollingFull": False}
    assert {name: vain[name] for name in no} == no
    assert vain["millis"] >= 1900, "stock ends it 50 ms before its time"
    assert seen["before"] == no
    assert [{name: one[name] for name in yes} for one in told] == [yes] * 5
    assert all(one["millis"] < 15_000 for one in told), "each is woken by a message"
    assert seen["still there"] == yes
    assert sorted(seen["popped"]) == [f"late {number}" for number in range(5)]
    assert seen["all popped"] == seen["none of a queue"] == no
    assert seen["beyond the last queue"] == 29
    assert seen["come again"] == yes


@judged(case("popRefusals", "PopRefusals", waitSeconds=60))
def test_pops_beyond_a_limit_are_refused(kind: str, seen: Seen) -> None:
    print(f"{kind}: {len(seen)} outcomes {seen}")
    assert seen == {
        "33 messages": 29,
        "a queue beyond the last": 29,
        "a condition that is none": 23,
        "32 messages": "FOUND 32",
        "32 more": "FOUND 32",
        "the rest": "FOUND 6",
        "no more": "POLLING_NOT_FOUND 0",
    }


@judged(
    case("popThreshold", "PopThreshold", server=ONE_SECOND_LEVELS, count=100, most=8, acks=[3, 1, 8], waitSeconds=60)
)
def test_a_queue_with_more_open_messages_than_the_threshold_gives_none(kind: str, seen: Seen) -> None:
    print(f"{kind}: {seen}")
    assert (seen["first"], seen["then"]) == (8, [8, 8]), "a pop passes the threshold of 20, the next finds nothing"
    assert (seen["after 3"], seen["after 1"]) == ([], [8]), "21 are open, then 20"
    assert (seen["after 8"], seen["open"]) == ([8], 28)


@judged(
    case("popChain", "PopChain", seconds=30, rounds=2, renewals=4, invisibleMillis=4000, waitSeconds=60,
         lookSeconds=LOOK_S)
)  # fmt: skip
def test_a_message_stays_away_while_its_receipt_is_renewed(kind: str, seen: Seen) -> None:
    first, second = seen["rounds"]
    after_ms = second["receipt"]["popTime"] - first["renewedAt"]
    print(f"{kind}: {len(first['accepted']) + len(second['accepted'])} renewals, back {after_ms} ms after the last")
    for one in (first, second):
        assert one["accepted"] == [True] * 4
        assert one["early"] == 0
    assert (first["receipt"]["retry"], second["receipt"]["retry"]) == ("0", "1")
    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert after_ms >= 4000
    assert second["acked"]
    assert seen["again"] == []


@judged(
    case("popRetries", f"PopNames{LONG}", queues=1, count=3, attempts=3, invisibleMillis=2000, waitSeconds=60,
         lookSeconds=1)
)  # fmt: skip
def test_messages_of_long_names_come_back(kind: str, case: Any, seen: Seen) -> None:
    popped = of_body(seen["popped"])
    print(f"{kind}: {len(seen['popped'])} pops of 3 messages, names of {len(case.name)} and {len(case.name) + 6} bytes")
    assert len(popped) == 3
    for pops in popped.values():
        assert [pop["reconsumeTimes"] for pop in pops] == [0, 1, 2]
        assert {pop["topic"] for pop in pops} == {case.name}


def shown(topic: str, queue_id: int, offsets: range, attempt: int = 0) -> list[str]:
    """Messages of a look: place, attempt, receipt."""
    return [f"{topic} {queue_id} {offset} {attempt} null" for offset in offsets]


@judged(case("popLooks", "PopLooks", invisibleMillis=4000, waitSeconds=60))
def test_looks_show_the_next_messages_and_take_none(kind: str, seen: Seen) -> None:
    topic, retry = "PopLooks", "%RETRY%group_PopLooks_PopLooks"
    first, second = shown(topic, 0, range(5)), shown(topic, 1, range(5))
    print(f"{kind}: {len(seen)} looks, {len(seen['come again']['messages'])} messages in the last")
    assert seen == {
        "all": {"code": 0, "rest": 10, "messages": [*first, *second]},
        "all again": {"code": 0, "rest": 10, "messages": [*first, *second]},
        "popped": [0, 1, 2],
        "behind them": {"code": 0, "rest": 2, "messages": first[3:]},
        "two of a queue": {"code": 0, "rest": 5, "messages": second[:2]},
        "none": {"code": 19, "rest": 7, "messages": []},
        "a queue beyond the last": {"code": 29, "rest": 0, "messages": []},
        "an unknown topic": {"code": 17, "rest": 0, "messages": []},
        "polls": [0, 0, -29],
        "come again": {"code": 0, "rest": 10, "messages": [*shown(retry, 0, range(3), 1), *first[3:], *second]},
    }


CONDITIONS = {
    "n BETWEEN 10 AND 29": {f"body {i}" for i in range(10, 30)},
    "TAGS = 'Tag1' AND n < 80": {f"body {i}" for i in range(80) if i % 4 == 1},
    "city IS NOT NULL AND n IN ('0', '50')": {"body 0", "body 50"},
}


@judged(
    case("popConditions", "PopConditions", queues=4, count=100, invisibleMillis=4000, waitSeconds=60,
         conditions={condition: len(wanted) for condition, wanted in CONDITIONS.items()})
)  # fmt: skip
def test_conditions_choose_the_messages_of_each_attempt(kind: str, seen: Seen) -> None:
    print(f"{kind}: { ({condition: len(found) for condition, found in seen.items()}) } messages, popped twice each")
    for condition, wanted in CONDITIONS.items():
        assert seen[condition].keys() == wanted, condition
        assert set(map(tuple, seen[condition].values())) == {(0, 1)}, condition
