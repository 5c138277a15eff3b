"""Groups that pop: more members than queues, members that die, pulls of other groups, mqadmin."""

from collections import Counter
from typing import Any

import pytest

from tests.conformance.cases import case, judged
from tests.conformance.pop_cases import LOOK_S

pytestmark = pytest.mark.usefixtures("pops")
Seen = dict[str, Any]


@judged(
    case("popMany", "PopMany", seconds=20, queues=4, members=50, dying=6, count=400, invisibleMillis=5000,
         waitSeconds=90, lookSeconds=5 + LOOK_S)
)  # fmt: skip
def test_fifty_members_share_four_queues_and_some_die(kind: str, seen: Seen) -> None:
    attempts = seen["attempts"]
    died = {body for body, members in attempts.items() if members[0].startswith("dying")}
    takers = Counter(member for members in attempts.values() for member in members)
    print(f"{kind}: {sum(takers.values())} pops of 400 messages by {len(takers)} members, {len(died)} died with")
    assert len(attempts) == seen["done"] == 400
    assert 6 <= len(died) <= 12
    for body, members in attempts.items():
        assert len(members) == (2 if body in died else 1), (body, members)
        assert members[-1].startswith("live")
    assert len(takers) > 25, "members beyond the number of queues get messages, too"
    assert seen["again"] == 0


@judged(case("popBesidePulls", "PopBesidePulls", queues=4, count=200, waitSeconds=90))
def test_pops_and_pulls_of_other_groups_see_the_same_messages(kind: str, seen: Seen) -> None:
    wanted = sorted(f"TagA {i}" for i in range(200))
    print(f"{kind}: {len(seen['popped'])} popped, {len(seen['pulled'])} pulled, {len(seen['pushed'])} pushed, "
          f"consumer offsets {seen['committed']}")  # fmt: skip
    for way in ("popped", "pulled", "pushed"):
        assert sorted(seen[way]) == wanted, way
    assert seen["committed"] == {str(queue): 50 for queue in range(4)}
    assert "consume mode[POP] popShareQueueNum[8]" in seen["setConsumeMode"]
    assert "msgPutTotalTodayNow" in seen["brokerStatus"]
