"""Stock's consumers that pop, the same program against both brokers: acks, retries, invisible times, tags."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.cases import case, judged
from tests.conformance.pop_cases import LOOK_S, Pop, due, of_body

pytestmark = pytest.mark.usefixtures("pops")
Seen = dict[str, Any]
FROM_THE_START, FROM_THE_RETRY_TOPIC = "0", "1"
"""The mark of a receipt: the topic that holds the message."""
COUNT, ATTEMPTS, TAGGED, OF_TAG = 1000, 4, 80, 30
CHOSEN = "TagA || TagC"
REVIVED_WITHIN_MS = 20_000
"""A stock broker looks for expired messages each second, and rests up to 3 s. A machine may be busy beside that."""


def check_first_pop(pop: Pop, sent: Pop) -> None:
    """A message that is popped the first time is the sent one, at its place."""
    assert (pop["msgId"], pop["queueId"], pop["queueOffset"]) == (sent["msgId"], sent["queueId"], sent["queueOffset"])
    assert pop["reconsumeTimes"] == 0
    receipt = pop["receipt"]
    assert (receipt["retry"], receipt["brokerName"]) == (FROM_THE_START, "judged")
    assert (receipt["queueId"], receipt["queueOffset"]) == (sent["queueId"], sent["queueOffset"])
    assert pop["properties"]["1ST_POP_TIME"] == str(receipt["popTime"])


def check_come_back(pops: Sequence[Pop]) -> None:
    """Each pop of a message is later than the invisible time of the one before, and counts the attempts."""
    first = pops[0]
    for attempt, (before, pop) in enumerate(itertools.pairwise(pops), 1):
        assert pop["reconsumeTimes"] == attempt
        assert due(before) <= pop["receipt"]["popTime"] <= due(before) + REVIVED_WITHIN_MS
        assert pop["receipt"]["retry"] == FROM_THE_RETRY_TOPIC
        for field in ("topic", "msgId", "body", "bodyCRC", "bornTimestamp", "flag", "properties"):
            assert pop[field] == first[field], (field, attempt)


@judged(
    case("popAndAck", "PopAndAck", seconds=25, queues=8, count=COUNT, invisibleMillis=10_000, waitSeconds=60,
         lookSeconds=10 + LOOK_S)
)  # fmt: skip
def test_members_pop_and_acknowledge_each_message_once(kind: str, seen: Seen) -> None:
    sent = {one["body"]: one for one in seen["sent"]}
    popped = of_body(seen["popped"])
    queues = Counter(pop["queueId"] for pop in seen["popped"])
    print(f"{kind}: {len(seen['popped'])} pops of {COUNT} messages, by queue {dict(queues)}, "
          f"{seen['refused']} acks refused, {len(seen['again'])} seen again")  # fmt: skip
    assert len(sent) == COUNT
    assert popped.keys() == sent.keys()
    assert all(len(pops) == 1 for pops in popped.values()), "each message is popped once"
    assert set(queues) == set(range(8))
    for body, (pop,) in popped.items():
        check_first_pop(pop, sent[body])
        assert pop["properties"]["KEYS"] == f"key-{body.split()[1]}"
        assert pop["properties"]["TAGS"] == body.split()[0]
    assert seen["refused"] == 0
    assert seen["again"] == []


@judged(case("popOneQueue", "PopOneQueue", queues=4, count=40, queue=2, waitSeconds=60))
def test_a_queue_is_popped_by_its_number_and_in_its_order(kind: str, seen: Seen) -> None:
    places = [(pop["queueId"], pop["queueOffset"]) for pop in seen["popped"]]
    print(f"{kind}: {len(places)} pops of one queue, of {len(seen['sent'])} messages")
    assert places == [(2, offset) for offset in range(10)]


@judged(
    case("popRetries", "PopRetries", seconds=20, queues=2, count=6, attempts=ATTEMPTS, invisibleMillis=2000,
         waitSeconds=120, lookSeconds=LOOK_S)
)  # fmt: skip
def test_a_message_comes_back_until_it_is_acknowledged(kind: str, seen: Seen) -> None:
    sent = {one["body"]: one for one in seen["sent"]}
    popped = of_body(seen["popped"])
    late_ms = [
        pop["receipt"]["popTime"] - due(before)
        for pops in popped.values() for before, pop in itertools.pairwise(pops)
    ]  # fmt: skip
    print(f"{kind}: {len(seen['popped'])} pops of {len(sent)} messages, {ATTEMPTS} each; they came back "
          f"{min(late_ms)} to {max(late_ms)} ms after their time")  # fmt: skip
    assert popped.keys() == sent.keys()
    assert {len(pops) for pops in popped.values()} == {ATTEMPTS}
    for body, pops in popped.items():
        check_first_pop(pops[0], sent[body])
        check_come_back(pops)


@judged(
    case("popChanges", "PopChanges", seconds=25, invisibleMillis=6000, shorterMillis=1000, longerMillis=12_000,
         waitSeconds=60, lookSeconds=LOOK_S)
)  # fmt: skip
def test_a_changed_invisible_time_replaces_receipt_and_time(kind: str, seen: Seen) -> None:
    popped = {body.split()[0]: pops for body, pops in of_body(seen["popped"]).items()}
    changed = seen["changed"]
    since = {name: change["at"] + change["millis"] for name, change in changed.items()}
    since["same"] = due(popped["same"][0])
    late_ms = {
        name: pops[1]["receipt"]["popTime"] - since[name] for name, pops in popped.items() if len(pops) > 1
    }  # fmt: skip
    counts = {name: len(pops) for name, pops in popped.items()}
    print(f"{kind}: pops {counts}, ms after their time {late_ms}")
    assert {name: change["accepted"] for name, change in changed.items()} == dict.fromkeys(
        since.keys() - {"same"}, True
    )
    assert seen["acks"] == {"old": True, "new": True}, "an ack of a replaced receipt is answered and has no effect"
    assert counts == {"longer": 2, "shorter": 2, "same": 2, "old": 2, "new": 1}
    assert all(0 <= late <= REVIVED_WITHIN_MS for late in late_ms.values()), late_ms
    for name in late_ms:
        assert [pop["reconsumeTimes"] for pop in popped[name]] == [0, 1]


@judged(
    case("popLateAcks", "PopLateAcks", seconds=25, invisibleMillis=4000, lateMillis=200, waitSeconds=60,
         lookSeconds=LOOK_S)
)  # fmt: skip
def test_a_late_ack_counts_until_the_message_is_popped_again(kind: str, seen: Seen) -> None:
    popped = {
        body.split()[0]: [pop["reconsumeTimes"] for pop in pops] for body, pops in of_body(seen["popped"]).items()
    }
    print(f"{kind}: reconsumeTimes of the pops {popped}, acks {seen['soonAcked']}, {seen['lateAcked']}")
    assert (seen["soonAcked"], seen["lateAcked"]) == (True, True)
    assert popped["soon"] == [0], "acknowledged after its time, before anybody has popped it again"
    assert popped["late"] == [0, 1, 2], "the receipt of the first pop says nothing about the second"


@judged(
    case("popTags", "PopTags", seconds=25, queues=4, count=TAGGED, wanted={CHOSEN: TAGGED, "*": TAGGED},
         invisibleMillis=3000, waitSeconds=60, lookSeconds=LOOK_S)
)  # fmt: skip
def test_tags_choose_the_messages_of_each_attempt(kind: str, seen: Seen) -> None:
    bodies = [one["body"] for one in seen["sent"]]
    by_tags, by_all = of_body(seen[CHOSEN]), of_body(seen["*"])
    print(f"{kind}: {len(seen[CHOSEN])} pops by tags, {len(seen['*'])} of all, of {TAGGED} messages")
    assert by_tags.keys() == {body for body in bodies if body.startswith(("TagA", "TagC"))}
    assert {len(pops) for pops in by_tags.values()} == {2}, "left open once, so each came back once"
    for pops in by_tags.values():
        check_come_back(pops)
    assert by_all.keys() == set(bodies)
    assert {len(pops) for pops in by_all.values()} == {1}


@judged(
    case("popPush", "PopPush", seconds=20, queues=4, count=3 * OF_TAG, wanted=3 * OF_TAG, waitSeconds=90,
         lookSeconds=3)
)  # fmt: skip
def test_push_consumers_pop_what_their_broker_assigns(kind: str, seen: Seen) -> None:
    calls = seen["calls"]
    attempts: dict[str, list[tuple[int, bool]]] = {}
    for call in calls:
        attempts.setdefault(call["body"], []).append((call["reconsumeTimes"], call["succeeds"]))
    of_member = Counter(call["member"] for call in calls)
    print(f"{kind}: assigned after {seen['assignedAfterMillis']} ms, {len(calls)} calls, by member "
          f"{dict(of_member)}")  # fmt: skip
    assert seen["assigned"], "both members pop"
    assert all(call["isPopped"] for call in calls)
    assert all(call["msgId"] == seen["sent"][call["body"]] for call in calls)
    wanted = {"TagA": [(0, True)], "TagB": [(0, False), (1, True)]}
    assert attempts == {body: wanted[body.split()[0]] for body in seen["sent"] if not body.startswith("TagC")}
    assert len(attempts) == 2 * OF_TAG
