"""Push consumers of groups that pop: members that join, leave and die, a crowd of them, listeners in order."""

from collections import Counter
from typing import Any

import pytest

from tests.conformance.cases import case, judged
from tests.conformance.pop_cases import LONG, LOOK_S

pytestmark = pytest.mark.usefixtures("pops")
Seen = dict[str, Any]


@judged(
    case("popShift", "PopShift", seconds=30, queues=4, share="-1", count=400, invisibleMillis=5000, pauseMillis=5,
         waitSeconds=90, lookSeconds=LOOK_S)
)  # fmt: skip
def test_members_join_leave_and_die_while_others_pull(kind: str, seen: Seen) -> None:
    bodies = sorted(f"body {number}" for number in range(400))
    calls = seen["calls"]
    again = {body: members for body, members in calls.items() if len(members) > 1}
    by_member = Counter(member for members in calls.values() for member in members)
    print(f"{kind}: {len(calls)} of 400 messages popped, {len(again)} of them again, calls by member "
          f"{dict(by_member)}; {len(seen['pulled'])} pulled, {len(seen['pushed'])} pushed")  # fmt: skip
    assert (seen["assigned"], seen["joined"], seen["died"]) == (True, True, True)
    assert set(by_member) == {"leaving", "dying", "joined"}, "all members pop, and nobody of the group pulls"
    assert sorted(calls) == bodies, "nothing is lost"
    assert again, "the message that the dead member held comes again"
    for body, members in again.items():
        assert "joined" not in members[:-1], f"{body} was acknowledged by a member that lives: {members}"
    assert all(members != ["dying"] * len(members) for body, members in again.items())
    assert sorted(seen["pulled"]) == sorted(seen["pushed"]) == bodies


@judged(
    case("popCrowd", "PopCrowd", queues=4, share="1", members=32, count=320, invisibleMillis=20_000, pauseMillis=2,
         waitSeconds=60, lookSeconds=3)
)  # fmt: skip
def test_thirty_two_members_share_four_queues(kind: str, seen: Seen) -> None:
    calls = seen["calls"]
    by_member = Counter(member for members in calls.values() for member in members)
    print(f"{kind}: {len(calls)} of 320 messages, {sum(by_member.values())} calls by {len(by_member)} members of 32")
    assert (seen["assigned"], seen["queues"]) == (True, 32)
    assert len(calls) == 320, "nothing is lost"
    assert {len(members) for members in calls.values()} == {1}, "nothing comes twice"
    assert len(by_member) > 16, "members beyond the number of queues get messages, too"


@judged(case("popModeInOrder", f"PopModeInOrder{LONG}", count=10, fails=2, waitSeconds=60, lookSeconds=1))
def test_a_listener_in_order_pulls_in_a_group_that_pops(kind: str, seen: list[Seen]) -> None:
    print(f"{kind}: {len(seen)} calls for 10 messages that fail twice")
    assert not any(call["isPopped"] for call in seen)
    assert [(call["offset"], call["times"]) for call in seen] == [
        (offset, times) for offset in range(10) for times in range(3)
    ]
